//! `tapml reduce`: shrink a failing node call to a standalone reproducer.
//!
//! The call is found, made small within a time, and written in a form that runs without TapML: its kernel with data,
//! or a model for the runtime that fails.

use super::common::TargetArgs;
use crate::Outcome;
use crate::output::{self, JsonArg};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tapml::exec::Call;
use tapml::graph::{ErrorKind, Model, NodeId, Symbols, Tensor};
use tapml::jobs;
use tapml::migrate::suite::{Case, Suite};
use tapml::migrate::{CheckOptions, KernelChoices, Oracles, Stop, check, composed_suites};
use tapml::migrate::{RegionOutcome, Regions, SmallestRegion};
use tapml::model::suite_model;
use tapml::platform::{Platform, PlatformSpec};
use tapml::reduce::{
    ExportedProgram, Files, ReduceOptions, Reduced, ReductionReport, Reproducer, RuntimeReproducer, Specimen,
    reduce,
};

/// Shrink a failing node call, or a few nodes that fail only together, to a few numbers that still fail, and write them with the
/// kernel or a script as a folder that needs no TapML.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tapml reduce llama.suite --case p0.s0.model.norm --target vulkan --out bug\n  \
                        tapml reduce net.suite --nodes conv relu --target openvino --out bug\n\n\
                        Exit codes: 0 it still fails when small, and the reproducer is written; 1 it does not fail;\n\
                        2 it could not be run."
)]
pub struct ReduceCommand {
    /// Folder written by `tapml carve`
    suite: PathBuf,
    /// The failing case, as `tapml check` names it, such as `p0.s2.model.norm`
    #[arg(long, required_unless_present_any = ["op", "nodes"], conflicts_with_all = ["op", "nodes"])]
    case: Option<String>,
    /// Take the first failing case of this operator instead
    #[arg(long, conflicts_with = "nodes")]
    op: Option<String>,
    /// Nodes of operators of others that fail when the target runs them as one model, as `tapml diagnose` names them
    #[arg(long, value_name = "NODE", num_args = 1..)]
    nodes: Vec<String>,
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
    /// After so many seconds the smallest call that was found is taken
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    seconds: u64,
    /// Keep the model's own values only; do not look for simpler ones as well
    #[arg(long)]
    no_simplify: bool,
    /// The checkpoint, if it is not where it was carved from
    #[arg(long)]
    model: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

impl ReduceCommand {
    /// Finds what fails, makes it small, and writes the reproducer.
    ///
    /// # Errors
    /// If the suite has no such case or node, the target does not run it, or the folder exists and is not to be replaced.
    pub fn run(self) -> Result<Outcome> {
        let bar = Bar::at_stage("read the suite");
        let suite = Suite::open(&self.suite)?;
        let model = suite_model(&suite, self.model.as_deref())?;
        let oracles = jobs::oracles(self.oracle.as_deref())?;
        let stop = stopping::stop_on_signal()?;
        let mut platform = self.target.open_for(suite.graph())?;
        let platform = platform.as_mut();
        // Cases of fused operators are named in graphs as the platform runs them.
        let composed = composed_suites(&suite, &*platform)?;
        let of = Failing {
            suite: &suite,
            composed: &composed,
            model: &model,
            oracles: &oracles,
            stop: &stop,
            bar: &bar,
        };
        bar.stage("find what fails", 0);
        let found = if self.nodes.is_empty() {
            self.find_case(&of, platform)?
        } else {
            of.find_nodes(&self.nodes, platform)?
        };
        let Some(Subject { id, call, recorded, nodes }) = found else { return Ok(Outcome::Fails) };
        // Says at once that a platform without kernels has nothing to reproduce.
        let phase = tapml::kernels::Phase::of_run(&call.symbols);
        let (kernel, has_kernels) = match platform.plan(&call.op, &call.input_types, phase) {
            // Someone else's runtime, for which a model of the call takes the place of the kernel.
            Err(e) if e.kind() == ErrorKind::Unsupported && call.op.is_foreign() => {
                (platform.kernel_for(&call.op, &call.input_types, phase)?.name, false)
            }
            plan => (plan?.kernel, true),
        };
        let whole = Specimen::new(call.clone());
        let path = suite.path().display().to_string();
        // The report of a call that does not fail, which becomes that of a reduction below.
        let report = ReductionReport::for_passing(path, id.clone(), kernel, platform.describe(), &whole);
        let report = ReductionReport { nodes, ..report };
        let options = ReduceOptions { limit: Duration::from_secs(self.seconds), simplify: !self.no_simplify };
        bar.stage("make the call small", 0);
        let reduced = reduce(call, &recorded, platform, &oracles, &options, &stop)?;
        bar.finish();
        let Some(found) = reduced else {
            if !report.nodes.is_empty() {
                let text = format!(
                    "{} fail as one model by less than the verdict of a single call tells",
                    report.nodes.join(", ")
                );
                return Err(tapml::Error::unsupported(text).into());
            }
            self.json.write(&report)?;
            note_passing(&format!("{id} (`{}`) does not fail on {}", report.op, platform.word()));
            return Ok(Outcome::Fails);
        };
        let report = report.with_reduction(&found, self.out.display().to_string());
        let files = if has_kernels {
            Reproducer::new(&found, &id, platform)?.write(&self.out, self.overwrite)?;
            "README.md, index.html (any browser with WebGPU), `cargo run` (wgpu)".into()
        } else {
            self.write_model(&found, &id, platform, &report)?
        };
        self.json.say(&render(&found, &id, &self.out.display().to_string(), &files))?;
        self.json.write(&report)?;
        // What is written holds, but is not what was asked for.
        Ok(if stop.check().is_ok() { Outcome::Holds } else { Outcome::NotRun })
    }

