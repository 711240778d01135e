//! Faults between operators beside faulty operators. Nodes of faulty operators are on the source when the whole model is
//! run, and a fault between them would go there too. So the model also runs with them on the target, and every node is
//! compared with itself: what it leaves in the program is what it gives alone, right or wrong.
//!
//! A call alone and the same call in a program must give the same bits, because the kernel, the sizes and the inputs are the same.

use super::faults::{self, Located};
use super::hybrid::target_nodes;
use super::probe;
use super::runs::{self, RunStep};
use super::scan::{Anomaly, AnomalyKind, Before, Differs, call_of, scan};
use super::scene::{self, Scene, Shown};
use super::traced::{self, FILL, TracedValues};
use crate::context::DiagnosisContext;
use crate::experiment::are_same;
use crate::report::FaultKind;
use std::collections::HashSet;
use tapml_cause::Cause;
use tapml_exec::{Call, Hybrid, UNWRITTEN};
use tapml_graph::{ErrorKind, NodeId, Result, Tensor};

/// The faults between operators that show when nodes of faulty operators are on the target too; none if there are no such
/// nodes, or if they cannot run in one program.
pub(super) fn find(run: &mut DiagnosisContext<'_>) -> Result<Located> {
    let nodes = nodes(run);
    if nodes.len() <= target_nodes(run).len() {
        return Ok(Located::default());
    }
    run.progress.stage("run it with faulty operators", 0);
    match look_at_nodes(run, &nodes) {
        // A faulty kernel may do anything; what matters is what the model does without it.
        Err(e) if !matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted | ErrorKind::Bug) => {
            Ok(Located::default())
        }
        other => other,
    }
}

/// All nodes that the target can run, but those of faults between operators.
/// Kernels that crash are left out with all their nodes, whichever operator they serve.
fn nodes(run: &DiagnosisContext<'_>) -> Vec<NodeId> {
    let mut without: HashSet<&str> = run.skipped.iter().map(|s| s.node.as_str()).collect();
    let crash = Cause::Crash.name();
    let faults = run.faults.iter().filter(|f| f.kind == FaultKind::Between || f.cause == crash);
    let kernels: HashSet<&str> =
        faults.clone().filter(|f| f.cause == crash).map(|f| f.kernel.as_str()).collect();
    without.extend(faults.flat_map(|f| f.nodes.iter().map(String::as_str)));
    let crashes = |id: NodeId| run.choices.kernels(id).any(|choice| kernels.contains(choice.name.as_str()));
    let all = (0..run.suite.graph().nodes().len() as u32).map(NodeId);
    all.filter(|&id| !without.contains(run.name(id)) && !crashes(id)).collect()
}

/// How often the texts are run again without the nodes that nothing was said of.
/// Anomalies that no cause explains would otherwise hide those of later nodes.
const AGAIN: usize = 4;

/// Runs the beginnings of the shortest texts, with the values of all nodes visible.
fn look_at_nodes(run: &mut DiagnosisContext<'_>, nodes: &[NodeId]) -> Result<Located> {
    let texts = runs::short(&probe::texts(run)?);
    let Some(mut whole) = traced::load(run, nodes, &runs::capacity(&texts.concat()), Some(FILL))? else {
        return Ok(Located::default());
    };
    let mut unexplained = HashSet::new();
    for _ in 0..AGAIN {
        let Some((anomalies, scene)) = find_anomalies(run, &mut whole, &texts, &unexplained)? else { break };
        let nodes: Vec<NodeId> = anomalies.iter().map(|a| a.node).collect();
        let located = faults::find_faults(run, anomalies, Some(&scene))?;
        if !located.faults.is_empty() {
            return Ok(located);
        }
        unexplained.extend(nodes);
    }
    Ok(Located::default())
}

/// What is not as it must be, but for these nodes, in the first step of the first text where anything is not.
fn find_anomalies(
    run: &mut DiagnosisContext<'_>,
    whole: &mut Hybrid,
    texts: &[Vec<RunStep>],
    without: &HashSet<NodeId>,
) -> Result<Option<(Vec<Anomaly>, Box<Scene>)>> {
    let mut before = Before::default();
    for text in texts {
        let inspect = &mut |run: &mut DiagnosisContext<'_>,
                            step: &RunStep,
                            values: &TracedValues,
                            before: &Before,
                            _: &_| {
            let mut found = scan(run, step, values, before, false)?;
            // Faulty kernels are known; where they write is theirs.
            found.retain(|a| !matches!(a.what, AnomalyKind::Overrun { .. }));
            found.extend(differing_nodes(run, step, values)?);
            found.retain(|a| !without.contains(&a.node));
            // By node, so that the first one in the graph is explained first.
            found.sort_by_key(|a| a.node);
            Ok(found)
        };
        match scene::first(run, whole, (text, None), before, Some(FILL), inspect)? {
            Shown::Nothing(last) => before = last,
            Shown::Something(anomalies, scene) => return Ok(Some((anomalies, scene))),
        }
    }
    Ok(None)
}

