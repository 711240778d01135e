//! `tapml check`: replay a suite's node calls on a target, each alone, and judge them.
//!
//! Failures are the command's result, not errors: the report is printed and written, and exit code 1 tells of them.

mod fleet;

use super::common::{self, TargetArgs};
use crate::Outcome;
use crate::output::{self, JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use fleet::{FleetArgs, FleetCheck};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tapml::diagnose::Reduction;
use tapml::graph::Model;
use tapml::jobs;
use tapml::kernels::Overrides;
use tapml::migrate::report::{CheckReport, Failure, OpCheck, RegimeCount, Unreached, is_defect};
use tapml::migrate::suite::Suite;
use tapml::migrate::{CheckOptions, Checked, Oracles, SoFar, Stop, check, junit, ratio_text};
use tapml::model::suite_model;
use tapml::platform::{self, Platform, PlatformSpec};
use tapml::shown;

/// Replay a suite's calls on a target, each alone, and judge every output against the exact result.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml check llama.suite --target vulkan --op rms_norm --kernel rms_norm=mine.wgsl --watch\n  tapml check llama.suite --target hub/webgpu,hub/vulkan --fleet"
)]
pub struct CheckCommand {
    /// Folder written by `tapml carve`
    suite: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    /// Only this operator; may repeat
    #[arg(long)]
    op: Vec<String>,
    /// Only this case, such as `p0.s2.model.norm`; may repeat
    #[arg(long)]
    case: Vec<String>,
    /// The checkpoint, if it is not where it was carved from
    #[arg(long)]
    model: Option<PathBuf>,
    /// Platform that evaluates in f64 the operators of others that TapML does not evaluate itself
    #[arg(long, value_name = "PLATFORM")]
    oracle: Option<String>,
    /// Stay, and check again whenever a --kernel file is saved
    #[arg(long, requires = "kernel")]
    watch: bool,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    reports: Reports,
}

/// What is written of a check besides what is shown.
#[derive(Args, Clone)]
struct Reports {
    /// Write JUnit XML for a CI system
    #[arg(long, value_name = "FILE", value_parser = output::writable())]
    junit: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

impl CheckCommand {
    /// Checks on one device, on a fleet, or again and again.
    ///
    /// # Errors
    /// If the suite cannot be read, or the target cannot be opened.
    pub fn run(self) -> Result<Outcome> {
        let bar = Bar::at_stage("read the suite");
        let suite = Arc::new(Suite::open(&self.suite)?);
        let model = suite_model(&suite, self.model.as_deref())?;
        drop(bar);
        let oracles = jobs::oracles(self.oracle.as_deref())?;
        let stop = stopping::stop_on_signal()?;
        if self.fleet.fleet.is_some() {
            return self.fleet.check(&FleetCheck {
                suite: &suite,
                model: &model,
                oracles: &oracles,
                target: &self.target,
                ops: &self.op,
                cases: &self.case,
                json: &self.reports.json,
                stop: &stop,
            });
        }
        if self.watch {
            return self.watch(&suite, &model, &oracles, &stop);
        }
        self.run_all(&suite, &model, self.target.open_for(suite.graph())?.as_mut(), &oracles, &stop)
    }

    /// Checks now and whenever a kernel file is saved, until the user stops it. The device stays open.
    fn watch(&self, suite: &Arc<Suite>, model: &Model, oracles: &Oracles, stop: &Stop) -> Result<Outcome> {
        let spec = PlatformSpec::parse(&self.target.target)?;
        // Opened without kernels, which change from round to round.
        let mut platform = platform::open_with_kernels(&spec, Overrides::default())?;
        let mut watcher = Watcher::new(&self.target.kernel);
        while stop.check().is_ok() {
            let start = Instant::now();
            let checked = jobs::overrides_for(&self.target.kernel, suite.graph())
                .and_then(|overrides| platform.set_overrides(overrides))
                .map_err(anyhow::Error::from)
                .and_then(|()| self.run_both(suite, model, &mut platform, oracles, stop, start));
            // What was cut off says nothing.
            if stop.check().is_err() {
                break;
            }
            let mut told = format!("checked in {} ms", start.elapsed().as_millis());
            if let Err(error) = checked {
                output::print_error(&error);
                told = "nothing was checked; waits for the next change".into();
                // Reports of the kernel before say nothing of this one.
                let files = [self.reports.json.file(), self.reports.junit.as_deref()].into_iter().flatten();
                files.filter(|file| file.is_file()).for_each(|file| drop(std::fs::remove_file(file)));
            }
            output::note("watching", &format!("{told}; Ctrl-C ends"));
            watcher.wait(stop);
        }
        // To end the watch is no verdict.
        Ok(Outcome::Holds)
    }

