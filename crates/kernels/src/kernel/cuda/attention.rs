//! Attention of one row: `flash_decode.cu`.
//!
//! This is Flash-Decoding on one cluster of blocks for each key/value head: each block has a share of the cached
//! rows, and the blocks bring their results together within the cluster, without a second launch.

use super::{OVERLAP, bindings, desc};
use crate::axis::Axis;
use crate::kernel::Request;
use crate::kernel::attention::{Appending, is_plain_f16, with_copies};
use crate::kernel::body::FusedBody;
use crate::kernel::source::{plan_of, single_workgroup, unserved_error, wrong_op};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Extent, Op, Result, Symbol};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("flash_decode.cu");
/// Warps of a block.
const WARPS: u32 = 8;
/// Stages of a warp's ring.
const DEPTH: u32 = 2;
/// Blocks of a cluster.
const CLUSTER: u64 = 8;
/// Cached rows that one block treats alone, and keys of a product: `flash_decode.cuh`.
const BLOCK_ROWS: u64 = 256;
/// The depth of a product of `mma` in f16.
const KEYS: u64 = 16;
/// Query heads that share a key/value head at most: the rows of a product on tensor cores that are used.
const MOST_HEADS: u32 = 8;

/// The plan of attention of one row.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Attention(op) = request.op else { return Err(wrong_op(request)) };
    let found = kernel(op, false, request.info).filter(|_| is_plain_f16(request));
    let (desc, groups) = found.ok_or_else(|| unserved_error(request))?;
    let inputs = (0..3).map(|index| Arg::Input { index, offset: 0, len: 0 });
    let args = inputs.chain([Arg::Output(0), Arg::Symbols]).collect();
    Ok(plan_of(Launch { desc, args, groups }, chain(op)).with_axes(axes()))
}

/// The plan with the rotations and the appending in front: `rope_append_attention`.
pub fn plan_with_appending(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let found = Appending::from_body(&body)?;
    let (op, [keys, values]) = (found.op, found.grown);
    let kernel = kernel(op, true, request.info).filter(|_| found.q.dtype == DType::F16);
    let (desc, groups) = kernel.ok_or_else(|| unserved_error(request))?;
    let args = found.new.into_iter().chain([keys, values, found.y, Arg::Symbols]).collect();
    let plan = plan_of(Launch { desc, args, groups }, chain(op)).with_axes(axes());
    with_copies(plan, found.cache, found.pairs())
}

/// The kernel and its grid for f16 queries and caches; `None` if it does not serve such attention, or the device cannot
/// run it.
///
/// It binds the queries, the caches of keys and values, and the output. If `joined`, the queries, keys and values as the
/// projections leave them, the angles, and, written, the caches and the output.
fn kernel(op: &Attention, joined: bool, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    // Masks that the text does not know are refused, not ignored.
    let plain = op.causal
        && op.window.is_none()
        && op.chunk.is_none()
        && op.softcap.is_none()
        && op.alibi.is_none()
        && op.value_size() == op.head_dim
        && matches!(op.head_dim, 64 | 128)
        && op.kv_heads > 0
        && op.heads / op.kv_heads <= MOST_HEADS;
    if !plain || info.features.cuda < Some(OVERLAP) {
        return None;
    }
    // The rings, and in their place the sums of each warp.
    let group = op.heads / op.kv_heads;
    // A stage of a warp has 16 keys and 16 values of 2 bytes an element: 64 bytes for each element of a head.
    let memory = (WARPS * DEPTH * 64 * op.head_dim).max(WARPS * group * op.head_dim * 4);
    if memory > info.limits.max_workgroup_memory {
        return None;
    }
    let mut desc = desc(info, "flash_decode/cuda", "cuda/flash_decode.cu", TEXT, WARPS * 32, memory);
    desc.bindings = if joined { bindings(4, 3) } else { bindings(3, 1) };
    desc.constants = [
        ("HEADS", f64::from(op.heads)),
        ("KV_HEADS", f64::from(op.kv_heads)),
        ("D", f64::from(op.head_dim)),
        ("WARPS", f64::from(WARPS)),
        ("DEPTH", f64::from(DEPTH)),
        ("SCALE", f64::from(op.scale)),
        ("JOINED", f64::from(u8::from(joined))),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec();
    // The grid does not depend on how many rows are cached, so that a recorded list serves every step.
    Some((desc, [Extent::from_dim(CLUSTER), Extent::from_dim(u64::from(op.kv_heads)), single_workgroup()]))
}

/// What changes along the cached rows: one block alone, whose warps take sixteens, or a cluster of them, each with its share
/// in whole sixteens, and turns of all warps until their rings begin anew.
fn axes() -> [Axis; 4] {
    let cached = Dim::symbol(Symbol::P);
    let steps = |length| Axis::steps("cached rows", cached.clone(), length);
    let rings = KEYS * CLUSTER * u64::from(WARPS * DEPTH);
    let limit = |most| Axis::limit("cached rows", cached.clone(), most);
    [limit(BLOCK_ROWS), limit(rings), steps(KEYS), steps(KEYS * CLUSTER).only_above(BLOCK_ROWS)]
}

/// The longest chain of additions over a context of a thousand: a warp's keys, 16 at a time, then the warps and blocks.
fn chain(op: &Attention) -> u32 {
    (op.head_dim / 16 + 16).max(16 + 16 + WARPS + CLUSTER as u32)
}