/// The nodes that leave something else in the program than alone, where that is the same each time.
fn differing_nodes(
    run: &mut DiagnosisContext<'_>,
    step: &RunStep,
    values: &TracedValues,
) -> Result<Vec<Anomaly>> {
    let (suite, model) = (run.suite, run.model);
    let (mut ids, mut calls, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for traced in &values.nodes {
        let Some(id) = suite.graph().find_node(&traced.node) else { continue };
        ids.push(id);
        calls.push(call_of(suite.graph(), model, id, traced, &step.symbols)?);
        left.push(&traced.outputs);
    }
    let alone = replay_calls(run, &calls)?;
    let all = ids.into_iter().zip(calls).zip(left).zip(alone);
    let differs = all.filter_map(|(((id, call), observed), alone)| {
        let alone = alone.filter(|alone| !are_alike(alone, observed, values, state(&call)))?;
        Some((id, Differs { call, observed: observed.clone(), alone }))
    });
    let mut differs: Vec<(NodeId, Differs)> = differs.collect();
    let calls: Vec<Call> = differs.iter().map(|(_, d)| d.call.clone()).collect();
    // A kernel that gives something else each time is no evidence of the program.
    let mut again = replay_calls(run, &calls)?.into_iter();
    differs.retain(|(_, d)| again.next().flatten().is_some_and(|again| are_same(&again, &d.alone)));
    let anomaly = |(node, found): (NodeId, Differs)| {
        let what = AnomalyKind::Differs(Box::new(found));
        Anomaly { step: step.label.clone(), node, what }
    };
    Ok(differs.into_iter().map(anomaly).collect())
}

/// What a call extends, if it does.
fn state(call: &Call) -> Option<&Tensor> {
    call.inputs.first().filter(|_| call.op.appends())
}

/// Whether a node leaves the same alone and in the program. What it writes in neither holds there what memory was filled
/// with, which is another word alone; where a `state` grows, in place there and as a copy alone, what it held, or zeros.
fn are_alike(alone: &[Tensor], observed: &[Tensor], values: &TracedValues, state: Option<&Tensor>) -> bool {
    let zeros = |word: &[u8]| state.is_some() && word.iter().all(|&b| b == 0);
    let unwritten =
        |word: &[u8]| zeros(word) || UNWRITTEN.iter().any(|fill| word == &fill.to_le_bytes()[..word.len()]);
    let held = |at: usize, word: &[u8]| {
        state.is_some_and(|state| state.bytes().get(at..at + word.len()) == Some(word))
    };
    let left = |at: usize, word: &[u8]| zeros(word) || values.is_fill(word) || held(at, word);
    let words = |(i, (a, b)): (usize, (&[u8], &[u8]))| a == b || unwritten(a) && left(i * WORD, b);
    let tensors = |(a, b): (&Tensor, &Tensor)| {
        let (a, b) = (&a.bytes()[..], &b.bytes()[..]);
        a.len() == b.len() && a.chunks(WORD).zip(b.chunks(WORD)).enumerate().all(words)
    };
    alone.len() == observed.len() && alone.iter().zip(observed).all(tensors)
}

/// Bytes of what memory is filled with.
/// Tensors of narrower types end with a part of one.
const WORD: usize = 4;

/// What each of these calls gives alone; `None` for one that cannot be run.
fn replay_calls(run: &mut DiagnosisContext<'_>, calls: &[Call]) -> Result<Vec<Option<Vec<Tensor>>>> {
    run.stop.check()?;
    let mut found = vec![None; calls.len()];
    run.target.replay(calls, &mut |i, outputs| found[i] = outputs.ok())?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::{Bytes, DType};

    fn tensor(words: &[u32]) -> Vec<Tensor> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        vec![Tensor::new(DType::F32, vec![words.len()], Bytes::new(bytes)).unwrap()]
    }

    #[test]
    fn what_is_written_neither_alone_nor_in_the_program_is_alike() {
        let values = TracedValues { nodes: Vec::new(), given: Default::default(), fill: Some(FILL) };
        let (one, two) = (1f32.to_bits(), 2f32.to_bits());
        let old = tensor(&[two]).remove(0);
        for fill in UNWRITTEN {
            let alone = tensor(&[fill, one]);
            let alike = |observed: &[u32], state| super::are_alike(&alone, &tensor(observed), &values, state);
            assert!(alike(&[FILL, one], None));
            assert!(!alike(&[FILL, FILL], None), "written alone only");
            assert!(!alike(&[one, one], None), "written in the program only");
            assert!(!alike(&[0, one], None) && !alike(&[two, one], None));
            assert!(alike(&[0, one], Some(&old)), "a state holds zeros where nothing was");
            assert!(alike(&[two, one], Some(&old)), "a state keeps what it held");
            assert!(!alike(&[one, one], Some(&old)));
        }
    }
}
