//! `rope_append_attention`: attention with all that stands in front of it behind the projections: the rotations of
//! queries and new keys, and the appending of new keys and values to the caches.

use super::rule::{Fusion, Site};
use super::samples::FusedSample;
use super::uses::Uses;
use super::{rope_append, rope_attention};
use crate::dtype::DType;
use crate::graph::{Node, NodeId};
use crate::op::{Attention, Fill, Op, Rope, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "rope_append_attention", find, samples };

fn find(uses: &Uses<'_>) -> Vec<Site> {
    uses.nodes().filter_map(|node| site(uses, node)).collect()
}

/// The place of an attention whose queries and new keys are rotated by the same angles.
fn site(uses: &Uses<'_>, (id, node): (NodeId, &Node)) -> Option<Site> {
    let Op::Attention(op) = &node.op else { return None };
    let appending = rope_append::find_append(uses, op, node)?;
    let (queries, rope) = rope_attention::rotation(uses, op, node.inputs[0])?;
    let [keys, values] = appending.appends;
    let nodes = vec![queries, appending.rope, keys, values, id];
    (rope.inputs[1] == appending.angles).then(|| Site { ways: vec![vec![nodes]] })
}

/// Sizes of heads, numbers of cached rows, a window and a soft cap, each for one new row.
fn samples() -> Vec<Sample> {
    let case = |name: &str, act, op: Attention, p| {
        let (heads, kv) = (u64::from(op.heads * op.head_dim), u64::from(op.kv_heads * op.head_dim));
        let mut s = FusedSample::new(name, &FUSION);
        let rope = Rope { head_dim: op.head_dim, rotary_dim: op.head_dim, interleaved: false };
        let rows = s.rows(act, heads);
        let q = s.input(rows, Fill::Normal(1.0));
        let angles = s.input(rope_attention::angles(op.head_dim), Fill::Normal(0.7));
        let q = s.node(rope.clone(), &[q, angles]);
        let [keys, values] = s.rotated_and_appended(rope, angles, act, kv);
        let y = s.node(op, &[q, keys, values]);
        [keys, values, y].into_iter().for_each(|value| s.output(value));
        s.finish(1, p)
    };
    let causal =
        |heads, kv_heads, size: u32| Attention::causal(heads, kv_heads, size, (size as f32).powf(-0.5));
    let capped = Attention { window: Some(33), softcap: Some(20.0), ..causal(4, 2, 32) };
    vec![
        case("heads of 64, f16", DType::F16, causal(4, 2, 64), 70),
        case("heads of 128, f16", DType::F16, causal(4, 1, 128), 300),
        case("the first row, f16", DType::F16, causal(2, 2, 64), 0),
        case("f32", DType::F32, causal(4, 2, 32), 45),
        case("window and soft cap, f32", DType::F32, capped, 100),
    ]
}
