//! Faults of a program as a whole: its uniform block, its results. They show in every node and are one fault each.
//!
//! They are recognised by what all nodes have in common, before single nodes are explained.

use super::group::Group;
use super::scan::{Anomaly, AnomalyKind};
use super::scene::Scene;
use super::substituted;
use super::why;
use crate::context::{DiagnosisContext, Facts};
use crate::perform::conclude;
use std::collections::BTreeSet;
use tapml_exec::Call;
use tapml_graph::{DType, NodeId, Result, Symbol, Symbols, Tensor, TensorType};

/// A fault of the whole program shows in at least so many nodes.
/// Fewer may have it in common by chance.
const NODES: usize = 4;

/// Numbers of a narrow type must be so many to be no accident.
/// Small integers and zeros are in every type.
const NUMBERS: usize = 256;

/// Takes what faults of the whole program explain from the anomalies of a step, and gives these faults.
///
/// The tests go from the most to the least telling: narrow numbers, nothing written, other sizes.
pub(super) fn take(
    run: &mut DiagnosisContext<'_>,
    scene: &Scene,
    anomalies: &mut Vec<Anomaly>,
) -> Result<Vec<Group>> {
    let groups = of_all_nodes(run.facts(), scene, anomalies);
    if !groups.is_empty() {
        return Ok(groups);
    }
    uniform(run, scene, anomalies).map(|group| group.into_iter().collect())
}

/// The faults that the values of all nodes tell together, in the place of all anomalies.
pub(super) fn of_all_nodes(facts: Facts<'_>, scene: &Scene, anomalies: &mut Vec<Anomaly>) -> Vec<Group> {
    // All anomalies are of what nodes find, and none is of what they compute.
    if anomalies.iter().all(|a| call(a).is_none()) {
        return Vec::new();
    }
    if let Some(dtype) = narrowest_type(scene) {
        return whole(anomalies, |first| narrow_group(facts, scene, first, dtype));
    }
    if silent(scene) {
        return whole(anomalies, |first| silent_group(facts, scene, first));
    }
    Vec::new()
}

/// The call of a node whose output is wrong, and its outputs.
fn call(anomaly: &Anomaly) -> Option<(&Call, &[Tensor])> {
    match &anomaly.what {
        AnomalyKind::Wrong(wrong) => Some((&wrong.call, &wrong.observed)),
        AnomalyKind::Differs(found) => Some((&found.call, &found.observed)),
        _ => None,
    }
}

/// One fault in the place of all anomalies.
fn whole(anomalies: &mut Vec<Anomaly>, group: impl Fn(Anomaly) -> Group) -> Vec<Group> {
    let (count, first) = (anomalies.len() as u64, anomalies.drain(..).next());
    first.map(|first| group(first).with_count(count)).into_iter().collect()
}

/// The type that holds every float that was read from the program, if there is one narrower than theirs.
fn narrowest_type(scene: &Scene) -> Option<DType> {
    let outputs = || scene.values.nodes.iter().flat_map(|t| &t.outputs).filter(|t| t.dtype() == DType::F32);
    let holds = |dtype: DType| {
        let narrow = |t: &Tensor| {
            let values = t.to_f32();
            let same = |narrow: Tensor| {
                let pairs = narrow.to_f32().into_owned().into_iter().zip(values.iter());
                // What exceeds the type is infinite already.
                pairs.into_iter().all(|(a, b)| a == *b || a.is_nan() && b.is_nan())
            };
            Tensor::from_f32_as(dtype, vec![values.len()], values.to_vec()).is_ok_and(same)
        };
        outputs().all(narrow)
    };
    // A tensor of zeros fits every type.
    let telling = outputs().filter(|t| t.to_f32().iter().any(|v| *v != 0.0));
    let (tensors, numbers) = telling.fold((0, 0), |(count, sum), t| (count + 1, sum + t.len()));
    (tensors >= NODES && numbers >= NUMBERS)
        .then(|| [DType::BF16, DType::F16].into_iter().find(|&d| holds(d)))?
}

/// Its nodes are those that give the graph's results, since that is where the values are read.
fn narrow_group(facts: Facts<'_>, scene: &Scene, first: Anomaly, dtype: DType) -> Group {
    let graph = facts.graph;
    let results = graph.outputs().iter().filter_map(|o| match graph.value(o.value).origin {
        tapml_graph::Origin::Node { node, .. } => Some(node),
        _ => None,
    });
    let count = scene.values.nodes.len();
    let evidence = format!(
        "every number that is read from the program, of {count} nodes, is one of {dtype}, which the results of single \
         calls are not: values pass through {dtype} on their way from the device"
    );
    let evidence = format!("in {}: {evidence}", first.step);
    Group::whole("wrong_cast", true, evidence, results.collect(), first)
}

