//! Lowering: a graph as a device runs it in one phase. Fused operators take the place of nodes wherever a row of the kernel
//! list serves them; every node of what comes out is run by one row.
//!
//! Fusing changes neither the values that a graph gives nor their names. It depends on the phase and the device,
//! because a fused operator is put in only where a kernel serves it in that phase.

use crate::overrides::Overrides;
use crate::plan::Phase;
use crate::planner::Planner;
use std::collections::HashSet;
use tapml_graph::fusion::{FUSIONS, join_norms, split_norms};
use tapml_graph::{Context, Graph, Op, Result, TensorType};

/// Which fused operators may be put in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fusing {
    /// All.
    #[default]
    All,
    /// None.
    Off,
    /// Those of these names.
    /// Names are those of the table of fusions, such as `norm_linear`.
    Only(HashSet<String>),
}

impl Fusing {
    /// Whether the fused operator of this name may be put in.
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Fusing::All => true,
            Fusing::Off => false,
            Fusing::Only(names) => names.contains(name),
        }
    }
}

/// The graph as a device runs it in a phase, with the plans and the user's kernels of a planner.
///
/// Values keep their names. An operator that a user's kernel serves is not fused with others, so that it runs, and one that
/// is chosen to be left unfused is not put in. The graph itself is given back where nothing is fused.
pub fn lower(graph: &Graph, phase: Phase, fusing: &Fusing, planner: &mut Planner) -> Result<Graph> {
    if *fusing == Fusing::Off {
        return Ok(graph.clone());
    }
    let lowered = fuse_graph(graph, phase, fusing, planner);
    lowered.context(|| format!("lowering graph `{}` for {}", graph.name(), phase.name()))
}

/// Applies the fusions one after the other, in the order of their table; each sees what those before it left.
fn fuse_graph(graph: &Graph, phase: Phase, fusing: &Fusing, planner: &mut Planner) -> Result<Graph> {
    // A sum within a norm operator is taken out first, so that fusions see the sum and the norm as nodes of their
    // own.
    let mut lowered = split_norms(graph)?;
    let mut changed = false;
    for fusion in FUSIONS.iter().filter(|fusion| fusing.allows(fusion.name)) {
        let mut serves = |op: &Op, inputs: &[TensorType]| {
            let overrides = planner.overrides();
            // A user's kernel would never run within a fused operator, and a measurement may have found fusing
            // slower.
            let left = is_replaced(op, overrides) || overrides.choices().leaves_unfused(op, inputs);
            !left && planner.plan(op, inputs, phase).is_ok()
        };
        if let Some(next) = fusion.apply(&lowered, &mut serves)? {
            (lowered, changed) = (next, true);
        }
    }
    // Sums and norms that no fusion took are joined again, as the source graph had them.
    if changed { join_norms(&lowered, graph) } else { Ok(graph.clone()) }
}

/// Whether a user's kernel serves an operator within a fused one.
fn is_replaced(op: &Op, overrides: &Overrides) -> bool {
    match op {
        Op::Fused(fused) => fused.body().nodes().iter().any(|node| overrides.serves(node.op.name())),
        _ => false,
    }
}
