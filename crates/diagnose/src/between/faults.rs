//! From what is not as it must be to faults: one for each cause, in words that a person can act on.
//!
//! An anomaly is an observation, a group is a cause with its anomalies, a fault is a group in the report's form.

use super::group::Group;
use super::hybrid::target_nodes;
use super::program;
use super::scan::{Anomaly, AnomalyKind, Holds};
use super::scene::Scene;
use super::why::{self, Why};
use crate::context::{DiagnosisContext, Facts};
use crate::experiment::{Outcomes, Reasoned};
use crate::perform::conclude;
use crate::report::{Fault, FaultKind};
use std::collections::{BTreeSet, HashSet};
use tapml_graph::{NodeId, Result, ValueId};

/// The faults behind some anomalies.
#[derive(Default)]
pub(super) struct Located {
    /// Those of the whole program first, then in the order of the anomalies.
    pub faults: Vec<Fault>,
    /// Whether one is a fault of the program as a whole: it shows wherever nodes run on the target, and what other faults
    /// there are can be seen only without it.
    pub whole: bool,
}

/// Most anomalies that are looked at one by one.
/// Each takes several calls on the target. One cause usually shows in many nodes.
const MOST: usize = 64;

/// So many nodes that run late are one fault: nothing waits for what it reads.
/// Each of them alone could be one missing dependency.
const LATE: usize = 4;

/// The faults that explain these anomalies, in the order in which they appear. The scene is that of the step that they are
/// of; without it no output is wrong.
///
/// # Errors
///
/// A request to stop, a lost device, or values that cannot be read.
pub(super) fn find_faults(
    run: &mut DiagnosisContext<'_>,
    mut anomalies: Vec<Anomaly>,
    scene: Option<&Scene>,
) -> Result<Located> {
    // Faults of the whole program are taken first: they would show as an anomaly of every node.
    let groups = match scene {
        Some(scene) => program::take(run, scene, &mut anomalies)?,
        None => Vec::new(),
    };
    let beyond = anomalies.iter().filter(|a| matches!(a.what, AnomalyKind::Overrun { .. })).count();
    // Overruns of most nodes have one reason rather than many.
    let everywhere = beyond > 4 && beyond * 2 > target_nodes(run).len();
    let mut single = Vec::new();
    // Room for as many anomalies as there are overruns: explaining those takes no call.
    for anomaly in anomalies.into_iter().take(MOST.max(beyond)) {
        single.extend(conclude(run, |facts, outcomes| {
            explain_anomaly(facts, scene, &anomaly, everywhere, outcomes)
        })?);
    }
    let groups = merge(groups, single);
    let whole = groups.iter().any(|g| g.whole);
    let faults = groups.into_iter().map(|group| finish(run.facts(), group)).collect();
    Ok(Located { faults, whole })
}

/// One group for each fault: those of the whole program first, then those of single anomalies.
pub(super) fn merge(mut groups: Vec<Group>, mut single: Vec<Group>) -> Vec<Group> {
    // Before merging, which keeps the first anomaly of a group only.
    settle(&mut single);
    for group in single {
        match groups.iter_mut().find(|g| g.explains(&group)) {
            Some(known) => {
                known.nodes.extend(group.nodes);
                known.count += group.count;
            }
            None => groups.push(group),
        }
    }
    groups
}

/// What a late node leaves itself may be wrong too, since its inputs are gone by then: that is no fault of its own. Many
/// late nodes are one fault.
fn settle(groups: &mut Vec<Group>) {
    let late = |groups: &[Group]| -> HashSet<NodeId> { groups.iter().filter_map(|g| g.late).collect() };
    let all = late(groups);
    groups.retain(|g| {
        !all.contains(&g.first.node)
            || !matches!(g.first.what, AnomalyKind::Wrong(_) | AnomalyKind::Differs(_))
    });
    let many = late(groups).len() > LATE;
    for group in groups {
        let Some(node) = group.late else { continue };
        group.nodes.insert(node);
        // The key decides what is merged: one fault, or one for each late node.
        group.key = if many { "late".into() } else { format!("late {}", node.0) };
    }
}

