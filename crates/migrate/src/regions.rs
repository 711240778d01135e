//! Several nodes run as one model on the target, compared at the region's borders. Each node is right alone; what is left is what
//! the platform does when it sees them together: fusion, layouts, planned memory.
//!
//! A region takes recorded values at its inputs, so an error of nodes before it does not count. What it
//! gives may lie as far from the exact result as disturbed runs of its nodes do; see `RegionMovement`.

use crate::hash::tensor_type;
use crate::noise::{DeclaredPrecision, Noisy, RegionMovement};
use crate::oracle::Oracles;
use crate::stop::Stop;
use crate::suite::Suite;
use crate::verdict::Exact;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use tapml_exec::{Call, Platform, Region};
use tapml_graph::fusion::REGION;
use tapml_graph::op::Fused;
use tapml_graph::{
    Context, Error, ErrorKind, Graph, Model, NodeId, Op, Origin, Result, Tensor, TensorType, ValueId,
};

/// How far the outputs of a region lie from the exact ones.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionJudgement {
    /// Largest error over what the allowed errors of the nodes within explain; above 1 fails. Infinite where an output is not
    /// finite and should be, or an integer is none of those that these errors can give.
    pub ratio: f64,
    /// The value of the largest ratio.
    pub value: String,
    /// The element of the largest ratio.
    pub element: usize,
    /// What it should be.
    pub exact: f64,
    /// What it is.
    pub observed: f64,
    /// What is allowed there.
    pub allowed: f64,
    /// The run of the suite.
    pub frame: usize,
}

impl fmt::Display for RegionJudgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, element, ratio) = (&self.value, self.element, self.ratio);
        let (exact, observed) = (self.exact, self.observed);
        write!(
            f,
            "`{value}` departs at element {element} by {ratio:.2e} times what the allowed errors of the nodes explain: exact \
             {exact:.6e}, found {observed:.6e}"
        )
    }
}

impl RegionJudgement {
    /// Whether all outputs are within what the allowed errors explain.
    pub fn passes(&self) -> bool {
        self.ratio <= 1.0
    }
}

/// What became of a region on a platform.
#[derive(Debug)]
pub enum RegionOutcome {
    /// All outputs of all runs are within what the allowed errors of the nodes explain.
    Passed {
        /// The largest error over what they explain.
        ratio: f64,
    },
    /// An output is wrong.
    Wrong(Box<WrongRegion>),
    /// The nodes run alone, but not as one model.
    Failed(Error),
    /// The platform does not run these nodes as one model, for this reason.
    NotServed(Error),
}

impl RegionOutcome {
    /// Whether the region departs or breaks; one that the platform does not run does neither.
    pub fn fails(&self) -> bool {
        matches!(self, RegionOutcome::Wrong(_) | RegionOutcome::Failed(_))
    }

    /// Largest error over what is allowed; infinite for a region that breaks.
    pub fn ratio(&self) -> f64 {
        match self {
            RegionOutcome::Passed { ratio } => *ratio,
            RegionOutcome::Wrong(wrong) => wrong.judgement.ratio,
            RegionOutcome::Failed(_) => f64::INFINITY,
            RegionOutcome::NotServed(_) => 0.0,
        }
    }

    /// Why it fails or does not run, as a clause for people.
    pub fn reason(&self) -> Option<String> {
        match self {
            RegionOutcome::Passed { .. } => None,
            RegionOutcome::Wrong(wrong) => Some(wrong.judgement.to_string()),
            RegionOutcome::Failed(e) | RegionOutcome::NotServed(e) => Some(e.to_string()),
        }
    }
}

/// The fewest nodes of a region that fail together.
#[derive(Debug)]
pub struct SmallestRegion {
    /// The nodes; none if the whole region does not fail.
    pub failing: BTreeSet<NodeId>,
    /// What became of them when they ran once more, or of the whole region: what passes then depends on more than its values.
    pub outcome: RegionOutcome,
}

