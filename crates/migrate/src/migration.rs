//! A migration under way: gathers evidence of one operator after the other and decides by it.

use crate::ahead::Ahead;
use crate::check::Checker;
use crate::choices::KernelChoices;
use crate::decide::{Basis, Decision, Evidence, UNSEEN, decide};
use crate::hash::Hash;
use crate::ledger::{KeyedLimits, Ledger, LedgerFolder, OpState, VERSION};
use crate::model_check::ModelCheck;
use crate::model_run::run_model;
use crate::noise::MovementLimits;
use crate::oracle::Oracles;
use crate::progress::Progress;
use crate::report::{OpCheck, Seconds, SkippedNode};
use crate::stop::Stop;
use crate::suite::Suite;
use std::collections::HashSet;
use std::time::Instant;
use tapml_exec::{Accumulate, Fusing, Hybrid, HybridSide, LoadOptions, Phase, Platform};
use tapml_graph::{Context, Error, Model, Node, NodeId, Result, Symbols};

/// A migration under way.
pub(crate) struct Migration<'a> {
    pub(crate) suite: &'a Suite,
    pub(crate) model: &'a Model,
    pub(crate) oracles: &'a Oracles,
    pub(crate) source: &'a mut dyn Platform,
    pub(crate) target: &'a mut dyn Platform,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) stop: &'a Stop,
    /// Made when it is needed first, then only placed anew.
    pub(crate) hybrid: Option<Hybrid>,
    /// Nodes of accepted operators.
    pub(crate) placed: HashSet<String>,
    /// The check of the model with all of its nodes on the target, unfused, once it was made.
    pub(crate) unfused: Option<ModelCheck>,
    /// Keys of the checks of accepted operators.
    pub(crate) evidence: Vec<Hash>,
    /// Times so far.
    pub(crate) seconds: Seconds,
    /// What is computed meanwhile.
    pub(crate) ahead: Ahead,
    /// Exact results of composed operators' calls, by phase.
    pub(crate) composed: &'a [Oracles; 2],
}