/// The fault that one anomaly shows; `None` if it says nothing.
pub(super) fn explain_anomaly(
    facts: Facts<'_>,
    scene: Option<&Scene>,
    anomaly: &Anomaly,
    everywhere: bool,
    outcomes: &Outcomes,
) -> Reasoned<Option<Group>> {
    let why = match &anomaly.what {
        AnomalyKind::Wrong(wrong) => match scene {
            Some(scene) => why::explain_node(facts, scene, anomaly.node, wrong, outcomes)?,
            None => return Ok(None),
        },
        AnomalyKind::Differs(found) => {
            let Some(scene) = scene else { return Ok(None) };
            match why::of_other(facts, scene, anomaly.node, found, outcomes)? {
                Some(why) => why,
                None => return Ok(None),
            }
        }
        AnomalyKind::Given { value, holds } => given_fault(facts, *value, *holds, anomaly.node),
        AnomalyKind::Changed { value, producer, holds } => {
            changed_fault(facts, *value, *producer, *holds, anomaly.node)
        }
        AnomalyKind::State { state, holds } => state_fault(facts, *state, *holds, anomaly.node),
        AnomalyKind::Overrun { output, bytes } => {
            overrun_fault(facts, anomaly.node, *output, *bytes, everywhere)
        }
    };
    // The reader that saw it belongs to the fault in any case.
    let mut nodes: BTreeSet<NodeId> = why.nodes.into_iter().collect();
    nodes.insert(anomaly.node);
    Ok(Some(Group {
        kind: why.kind,
        cause: why.cause.into(),
        key: why.kernel,
        certain: why.certain,
        evidence: format!("in {}: {}", anomaly.step, why.evidence),
        nodes,
        count: 1,
        // What comes from outside, and the block of sizes, are the same for every node.
        whole: matches!(anomaly.what, AnomalyKind::Given { .. }) || why.cause == "wrong_symbol",
        late: why.late,
        first: anomaly.clone(),
    }))
}

/// A value that the program gets from outside is another than was given.
fn given_fault(facts: Facts<'_>, value: ValueId, holds: Holds, reader: NodeId) -> Why {
    let (value, reader) = (&facts.graph.value(value).name, facts.name(reader));
    let begin = format!("`{reader}` reads other values than the input `{value}` that was given");
    match holds {
        Holds::Rounded(dtype) => {
            let end = format!(
                "they are those given, as numbers of {dtype}: inputs pass through {dtype} on their way"
            );
            Why::between_operators("wrong_cast", true, format!("{begin}: {end}"))
        }
        Holds::Before => Why::between_operators(
            "missing_copy",
            true,
            format!("{begin}: those of the step before; the upload is lost or late"),
        ),
        // Bytes that nothing explains: it is sure that something is wrong, and not what.
        _ => Why::between_operators(
            "missing_copy",
            false,
            format!("{begin}: the upload is lost, late, or goes elsewhere"),
        ),
    }
}

/// A value that is not what its node left.
fn changed_fault(facts: Facts<'_>, value: ValueId, producer: NodeId, holds: Holds, reader: NodeId) -> Why {
    let value = &facts.graph.value(value).name;
    let begin = format!(
        "`{value}` is not what `{}` left in it when `{}` reads it",
        facts.name(producer),
        facts.name(reader)
    );
    let late = |what: &str| {
        let end = format!("it holds {what}: the reader ran before the writer, or a copy is lost");
        Why {
            late: Some(producer),
            ..Why::between_operators("missing_dependency", true, format!("{begin}; {end}"))
        }
    };
    let why = match holds {
        Holds::Output(other) => {
            let other_name = facts.name(other);
            let end =
                format!("it holds what `{other_name}` left: their memory overlaps while both are needed");
            // What stood there before the writer may also be seen by a reader that runs too early.
            let why = Why::between_operators("buffer_reused", other > producer, format!("{begin}; {end}"));
            Why { nodes: vec![other], ..why }
        }
        Holds::Before => late("its value of the step before"),
        Holds::Nothing => late("what memory held before anyone wrote it"),
        _ => {
            let end = "something else writes to its memory in between";
            Why::between_operators("buffer_reused", false, format!("{begin}: {end}"))
        }
    };
    let nodes = why.nodes.iter().copied().chain([producer]).collect();
    Why { nodes, ..why }
}

