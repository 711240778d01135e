//! Attention of one row: `attention.cu`.

use super::{OVERLAP, bindings, desc};
use crate::kernel::source::one;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::Extent;
use tapml_graph::op::Attention;

const TEXT: &str = include_str!("attention.cu");
/// Warps of a block.
const WARPS: u32 = 8;
/// Stages of a warp's ring.
const DEPTH: u32 = 2;
/// Blocks of a cluster.
const CLUSTER: u64 = 8;
/// Query heads that share a key/value head at most: the rows of a product on tensor cores that are used.
const MOST_HEADS: u32 = 8;

/// The kernel and its grid for f16 queries and caches; `None` if it does not serve such attention, or the device cannot
/// run it.
///
/// It binds the queries, the caches of keys and values, and the output. If `joined`, the queries, keys and values as the
/// projections leave them, the angles, and, written, the caches and the output.
pub fn kernel(op: &Attention, joined: bool, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
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
    let memory = (WARPS * DEPTH * 64 * op.head_dim).max(WARPS * group * op.head_dim * 4);
    if memory > info.limits.max_workgroup_memory {
        return None;
    }
    let mut desc = desc(info, "attention/cuda", "cuda/attention.cu", TEXT, WARPS * 32, memory);
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
    Some((desc, [Extent::of(CLUSTER), Extent::of(u64::from(op.kv_heads)), one()]))
}

/// The longest chain of additions over a context of a thousand: a warp's keys, 16 at a time, then the warps and blocks.
pub fn chain(op: &Attention) -> u32 {
    (op.head_dim / 16 + 16).max(16 + 16 + WARPS + CLUSTER as u32)
}