/// A region with a wrong output, and what tells so.
#[derive(Clone, Debug)]
pub struct WrongRegion {
    /// Its worst element.
    pub judgement: RegionJudgement,
    /// The region with the values that it was given.
    pub region: Region,
    /// The exact outputs; what [`Exact::inner`] allows is what the allowed errors of the nodes explain.
    pub exact: Vec<Exact>,
    /// What the platform gave.
    pub observed: Vec<Tensor>,
}

/// Most runs of a suite with which a region is checked.
pub const MOST_RUNS: usize = 4;

/// Runs regions of a model on a platform and judges them.
pub struct Regions<'a> {
    /// The recorded runs.
    pub suite: &'a Suite,
    /// The model.
    pub model: &'a Model,
    /// Who evaluates the nodes.
    pub oracles: &'a Oracles,
    /// What the target's kernels declare; see [`crate::MovementLimits::measure`].
    pub precision: &'a DeclaredPrecision<'a>,
}

impl Regions<'_> {
    /// How many runs of the suite a region is checked with.
    pub fn runs(&self) -> usize {
        self.suite.frames().len().min(MOST_RUNS)
    }

    /// Runs these nodes as one model, with the recorded values of each of the first [`Regions::runs`] runs of the suite, and
    /// judges what comes out, up to the first run that fails.
    ///
    /// # Errors
    /// The device was lost, the user asked to stop, or a fault of TapML's own.
    pub fn check(
        &self,
        target: &mut dyn Platform,
        nodes: &BTreeSet<NodeId>,
        stop: &Stop,
    ) -> Result<RegionOutcome> {
        let mut largest: f64 = 0.0;
        for frame in 0..self.runs() {
            stop.check()?;
            match self.check_run(target, nodes, frame) {
                Ok(run) if run.judgement.passes() => largest = largest.max(run.judgement.ratio),
                Ok(run) => return Ok(RegionOutcome::Wrong(Box::new(run))),
                Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(RegionOutcome::NotServed(e)),
                // Says nothing of the region; any other error is the platform's answer about these nodes.
                Err(e) if ends_the_job(&e) => return Err(e),
                Err(e) => return Ok(RegionOutcome::Failed(e)),
            }
        }
        Ok(RegionOutcome::Passed { ratio: largest })
    }

    /// As [`Regions::check`], and of nodes that fail the fewest that still do.
    pub fn check_smallest(
        &self,
        target: &mut dyn Platform,
        nodes: &BTreeSet<NodeId>,
        stop: &Stop,
    ) -> Result<SmallestRegion> {
        let outcome = self.check(target, nodes, stop)?;
        if !outcome.fails() {
            return Ok(SmallestRegion { failing: BTreeSet::new(), outcome });
        }
        let mut fails = |nodes: &BTreeSet<NodeId>| Ok(self.check(target, nodes, stop)?.fails());
        let failing = smallest_failing(nodes.clone(), &mut fails)?;
        // Once more, for the outcome: the search keeps only whether a region fails.
        let outcome = self.check(target, &failing, stop)?;
        Ok(SmallestRegion { failing, outcome })
    }

    /// These nodes as one call, a [`REGION`] of which they are the body, with the values of a recorded run; and what the source gave.
    ///
    /// # Errors
    /// A value was not recorded, or nothing uses what the nodes compute.
    pub fn call(&self, nodes: &BTreeSet<NodeId>, frame: usize) -> Result<(Call, Vec<Tensor>)> {
        let graph = self.model.graph();
        let ids: Vec<NodeId> = nodes.iter().copied().collect();
        let outlined =
            graph.outline(&graph.users(), &ids, &ids.iter().copied().collect(), &HashSet::new())?;
        // As one operator, so that what works on single calls works on regions, too.
        let op = Op::Fused(Fused::new(&REGION, outlined.body)?);
        let value = |&id: &ValueId| value(self.suite, self.model, frame, id);
        let inputs: Vec<Tensor> = outlined.inputs.iter().map(value).collect::<Result<_>>()?;
        let weight = |&id: &ValueId| {
            let value = graph.value(id);
            (value.origin == Origin::Weight).then(|| value.name.clone())
        };
        let input_types: Vec<TensorType> = inputs.iter().map(tensor_type).collect();
        let call = Call {
            node: ids.iter().map(|&id| graph.node(id).name.as_str()).collect::<Vec<_>>().join("+"),
            output_types: op.infer(&input_types)?,
            op,
            symbols: self.suite.frames()[frame].symbols.clone(),
            input_types,
            weights: outlined.inputs.iter().map(weight).collect(),
            inputs,
        };
        let recorded = outlined.outputs.iter().map(value).collect::<Result<_>>()?;
        Ok((call, recorded))
    }

    /// One run of a region.
    fn check_run(
        &self,
        target: &mut dyn Platform,
        nodes: &BTreeSet<NodeId>,
        frame: usize,
    ) -> Result<WrongRegion> {
        let graph = self.model.graph();
        let value = |id: ValueId| value(self.suite, self.model, frame, id);
        let region = Region::from_nodes(graph, nodes, &value)?;
        let observed = target.run_region(&region).context(|| region.name.clone())?;
        // What is used outside of the region.
        let outputs = Region::outputs_of(graph, nodes);
        let Regions { suite, model, oracles, precision } = *self;
        let run = Noisy { suite, model, oracles, precision, results: &outputs, kept: &[] };
        let movement = RegionMovement::measure(&run, nodes, frame)?;
        let mut worst: Option<RegionJudgement> = None;
        for (k, (&id, found)) in outputs.iter().zip(&observed).enumerate() {
            let judged = self.of_output(&movement, (k, id), found, frame)?;
            if worst.as_ref().is_none_or(|old| judged.ratio > old.ratio) {
                worst = Some(judged);
            }
        }
        let judgement = worst.ok_or_else(|| Error::bug("a region without outputs"))?;
        let exact = (0..outputs.len()).map(|k| movement.exact_of(k)).collect();
        Ok(WrongRegion { judgement, region, exact, observed })
    }

    /// The worst element of output `k`, which is value `id`.
    fn of_output(
        &self,
        movement: &RegionMovement,
        (k, id): (usize, ValueId),
        found: &Tensor,
        frame: usize,
    ) -> Result<RegionJudgement> {
        let recorded = self.suite.value(frame, id)?;
        let (exact, source, found) = (&movement.exact[k], recorded.to_f64(), found.to_f64());
        let name = self.model.graph().value(id).name.clone();
        let judged = |element, ratio, allowed| RegionJudgement {
            ratio,
            value: name.clone(),
            element,
            exact: exact[element],
            observed: found[element],
            allowed,
            frame,
        };
        if exact.len() != found.len() || source.len() != found.len() {
            return Err(Error::bug(format!(
                "`{name}` has {} elements, expected {}",
                found.len(),
                exact.len()
            )));
        }
        let is_float = recorded.dtype().is_float();
        let mut worst = judged_none(&name, frame);
        for (i, &y) in found.iter().enumerate() {
            // What equals the exact value, the source's or a disturbed run's is right, whatever is allowed.
            let same = |other: f64| y == other || y.is_nan() && other.is_nan();
            let known = same(exact[i]) || same(source[i]) || movement.ways[k].iter().any(|way| same(way[i]));
            let allowed = if is_float { movement.allowed_movement(k, i) } else { 0.0 };
            // A source that departs where a rounding decides is followed as well as the exact result.
            let from_source = allowed + (source[i] - exact[i]).abs();
            let ratio = if known {
                0.0
            } else if !is_float || !y.is_finite() {
                f64::INFINITY
            } else {
                ((y - exact[i]).abs() / allowed).min((y - source[i]).abs() / from_source)
            };
            if ratio > worst.ratio || ratio.is_nan() {
                worst = judged(i, if ratio.is_nan() { f64::INFINITY } else { ratio }, allowed);
            }
        }
        Ok(worst)
    }
}

