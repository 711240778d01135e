//! The last steps of a migration: the operators that lowering puts in, fused ones and the choice of the next token, whose
//! calls are composed of recorded ones; and the deployed program, whose every launch a checked row of the kernel list
//! explains.
//!
//! Composed operators come after all others, because they are fused only in a graph that runs on the target
//! as a whole. Like others they are decided by evidence, and what is in the ledger is not made anew.

use crate::ahead::ViewCalls;
use crate::check::Checker;
use crate::choices::KernelChoices;
use crate::composed::{composed_kinds, is_composed};
use crate::decide::{Basis, ComposedEvidence, Decision, Settled, decide_composed};
use crate::hash::Hash;
use crate::ledger::{Entry, Ledger, LedgerFolder, OpState, VERSION};
use crate::migration::{Migration, capacity};
use crate::model_check::ModelCheck;
use crate::model_run::run_model;
use crate::oracle::Oracles;
use crate::report::{Deployed, KernelCheck, LaunchCoverage, OpCheck};
use crate::suite::{Case, Suite};
use std::collections::HashSet;
use tapml_exec::{Fusing, Hybrid, HybridSide, LoadOptions, Phase, Platform};
use tapml_graph::fusion::FUSIONS;
use tapml_graph::{Graph, NodeId, Result};

/// The suite as a phase composes it, and the exact results of its calls.
type ComposedView<'a> = (&'a Suite, &'a Oracles);