impl Migration<'_> {
    /// Gathers evidence of one operator until it is decided, and saves the ledger.
    pub(crate) fn op(
        &mut self,
        folder: &LedgerFolder,
        ledger: &mut Ledger,
        at: usize,
        choices: &KernelChoices,
    ) -> Result<()> {
        let start = Instant::now();
        let op = ledger.ops[at].op.clone();
        let (nodes, skipped) = self.nodes_of(&op, choices);
        let check_key = self.check_key(&op, choices)?;
        let entry = &mut ledger.ops[at];
        entry.skipped.clone_from(&skipped);
        let mut check = entry.check.clone().filter(|_| entry.check_key == Some(check_key));
        let (mut model, mut model_key, mut placed) = (None, None, Vec::new());
        // Whether anything was run, so that old times are not replaced by the time of reading.
        let mut fresh = false;
        let settled = loop {
            let (check_of, model_of) = (check.as_ref(), model.as_ref());
            let evidence = Evidence { nodes: &nodes, skipped: &skipped, check: check_of, model: model_of };
            match decide(&evidence).context(|| format!("the hybrid model with `{op}`"))? {
                Decision::Check => {
                    fresh = true;
                    let made = self.check(&op)?;
                    ledger.ops[at].enter_check(made.clone(), check_key);
                    folder.save(ledger)?;
                    check = Some(made);
                }
                Decision::CheckModel(nodes) => {
                    let key = self.model_key(check_key, ledger)?;
                    let entry = &ledger.ops[at];
                    let known = entry.model.clone().filter(|_| entry.model_key == Some(key));
                    fresh |= known.is_none();
                    let run = || self.model_wise(ledger, &nodes, choices);
                    model = Some(known.map_or_else(run, Ok));
                    (model_key, placed) = (Some(key), nodes);
                }
                Decision::Settled(settled) => break settled,
            }
        };
        let entry = &mut ledger.ops[at];
        // Nodes with a kernel that refused a recorded call.
        let refused = check.iter().flat_map(|check| &check.skipped).filter(|node| nodes.contains(&node.node));
        entry.skipped.extend(refused.cloned());
        if settled.state == OpState::Accepted {
            self.placed.extend(placed);
            self.evidence.push(check_key);
            if self.placed.len() == self.model.graph().nodes().len() {
                self.unfused = model.as_ref().and_then(|model| model.as_ref().ok()).cloned();
            }
        } else {
            // Composed operators run only where all others do.
            self.ahead.give_up_calls();
        }
        if fresh && settled.basis == Basis::Model {
            entry.seconds = start.elapsed().as_secs_f64().max(entry.seconds);
        }
        settled.enter(entry);
        if let Some(Ok(model)) = model {
            (entry.model, entry.model_key) = (Some(model), model_key);
        }
        self.save_decision(folder, ledger, at)
    }

    /// Whether a node's operator is accepted, and the node runs on the target.
    pub(crate) fn is_placed(&self, name: &str) -> bool {
        self.placed.contains(name)
    }

    /// Names of the operator's nodes that a recorded run ran and the target has kernels for, and the others.
    fn nodes_of(&self, op: &str, choices: &KernelChoices) -> (Vec<String>, Vec<SkippedNode>) {
        let graph = self.model.graph();
        let (mut nodes, mut skipped) = (Vec::new(), Vec::new());
        for (i, node) in graph.nodes().iter().enumerate().filter(|(_, n)| n.op.name() == op) {
            let id = NodeId(i as u32);
            match choices.get(id) {
                Ok(_) if self.suite.covers(id) => nodes.push(node.name.clone()),
                Ok(_) => skipped.push(SkippedNode { node: node.name.clone(), reason: UNSEEN.into() }),
                Err(reason) => skipped.push(SkippedNode { node: node.name.clone(), reason: reason.into() }),
            }
        }
        (nodes, skipped)
    }

    /// The check of the operator's calls alone.
    fn check(&mut self, op: &str) -> Result<OpCheck> {
        let calls = self.suite.cases().filter(|c| self.suite.graph().node(c.node).op.name() == op).count();
        self.progress.stage(&format!("check {op}"), calls as u64);
        let checker = Checker::new(self.suite, self.model, self.oracles, self.progress, self.stop);
        let done = checker.op(self.target, op)?;
        self.seconds.check += done.check.seconds;
        Ok(done.check)
    }

    /// The hybrid model with all accepted nodes and these on the target.
    fn model_wise(
        &mut self,
        ledger: &mut Ledger,
        nodes: &[String],
        choices: &KernelChoices,
    ) -> Result<ModelCheck> {
        let frames = self.suite.frames().len() as u64;
        self.progress.stage("check the hybrid model", frames);
        let placed: HashSet<&str> = self.placed.iter().chain(nodes).map(String::as_str).collect();
        let side = |node: &Node| {
            if placed.contains(node.name.as_str()) { HybridSide::Target } else { HybridSide::Source }
        };
        let mut compile = 0.0;
        Timed::new(&mut compile).run(|| match &mut self.hybrid {
            Some(hybrid) => hybrid.place(self.source, self.target, &side),
            None => {
                let capacity = capacity(self.suite);
                // Operators are moved one at a time: what is fused comes after them.
                let options = LoadOptions { fusing: Fusing::Off, ..LoadOptions::default() };
                let (source, target) = (&mut *self.source, &mut *self.target);
                let hybrid = Hybrid::with_options(self.model, source, target, &side, &capacity, options);
                self.hybrid = Some(hybrid?);
                Ok(())
            }
        })?;
        self.seconds.compile += compile;
        let hybrid = self.hybrid.as_mut().ok_or_else(|| Error::bug("no hybrid model"))?;
        let run = Timed::new(&mut self.seconds.model)
            .run(|| run_model(hybrid, self.suite, self.model, self.progress, self.stop))?;
        // Not earlier: they may still be measured while the model runs.
        Ok(run.judge(&self.limits(ledger, choices)?))
    }

    /// The limits of the model-wise check, measured anew if what they depend on is another.
    ///
    /// They depend on declared precisions and not on kernels: an edited kernel of the same precision keeps
    /// them.
    pub(crate) fn limits(&mut self, ledger: &mut Ledger, choices: &KernelChoices) -> Result<MovementLimits> {
        let key = limits_key(self.suite, choices);
        if let Some(known) = ledger.limits.as_ref().filter(|l| l.key == key) {
            return Ok(known.limits.clone());
        }
        self.progress.stage("measure how far the results may move", 0);
        let precision = |node: NodeId, symbols: &Symbols| choices.declared_precision(node, symbols);
        let (ahead, stop) = (&mut self.ahead, self.stop);
        let measure = || MovementLimits::measure(self.suite, self.model, self.oracles, &precision, stop);
        let limits = Timed::new(&mut self.seconds.model)
            .run(|| ahead.take_limits(key, stop).unwrap_or_else(measure))?;
        ledger.limits = Some(KeyedLimits { key, limits: limits.clone() });
        Ok(limits)
    }

    /// What the check of an operator depends on.
    fn check_key(&self, op: &str, choices: &KernelChoices) -> Result<Hash> {
        let mut text = format!("check {VERSION} {op} {} {:?}\n", self.suite.hash(), self.target.describe());
        for (i, node) in self.model.graph().nodes().iter().enumerate().filter(|(_, n)| n.op.name() == op) {
            for phase in Phase::ALL {
                match choices.kernel_at(NodeId(i as u32), phase) {
                    Ok(c) => text += &format!("{} {} {:?}\n", node.name, c.hash, c.accumulate),
                    Err(reason) => text += &format!("{} {reason}\n", node.name),
                }
            }
        }
        Ok(Hash::compute(text.as_bytes()))
    }

    /// What the check of the hybrid model with an operator depends on.
    ///
    /// The accepted operators' evidence is part of it: a change of one makes the model checks of all later
    /// ones void.
    fn model_key(&self, check_key: Hash, ledger: &Ledger) -> Result<Hash> {
        let text = format!("model {VERSION} {check_key} {:?} {:?}", self.evidence, ledger.source);
        Ok(Hash::compute(text.as_bytes()))
    }

    /// Tells the caller and writes the ledger.
    pub(crate) fn save_decision(&self, folder: &LedgerFolder, ledger: &Ledger, at: usize) -> Result<()> {
        let entry = &ledger.ops[at];
        let state = match entry.state {
            OpState::Accepted => "accepted",
            OpState::Rejected => "rejected",
            OpState::Unsupported => "unsupported",
            OpState::Pending => "pending",
        };
        let reason = entry.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default();
        self.progress.note(&format!("{} {state}{reason}", entry.op));
        self.progress.on_decided(entry);
        folder.save(ledger)
    }
}

