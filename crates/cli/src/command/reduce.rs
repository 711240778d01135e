//! `tapml reduce`: shrink a failing node call to a standalone reproducer.

use super::common::TargetArgs;
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tapml::graph::{ErrorKind, Model, Op};
use tapml::jobs;
use tapml::migrate::suite::{Case, Suite};
use tapml::migrate::{CheckOptions, Oracles, Quiet, Stop, check, composed_suites};
use tapml::model::suite_model;
use tapml::platform::{Platform, PlatformSpec};
use tapml::reduce::{OnnxReproducer, ReduceOptions, Reduced, Report, Reproducer, Specimen, reduce};

/// Shrink a failing node call to a few numbers that still fail, and write them with the kernel as a folder that needs no
/// TapML.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tapml reduce llama.suite --case p0.s0.model.norm --target vulkan --out bug\n\n\
                        Exit codes: 0 it still fails when small, and the reproducer is written; 1 it does not fail;\n\
                        2 it could not be run."
)]
pub struct ReduceCommand {
    /// Folder written by `tapml carve`
    suite: PathBuf,
    /// The failing case, as `tapml check` names it, such as `p0.s2.model.norm`
    #[arg(long, required_unless_present = "op", conflicts_with = "op")]
    case: Option<String>,
    /// Take the first failing case of this operator instead
    #[arg(long)]
    op: Option<String>,
    /// Platform that evaluates in f64 the operators of others that TapML does not evaluate itself
    #[arg(long, value_name = "PLATFORM")]
    oracle: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    /// The reproducer's folder
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace a reproducer that is there
    #[arg(long)]
    overwrite: bool,
    /// After so many seconds the smallest call so far is taken
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    seconds: u64,
    /// Keep the model's own values only; do not look for simpler ones as well
    #[arg(long)]
    no_simplify: bool,
    /// The checkpoint, if it is no longer where it was carved from
    #[arg(long)]
    model: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

impl ReduceCommand {
    pub fn run(self) -> Result<Outcome> {
        let suite = Suite::open(&self.suite)?;
        let model = suite_model(&suite, self.model.as_deref())?;
        let oracles = jobs::oracles(self.oracle.as_deref())?;
        let stop = stopping::stop_on_signal()?;
        let mut platform = self.target.open()?;
        let platform = platform.as_mut();
        let composed = composed_suites(&suite, &*platform)?;
        let Some((suite, case)) = self.case((&suite, &composed), &model, platform, &oracles, &stop)? else {
            let op = self.op.as_deref().unwrap_or_default();
            let target = platform.word();
            output::note(
                "passes",
                &format!("no case of `{op}` fails on {target}: there is nothing to reduce"),
            );
            return Ok(Outcome::Fails);
        };
        let id = suite.case_id(case);
        let (call, recorded) = suite.call(case, &model)?;
        // Says at once that a platform without kernels has nothing to reproduce.
        let phase = tapml::kernels::Phase::of_run(&call.symbols);
        let (kernel, has_kernels) = match platform.plan(&call.op, &call.input_types, phase) {
            // Someone else's runtime, for which a model of the call takes the place of the kernel.
            Err(e) if e.kind() == ErrorKind::Unsupported && matches!(call.op, Op::Foreign(_)) => {
                (platform.kernel_for(&call.op, &call.input_types, phase)?.name, false)
            }
            plan => (plan?.kernel, true),
        };
        let whole = Specimen::new(call.clone());
        let path = suite.path().display().to_string();
        let report = Report::passing(path, id.clone(), kernel, platform.describe(), &whole);
        let options = ReduceOptions { limit: Duration::from_secs(self.seconds), simplify: !self.no_simplify };
        let Some(found) = reduce(call, &recorded, platform, &oracles, &options, &stop)? else {
            self.json.write(&report)?;
            let (op, target) = (&report.op, platform.word());
            output::note(
                "passes",
                &format!("{id} (`{op}`) does not fail on {target}: there is nothing to reduce"),
            );
            return Ok(Outcome::Fails);
        };
        let report = report.reduced(&found, self.out.display().to_string());
        let files = match has_kernels {
            false => self.write_model(&found, &id, platform, &report)?,
            true => {
                Reproducer::new(&found, &id, platform)?.write(&self.out, self.overwrite)?;
                "README.md, index.html (any browser with WebGPU), `cargo run` (wgpu)"
            }
        };
        self.json.say(&render(&found, &id, &self.out.display().to_string(), files))?;
        self.json.write(&report)?;
        // What is written holds, but is not what was asked for.
        Ok(if stop.check().is_ok() { Outcome::Holds } else { Outcome::NotRun })
    }

