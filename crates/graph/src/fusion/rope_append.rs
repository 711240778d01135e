//! `rope_append`: new keys, rotated, and new values behind those of the caches; and the queries rotated, if they are.

use super::rope_attention;
use super::rule::{Fusion, Site};
use super::samples::FusedSample;
use super::uses::Uses;
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::graph::{Node, NodeId, Origin, ValueId};
use crate::op::{Attention, Fill, Op, Rope, Sample};

/// The row of [`super::FUSIONS`].
pub const FUSION: Fusion = Fusion { name: "rope_append", find, samples };

/// The nodes in front of an attention that rotate new keys and append keys and values to their caches.
pub struct Appending {
    /// The rotation of the keys.
    pub rope: NodeId,
    /// The angles that it takes.
    pub angles: ValueId,
    /// The appending of keys and of values.
    pub appends: [NodeId; 2],
}

fn find(uses: &Uses<'_>) -> Vec<Site> {
    uses.nodes().filter_map(|node| site(uses, node)).collect()
}

/// The place in front of an attention: with the rotation of its queries if it takes the same angles, and without.
fn site(uses: &Uses<'_>, (_, node): (NodeId, &Node)) -> Option<Site> {
    let Op::Attention(op) = &node.op else { return None };
    let appending = find_append(uses, op, node)?;
    let own = vec![appending.rope, appending.appends[0], appending.appends[1]];
    let queries = rope_attention::rotation(uses, op, node.inputs[0]);
    // Queries that are rotated by other angles stay outside.
    let queries = queries.filter(|(_, rope)| rope.inputs[1] == appending.angles);
    let with_queries = queries.map(|(id, _)| vec![std::iter::once(id).chain(own.clone()).collect()]);
    Some(Site { ways: with_queries.into_iter().chain([vec![own]]).collect() })
}

/// What stands in front of the caches that an attention takes, if nothing else sees them but the states.
pub fn find_append(uses: &Uses<'_>, op: &Attention, node: &Node) -> Option<Appending> {
    let [_, keys, values] = node.inputs[..] else { return None };
    let (append_keys, new_keys) = find_appended_rows(uses, keys)?;
    let (append_values, _) = find_appended_rows(uses, values)?;
    let (rope, rotation) = rope_attention::rotation(uses, op, new_keys)?;
    let (angles, appends) = (rotation.inputs[1], [append_keys, append_values]);
    Some(Appending { rope, angles, appends })
}

/// The node that extends a state by rows, and the rows.
fn find_appended_rows(uses: &Uses<'_>, cache: ValueId) -> Option<(NodeId, ValueId)> {
    let (id, node) = uses.maker_for_one(cache)?;
    let Op::Append(_) = node.op else { return None };
    let Origin::State(state) = uses.graph.value(node.inputs[0]).origin else { return None };
    // The new state is exactly what the attention reads.
    let extended = uses.graph.states().get(state as usize)?.output == cache;
    let all = Dim::symbol(Symbol::N).checked_add(&Dim::symbol(Symbol::P))?;
    // A state of fixed size is no cache.
    let grows = uses.graph.value(cache).ty.shape.first() == Some(&all);
    (extended && grows).then_some((id, node.inputs[1]))
}

/// With and without queries, in two dtypes, with cached rows and without.
fn samples() -> Vec<Sample> {
    let case = |name: &str, act, queries: bool, n, p| {
        let (head_dim, heads, kv_heads) = (64, 4, 2);
        let mut s = FusedSample::new(name, &FUSION);
        let rope = Rope { head_dim, rotary_dim: head_dim, interleaved: false };
        let rows = s.rows(act, u64::from(heads * head_dim));
        let q = queries.then(|| s.input(rows, Fill::Normal(1.0)));
        let angles = s.input(rope_attention::angles(head_dim), Fill::Normal(0.7));
        let q = q.map(|q| s.node(rope.clone(), &[q, angles]));
        let [keys, values] = s.rotated_and_appended(rope, angles, act, u64::from(kv_heads * head_dim));
        for value in q.into_iter().chain([keys, values]) {
            s.output(value);
        }
        s.finish(n, p)
    };
    vec![
        case("with queries, f16", DType::F16, true, 5, 3),
        case("with queries, f32", DType::F32, true, 3, 0),
        case("keys and values", DType::F16, false, 7, 0),
        case("behind cached ones", DType::F16, false, 130, 70),
    ]
}
