//! One call that mutants are replayed on, the suite that it is of, and replaying calls.

use super::noise::Noise;
use std::sync::Arc;
use tapml_exec::{Call, Phase, Platform};
use tapml_graph::{Error, Result, Tensor};
use tapml_migrate::Oracles;
use tapml_migrate::suite::{Case, Suite};
use tapml_migrate::verdict::{Exact, Judgement, Precision, VerdictConstants, judge_with};

/// One call with what is known about it.
pub struct OpCase {
    /// Its place in its suite.
    pub case: Case,
    /// Its name there.
    pub name: String,
    /// What the source platform computed.
    pub expected: Vec<Tensor>,
    /// The exact results.
    pub exact: Arc<Vec<Exact>>,
    /// Precision that the kernel declares.
    pub target: Precision,
    /// Precision of the source.
    pub source: Precision,
    /// What the device computes without a fault.
    pub clean: Vec<Tensor>,
    /// How far that is from the exact results.
    pub noise: Noise,
}

impl OpCase {
    /// The verdict of outputs by these constants, with the source's outputs beside.
    pub fn judge(&self, constants: &VerdictConstants, outputs: &[Tensor]) -> Result<Judgement> {
        let source = Some((self.expected.as_slice(), self.source));
        judge_with(constants, &self.exact, outputs, self.target, source)
    }
}

/// A suite of calls with their exact results: a bed's own, or one of its fused operators in one phase.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The calls.
    pub suite: &'a Suite,
    /// Their exact results.
    pub oracles: &'a Oracles,
    /// The graphs that the device runs, if other nodes are not wanted.
    pub lowered: Option<[&'a Suite; 2]>,
}

impl View<'_> {
    /// The calls of an operator that are wanted.
    pub fn cases(&self, op: &str) -> Vec<Case> {
        let graph = self.suite.graph();
        let runs = |case: &Case| {
            let [decode, prefill] = match &self.lowered {
                None => return true,
                Some(lowered) => lowered,
            };
            let lowered = if self.suite.phase(*case) == Phase::Decode { decode } else { prefill };
            lowered.graph().find_node(&graph.node(case.node).name).is_some()
        };
        self.suite.cases().filter(|case| graph.node(case.node).op.name() == op && runs(case)).collect()
    }
}

/// The outputs of the calls in their order. Fails only if no call can be run any more.
pub fn replay(platform: &mut dyn Platform, calls: &[Call]) -> Result<Vec<Result<Vec<Tensor>>>> {
    let missing = || Err(Error::bug("the platform gave no result"));
    let mut outputs: Vec<Result<Vec<Tensor>>> = calls.iter().map(|_| missing()).collect();
    platform.replay(calls, &mut |i, found| {
        if let Some(slot) = outputs.get_mut(i) {
            *slot = found;
        }
    })?;
    Ok(outputs)
}