/// Of an output in which nothing departs.
fn judged_none(value: &str, frame: usize) -> RegionJudgement {
    let (ratio, element, exact, observed, allowed) = (0.0, 0, 0.0, 0.0, 0.0);
    RegionJudgement { ratio, value: value.into(), element, exact, observed, allowed, frame }
}

/// A value of a run, or a weight.
fn value(suite: &Suite, model: &Model, frame: usize, id: ValueId) -> Result<Tensor> {
    let value = model.graph().value(id);
    match value.origin {
        Origin::Weight => model.weight(&value.name),
        _ => suite.value(frame, id),
    }
}

/// Runs of nodes that follow each other in the order of the graph, all of which `accepted` names: no way leads out of one and
/// back in.
pub fn segments(graph: &Graph, accepted: &dyn Fn(NodeId) -> bool) -> Vec<BTreeSet<NodeId>> {
    let mut all: Vec<BTreeSet<NodeId>> = Vec::new();
    let mut open = false;
    for (i, node) in (0u32..).zip(graph.nodes()) {
        let id = NodeId(i);
        let belongs = matches!(node.op, Op::Foreign(_)) && accepted(id);
        match all.last_mut().filter(|_| open && belongs) {
            Some(last) => drop(last.insert(id)),
            None if belongs => all.push(BTreeSet::from([id])),
            None => {}
        }
        // A node that does not belong ends the run of nodes, also if it is independent of them.
        open = belongs;
    }
    all
}