impl Migration<'_> {
    /// Decides the composed operators, each on its own calls, then all that pass together by the whole model; one after the
    /// other if that fails.
    pub(crate) fn decide_composed(
        &mut self,
        folder: &LedgerFolder,
        ledger: &mut Ledger,
        composed: &[Suite; 2],
    ) -> Result<()> {
        let graph = self.suite.graph();
        let mut plain = ledger.ops.iter().filter(|e| !is_composed(graph, &e.op));
        let whole = plain.all(|e| e.state == OpState::Accepted);
        let mut passing: Vec<(usize, Hash)> = Vec::new();
        for (op, nodes) in composed_kinds(graph, composed) {
            self.stop.check()?;
            // Every composed kind was entered at the beginning.
            let Some(at) = ledger.ops.iter().position(|entry| entry.op == op) else { continue };
            ledger.ops[at].nodes = nodes as u64;
            let has = |view: &ComposedView<'_>| view.0.graph().op_kinds().iter().any(|(own, _)| *own == op);
            let suites: Vec<ComposedView<'_>> = composed.iter().zip(self.composed).filter(has).collect();
            if let Some(key) = self.composed_alone(folder, ledger, at, (&suites, whole))? {
                passing.push((at, key));
            }
        }
        if passing.is_empty() {
            return Ok(());
        }
        // All at once first: one run of the model instead of one for each.
        let all = self.composed_model(ledger, &passing)?;
        if all.passed {
            for (at, _) in &passing {
                ledger.ops[*at].enter_model(all.clone());
            }
        } else {
            self.composed_in_turn(ledger, &passing)?;
        }
        passing.iter().try_for_each(|(at, _)| self.save_decision(folder, ledger, *at))
    }

    /// Decides one such operator by its own calls in each phase that has it; its key if it passes and the model must tell.
    fn composed_alone(
        &mut self,
        folder: &LedgerFolder,
        ledger: &mut Ledger,
        at: usize,
        (suites, all_run): (&[ComposedView<'_>], bool),
    ) -> Result<Option<Hash>> {
        let op = ledger.ops[at].op.clone();
        // A phase that no run reaches shows among the launches that no check explains.
        // In each phase all nodes of the kind must have calls.
        let reached =
            |(suite, _): &&ComposedView<'_>| nodes_of(suite, &op).iter().all(|&id| suite.covers(id));
        let suites: Vec<ComposedView<'_>> = suites.iter().filter(reached).copied().collect();
        let (mut check, mut key) = (None, None);
        loop {
            let (reached, check_of) = (!suites.is_empty(), check.as_ref());
            match decide_composed(&ComposedEvidence { all_run, reached, check: check_of }) {
                Decision::Check => {
                    let own = self.composed_key(&op, &suites)?;
                    let entry = &ledger.ops[at];
                    let known = entry.check.clone().filter(|_| entry.check_key == Some(own));
                    let made = || self.check_composed(folder, ledger, at, &suites, own);
                    (check, key) = (Some(known.map_or_else(made, Ok)?), Some(own));
                }
                Decision::CheckModel(_) => return Ok(key),
                Decision::Settled(settled) => {
                    let entry = &mut ledger.ops[at];
                    if settled.basis == Basis::Nodes {
                        *entry = Entry { op, nodes: entry.nodes, ..Entry::default() };
                    }
                    settled.enter(entry);
                    return self.save_decision(folder, ledger, at).map(|()| None);
                }
            }
        }
    }

    /// What the check of a composed operator depends on.
    ///
    /// Any change of it makes the evidence void: version, device, values, kernels.
    fn composed_key(&self, op: &str, suites: &[ComposedView<'_>]) -> Result<Hash> {
        let mut text = format!("fused {VERSION} {op} {:?}\n", self.target.describe());
        for (suite, _) in suites {
            let nodes = nodes_of(suite, op);
            // Kernels of the lowered graph's nodes, which the plain graph does not have.
            let choices = KernelChoices::from_platform(suite.graph(), self.target, nodes.iter().copied())?;
            text += &format!("{}\n", suite.hash());
            for id in nodes {
                text += &format!("{} {:?}\n", suite.graph().node(id).name, choices.hash(id));
            }
        }
        Ok(Hash::compute(text.as_bytes()))
    }

    /// Checks an operator's calls in each phase, and enters what it gave.
    fn check_composed(
        &mut self,
        folder: &LedgerFolder,
        ledger: &mut Ledger,
        at: usize,
        suites: &[ComposedView<'_>],
        key: Hash,
    ) -> Result<OpCheck> {
        let op = ledger.ops[at].op.clone();
        let checks = suites.iter().map(|&view| self.check_phase(view, &op));
        let checks = checks.collect::<Result<Vec<_>>>()?;
        let check = checks.into_iter().reduce(OpCheck::and).unwrap_or_default();
        ledger.ops[at].enter_check(check.clone(), key);
        folder.save(ledger)?;
        Ok(check)
    }

    /// The check of an operator's calls of one phase.
    fn check_phase(&mut self, (suite, oracles): (&Suite, &Oracles), op: &str) -> Result<OpCheck> {
        let own = suite.cases().filter(|case| suite.graph().node(case.node).op.name() == op);
        self.progress.stage(&format!("check {op}"), own.count() as u64);
        let checker = Checker::new(suite, self.model, oracles, self.progress, self.stop);
        let check = checker.op(self.target, op)?.check;
        self.seconds.check += check.seconds;
        Ok(check)
    }

    /// The check of the whole model on the target with these composed operators.
    ///
    /// Taken from the ledger if it was made with the same ones.
    fn composed_model(&mut self, ledger: &mut Ledger, composed: &[(usize, Hash)]) -> Result<ModelCheck> {
        let keys: Vec<Hash> = composed.iter().map(|(_, key)| *key).collect();
        let text = format!("deployed {VERSION} {keys:?} {:?} {:?}", self.evidence, ledger.source);
        let key = Hash::compute(text.as_bytes());
        let known = composed.iter().all(|(at, _)| ledger.ops[*at].model_key == Some(key));
        if let Some(model) = ledger.ops[composed[0].0].model.clone().filter(|_| known) {
            return Ok(model);
        }
        let names: HashSet<String> = composed.iter().map(|(at, _)| ledger.ops[*at].op.clone()).collect();
        let found = match self.unfused_model(&names) {
            Some(found) => found,
            None => self.run_composed(ledger, names)?,
        };
        for (at, _) in composed {
            ledger.ops[*at].model_key = Some(key);
        }
        Ok(found)
    }

    /// The check of the whole model without fused operators, if none of these is fused: then the program is the same, and a
    /// device that the host's processor computes would give the same bits once more.
    fn unfused_model(&self, names: &HashSet<String>) -> Option<ModelCheck> {
        let fused = FUSIONS.iter().any(|fusion| names.contains(fusion.name));
        self.unfused.clone().filter(|_| !fused && self.target.is_software())
    }

    /// Runs the whole model on the target with these operators fused and no others, also where the target would fuse more.
    fn run_composed(&mut self, ledger: &mut Ledger, names: HashSet<String>) -> Result<ModelCheck> {
        let nodes = (0..self.model.graph().nodes().len() as u32).map(NodeId);
        let choices = KernelChoices::from_platform(self.model.graph(), self.target, nodes)?;
        let options = LoadOptions { fusing: Fusing::Only(names), ..LoadOptions::default() };
        self.progress.stage("check the deployed program", self.suite.frames().len() as u64);
        let (capacity, all) = (capacity(self.suite), |_: &tapml_graph::Node| HybridSide::Target);
        let start = std::time::Instant::now();
        let mut hybrid =
            Hybrid::with_options(self.model, self.source, self.target, &all, &capacity, options)?;
        self.seconds.compile += start.elapsed().as_secs_f64();
        let start = std::time::Instant::now();
        let run = run_model(&mut hybrid, self.suite, self.model, self.progress, self.stop)?;
        self.seconds.model += start.elapsed().as_secs_f64();
        Ok(run.judge(&self.limits(ledger, &choices)?))
    }

    /// Accepts those composed operators with which the whole model still passes.
    /// In the order of the list; one that fails is left out of the later runs.
    fn composed_in_turn(&mut self, ledger: &mut Ledger, passing: &[(usize, Hash)]) -> Result<()> {
        let mut accepted: Vec<(usize, Hash)> = Vec::new();
        for &(at, key) in passing {
            accepted.push((at, key));
            let model = self.composed_model(ledger, &accepted)?;
            ledger.ops[at].enter_model(model);
            if ledger.ops[at].state != OpState::Accepted {
                accepted.pop();
            }
        }
        Ok(())
    }
}

impl Entry {
    /// Decides by the check of the model, and enters both.
    fn enter_model(&mut self, model: ModelCheck) {
        Settled::by_model(&model).enter(self);
        self.model = Some(model);
    }
}

/// The calls of the composed operators of which the ledger has no check, in each phase.
pub(crate) fn unchecked_calls<'a>(
    ledger: &Ledger,
    graph: &Graph,
    views: impl Iterator<Item = ComposedView<'a>>,
) -> Vec<ViewCalls<'a>> {
    let unchecked = |op: &str| ledger.ops.iter().any(|entry| entry.op == op && entry.check.is_none());
    let of_view = |(suite, oracles): ComposedView<'a>| {
        let wanted = |case: &Case| {
            let op = suite.graph().node(case.node).op.name();
            is_composed(graph, op) && unchecked(op)
        };
        ViewCalls { suite, oracles, cases: suite.cases().filter(wanted).collect() }
    };
    views.map(of_view).filter(|view| !view.cases.is_empty()).collect()
}

