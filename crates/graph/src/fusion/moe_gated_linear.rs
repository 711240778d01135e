//! `moe_gated_linear`: gate and up of the chosen experts, and those of the dense layer beside them.
//!
//! Both read the same rows. Nothing is added up here: the operator has an output for each of them.

use super::moe;
use super::rule::{Fusion, Site};
use super::samples::{FusedSample, constant_type};
use super::uses::Uses;
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::graph::{NodeId, TensorType, ValueId};
use crate::op::{ExpertGatedLinear, Fill, GatedLinear, Op, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "moe_gated_linear", find, samples };

fn find(uses: &Uses<'_>) -> Vec<Site> {
    let gated = |op: &Op| matches!(op, Op::ExpertGatedLinear(_));
    let experts = uses.nodes().filter(|(_, node)| gated(&node.op));
    experts.filter_map(|found| site(uses, found)).collect()
}

/// The place of a sparse layer and a dense one that take the same rows `x`.
///
/// Inputs of the sparse layer are the rows, its weights, and the indices of the chosen experts.
fn site(uses: &Uses<'_>, (id, node): moe::FoundNode<'_>) -> Option<Site> {
    let x = *node.inputs.first()?;
    let dense = uses.users(x).iter().copied().find(|&user| is_dense(uses, user, x))?;
    let weights: Vec<ValueId> = node.inputs[1..node.inputs.len() - 1].to_vec();
    uses.are_weights(&weights).then(|| Site { ways: vec![vec![vec![id, dense]]] })
}

/// Whether a node is a gated projection of `x` by weights.
fn is_dense(uses: &Uses<'_>, id: NodeId, x: ValueId) -> bool {
    let node = uses.graph.node(id);
    let gated = matches!(node.op, Op::GatedLinear(_));
    gated && uses.is_product(node) && uses.takes_first(node, x)
}

/// The indices of so many chosen experts of each row.
pub fn expert_ids_type(slots: u64) -> TensorType {
    TensorType::new(DType::U32, [Dim::symbol(Symbol::N), Dim::from(slots)])
}

/// Two experts and four, with a dense layer of several sizes.
fn samples() -> Vec<Sample> {
    let case = |name: &str, act, store, slots, dense: u64| {
        let mut s = FusedSample::new(name, &FUSION);
        let rows = s.rows(act, 256);
        let x = s.input(rows, Fill::Normal(1.0));
        let [gate, up] = [0, 1].map(|_| s.input(constant_type(store, &[8, 128, 256]), Fill::Normal(0.1)));
        let indices = s.input(expert_ids_type(slots), Fill::Below(8));
        let experts = s.node(ExpertGatedLinear {}, &[x, gate, up, indices]);
        let [gate, up] = [0, 1].map(|_| s.input(constant_type(store, &[dense, 256]), Fill::Normal(0.1)));
        let dense = s.node(GatedLinear {}, &[x, gate, up]);
        [experts, dense].into_iter().for_each(|value| s.output(value));
        s.finish(1, 0)
    };
    vec![
        case("f16", DType::F16, DType::F16, 2, 256),
        case("four experts, f32 rows", DType::F32, DType::BF16, 4, 128),
    ]
}
