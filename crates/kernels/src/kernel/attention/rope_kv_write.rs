//! `rope_append/rows` and `rope_paged_append/portable`: rotated queries, and rotated keys and values in their caches, in one launch.
//!
//! One invocation turns or moves two elements, a half of a head apart, four times over. Keys of a text go to rows `p` to `p + n
//! - 1` of the caches, behind those that are there; those of pages to the rows that their slots name.

use super::super::Request;
use super::super::body::FusedBody;
use super::super::source::{
    FLAT_ELEMENTS, KernelSource, constant, plan_of, single_workgroup, unserved_error,
};
use super::with_copies;
use crate::plan::NodePlan;
use tapml_graph::{Dim, Error, Extent, Op, Result, Symbol, ValueId};

/// The text.
pub const TEXT: &str = include_str!("keep.wgsl");

/// Takes heads of any even size.
const KERNEL: KernelSource = KernelSource::flat("rope_append/rows", "attention/keep.wgsl", TEXT);

/// The same for pages.
const PAGED: KernelSource = KernelSource::flat(
    "rope_paged_append/portable",
    "attention/keep_paged.wgsl",
    include_str!("keep_paged.wgsl"),
);

/// The plan. It binds queries, keys, values, angles, and slots where there are some, and, written, rotated queries and the caches
/// of keys and values, which hold `p` rows or all pages.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let wrong = || Error::unsupported("the kernel needs rotated queries and keys, and values, to append");
    let is_append = |op: &Op| matches!(op, Op::Append(_) | Op::PagedAppend(_));
    let appends: Vec<_> = body.nodes().iter().filter(|node| is_append(&node.op)).collect();
    let rotated = |value: ValueId| body.maker(value).filter(|node| matches!(node.op, Op::Rope(_)));
    let turned: Vec<_> = appends.iter().map(|node| rotated(node.inputs[1])).collect();
    let ([first, second], [Some(keys), None] | [None, Some(keys)]) = (&appends[..], &turned[..]) else {
        return Err(wrong());
    };
    // Both appending nodes look alike: the one whose rows are rotated is that of the keys.
    let (of_keys, of_values) = if turned[0].is_some() { (first, second) } else { (second, first) };
    // The other rotation is that of the queries.
    let queries = body.nodes().iter().find(|node| matches!(node.op, Op::Rope(_)) && node.name != keys.name);
    let queries = queries.ok_or_else(wrong)?;
    let (Op::Rope(rope), width) = (&keys.op, |value: ValueId| body.ty(value).shape.get(1)?.as_const()) else {
        return Err(wrong());
    };
    let (head_dim, q, k, v) = (rope.head_dim, queries.inputs[0], keys.inputs[0], of_values.inputs[1]);
    let act = body.ty(q).dtype;
    let heads = |value| Some(u32::try_from(width(value)?).ok()? / head_dim.max(1));
    let (heads, kv_heads) = (heads(q).ok_or_else(wrong)?, heads(k).ok_or_else(wrong)?);
    let caches = [of_keys.inputs[0], of_values.inputs[0]];
    // Absent where rows go behind those that are cached.
    let slots = of_keys.inputs.get(2);
    let alike = [k, v, caches[0], caches[1]].iter().all(|&value| body.ty(value).dtype == act);
    let rows = Dim::symbol(Symbol::N);
    // Keys and values share the arithmetic of places.
    let same_places = width(v) == width(k)
        && of_values.inputs.get(2) == slots
        && body.ty(caches[0]).shape[0] == body.ty(caches[1]).shape[0];
    let fits = alike && head_dim.is_multiple_of(2) && same_places && body.ty(q).shape[0] == rows;
    if !fits || queries.inputs[1] != keys.inputs[1] {
        return Err(unserved_error(request));
    }
    let written = [queries.outputs[0], of_keys.outputs[0], of_values.outputs[0]];
    let written = written.map(|value| body.write(value));
    let [rotated, grown_keys, grown_values] = written;
    let (rotated, grown) = (rotated?, [grown_keys?, grown_values?]);
    let kernel = if slots.is_some() { PAGED } else { KERNEL };
    let mut launch = kernel.launch(act, act)?;
    for arg in body.read_all([q, k, v, keys.inputs[1]].into_iter().chain(slots.copied()))? {
        launch = launch.bind(false, arg);
    }
    for arg in [rotated, grown[0], grown[1]] {
        launch = launch.bind(true, arg);
    }
    // The body may give the rotated keys too, which this kernel leaves nowhere.
    body.expect_outputs(&[rotated, grown[0], grown[1]])?;
    let launch = launch.rows(&rows)?.set("HEADS", heads).set("KV_HEADS", kv_heads).set("HEAD_DIM", head_dim);
    let launch = match slots {
        Some(_) => launch.set("SLOTS", constant("the rows of the pages", &body.ty(caches[0]).shape[0])?),
        None => launch,
    };
    // Heads of queries, of keys and of values; each item is a pair of elements.
    let items = u64::from(heads) + 2 * u64::from(kv_heads);
    let items = rows.checked_mul(items * u64::from(head_dim / 2)).ok_or_else(wrong)?;
    let launch =
        launch.groups([Extent::ceil_div(items, FLAT_ELEMENTS), single_workgroup(), single_workgroup()]);
    let places = caches.map(|cache| body.input(cache).ok_or_else(wrong));
    let [keys_at, values_at] = places;
    let pairs = [(keys_at?, grown[0]), (values_at?, grown[1])];
    // A rotation adds two products.
    with_copies(plan_of(launch, 1), body.ty(caches[0]), pairs)
}