    /// The first prompt's calls for a quick answer, then all, unless the quick answer is no.
    fn run_both(
        &self,
        suite: &Arc<Suite>,
        model: &Model,
        platform: &mut dyn Platform,
        oracles: &Oracles,
        stop: &Stop,
        start: Instant,
    ) -> Result<Outcome> {
        // Names of cases begin with their prompt.
        let ids = suite.cases().map(|case| suite.case_id(case));
        let first: Vec<String> = ids.filter(|id| id.starts_with("p0.")).collect();
        // Whoever names cases wants those alone.
        if self.case.is_empty() && suite.manifest().prompts.len() > 1 {
            let options = CheckOptions { ops: self.op.clone(), cases: first };
            let quick = check(suite, model, platform, oracles, &options, &Bar::new(), stop)?;
            let verdict = if quick.report.passes() { "passes" } else { "FAILS" };
            let text = format!("the first prompt {verdict} after {} ms", start.elapsed().as_millis());
            output::note("watching", &text);
            if !quick.report.passes() {
                self.reports.write(&quick, suite)?;
                return Ok(Outcome::Fails);
            }
        }
        self.run_all(suite, model, platform, oracles, stop)
    }

    /// Checks everything that was asked for, and writes the reports even if it is stopped.
    fn run_all(
        &self,
        suite: &Arc<Suite>,
        model: &Model,
        platform: &mut dyn Platform,
        oracles: &Oracles,
        stop: &Stop,
    ) -> Result<Outcome> {
        // Shared with the last words, which report what was checked by then.
        let so_far = Arc::new(SoFar::new(Bar::new(), platform.describe()));
        let (last, reports, of) = (so_far.clone(), self.reports.clone(), suite.clone());
        stopping::set_last_words(move || {
            last.inner().finish();
            if let Err(error) = reports.write(&last.stop_check(&of), &of) {
                output::print_error(&error);
            }
        });
        let options = CheckOptions { ops: self.op.clone(), cases: self.case.clone() };
        let checked = check(suite, model, platform, oracles, &options, so_far.as_ref(), stop);
        let checked = stopping::or_last_words(checked);
        so_far.inner().finish();
        let checked = checked?;
        self.reports.write(&checked, suite)?;
        let used = checked.report.ops.iter().map(|op| op.kernel.as_str());
        // Whoever names operators or cases may leave a kernel out.
        let all = self.op.is_empty() && self.case.is_empty();
        let unused = common::note_unused(&self.target.kernel, used) && all;
        self.note_next(&checked.report)?;
        Ok(if checked.report.passes() && !unused { Outcome::Holds } else { Outcome::Fails })
    }
}

impl CheckCommand {
    /// Says what to do next: how the first failure is reduced, or what a kernel that passes was not checked for.
    fn note_next(&self, report: &CheckReport) -> Result<()> {
        let TargetArgs { target, kernel: kernels } = &self.target;
        if let Some(failure) = report.ops.iter().flat_map(|op| &op.failures).next() {
            let (suite, oracle) = (self.suite.display().to_string(), self.oracle.as_deref());
            let reduction = Reduction { suite: &suite, target, kernels, oracle };
            output::note("next", &reduction.of_case(&failure.case));
        } else if report.passes() && !kernels.is_empty() {
            let specs = PlatformSpec::parse_ranks(target)?;
            if specs.iter().all(|spec| spec.word == "emulator" && spec.option("check").is_none()) {
                let text = "races, bounds and memory that nobody wrote are looked for with --target 'emulator?check=all'";
                output::note("next", text);
            }
        }
        Ok(())
    }
}

impl Reports {
    /// Shows what was found, and writes the reports.
    fn write(&self, checked: &Checked, suite: &Suite) -> Result<()> {
        self.json.say(&render(&checked.report))?;
        if let Some(path) = &self.junit {
            tapml::files::write(path, junit(checked, suite)?.as_bytes())?;
        }
        self.json.write(&checked.report)
    }
}

/// The table of operators, what went wrong with each, regimes, and the totals.
///
/// `WORST` is the largest error of an element, as a multiple of the allowed one.
fn render(report: &CheckReport) -> String {
    let t = &report.target;
    let mut text = format!("{} on {} ({}, {})\n\n", report.suite, t.platform, t.device, t.driver);
    let mut rows =
        table(&["", "OP", "KERNEL", "CASES", "FAILED", "WORST", "SECONDS"]).with_optional(&["SECONDS"]);
    for op in &report.ops {
        let worst = op.worst.as_ref().map_or("-".into(), |w| ratio_text(w.ratio));
        let state = if op.unsupported.is_some() {
            "unsupported"
        } else if op.passes() {
            "ok"
        } else {
            "FAILED"
        };
        rows.add_row([
            state.to_string(),
            op.op.clone(),
            op.kernel.clone(),
            op.cases.to_string(),
            op.failed.to_string(),
            worst,
            format!("{:.2}", op.seconds),
        ]);
    }
    text += &rows.to_string();
    for op in &report.ops {
        text += &details(op);
    }
    let skipped = report.skipped.len();
    let defects = report.ops.iter().flat_map(|op| &op.findings).filter(|f| is_defect(f)).count();
    // Told only if an operator was probed.
    let probes = match report.ops.iter().map(|op| op.probes).sum::<u64>() {
        0 => String::new(),
        probes => {
            let failed: usize = report.ops.iter().map(|op| op.overflows.len()).sum();
            format!(" {probes} probes of the range, {failed} failed,")
        }
    };
    text += &regimes(&report.ops);
    if report.stopped {
        text += "\n\nstopped before all cases were run";
    }
    text += &format!(
        "\n\n{} cases, {} failed,{probes} {defects} defects found in kernels, {skipped} not checked, {:.2} s (worst: observed error / allowed error)",
        report.cases, report.failed, report.seconds
    );
    text
}

/// Regimes of kernels that calls reached, and those that none did; empty if no kernel has any.
pub fn regimes<'a>(checks: impl IntoIterator<Item = &'a OpCheck> + Clone) -> String {
    let mut text = match RegimeCount::of_checks(checks.clone()).text() {
        none if none.is_empty() => return none,
        some => format!("\n\n{some}"),
    };
    for kernel in checks.into_iter().flat_map(|check| &check.regimes) {
        for Unreached { regime, reason } in &kernel.unreached {
            text += &format!("\n  {}: {regime}: {reason}", kernel.kernel);
        }
    }
    text
}

