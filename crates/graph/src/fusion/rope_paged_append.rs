//! `rope_paged_append`: queries rotated, and new keys, rotated, and new values written to their places in pages.

use super::rope_attention;
use super::rule::{Fusion, Site};
use super::samples::FusedSample;
use super::uses::Uses;
use crate::dtype::DType;
use crate::graph::{Node, NodeId, Origin, TensorType, ValueId};
use crate::op::{Fill, Op, PagedAppend, Rope, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "rope_paged_append", find, samples };

fn find(uses: &Uses<'_>) -> Vec<Site> {
    uses.nodes().filter_map(|node| site(uses, node)).collect()
}

/// The place in front of an attention over pages, whose queries and new keys are rotated by the same angles.
fn site(uses: &Uses<'_>, (_, node): (NodeId, &Node)) -> Option<Site> {
    let Op::PagedAttention(op) = &node.op else { return None };
    let [queries, keys, values, ..] = node.inputs[..] else { return None };
    let (append_keys, new_keys) = find_appended_rows(uses, keys)?;
    let (append_values, new_values) = find_appended_rows(uses, values)?;
    let (rope_keys, turned_keys) = rope_attention::rotation(uses, &op.attention, new_keys.rows)?;
    let (rope_queries, turned_queries) = rope_attention::rotation(uses, &op.attention, queries)?;
    let alike = new_keys.slots == new_values.slots && turned_keys.inputs[1] == turned_queries.inputs[1];
    let nodes = vec![rope_queries, rope_keys, append_keys, append_values];
    alike.then(|| Site { ways: vec![vec![nodes]] })
}

/// What a node writes to pages.
struct AppendedRows {
    rows: ValueId,
    /// The place of each row.
    slots: ValueId,
}

/// The node that writes rows to the pages of a state, which an attention alone reads behind it.
fn find_appended_rows(uses: &Uses<'_>, cache: ValueId) -> Option<(NodeId, AppendedRows)> {
    let (id, node) = uses.maker_for_one(cache)?;
    let Op::PagedAppend(_) = node.op else { return None };
    let [before, rows, slots] = node.inputs[..] else { return None };
    let Origin::State(state) = uses.graph.value(before).origin else { return None };
    // The new state is exactly what the attention reads.
    let is_state = uses.graph.states().get(state as usize)?.output == cache;
    is_state.then_some((id, AppendedRows { rows, slots }))
}

/// In two dtypes, one row and several, and rows that go nowhere.
fn samples() -> Vec<Sample> {
    let case = |name: &str, act, n, slots: Fill| {
        let (head_dim, heads, kv_heads, pool) = (64u32, 4u32, 2u32, 48u64);
        let mut s = FusedSample::new(name, &FUSION);
        let rope = Rope { head_dim, rotary_dim: head_dim, interleaved: false };
        let width = u64::from(kv_heads * head_dim);
        let cache = TensorType::new(act, [pool, width]);
        let q = s.input(s.rows(act, u64::from(heads * head_dim)), Fill::Normal(1.0));
        let angles = s.input(rope_attention::angles(head_dim), Fill::Normal(0.7));
        let q = s.node(rope.clone(), &[q, angles]);
        let k = s.input(s.rows(act, width), Fill::Normal(1.0));
        let k = s.node(rope, &[k, angles]);
        let keys = s.input(cache.clone(), Fill::Normal(1.0));
        let slots = s.input(TensorType::new(DType::U32, [crate::Dim::symbol(crate::Symbol::N)]), slots);
        let keys = s.node(PagedAppend {}, &[keys, k, slots]);
        let values = s.input(cache, Fill::Normal(1.0));
        let v = s.input(s.rows(act, width), Fill::Normal(1.0));
        let values = s.node(PagedAppend {}, &[values, v, slots]);
        for value in [q, keys, values] {
            s.output(value);
        }
        s.finish(n, 0)
    };
    vec![
        case("rows of three texts", DType::F32, 6, Fill::Distinct(48)),
        case("decode, the last slot", DType::F32, 1, Fill::Values("47")),
        case("f16, backward", DType::F16, 5, Fill::Values("9,8,7,6,5")),
        case("f16, rows that go nowhere", DType::F16, 4, Fill::Values("4294967295,0,48,47")),
    ]
}
