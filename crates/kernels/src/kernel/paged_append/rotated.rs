//! `rope_paged_append/portable`: rotated queries, and rotated keys and values in their places in pages, in one launch.
//!
//! One invocation turns or moves two elements, a half of a head apart, four times over. First come copies of the pages, which are
//! left out where they are written in place.

use super::super::Request;
use super::super::attention::with_copies;
use super::super::body::FusedBody;
use super::super::source::{
    FLAT_ELEMENTS, KernelSource, constant, plan_of, single_workgroup, unserved_error,
};
use crate::plan::NodePlan;
use tapml_graph::{Dim, Error, Extent, Node, Op, Result, Symbol};

/// Takes heads of any even size.
const KERNEL: KernelSource = KernelSource::flat(
    "rope_paged_append/portable",
    "paged_append/rotated.wgsl",
    include_str!("rotated.wgsl"),
);

/// The nodes of a body.
struct Parts<'a> {
    /// Rotates the queries.
    queries: &'a Node,
    /// Rotates the new keys.
    keys: &'a Node,
    append_keys: &'a Node,
    append_values: &'a Node,
}

impl<'a> Parts<'a> {
    /// `None` if the body has other nodes.
    fn find(body: &FusedBody<'a>) -> Option<Parts<'a>> {
        let appends: Vec<&Node> =
            body.nodes().iter().filter(|node| matches!(node.op, Op::PagedAppend(_))).collect();
        let rotation =
            |append: &Node| body.maker(append.inputs[1]).filter(|node| matches!(node.op, Op::Rope(_)));
        let [first, second] = appends[..] else { return None };
        // Both appending nodes look alike: the one whose rows are rotated is that of the keys.
        let (append_keys, append_values, keys) = match (rotation(first), rotation(second)) {
            (Some(keys), None) => (first, second, keys),
            (None, Some(keys)) => (second, first, keys),
            _ => return None,
        };
        let is_queries = |node: &&Node| matches!(node.op, Op::Rope(_)) && node.name != keys.name;
        let queries = body.nodes().iter().find(is_queries)?;
        Some(Parts { queries, keys, append_keys, append_values })
    }
}

/// The plan. It binds queries, keys, values, angles and slots, and, written, rotated queries and the pages of keys and values.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let wrong =
        || Error::unsupported("the kernel needs rotated queries and keys, and values, to append to pages");
    let Parts { queries, keys, append_keys, append_values } = Parts::find(&body).ok_or_else(wrong)?;
    let Op::Rope(rope) = &keys.op else { return Err(wrong()) };
    let head_dim = rope.head_dim;
    let (q, k, v) = (queries.inputs[0], keys.inputs[0], append_values.inputs[1]);
    let width = |value| body.ty(value).shape.get(1)?.as_const();
    let heads = |value| Some(u32::try_from(width(value)?).ok()? / head_dim.max(1));
    let (heads, kv_heads) = (heads(q).ok_or_else(wrong)?, heads(k).ok_or_else(wrong)?);
    let caches = [append_keys.inputs[0], append_values.inputs[0]];
    let act = body.ty(q).dtype;
    let alike = [k, v, caches[0], caches[1]].iter().all(|&value| body.ty(value).dtype == act);
    let (rows, pool) = (Dim::symbol(Symbol::N), &body.ty(caches[0]).shape[0]);
    // Keys and values share the arithmetic of places, so that their widths and pages have to be equal.
    let same_sizes = width(v) == width(k) && body.ty(caches[1]).shape[0] == *pool;
    let fits = alike && same_sizes && head_dim.is_multiple_of(2) && body.ty(q).shape[0] == rows;
    let same_places = append_keys.inputs[2] == append_values.inputs[2];
    if !fits || !same_places || queries.inputs[1] != keys.inputs[1] {
        return Err(unserved_error(request));
    }
    let rotated = body.write(queries.outputs[0])?;
    let grown = [body.write(append_keys.outputs[0])?, body.write(append_values.outputs[0])?];
    let mut launch = KERNEL.launch(act, act)?;
    for arg in body.read_all([q, k, v, keys.inputs[1], append_keys.inputs[2]])? {
        launch = launch.bind(false, arg);
    }
    for arg in [rotated, grown[0], grown[1]] {
        launch = launch.bind(true, arg);
    }
    // The body may give the rotated keys too, which this kernel leaves nowhere.
    body.expect_outputs(&[rotated, grown[0], grown[1]])?;
    let launch = launch.rows(&rows)?.set("HEADS", heads).set("KV_HEADS", kv_heads).set("HEAD_DIM", head_dim);
    let launch = launch.set("SLOTS", constant("the rows of the pages", pool)?);
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
