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
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Error, Extent, Node, Op, Result, Symbol, TensorType, ValueId};

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

/// What a kernel of rotations and appending works on.
pub struct Rotation {
    /// Storage of queries, keys, values and caches.
    pub act: DType,
    /// Heads of the queries.
    pub heads: u32,
    /// Heads of keys and of values.
    pub kv_heads: u32,
    /// Elements of a head; even.
    pub head_dim: u32,
    /// Rows of the pages, where slots name the rows that are written.
    pub slots: Option<u32>,
    /// Queries, keys, values, angles, and slots where there are some.
    pub read: Vec<Arg>,
    /// Rotated queries, and the caches of keys and values, which hold `p` rows or all pages.
    pub written: [Arg; 3],
    cache: TensorType,
    /// Inputs that the caches are.
    caches: [usize; 2],
}

/// The two nodes that append, that of the rotated keys first, and the node that rotates these.
struct Appending<'a> {
    keys: &'a Node,
    values: &'a Node,
    rotation: &'a Node,
}

impl<'a> Appending<'a> {
    /// Both appending nodes look alike: the one whose rows are rotated is that of the keys.
    fn of_body(body: &'a FusedBody) -> Option<Self> {
        let is_append = |op: &Op| matches!(op, Op::Append(_) | Op::PagedAppend(_));
        let appends: Vec<_> = body.nodes().iter().filter(|node| is_append(&node.op)).collect();
        let rotated = |value: ValueId| body.maker(value).filter(|node| matches!(node.op, Op::Rope(_)));
        let turned: Vec<_> = appends.iter().map(|node| rotated(node.inputs[1])).collect();
        match (&appends[..], &turned[..]) {
            (&[keys, values], &[Some(rotation), None]) | (&[values, keys], &[None, Some(rotation)]) => {
                Some(Appending { keys, values, rotation })
            }
            _ => None,
        }
    }
}

impl Rotation {
    /// What the request asks for.
    ///
    /// # Errors
    /// `Unsupported` if the nodes are others, or differ in dtype or places.
    pub fn of_request(request: &Request) -> Result<Rotation> {
        let body = FusedBody::of_request(request)?;
        let wrong = || Error::unsupported("the kernel needs rotated queries and keys, and values, to append");
        let Appending { keys: of_keys, values: of_values, rotation } =
            Appending::of_body(&body).ok_or_else(wrong)?;
        // The other rotation is that of the queries.
        let others = |node: &&Node| matches!(node.op, Op::Rope(_)) && node.name != rotation.name;
        let queries = body.nodes().iter().find(others).ok_or_else(wrong)?;
        let Op::Rope(rope) = &rotation.op else { return Err(wrong()) };
        let width = |value: ValueId| body.ty(value).shape.get(1)?.as_const();
        let (head_dim, q, k, v) = (rope.head_dim, queries.inputs[0], rotation.inputs[0], of_values.inputs[1]);
        let act = body.ty(q).dtype;
        let heads = |value| Some(u32::try_from(width(value)?).ok()? / head_dim.max(1));
        let (heads, kv_heads) = (heads(q).ok_or_else(wrong)?, heads(k).ok_or_else(wrong)?);
        let caches = [of_keys.inputs[0], of_values.inputs[0]];
        // Absent where rows go behind those that are cached.
        let slots = of_keys.inputs.get(2);
        let cache = body.ty(caches[0]);
        let alike = [k, v, caches[0], caches[1]].iter().all(|&value| body.ty(value).dtype == act);
        // Keys and values share the arithmetic of places.
        let same_places = width(v) == width(k)
            && of_values.inputs.get(2) == slots
            && cache.shape[0] == body.ty(caches[1]).shape[0];
        let of_rows = body.ty(q).shape[0] == Dim::symbol(Symbol::N);
        let fits = alike && head_dim.is_multiple_of(2) && same_places && of_rows;
        if !fits || queries.inputs[1] != rotation.inputs[1] {
            return Err(unserved_error(request));
        }
        let written = [queries.outputs[0], of_keys.outputs[0], of_values.outputs[0]];
        let [rotated, grown_keys, grown_values] = written.map(|value| body.write(value));
        let written = [rotated?, grown_keys?, grown_values?];
        // The body may give the rotated keys too, which no kernel leaves anywhere.
        body.expect_outputs(&written)?;
        let read = [q, k, v, rotation.inputs[1]].into_iter().chain(slots.copied());
        let [keys_at, values_at] = caches.map(|value| body.input(value).ok_or_else(wrong));
        Ok(Rotation {
            act,
            heads,
            kv_heads,
            head_dim,
            slots: slots.map(|_| constant("the rows of the pages", &cache.shape[0])).transpose()?,
            read: body.read_all(read)?,
            written,
            cache: cache.clone(),
            caches: [keys_at?, values_at?],
        })
    }

    /// The plan of a launch, in which the caches grow in place.
    ///
    /// # Errors
    /// If the caches cannot be copied.
    pub fn in_place(&self, plan: NodePlan) -> Result<NodePlan> {
        let [_, keys, values] = self.written;
        with_copies(plan, &self.cache, [(self.caches[0], keys), (self.caches[1], values)])
    }

    /// How many times so many elements of a half of a head there are in all rows; of queries, keys and values.
    pub fn items(&self, elements: u32) -> Option<Dim> {
        let heads = u64::from(self.heads) + 2 * u64::from(self.kv_heads);
        Dim::symbol(Symbol::N).checked_mul(heads * u64::from(self.head_dim / 2 / elements))
    }
}

/// The plan. It binds what a [`Rotation`] reads, and, written, what it writes.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let asked = Rotation::of_request(request)?;
    let kernel = if asked.slots.is_some() { PAGED } else { KERNEL };
    let mut launch = kernel.launch(asked.act, asked.act)?;
    for arg in &asked.read {
        launch = launch.bind(false, *arg);
    }
    for arg in asked.written {
        launch = launch.bind(true, arg);
    }
    let launch = launch.rows(&Dim::symbol(Symbol::N))?;
    let launch = launch.set("HEADS", asked.heads).set("KV_HEADS", asked.kv_heads);
    let launch = launch.set("HEAD_DIM", asked.head_dim);
    let launch = match asked.slots {
        Some(rows) => launch.set("SLOTS", rows),
        None => launch,
    };
    let items = asked.items(1).ok_or_else(|| unserved_error(request))?;
    let launch =
        launch.groups([Extent::ceil_div(items, FLAT_ELEMENTS), single_workgroup(), single_workgroup()]);
    // A rotation adds two products.
    asked.in_place(plan_of(launch, 1))
}
