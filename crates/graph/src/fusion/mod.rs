//! Fused operators, and where a graph has them. Each is a rewrite of the graph: nodes become one node whose meaning is
//! what they were (see [`Fused`]), so that a fusion cannot change what is computed. One file for each, listed once below.
//!
//! Which of them a device takes is not said here: a fusion is applied where `serves` says so, which asks the kernels.

mod conv_epilogue;
mod elementwise_chain;
mod epilogue;
mod fused;
mod linear_add;
mod linears;
mod matmul_epilogue;
mod moe;
mod moe_combine;
mod moe_down;
mod moe_gated_linear;
mod moe_router;
mod norm_linear;
mod region;
mod rope_append;
mod rope_append_attention;
mod rope_attention;
mod rope_paged_append;
mod rule;
mod samples;
mod split_norms;
mod uses;

pub use crate::op::Fused;
pub use region::REGION;
pub use rule::{Fusion, Site, Way};
pub use split_norms::{join_norms, split_norms};

use crate::error::{Context, Result};
use crate::graph::{Graph, NodeId, TensorType, ValueId};
use crate::op::Op;
use crate::outline::Outlined;
use crate::rewrite::Patch;
use std::collections::HashSet;
use uses::Uses;

/// All fusions, in the order in which they are tried: those that take most nodes first.
pub const FUSIONS: &[Fusion] = &[
    moe_router::FUSION,
    moe_gated_linear::FUSION,
    moe_down::FUSION,
    moe_combine::FUSION,
    rope_append_attention::FUSION,
    rope_append::FUSION,
    rope_attention::FUSION,
    rope_paged_append::FUSION,
    norm_linear::FUSION,
    linear_add::FUSION,
    linears::FUSION,
    conv_epilogue::FUSION,
    matmul_epilogue::FUSION,
    elementwise_chain::FUSION,
];

/// The fusion of this name.
pub fn find(name: &str) -> Option<&'static Fusion> {
    FUSIONS.iter().find(|fusion| fusion.name == name)
}

/// Whether something runs an operator on inputs of these types.
pub type Serves<'a> = dyn FnMut(&Op, &[TensorType]) -> bool + 'a;

impl Fusion {
    /// The graph with this operator in every place where it may stand and is served; `None` if there is none.
    pub fn apply(&'static self, graph: &Graph, serves: &mut Serves<'_>) -> Result<Option<Graph>> {
        let uses = Uses::from_graph(graph);
        let mut patch = Patch::new(graph);
        let mut taken = HashSet::new();
        for site in (self.find)(&uses) {
            for way in site.ways {
                let inside: HashSet<NodeId> = way.iter().flatten().copied().collect();
                // Nodes that another place has taken, or that could not be one node without a circle, are left as they are.
                if inside.is_empty() || !inside.is_disjoint(&taken) || !uses.is_convex(&inside) {
                    continue;
                }
                let Some(parts) = self.parts(&uses, &way, &inside, serves)? else { continue };
                replace(graph, &mut patch, &inside, parts).context(|| format!("fusion `{}`", self.name))?;
                // Nodes of another place must not be fused again in this pass.
                taken.extend(inside);
                break;
            }
        }
        if patch.is_empty() {
            return Ok(None);
        }
        let (fused, _) = patch.apply().context(|| format!("fusion `{}`", self.name))?;
        Ok(Some(fused))
    }

    /// The fused operators of a way, if all of them are served.
    fn parts(
        &'static self,
        uses: &Uses<'_>,
        way: &Way,
        inside: &HashSet<NodeId>,
        serves: &mut Serves<'_>,
    ) -> Result<Option<Vec<FusedPart>>> {
        let graph = uses.graph;
        let mut parts = Vec::with_capacity(way.len());
        // Where two of the operators compute a value, the first gives it.
        let mut given = HashSet::new();
        for nodes in way {
            let Outlined { body, inputs, outputs } = graph.outline(uses.all(), nodes, inside, &given)?;
            given.extend(outputs.iter().copied());
            let op = Op::Fused(Fused::new(self, body)?);
            let types: Vec<TensorType> = inputs.iter().map(|&v| graph.value(v).ty.clone()).collect();
            if !serves(&op, &types) {
                return Ok(None);
            }
            let last = nodes.iter().max().map_or("", |&id| graph.node(id).name.as_str());
            parts.push(FusedPart { name: format!("{last}.{}", self.name), op, inputs, outputs });
        }
        Ok(Some(parts))
    }
}

/// A fused operator that takes the place of nodes.
struct FusedPart {
    /// The name of its last node, with the fusion's behind it.
    name: String,
    op: Op,
    /// Values of the graph that it takes, in the order of the body's inputs.
    inputs: Vec<ValueId>,
    /// Values of the graph that it gives in their place.
    outputs: Vec<ValueId>,
}

/// Puts the fused operators in the place of all nodes `inside`.
fn replace(
    graph: &Graph,
    patch: &mut Patch<'_>,
    inside: &HashSet<NodeId>,
    parts: Vec<FusedPart>,
) -> Result<()> {
    let mut nodes: Vec<NodeId> = inside.iter().copied().collect();
    nodes.sort_unstable();
    patch.replace(&nodes)?;
    for FusedPart { name, op, inputs, outputs } in parts {
        // Names of nodes are unique.
        let name = if graph.find_node(&name).is_some() { format!("{name}.fused") } else { name };
        let wires: Vec<_> = inputs.iter().map(|&value| patch.tap(value)).collect();
        let made = patch.wire(name, op, &wires)?;
        for (&old, new) in outputs.iter().zip(made) {
            patch.shunt(old, new)?;
        }
    }
    Ok(())
}
