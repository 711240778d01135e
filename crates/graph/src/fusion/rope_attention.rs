//! `rope_attention`: attention whose queries are rotated as they are read.
//!
//! It serves graphs whose keys are rotated elsewhere, and stands behind `rope_append_attention` in the list.

use super::rule::{Fusion, Site};
use super::samples::FusedSample;
use super::uses::Uses;
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::graph::{Node, NodeId, TensorType, ValueId};
use crate::op::{Attention, Fill, Op, Rope, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "rope_attention", find, samples };

fn find(uses: &Uses<'_>) -> Vec<Site> {
    uses.nodes().filter_map(|node| site(uses, node)).collect()
}

/// The place of an attention of three inputs whose queries are rotated for it alone.
fn site(uses: &Uses<'_>, (id, node): (NodeId, &Node)) -> Option<Site> {
    let Op::Attention(op) = &node.op else { return None };
    let (rope, _) = rotation(uses, op, *node.inputs.first()?)?;
    (node.inputs.len() == 3).then(|| Site { ways: vec![vec![vec![rope, id]]] })
}

/// The node that rotates whole heads of an attention's size to a value that nothing else uses.
pub fn rotation<'g>(uses: &Uses<'g>, op: &Attention, value: ValueId) -> Option<(NodeId, &'g Node)> {
    let (id, node) = uses.maker_for_one(value)?;
    let Op::Rope(rope) = &node.op else { return None };
    // Whole heads in halves alone: neither pairs of neighbours nor a part of a head.
    let whole = rope.head_dim == op.head_dim && rope.rotary_dim == op.head_dim && !rope.interleaved;
    (whole && !uses.is_kept(value)).then_some((id, node))
}

/// Cosines and sines for heads of this size, in each row of the run.
pub fn angles(head_dim: u32) -> TensorType {
    TensorType::new(DType::F32, [Dim::symbol(Symbol::N), Dim::from(u64::from(head_dim))])
}

/// The type of `n + p` rows.
fn all_rows(dtype: DType, width: u32) -> TensorType {
    let rows = Dim::symbol(Symbol::N).checked_add(&Dim::symbol(Symbol::P));
    TensorType::new(dtype, [rows.unwrap_or(Dim::symbol(Symbol::N)), Dim::from(u64::from(width))])
}

/// Sizes of heads, cached keys, and a window.
fn samples() -> Vec<Sample> {
    let case = |name: &str, op: Attention, n, p| {
        let mut s = FusedSample::new(name, &FUSION);
        let rope = Rope { head_dim: op.head_dim, rotary_dim: op.head_dim, interleaved: false };
        let rows = s.rows(DType::F16, u64::from(op.heads * op.head_dim));
        let q = s.input(rows, Fill::Normal(1.0));
        let angles = s.input(angles(op.head_dim), Fill::Normal(0.7));
        let q = s.node(rope, &[q, angles]);
        let keys = s.input(all_rows(DType::F16, op.kv_heads * op.head_dim), Fill::Normal(1.0));
        let values = s.input(all_rows(DType::F16, op.kv_heads * op.head_dim), Fill::Normal(1.0));
        let y = s.node(op, &[q, keys, values]);
        s.output(y);
        s.finish(n, p)
    };
    let window = Attention { window: Some(40), ..Attention::causal(2, 1, 64, 0.125) };
    vec![
        case("heads of 64", Attention::causal(4, 2, 64, 0.125), 9, 0),
        case("heads of 128, cached keys", Attention::causal(2, 1, 128, 0.0883), 70, 65),
        case("a window", window, 130, 3),
    ]
}