    /// Writes the reproducer of a call of operators of others; gives what is in it.
    fn write_model(
        &self,
        found: &Reduced,
        case: &str,
        platform: &dyn Platform,
        report: &ReductionReport,
    ) -> Result<String> {
        // The lines run a runtime as it is installed: on another provider or device they would show nothing.
        let spec = PlatformSpec::parse(&self.target.target)?;
        let elsewhere = spec.options.iter().any(|(name, _)| name == "provider" || name == "device");
        let write = |call: &str, arrays: &Files| {
            let program = jobs::write_program(platform.word(), call, arrays)?;
            Some(if elsewhere { ExportedProgram { lines: String::new(), ..program } } else { program })
        };
        let made = RuntimeReproducer::new(found, case, &platform.describe(), &write)?;
        let contents = made.contents();
        // Which of them there are depends on the runtime.
        let written = [
            (contents.program, "module.pt2"),
            (contents.model, "model.onnx"),
            (contents.script, "`python repro.py`"),
        ];
        let written = written.iter().filter(|(is_there, _)| *is_there).map(|(_, name)| *name);
        let files = ["README.md"].into_iter().chain(written).collect::<Vec<_>>().join(", ");
        made.with_file("report.json", serde_json::to_vec_pretty(report)?).write(&self.out, self.overwrite)?;
        Ok(files)
    }