/// The fewest nodes of a failing region that still fail: halves first, then one part after the other left out, as in Zeller and
/// Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002). `fails` runs one region; an error of it ends the search.
pub fn smallest_failing(
    nodes: BTreeSet<NodeId>,
    fails: &mut dyn FnMut(&BTreeSet<NodeId>) -> Result<bool>,
) -> Result<BTreeSet<NodeId>> {
    let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
    let set = |nodes: &[NodeId]| nodes.iter().copied().collect::<BTreeSet<NodeId>>();
    // Large regions shrink fast this way; each step runs one or two halves.
    'halves: while nodes.len() > 1 {
        let (front, back) = nodes.split_at(nodes.len() / 2);
        for half in [front.to_vec(), back.to_vec()] {
            if fails(&set(&half))? {
                nodes = half;
                continue 'halves;
            }
        }
        break;
    }
    let mut part = (nodes.len() / 2).max(1);
    loop {
        let mut at = 0;
        let before = nodes.len();
        while at < nodes.len() && nodes.len() > 1 {
            let end = (at + part).min(nodes.len());
            let rest: Vec<NodeId> = [&nodes[..at], &nodes[end..]].concat();
            // The place stays: what comes next has moved there.
            if !rest.is_empty() && fails(&set(&rest))? {
                nodes = rest;
            } else {
                at = end;
            }
        }
        match part {
            // A whole pass of single nodes left none out: every node is needed.
            1 if nodes.len() == before => break,
            1 => {}
            _ => part /= 2,
        }
    }
    Ok(set(&nodes))
}

/// Whether an error says nothing of the region, but of the job.
fn ends_the_job(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted | ErrorKind::Bug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_region_holds_the_nodes_that_fail_together() {
        let all: BTreeSet<NodeId> = (0..40).map(NodeId).collect();
        let mut tried = 0;
        let mut fails = |nodes: &BTreeSet<NodeId>| {
            tried += 1;
            Ok([7, 8, 31].iter().all(|&i| nodes.contains(&NodeId(i))))
        };
        let found = smallest_failing(all, &mut fails).unwrap();
        assert_eq!(found, [7, 8, 31].map(NodeId).into());
        assert!(tried < 80, "{tried}");
        let one: BTreeSet<NodeId> = (0..64).map(NodeId).collect();
        let found = smallest_failing(one, &mut |nodes| Ok(nodes.contains(&NodeId(50)))).unwrap();
        assert_eq!(found, [NodeId(50)].into());
    }
}
