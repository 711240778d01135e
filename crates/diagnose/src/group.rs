//! The calls of one operator that one kernel serves, and what their verdicts alone say.
//!
//! A group is the unit of a fault: one kernel that is wrong is one root cause, however many nodes it serves.

use crate::context::DiagnosisContext;
use crate::report::{Fault, FaultKind, Variant};
use std::collections::{HashMap, HashSet};
use tapml_graph::NodeId;
use tapml_migrate::CaseResult;
use tapml_migrate::suite::Case;

/// Calls of one operator that one kernel served.
///
/// An operator may have several kernels, by types and by phase.
pub(crate) struct Group {
    /// Name of the kernel; empty if the target has none for the call.
    pub kernel: String,
    /// Verdicts in the order in which the calls were run.
    pub results: Vec<CaseResult>,
}

/// Whether a call of the group fails.
pub(crate) fn fails(group: &Group) -> bool {
    group.results.iter().any(CaseResult::is_failed)
}

/// The results by the kernel that served the call.
/// Groups stand in the order of their first calls.
pub(crate) fn by_kernel(run: &DiagnosisContext<'_>, results: Vec<CaseResult>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for result in results {
        let phase = run.suite.phase(result.case);
        let kernel = run.choices.kernel_at(result.case.node, phase).map_or("", |c| c.name.as_str());
        match groups.iter_mut().find(|g| g.kernel == kernel) {
            Some(group) => group.results.push(result),
            None => groups.push(Group { kernel: kernel.into(), results: vec![result] }),
        }
    }
    groups
}

/// The nodes that run the same code at the same types as one of these.
/// The hash joins those of a node's kernels in all phases, so two nodes are alike only if they are in every phase.
pub(crate) fn same_code(run: &DiagnosisContext<'_>, nodes: &[String]) -> Vec<String> {
    let graph = run.suite.graph();
    // A runtime of others has one version for all its operators.
    let hash = |id: NodeId| Some((graph.node(id).op.name(), run.choices.hash(id)?));
    let faulty: HashSet<(&str, String)> =
        nodes.iter().filter_map(|n| graph.find_node(n)).filter_map(hash).collect();
    let all = (0..graph.nodes().len() as u32).map(NodeId);
    let same = all.filter(|&id| hash(id).is_some_and(|h| faulty.contains(&h)));
    same.map(|id| graph.node(id).name.clone()).collect()
}

/// What the verdicts alone say of a group that fails.
/// The cause is left unknown, and evidence is left empty.
pub(crate) fn describe(run: &DiagnosisContext<'_>, op: &str, group: &Group) -> Fault {
    let failed: Vec<&CaseResult> = group.results.iter().filter(|r| r.is_failed()).collect();
    let mut nodes: Vec<NodeId> = failed.iter().map(|r| r.case.node).collect();
    nodes.sort();
    // A node fails in several frames, and is named once.
    nodes.dedup();
    let worst = failed.iter().max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let first = failed.first().copied();
    let judged = first.and_then(|r| r.outcome.as_ref().ok());
    let error = first.and_then(|r| r.outcome.as_ref().err());
    let case = |case: Case| run.suite.case_id(case);
    let first_bad_case = first.map(|r| case(r.case)).unwrap_or_default();
    let suite = run.suite.path().display().to_string();
    let reproduce = first.map(|_| run.reduction(&suite).of_case(&first_bad_case));
    Fault {
        op: op.into(),
        kernel: group.kernel.clone(),
        worst_case: worst.map(|r| case(r.case)),
        worst_ratio: worst.map_or(0.0, |r| r.ratio()),
        criterion: judged
            .map(|j| j.criterion.name().to_string())
            // A call that did not run is named by the kind of its error.
            .or(error.map(|e| e.kind().name().to_string()))
            .unwrap_or_default(),
        element: judged.map(|j| j.worst),
        pattern: judged.and_then(|j| j.pattern.as_ref()).map(|p| p.text.clone()).unwrap_or_default(),
        cases: group.results.len() as u64,
        failed: failed.len() as u64,
        variants: variants(run, group),
        reproduce,
        ..Fault::of_nodes(run.facts(), FaultKind::Operator, &nodes, first_bad_case)
    }
}

/// The kernel's variants: nodes with the same code and constants.
fn variants(run: &DiagnosisContext<'_>, group: &Group) -> Vec<Variant> {
    let graph = run.suite.graph();
    let mut order: Vec<Variant> = Vec::new();
    let mut index: HashMap<&str, usize> = HashMap::new();
    for result in &group.results {
        let phase = run.suite.phase(result.case);
        let Ok(choice) = run.choices.kernel_at(result.case.node, phase) else { continue };
        // Variants stand in the order of their first calls; the map only finds them.
        let at = *index.entry(&choice.hash).or_insert_with(|| {
            let types = graph.input_types(graph.node(result.case.node));
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            order.push(Variant { types: types.join(", "), nodes: Vec::new(), cases: 0, failed: 0 });
            order.len() - 1
        });
        let variant = &mut order[at];
        variant.cases += 1;
        variant.failed += u64::from(result.is_failed());
        let name = run.name(result.case.node);
        if !variant.nodes.iter().any(|n| n == name) {
            variant.nodes.push(name.into());
        }
    }
    order
}