    /// The case asked for, or the first failing one of the operator; of the suite itself, or of its calls as the platform
    /// runs them in a lowered graph. `None` if none fails.
    fn find_case(&self, of: &Failing<'_>, platform: &mut dyn Platform) -> Result<Option<Subject>> {
        let id = match &self.case {
            Some(id) => id.clone(),
            None => {
                let options = CheckOptions { ops: self.op.iter().cloned().collect(), cases: Vec::new() };
                let checked = check(of.suite, of.model, platform, of.oracles, &options, of.bar, of.stop)?;
                let Some(first) = checked.report.ops.iter().flat_map(|op| &op.failures).next() else {
                    let op = self.op.as_deref().unwrap_or_default();
                    of.bar.finish();
                    note_passing(&format!("no case of `{op}` fails on {}", platform.word()));
                    return Ok(None);
                };
                // The first failure in the order of the report.
                first.case.clone()
            }
        };
        let lowered = of.composed.iter().find_map(|suite| Some((suite, suite.find_case(&id).ok()?)));
        let (suite, case) =
            lowered.map_or_else(|| Ok((of.suite, of.suite.find_case(&id)?)), Ok::<_, tapml::Error>)?;
        let (call, recorded) = suite.call(case, of.model)?;
        Ok(Some(Subject { id: suite.case_id(case), call, recorded, nodes: Vec::new() }))
    }
}

/// Says that there is nothing to reduce.
fn note_passing(why: &str) {
    output::note("passes", &format!("{why}: there is nothing to reduce"));
}

/// What is made small.
struct Subject {
    /// The case of the suite; of several nodes that of the last one.
    id: String,
    /// The call: an operator with its inputs.
    call: Call,
    /// What the source gave.
    recorded: Vec<Tensor>,
    /// The nodes that run as one model.
    nodes: Vec<String>,
}

/// Where a failing call is looked for.
struct Failing<'a> {
    /// The suite that was named.
    suite: &'a Suite,
    /// Its calls as the platform runs them, in both phases.
    composed: &'a [Suite; 2],
    /// The model, for weights that are not in the suite.
    model: &'a Model,
    /// What evaluates operators exactly.
    oracles: &'a Oracles,
    /// The user's request to stop.
    stop: &'a Stop,
    /// Where progress is shown.
    bar: &'a Bar,
}

impl Failing<'_> {
    /// The fewest of these nodes that fail when the platform runs them as one model; `None` if they do not.
    fn find_nodes(&self, names: &[String], platform: &mut dyn Platform) -> Result<Option<Subject>> {
        let graph = self.suite.graph();
        let find = |name: &String| {
            let none = || tapml::Error::invalid(format!("the suite has no node `{name}`"));
            graph.find_node(name).ok_or_else(none)
        };
        // A node that is named twice counts once.
        let asked: BTreeSet<NodeId> = names.iter().map(find).collect::<Result<_, _>>()?;
        let choices = KernelChoices::from_platform(graph, platform, asked.iter().copied())?;
        let precision = |id: NodeId, symbols: &Symbols| choices.declared_precision(id, symbols);
        let regions =
            Regions { suite: self.suite, model: self.model, oracles: self.oracles, precision: &precision };
        let SmallestRegion { failing, outcome } = regions.check_smallest(platform, &asked, self.stop)?;
        let frame = match outcome {
            RegionOutcome::NotServed(error) => return Err(error.into()),
            RegionOutcome::Passed { .. } => {
                self.bar.finish();
                let how = if failing.is_empty() { "" } else { " when they run again" };
                note_passing(&format!("these nodes do not fail as one model on {}{how}", platform.word()));
                return Ok(None);
            }
            RegionOutcome::Wrong(wrong) => wrong.judgement.frame,
            // A region that does not run fails at any frame: the first one is taken.
            RegionOutcome::Failed(_) => 0,
        };
        let last = failing.last().copied().unwrap_or(NodeId(0));
        let id = self.suite.case_id(Case { frame, node: last });
        let (call, recorded) = regions.call(&failing, frame)?;
        let nodes = failing.iter().map(|&id| graph.node(id).name.clone()).collect();
        Ok(Some(Subject { id, call, recorded, nodes }))
    }
}

/// How it fails, how small it is, and what decides whether it fails.
fn render(found: &Reduced, case: &str, folder: &str, files: &str) -> String {
    let (before, after) = (found.whole.elements(), found.smallest.elements());
    let mut text = format!(
        "{case} fails by {} ({} times the allowed error)\n{before} input elements -> {after}",
        found.failure.criterion(),
        tapml::migrate::ratio_text(found.failure.ratio()),
    );
    text += if found.minimal {
        ", a proven minimum: without any single index of any axis it no longer fails"
    } else {
        "; time ran out or it was stopped, it may get smaller still (--seconds)"
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
