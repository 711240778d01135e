//! Attention of rows of several texts, whose keys and values lie in pages: `paged_attention.cu`.
//!
//! One kernel serves steps of generation and prompts alike, so that a row has the same bits in both. Blocks for rows that are in
//! a tile of another block end at once. In steps of few rows a cluster of blocks has a row, and shares out its keys.

use super::{OVERLAP, bindings, desc};
use crate::kernel::Request;
use crate::kernel::source::{constant, plan_of, single_workgroup, unserved_error, wrong_op};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::op::{Attention, PagedAttention};
use tapml_graph::{DType, Dim, Extent, Op, Result, Symbol};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("paged_attention.cu");
/// Warps of a block.
const WARPS: u32 = 4;
/// Stages of a warp's ring, each of [`KEYS`] keys and their values.
const DEPTH: u32 = 3;
/// Keys of a product.
const KEYS: u32 = 16;
/// Parts that the keys of a row are cut into at most, and blocks of a cluster.
const CHUNKS: u32 = 8;
/// Rows of a step up to which each has a cluster. Blocks of more rows fill a chip by themselves.
const CLUSTER_ROWS: u32 = 4;
/// Queries of a tile: those of all heads that share keys.
const QUERIES: u32 = 16;

/// Whether the kernel serves such attention of f16.
fn serves(op: &Attention) -> bool {
    op.causal
        && op.chunk.is_none()
        && op.softcap.is_none()
        && op.alibi.is_none()
        && op.value_size() == op.head_dim
        && matches!(op.head_dim, 64 | 128)
        && op.kv_heads > 0
        && op.heads.is_multiple_of(op.kv_heads)
        && op.heads / op.kv_heads <= QUERIES
}

/// The plan.
///
/// # Errors
/// `Unsupported` for anything but f16, for masks that the text does not know, and for sinks.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::PagedAttention(PagedAttention { attention: op, page }) = request.op else {
        return Err(wrong_op(request));
    };
    let [q, k, v, _, _, pages] = request.inputs else { return Err(unserved_error(request)) };
    let halves = [q, k, v].iter().all(|ty| ty.dtype == DType::F16);
    if !halves || !serves(op) || q.shape.first() != Some(&Dim::symbol(Symbol::N)) {
        return Err(unserved_error(request));
    }
    // Rings of keys and values of 2 bytes an element, and in their place the sums of each warp.
    let memory = (WARPS * DEPTH * 4 * KEYS * op.head_dim).max(WARPS * QUERIES * op.head_dim * 4);
    let file = "cuda/paged_attention.cu";
    let mut desc = desc(request.info, "paged_attention/flash_cuda", file, TEXT, WARPS * 32, memory);
    desc.bindings = bindings(6, 1);
    let cluster = if request.info.features.cuda >= Some(OVERLAP) { CHUNKS } else { 1 };
    desc.constants = [
        ("HEADS", f64::from(op.heads)),
        ("KV_HEADS", f64::from(op.kv_heads)),
        ("D", f64::from(op.head_dim)),
        ("SCALE", f64::from(op.scale)),
        ("WINDOW", f64::from(op.window.unwrap_or(0))),
        ("PAGE", f64::from(*page)),
        ("TEXTS", f64::from(constant("the texts of a step", &pages.shape[0])?)),
        ("BLOCKS", f64::from(constant("the pages of a text", &pages.shape[1])?)),
        ("DEPTH", f64::from(DEPTH)),
        ("CLUSTER", f64::from(cluster)),
        ("CLUSTER_ROWS", f64::from(CLUSTER_ROWS)),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec();
    let args = (0..6).map(Arg::whole_input).chain([Arg::Output(0), Arg::Symbols]).collect();
    let rows = Extent::from_dim(Dim::symbol(Symbol::N));
    let groups = [Extent::from_dim(u64::from(op.kv_heads)), rows, single_workgroup()];
    Ok(plan_of(Launch { desc, args, groups }, chain(op)))
}

/// The longest chain of additions over a context of a thousand: the products of a score, 16 at a time; or a warp's sixteens of
/// keys, with the two planes of one, the parts, and then the warps.
fn chain(op: &Attention) -> u32 {
    (op.head_dim / 16 + 16).max(1024 / (KEYS * WARPS) + KEYS + CHUNKS + WARPS)
}
