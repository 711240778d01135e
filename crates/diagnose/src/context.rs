//! What is diagnosed, and what is known of it while the diagnosis is under way.
//!
//! One [`DiagnosisContext`] goes through all stages. Each adds faults, and bars the nodes of faults from later runs on the target.

use crate::report::{Blames, Fault, FaultKind, NotRun, Stage, UNKNOWN, Watched};
use crate::shell::Reduction;
use std::collections::{BTreeSet, HashSet};
use std::time::Instant;
use tapml_exec::{Overrides, Platform};
use tapml_graph::{Graph, Model, NodeId, Result};
use tapml_migrate::report::SkippedNode;
use tapml_migrate::suite::Suite;
use tapml_migrate::{KernelChoices, Oracles, Progress, Stop};
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

/// A diagnosis under way.
///
/// The first fields are those of [`Subject`], the last ones become fields of the report.
pub(crate) struct DiagnosisContext<'a> {
    pub suite: &'a Suite,
    pub model: &'a Model,
    pub oracles: &'a Oracles,
    pub source: &'a mut dyn Platform,
    pub target: &'a mut dyn Platform,
    pub checker: Option<&'a mut dyn Platform>,
    pub overrides: &'a Overrides,
    pub reopen: Option<&'a Reopen<'a>>,
    /// As given, with at least one repeat.
    pub options: DiagnoseOptions,
    /// Told of stages and of each fault when it is found.
    pub progress: &'a dyn Progress,
    /// Asked before each call and run, which may take long.
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
    /// Recorded calls that were judged so far.
    pub calls: u64,
    pub stages: Vec<Stage>,
}

impl<'a> DiagnosisContext<'a> {
    /// A diagnosis that has found nothing. It asks the target which kernel serves each node.
    ///
    /// # Errors
    ///
    /// The target's refusal to answer, as `KernelChoices::from_platform` gives it.
    pub fn new<'s: 'a>(
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
            // Written out: the lifetime of the trait object is shortened where the reference is coerced, not within an `Option`.
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
        suite: &'a Suite,
        oracles: &'a Oracles,
        choices: KernelChoices,
        work: impl FnOnce(&mut DiagnosisContext<'a>) -> T,
    ) -> T {
        // The weights and faults stay: the lowered graph is of the same model.
        let own = (self.suite, self.oracles, std::mem::replace(&mut self.choices, choices));
        (self.suite, self.oracles) = (suite, oracles);
        let done = work(self);
        (self.suite, self.oracles, self.choices) = own;
        done
    }

    /// What explanations read.
    pub fn facts(&self) -> Facts<'_> {
        Facts { graph: self.suite.graph(), choices: &self.choices, oracles: self.oracles }
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

/// What explanations read beside what was observed. Nothing can be run with it.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The graph of the suite at hand.
    pub graph: &'a Graph,
    /// The target's kernels.
    pub choices: &'a KernelChoices,
    /// Who evaluates changed calls of operators of others.
    pub oracles: &'a Oracles,
}

impl<'a> Facts<'a> {
    /// Name of a node.
    pub fn name(&self, node: NodeId) -> &'a str {
        &self.graph.node(node).name
    }
}

impl Fault {
    /// A fault of these nodes of which no more is known yet than where it shows.
    ///
    /// Operators and kernels are named once each, in alphabetical order.
    pub(crate) fn of_nodes(
        facts: Facts<'_>,
        kind: FaultKind,
        nodes: &[NodeId],
        first_bad_case: String,
    ) -> Fault {
        let ops: BTreeSet<&str> = nodes.iter().map(|&id| facts.graph.node(id).op.name()).collect();
        let kernels = nodes.iter().filter_map(|&id| Some(facts.choices.get(id).ok()?.name.as_str()));
        let join = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join("+");
        Fault {
            op: join(ops),
            kernel: join(kernels.collect()),
            nodes: nodes.iter().map(|&id| facts.name(id).to_string()).collect(),
            kind,
            blames: Blames::Target,
            rule: None,
            cause: UNKNOWN.into(),
            certain: false,
            evidence: String::new(),
            inner_operator: None,
            first_bad_case,
            worst_case: None,
            worst_ratio: 0.0,
            criterion: "the whole model".into(),
            element: None,
            pattern: String::new(),
            error_map: None,
            cases: 0,
            failed: 0,
            fit: 0.0,
            tested: Vec::new(),
            variants: Vec::new(),
            findings: Vec::new(),
            output_impact: None,
            reproduce: None,
        }
    }
}