    /// Writes the reproducer of a call of an operator of others; gives what is in it.
    fn write_model(
        &self,
        found: &Reduced,
        case: &str,
        platform: &dyn Platform,
        report: &Report,
    ) -> Result<&'static str> {
        // The lines run a runtime as it is installed: on another provider or device they would show nothing.
        let spec = PlatformSpec::parse(&self.target.target)?;
        let elsewhere = spec.options.iter().any(|(name, _)| name == "provider" || name == "device");
        let load = if elsewhere { None } else { jobs::load_lines(platform.word()) };
        let made = OnnxReproducer::new(found, case, &platform.describe(), load.as_deref())?;
        let has_script = made.has_script();
        made.with_file("report.json", serde_json::to_vec_pretty(report)?).write(&self.out, self.overwrite)?;
        Ok(if has_script { "README.md, model.onnx, `python repro.py`" } else { "README.md, model.onnx" })
    }

    /// The case asked for, or the first failing one of the operator; of the suite itself, or of its calls as the platform
    /// runs them in a lowered graph.
    fn case<'s>(
        &self,
        (suite, composed): (&'s Suite, &'s [Suite; 2]),
        model: &Model,
        platform: &mut dyn Platform,
        oracles: &Oracles,
        stop: &Stop,
    ) -> Result<Option<(&'s Suite, Case)>> {
        let find = |id: &str| {
            let lowered = composed.iter().find_map(|suite| Some((suite, suite.find_case(id).ok()?)));
            lowered.map_or_else(|| Ok((suite, suite.find_case(id)?)), Ok)
        };
        if let Some(id) = &self.case {
            return find(id).map(Some);
        }
        let options = CheckOptions { ops: self.op.iter().cloned().collect(), cases: Vec::new() };
        let checked = check(suite, model, platform, oracles, &options, &Quiet, stop)?;
        let first = checked.report.ops.iter().flat_map(|op| &op.failures).next();
        first.map(|f| find(&f.case)).transpose()
    }
}

fn render(found: &Reduced, case: &str, folder: &str, files: &str) -> String {
    let (before, after) = (found.whole.elements(), found.smallest.elements());
    let mut text = format!(
        "{case} fails by {} ({} times the allowed error)\n{before} input elements -> {after}",
        found.failure.criterion(),
        tapml::migrate::ratio_text(found.failure.ratio()),
    );
    text += match found.minimal {
        true => ", a proven minimum: without any single index of any axis it no longer fails",
        false => "; time ran out or it was stopped, it may get smaller still (--seconds)",
    };
    let s = found.stability;
    if !s.steady() {
        text += &format!("\nflaky: {} of {} runs fail", s.failed, s.runs);
    }
    if let Some(simple) = &found.simplified {
        text +=
            &format!("\n{} elements can be simpler; kept apart as the values `simplified`", simple.changed);
    }
    for rule in &found.sizes {
        text += &format!("\n{}: fails if {}", rule.axis, rule.fails);
    }
    for aspect in &found.aspects {
        text += &format!("\n{}: fails with {}", aspect.name, aspect.fails.join(", "));
        for (what, values) in [("passes", &aspect.passes), ("not served", &aspect.not_served)] {
            if !values.is_empty() {
                text += &format!("; {what}: {}", values.join(", "));
            }
        }
    }
    text += &format!("\n{} calls in {:.1} s\n\nreproducer: {folder}", found.trials, found.seconds);
    text + "\n  " + files
}