/// A state that is not what the step before left, or not empty at the start of a text.
fn state_fault(facts: Facts<'_>, state: usize, holds: Holds, reader: NodeId) -> Why {
    let states = facts.graph.states();
    let (name, reader) = (&states[state].name, facts.name(reader));
    // Anything may have written to a state that holds what no state held.
    let certain = !matches!(holds, Holds::NotEmpty | Holds::Other);
    let (cause, evidence) = match holds {
        Holds::NotEmpty => (
            "state_not_reset",
            format!("the state `{name}` is not empty when a text begins and `{reader}` reads it"),
        ),
        Holds::Kept => (
            "state_not_reset",
            format!(
                "the state `{name}` holds what the last text left when a text begins and `{reader}` reads it: the reset \
                 is lost"
            ),
        ),
        Holds::State(other) => {
            let other = &states[other].name;
            (
                "wrong_layer_state",
                format!("the state `{name}`, which `{reader}` reads, holds that of `{other}`"),
            )
        }
        Holds::Before => (
            "missing_copy",
            format!(
                "the state `{name}`, which `{reader}` reads, is still that before the last step: its new value is \
                 computed and not copied to where the next step reads it"
            ),
        ),
        _ => (
            "wrong_slot",
            format!("the state `{name}`, which `{reader}` reads, is not what the step before left in it"),
        ),
    };
    Why::between_operators(cause, certain, evidence)
}

/// Bytes behind the end of an output were written.
fn overrun_fault(facts: Facts<'_>, node: NodeId, output: usize, bytes: u64, everywhere: bool) -> Why {
    let name = facts.name(node);
    if everywhere {
        let evidence = format!(
            "memory that the program fills with a word before `{name}` and other nodes write to it holds other bytes \
             behind their outputs ({bytes} here): fills are not performed, or every kernel writes too far"
        );
        return Why::between_operators("not_written", false, evidence);
    }
    let evidence = format!(
        "`{name}` writes {bytes} bytes behind the end of its output {output}, in rows that this step does not have"
    );
    let kernel = facts.choices.get(node).map(|c| c.name.clone()).unwrap_or_default();
    // This one is the kernel's own fault, though it shows in a program.
    Why { kind: FaultKind::Operator, kernel, ..Why::between_operators("out_of_bounds", true, evidence) }
}

/// The report's form of a group. Its first anomaly gives the case and the numbers.
fn finish(facts: Facts<'_>, group: Group) -> Fault {
    let nodes: Vec<NodeId> = group.nodes.into_iter().collect();
    let judged = match &group.first.what {
        AnomalyKind::Wrong(wrong) => Some(&wrong.judgement),
        _ => None,
    };
    let first_bad_case = format!("{}.{}", group.first.step, facts.name(group.first.node));
    let mut fault = Fault::of_nodes(facts, group.kind, &nodes, first_bad_case);
    fault.cause = group.cause;
    fault.certain = group.certain;
    fault.evidence = group.evidence;
    fault.failed = group.count;
    if let Some(judgement) = judged {
        fault.worst_ratio = judgement.ratio;
        fault.criterion = judgement.criterion.name().into();
        fault.element = Some(judgement.worst);
        fault.pattern = judgement.pattern.as_ref().map(|p| p.text.clone()).unwrap_or_default();
    }
    fault
}