/// The nodes of a kind in a suite's graph.
fn nodes_of(suite: &Suite, op: &str) -> Vec<NodeId> {
    let nodes = (0u32..).map(NodeId).zip(suite.graph().nodes());
    nodes.filter(|(_, node)| node.op.name() == op).map(|(id, _)| id).collect()
}

/// What the deployed program launches, each row with the check of its calls; nothing if not the whole model runs on the
/// target.
pub(crate) fn list_deployed(ledger: &Ledger, graph: &Graph, target: &dyn Platform) -> Result<Vec<Deployed>> {
    if ledger.ops.iter().any(|entry| entry.state != OpState::Accepted) {
        return Ok(Vec::new());
    }
    let checks: Vec<&OpCheck> = ledger.ops.iter().filter_map(|entry| entry.check.as_ref()).collect();
    // As greedy generation loads it.
    let options = LoadOptions { greedy: true, ..LoadOptions::default() };
    let launches = target.launches(graph, &options)?.unwrap_or_default();
    let row = |launched: tapml_exec::Launched| {
        let op = launched.row.split_once('/').map_or("", |(op, _)| op).to_string();
        // A row of the list belongs to one operator, so the first check that has it has all of its cases.
        let of_row = |check: &&OpCheck| check.kernels.iter().find(|k| k.kernel == launched.row).cloned();
        let found: Option<KernelCheck> = checks.iter().find_map(of_row);
        let (cases, failed) = found.as_ref().map_or((0, 0), |found| (found.cases, found.failed));
        Deployed {
            phase: launched.phase.name().into(),
            kernel: launched.row,
            op,
            launches: launched.launches,
            cases,
            failed,
            worst: found.map(|found| found.worst),
        }
    };
    Ok(launches.into_iter().map(row).collect())
}

/// How many of the launches a row explains whose checked calls all pass.
pub(crate) fn launch_coverage(deployed: &[Deployed]) -> LaunchCoverage {
    let mut coverage = LaunchCoverage::default();
    for row in deployed {
        let decode = row.phase == Phase::Decode.name();
        let count = if decode { &mut coverage.decode } else { &mut coverage.prefill };
        count.of += row.launches;
        count.checked += if row.cases > 0 && row.failed == 0 { row.launches } else { 0 };
    }
    coverage
}
