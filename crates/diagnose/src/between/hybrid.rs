//! The whole model with some of its nodes on the target.
//!
//! A hybrid runs each node on one of two platforms and carries values between them.

use crate::context::DiagnosisContext;
use std::collections::HashSet;
use tapml_exec::{Fusing, Hybrid, HybridSide, LoadOptions};
use tapml_graph::{Node, NodeId, Result, Symbols, fusion};
use tapml_migrate::MovementLimits;

/// The nodes that run on the target.
/// In graph order.
pub(super) fn target_nodes(run: &DiagnosisContext<'_>) -> Vec<NodeId> {
    let nodes = run.suite.graph().nodes().iter().zip(0u32..);
    nodes.filter(|(n, _)| !run.barred.contains(&n.name)).map(|(_, i)| NodeId(i)).collect()
}

/// A hybrid with these nodes on the target.
///
/// # Errors
///
/// What loading gives: a target without memory for it, or one that does not take the nodes in one program.
pub(super) fn hybrid(
    run: &mut DiagnosisContext<'_>,
    nodes: &[NodeId],
    capacity: &Symbols,
    options: LoadOptions,
) -> Result<Hybrid> {
    let names: HashSet<&str> = nodes.iter().map(|&id| run.name(id)).collect();
    let side = |node: &Node| {
        if names.contains(node.name.as_str()) { HybridSide::Target } else { HybridSide::Source }
    };
    let options = LoadOptions { fusing: allowed_fusions(run, &options.fusing), ..options };
    Hybrid::with_options(run.model, run.source, run.target, &side, capacity, options)
}

/// The fused operators that may be put in: a faulty one was told already, and would hide what lies between others.
fn allowed_fusions(run: &DiagnosisContext<'_>, asked: &Fusing) -> Fusing {
    let faulty = |name: &str| run.faults.iter().any(|fault| fault.op == name);
    let names = fusion::FUSIONS.iter().map(|fusion| fusion.name);
    match asked {
        Fusing::All if names.clone().any(faulty) => {
            Fusing::Only(names.filter(|name| !faulty(name)).map(str::to_string).collect())
        }
        asked => asked.clone(),
    }
}

/// How far results may lie apart with these nodes on the target.
/// Only nodes on the target add to the allowance, because the others compute what was recorded.
pub(super) fn limits(run: &DiagnosisContext<'_>, nodes: &[NodeId]) -> Result<MovementLimits> {
    let on_target: HashSet<NodeId> = nodes.iter().copied().collect();
    let choices = &run.choices;
    let declared = |id: NodeId, symbols: &Symbols| {
        if on_target.contains(&id) { choices.declared_precision(id, symbols) } else { Ok(None) }
    };
    MovementLimits::measure(run.suite, run.model, run.oracles, &declared, run.stop)
}