/// Whether nothing that a node should have written was written.
fn silent(scene: &Scene) -> bool {
    let nodes = &scene.values.nodes;
    let left = nodes.iter().filter(|t| t.outputs.iter().all(|t| scene.values.is_untouched(t)));
    // States that are extended in place hold zeros, not what other memory is filled with.
    let empty = |t: &Tensor| t.bytes().iter().all(|&b| b == 0);
    let empty = nodes.iter().filter(|t| t.outputs.iter().all(empty)).count();
    let left = left.count();
    // Without a fill zeros are untouched memory already, and were counted.
    left >= NODES && left + if scene.values.fill.is_some() { empty } else { 0 } >= nodes.len()
}

/// Not certain: two causes have the same signs.
fn silent_group(facts: Facts<'_>, scene: &Scene, first: Anomaly) -> Group {
    let nodes: BTreeSet<NodeId> =
        scene.values.nodes.iter().filter_map(|t| facts.graph.find_node(&t.node)).collect();
    let evidence = format!(
        "in {}: none of {} nodes writes anything, although each does alone: they find n = 0, because the block of sizes \
         and positions is not written before the run, or no dispatch takes place",
        first.step,
        nodes.len()
    );
    Group::whole("wrong_symbol", false, evidence, nodes, first)
}

/// The block of sizes and positions holds other ones than those of the step, if any node says so.
fn uniform(
    run: &mut DiagnosisContext<'_>,
    scene: &Scene,
    anomalies: &mut Vec<Anomaly>,
) -> Result<Option<Group>> {
    // One node that computes with other sizes is enough: all share one block.
    for at in 0..anomalies.len() {
        let Some((call, observed)) = call(&anomalies[at]) else { continue };
        let (node, now) = (anomalies[at].node, call.symbols.clone());
        let stale = conclude(run, |facts, outcomes| {
            substituted::symbols(facts, node, (call, observed), scene, outcomes)
        })?;
        if let Some(stale) = stale {
            return Ok(Some(uniform_group(run.facts(), anomalies, at, (&now, &stale))));
        }
    }
    Ok(None)
}

/// Takes from the anomalies those of nodes that depend on these sizes, of which the one at this place computes with stale ones.
pub(super) fn uniform_group(
    facts: Facts<'_>,
    anomalies: &mut Vec<Anomaly>,
    at: usize,
    (now, stale): (&Symbols, &Symbols),
) -> Group {
    let first = anomalies[at].clone();
    // What depends on a size that is wrong has nothing of its own to say.
    let changed: Vec<Symbol> = now.iter().filter(|&(s, v)| stale.get(s) != Some(v)).map(|(s, _)| s).collect();
    let depends = |a: &Anomaly| {
        let graph = facts.graph;
        let node = graph.node(a.node);
        let outputs = node.outputs.iter().map(|&v| graph.value(v).ty.clone());
        let types: Vec<TensorType> = graph.input_types(node).into_iter().chain(outputs).collect();
        let names = |ty: &TensorType| {
            changed.iter().any(|&s| ty.shape.iter().any(|d| d.symbols().any(|own| own == s)))
        };
        // With other sizes kernels write more rows, or fewer.
        matches!(a.what, AnomalyKind::Overrun { .. })
            || call(a).is_some() && (a.node == first.node || types.iter().any(names))
    };
    let (taken, rest): (Vec<Anomaly>, Vec<Anomaly>) =
        std::mem::take(anomalies).into_iter().partition(depends);
    *anomalies = rest;
    let nodes: BTreeSet<NodeId> = taken.iter().map(|a| a.node).collect();
    let others = match nodes.len() {
        1 => String::new(),
        count => format!(", as {} other nodes do", count - 1),
    };
    let evidence = format!(
        "in {}: `{}` is right when it runs alone, and in the program {}{others}: the block of sizes and positions is not \
         that of this step",
        first.step,
        facts.name(first.node),
        why::computes_with(now, stale),
    );
    let group = Group::whole("wrong_symbol", true, evidence, nodes, first);
    group.with_count(taken.len() as u64)
}
