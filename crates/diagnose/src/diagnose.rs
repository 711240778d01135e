//! The order of a diagnosis: operators alone, kernels under a checking device, harm, then the whole model.

use crate::report::{Blames, Diagnosis, Fault, NotRun, SCHEMA, Stage, Watched};
use crate::shell::Reduction;
use crate::{audit, between, not_run, operators, regions};
use std::collections::{BTreeSet, HashSet};
use std::time::Instant;
use tapml_exec::{Overrides, Platform};
use tapml_graph::{Model, NodeId, Op, Result};
use tapml_migrate::report::SkippedNode;
use tapml_migrate::suite::Suite;
use tapml_migrate::{KernelChoices, Oracles, Progress, Stop, composed_suites};
use tapml_reference::WeightCache;

/// Opens the target once more, with these kernels.
pub type Reopen<'a> = dyn Fn(Overrides) -> Result<Box<dyn Platform>> + 'a;

/// What is diagnosed.
pub struct Subject<'a> {
    /// The model's recorded calls.
    pub suite: &'a Suite,
    /// The model, as [`Suite::model`] gave it.
    pub model: &'a Model,
    /// Exact results of the suite's calls; those that are known already are not computed again.
    pub oracles: &'a Oracles,
    /// The platform that the model works on.
    pub source: &'a mut dyn Platform,
    /// The platform under test.
    pub target: &'a mut dyn Platform,
    /// An emulator in checking mode with the same kernels, which adds what it sees to the evidence. Kernels that it would
    /// choose otherwise than the target are not run on it.
    pub checker: Option<&'a mut dyn Platform>,
    /// The user's kernels that the target was opened with.
    pub overrides: &'a Overrides,
    /// Opens the target once more: what the device's own functions give is measured so, where a faulty kernel calls them.
    pub reopen: Option<&'a Reopen<'a>>,
}

/// What to look for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagnoseOptions {
    /// How often a call, and the whole model, is run to compare the results bit by bit; at least 1.
    pub repeats: usize,
    /// Whether the whole model is run to find faults that no operator shows alone.
    pub between: bool,
    /// Whether what wrong values do to the logits is measured.
    pub impact: bool,
    /// Whether the checker, if there is one, runs calls of kernels that do not fail too.
    pub audit: bool,
    /// Most placements that are tried to isolate a fault between operators.
    pub trials: usize,
}

impl Default for DiagnoseOptions {
    fn default() -> DiagnoseOptions {
        DiagnoseOptions { repeats: 3, between: true, impact: true, audit: true, trials: 64 }
    }
}

