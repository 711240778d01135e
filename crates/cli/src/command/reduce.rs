//! `tapml reduce`: shrink a failing node call to a standalone reproducer.

use super::common::TargetArgs;
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tapml::graph::Model;
use tapml::migrate::suite::{Case, Suite};
use tapml::migrate::{CheckOptions, Oracles, Quiet, Stop, check, composed_suites};
use tapml::model::suite_model;
use tapml::platform::Platform;
use tapml::reduce::{ReduceOptions, Reduced, Report, Reproducer, Specimen, reduce};

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
        let stop = stopping::stop_on_signal()?;
        let mut platform = self.target.open()?;
        let platform = platform.as_mut();
        let composed = composed_suites(&suite, &*platform)?;
        let Some((suite, case)) = self.case((&suite, &composed), &model, platform, &stop)? else {
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
        let kernel = platform.plan(&call.op, &call.input_types, phase)?.kernel;
        let whole = Specimen::new(call.clone());
        let path = suite.path().display().to_string();
        let report = Report::passing(path, id.clone(), kernel, platform.describe(), &whole);
        let options = ReduceOptions { limit: Duration::from_secs(self.seconds), simplify: !self.no_simplify };
        let Some(found) = reduce(call, &recorded, platform, &options, &stop)? else {
            self.json.write(&report)?;
            let (op, target) = (&report.op, platform.word());
            output::note(
                "passes",
                &format!("{id} (`{op}`) does not fail on {target}: there is nothing to reduce"),
            );
            return Ok(Outcome::Fails);
        };
        Reproducer::new(&found, &id, platform)?.write(&self.out, self.overwrite)?;
        self.json.say(&render(&found, &id, &self.out.display().to_string()))?;
        self.json.write(&report.reduced(&found, self.out.display().to_string()))?;
        // What is written holds, but is not what was asked for.
        Ok(if stop.check().is_ok() { Outcome::Holds } else { Outcome::NotRun })
    }

    /// The case asked for, or the first failing one of the operator; of the suite itself, or of its calls as the platform
    /// runs them in a lowered graph.
    fn case<'s>(
        &self,
        (suite, composed): (&'s Suite, &'s [Suite; 2]),
        model: &Model,
        platform: &mut dyn Platform,
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
        let checked = check(suite, model, platform, &Oracles::new(0), &options, &Quiet, stop)?;
        let first = checked.report.ops.iter().flat_map(|op| &op.failures).next();
        first.map(|f| find(&f.case)).transpose()
    }
}

fn render(found: &Reduced, case: &str, folder: &str) -> String {
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
    text += &format!("\n{} calls in {:.1} s\n\nreproducer: {folder}", found.trials, found.seconds);
    text + "\n  README.md, index.html (any browser with WebGPU), `cargo run` (wgpu)"
}