/// What went wrong with an operator; empty if nothing did.
pub fn details(op: &OpCheck) -> String {
    let mut text = String::new();
    if let Some(reason) = &op.unsupported {
        text += &format!("\n\n{}: not supported: {}", op.op, shown::first_lines(reason));
    }
    // Failures of one operator are alike: the report has all.
    for failure in op.failures.iter().take(3) {
        text += &format!("\n\n{}{}", op.op, describe_failure(failure));
    }
    for failure in op.made_failures.iter().take(3) {
        text += &format!("\n\n{} call made of recorded values:{}", op.op, describe_failure(failure));
    }
    for beyond in op.overflows.iter().take(3) {
        text += &format!("\n\n{} probe, beyond what is recorded: {}", op.op, beyond.text());
    }
    for finding in op.findings.iter().take(5) {
        text += &shown::first_lines(&format!("\n\n{finding}\n    {}", finding.source));
    }
    text
}

/// What decided that a call failed.
/// Each criterion adds lines of its own, of which most failures have only some.
fn describe_failure(failure: &Failure) -> String {
    let mut text = format!(" {}: {}", failure.case, failure.criterion);
    if let Some(e) = &failure.element {
        text += &format!(
            "\n  worst element: output {} at {}: exact {:.8e}, found {:.8e}, allowed error {:.3e}",
            e.output, e.index, e.exact, e.observed, e.allowed
        );
    }
    if let Some(pattern) = &failure.pattern {
        text += &format!("\n  {}", pattern.text);
    }
    if let Some(chain) = &failure.one_chain {
        text += &format!("\n  {chain}");
    }
    if let Some(error) = &failure.error {
        text += &format!("\n  {}", shown::first_lines(error).replace('\n', "\n  "));
    }
    text
}

/// Waits until one of the kernel files changes, or the user stops it.
struct Watcher {
    /// Files with the time of their last change, as last seen.
    files: Vec<(PathBuf, Option<SystemTime>)>,
}

impl Watcher {
    /// Watches the files of these kernels, given as `OP=FILE`.
    fn new(kernels: &[String]) -> Watcher {
        let paths = kernels.iter().filter_map(|k| Overrides::split(k)).map(|(_, file)| PathBuf::from(file));
        Watcher { files: paths.map(|p| (p.clone(), modified_time(&p))).collect() }
    }

    /// Returns at the first change; a file that is gone for a moment, as editors do, is no change.
    fn wait(&mut self, stop: &Stop) {
        while stop.check().is_ok() {
            for (path, seen) in &mut self.files {
                let now = modified_time(path);
                if now.is_some() && now != *seen {
                    *seen = now;
                    return;
                }
            }
            // Looking is cheap, and a person waits.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// `None` if there is no such file, or no such time.
fn modified_time(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}
