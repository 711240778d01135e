//! Attention of many rows: `attend.cu`, and `keep.cu`, which rotates new keys on their way to the cache.

use super::{COPIES, HOPPER, bindings, desc};
use crate::kernel::source::one;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{Dim, Extent, Symbol};

const TEXT: &str = include_str!("attend.cu");
const HOPPER_TEXT: &str = include_str!("attend_hopper.cu");
const KEEP: &str = include_str!("keep.cu");
/// Queries of a block, and threads.
const QUERIES: u32 = 64;
const THREADS: u32 = 128;
/// Keys of a stage, of which there are two.
const KEYS: u32 = 64;
/// Of the kernel for Hopper chips: queries, which it keeps in shared memory too, threads and stages.
const HOPPER_BLOCK: [u32; 3] = [128, 256, 4];
/// What the alignment of its memory takes.
const ALIGNMENT: u32 = 1024;
/// Threads of a block that keeps keys and values.
const KEEPERS: u32 = 256;

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
}

/// The kernel and its grid for `n` f16 queries; `None` if it does not serve such attention, or the device cannot run it.
///
/// It binds the queries, if `joined` the angles by which they are rotated first, the caches of keys and values, and the
/// output.
pub fn kernel(op: &Attention, joined: bool, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let row = op.head_dim * 2;
    let ([queries, threads, stages], beside) = match info.features.cuda {
        Some(HOPPER) => (HOPPER_BLOCK, HOPPER_BLOCK[0] * row + ALIGNMENT),
        _ => ([QUERIES, THREADS, 2], 0),
    };
    let memory = stages * 2 * KEYS * row + beside;
    if !serves(op) || info.features.cuda < Some(COPIES) || memory > info.limits.max_workgroup_memory {
        return None;
    }
    let mut desc = match info.features.cuda {
        Some(HOPPER) => desc(info, "attend/cuda", "cuda/attend_hopper.cu", HOPPER_TEXT, threads, memory),
        _ => desc(info, "attend/cuda", "cuda/attend.cu", TEXT, threads, memory),
    };
    desc.bindings = bindings(if joined { 4 } else { 3 }, 1);
    desc.constants = [
        ("HEADS", f64::from(op.heads)),
        ("KV_HEADS", f64::from(op.kv_heads)),
        ("D", f64::from(op.head_dim)),
        ("SCALE", f64::from(op.scale)),
        ("WINDOW", f64::from(op.window.unwrap_or(0))),
        ("JOINED", f64::from(u8::from(joined))),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec();
    let tiles = Extent::ceil_div(Dim::symbol(Symbol::N), queries);
    Some((desc, [Extent::of(u64::from(op.heads)), tiles, one()]))
}

/// The kernel and its grid that rotates `n` new keys of such attention and writes them and their values to the caches.
///
/// It binds keys, values and angles, and, written, the caches of keys and values.
pub fn keep(op: &Attention, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let mut desc = desc(info, "keep/cuda", "cuda/keep.cu", KEEP, KEEPERS, 0);
    desc.bindings = bindings(3, 2);
    desc.constants = vec![("KV_HEADS".into(), f64::from(op.kv_heads)), ("D".into(), f64::from(op.head_dim))];
    let items = Dim::symbol(Symbol::N).checked_mul(u64::from(op.kv_heads * (op.head_dim / 16)))?;
    Some((desc, [Extent::ceil_div(items, KEEPERS), one(), one()]))
}

/// The longest chain of additions over a context of a thousand: the products of a score, 16 at a time; or within a stage of
/// keys the tensor cores' additions of two planes, or those of the chances, and then stage after stage.
pub fn chain(op: &Attention) -> u32 {
    (op.head_dim / 16 + 16).max(KEYS / 4 + 1024 / KEYS + 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chip_takes_the_kernel_of_its_tensor_cores() {
        let mut info = crate::any_device();
        info.limits.max_workgroup_memory = 227 << 10;
        info.limits.max_invocations = 1024;
        info.limits.max_workgroup_size = [1024, 1024, 64];
        let op = Attention::causal(8, 2, 128, 0.1);
        for (chip, file) in [
            (Some(75), None),
            (Some(80), Some("cuda/attend.cu")),
            (Some(HOPPER), Some("cuda/attend_hopper.cu")),
            (Some(100), Some("cuda/attend.cu")),
        ] {
            info.features.cuda = chip;
            let kernel = kernel(&op, true, &info);
            assert_eq!(kernel.as_ref().map(|(desc, _)| desc.source.file.as_str()), file);
        }
    }
}