/// What the limits of the model-wise check depend on: declared precisions, in both phases, as a kernel may declare another chain
/// in each.
pub(crate) fn limits_key(suite: &Suite, choices: &KernelChoices) -> Hash {
    let nodes = (0..suite.graph().nodes().len() as u32).map(NodeId);
    let both = nodes.flat_map(|node| Phase::ALL.map(|phase| (node, phase)));
    let all: Vec<Option<&Accumulate>> =
        both.map(|(node, phase)| choices.kernel_at(node, phase).ok().map(|c| &c.accumulate)).collect();
    Hash::compute(format!("limits {VERSION} {} {all:?}", suite.hash()).as_bytes())
}

/// Room for the longest prompt, and for its decode steps.
///
/// As it was carved, so that a program holds every recorded run.
pub(crate) fn capacity(suite: &Suite) -> Symbols {
    let manifest = suite.manifest();
    let longest = manifest.prompts.iter().map(|p| p.ids.len() as u64).max().unwrap_or(1);
    Symbols::np(longest, longest + u64::from(manifest.settings.steps))
}

/// Adds the time that work takes to a sum.
pub(crate) struct Timed<'a>(&'a mut f64);

impl<'a> Timed<'a> {
    pub(crate) fn new(sum: &'a mut f64) -> Timed<'a> {
        Timed(sum)
    }

    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        *self.0 += start.elapsed().as_secs_f64();
        result
    }
}