/// Finds every fault of the target. Wrong values are faults in the result; an error means that there could be no diagnosis:
/// the device was lost, memory ran out, [`tapml_graph::ErrorKind::Interrupted`] after a request to stop.
pub fn diagnose(
    subject: Subject<'_>,
    options: &DiagnoseOptions,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Diagnosis> {
    let start = Instant::now();
    let composed = composed_suites(subject.suite, &*subject.target)?;
    let exact = composed.each_ref().map(|_| Oracles::new(subject.oracles.budget()));
    let mut run = DiagnosisContext::new(subject, *options, progress, stop)?;
    operators::find(&mut run)?;
    for (suite, oracles) in composed.iter().zip(&exact) {
        operators::find_lowered(&mut run, suite, oracles)?;
    }
    audit::find(&mut run)?;
    let foreign = suite_is_foreign(&run);
    let whole = if !options.between {
        None
    } else if foreign {
        regions::find(&mut run)?;
        None
    } else {
        between::find(&mut run)?
    };
    let manifest = run.suite.manifest();
    let plain = run.suite.graph().op_kinds().into_iter().map(|(op, _)| op);
    let lowered: BTreeSet<&str> = run.lowered.iter().map(|(op, _)| *op).collect();
    let ops = plain.chain(lowered);
    run.not_run.extend(not_run::unused_kernels(&run, &run.not_run));
    let clean = |op: &&str| {
        !run.faults.iter().any(|f| f.blames == Blames::Target && f.op.split('+').any(|o| o == *op))
    };
    let checked = |op: &&str| run.checked.contains(*op) && run.not_run.iter().all(|n| n.op != *op);
    Ok(Diagnosis {
        schema: SCHEMA,
        model: manifest.model.clone(),
        source: run.source.describe(),
        target: run.target.describe(),
        suite: run.suite.path().display().to_string(),
        clean_ops: ops.filter(clean).filter(checked).map(str::to_string).collect(),
        faults: run.faults,
        not_run: run.not_run,
        skipped: run.skipped,
        notes: run.notes,
        watched: run.watched,
        calls: run.calls,
        whole,
        seconds: start.elapsed().as_secs_f64(),
        stages: run.stages,
    })
}

/// Whether the operators are of others.
fn suite_is_foreign(run: &DiagnosisContext<'_>) -> bool {
    run.suite.graph().nodes().iter().any(|node| matches!(node.op, Op::Foreign(_)))
}

/// A diagnosis under way.
pub(crate) struct DiagnosisContext<'a> {
    pub suite: &'a Suite,
    pub model: &'a Model,
    pub oracles: &'a Oracles,
    pub source: &'a mut dyn Platform,
    pub target: &'a mut dyn Platform,
    pub checker: Option<&'a mut dyn Platform>,
    pub overrides: &'a Overrides,
    pub reopen: Option<&'a Reopen<'a>>,
    pub options: DiagnoseOptions,
    pub progress: &'a dyn Progress,
    pub stop: &'a Stop,
    /// The target's kernels.
    pub choices: KernelChoices,
    /// The weights in f32, converted when they are first needed.
    pub weights: WeightCache<f32>,
    /// The operators that lowering puts in, with the kernels that run them.
    pub lowered: Vec<(&'static str, String)>,
    /// Operator kinds of which every call was checked.
    pub checked: HashSet<String>,
    /// Names of nodes that do not belong on the target: faulty ones, and those that it does not serve.
    pub barred: HashSet<String>,
    pub faults: Vec<Fault>,
    pub not_run: Vec<NotRun>,
    pub skipped: Vec<SkippedNode>,
    pub notes: Vec<String>,
    pub watched: Option<Watched>,
    pub calls: u64,
    pub stages: Vec<Stage>,
}

impl<'a> DiagnosisContext<'a> {
    fn new<'s: 'a>(
        subject: Subject<'s>,
        options: DiagnoseOptions,
        progress: &'a dyn Progress,
        stop: &'a Stop,
    ) -> Result<DiagnosisContext<'a>> {
        let Subject { suite, model, oracles, source, target, checker, overrides, reopen } = subject;
        let nodes = (0..suite.graph().nodes().len() as u32).map(NodeId);
        let choices = KernelChoices::from_platform(suite.graph(), target, nodes)?;
        Ok(DiagnosisContext {
            suite,
            model,
            oracles,
            source,
            target,
            checker: match checker {
                Some(checker) => Some(checker),
                None => None,
            },
            overrides,
            reopen,
            options: DiagnoseOptions { repeats: options.repeats.max(1), ..options },
            progress,
            stop,
            choices,
            weights: WeightCache::new(),
            lowered: Vec::new(),
            checked: HashSet::new(),
            barred: HashSet::new(),
            faults: Vec::new(),
            not_run: Vec::new(),
            skipped: Vec::new(),
            notes: Vec::new(),
            watched: None,
            calls: 0,
            stages: Vec::new(),
        })
    }

    /// Does something with other calls in the place of the suite's: those of a lowered graph.
    pub fn with_suite<T>(
        &mut self,
        (suite, oracles, choices): (&'a Suite, &'a Oracles, KernelChoices),
        work: impl FnOnce(&mut DiagnosisContext<'a>) -> T,
    ) -> T {
        let own = (self.suite, self.oracles, std::mem::replace(&mut self.choices, choices));
        (self.suite, self.oracles) = (suite, oracles);
        let done = work(self);
        (self.suite, self.oracles, self.choices) = own;
        done
    }

    /// Name of a node.
    pub fn name(&self, node: NodeId) -> &'a str {
        let suite: &'a Suite = self.suite;
        &suite.graph().node(node).name
    }

    /// The command that makes a reproducer, as far as is known here; `suite` is the suite's folder.
    pub fn reduction<'s>(&'s self, suite: &'s str) -> Reduction<'s> {
        Reduction { suite, target: self.target.word(), kernels: &[], oracle: None }
    }

    /// Notes how long a stage took; a stage that comes again takes longer.
    pub fn add_time(&mut self, name: &str, start: Instant) {
        let seconds = start.elapsed().as_secs_f64();
        match self.stages.iter_mut().find(|s| s.name == name) {
            Some(stage) => stage.seconds += seconds,
            None => self.stages.push(Stage { name: name.into(), seconds }),
        }
    }
}
