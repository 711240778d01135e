//! Attention of many rows: `flash_prefill.cu`, and `rope_kv_write.cu`, which rotates new keys on their way to the cache.
//!
//! This is FlashAttention: keys and values go through shared memory in stages, while the maximum, the sum of
//! exponentials and the results of each query stay in registers. The kernel for Hopper chips differs in its tensor
//! core instructions and sizes.

use super::{COPIES, bindings, desc};
use crate::axis::Axis;
use crate::kernel::Request;
use crate::kernel::attention::{axes, is_plain_f16, keys_of_run, with_copies};
use crate::kernel::body::FusedBody;
use crate::kernel::source::{constant, plan_of, single_workgroup, unserved_error, wrong_op};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Extent, Node, Op, Result, Symbol};

/// The text for all chips.
const TEXT: &str = include_str!("flash_prefill.cu");
/// The text for Hopper chips.
const HOPPER_TEXT: &str = include_str!("flash_prefill_hopper.cu");
/// The text that rotates new keys and writes them with new values.
const ROPE_KV_WRITE: &str = include_str!("rope_kv_write.cu");
/// Queries of a block, and threads.
const QUERIES: u32 = 64;
/// Threads of a block: four warps of 16 queries each.
const THREADS: u32 = 128;
/// Keys of a stage, and stages.
const KEYS: u32 = 64;
/// Stages that are on their way at a time.
const STAGES: u32 = 2;
/// Of the kernel for Hopper chips: queries, which it keeps in shared memory too, threads and stages.
const HOPPER_BLOCK: [u32; 3] = [128, 256, 4];
/// What the alignment of its memory takes.
/// Its size bounds what is lost in front of the first stage.
const ALIGNMENT: u32 = 1024;
/// Threads of a block that keeps keys and values.
const KEEPERS: u32 = 256;

/// Which tensor cores a kernel uses.
#[derive(Clone, Copy, Debug)]
enum Chip {
    /// Those that every chip has which copies asynchronously.
    Any,
    /// Those of Hopper chips.
    Hopper,
}

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

/// The plan of attention of many rows.
pub fn plan(request: &Request) -> Result<NodePlan> {
    plain(request, Chip::Any)
}

/// The same on the tensor cores of Hopper chips.
pub fn plan_hopper(request: &Request) -> Result<NodePlan> {
    plain(request, Chip::Hopper)
}

/// The plan of attention without rotations.
fn plain(request: &Request, chip: Chip) -> Result<NodePlan> {
    let Op::Attention(op) = request.op else { return Err(wrong_op(request)) };
    let found = kernel(op, false, chip, request.info).filter(|_| is_plain_f16(request));
    let (desc, groups) = found.ok_or_else(|| unserved_error(request))?;
    let inputs = (0..3).map(|index| Arg::Input { index, offset: 0, len: 0 });
    let args = inputs.chain([Arg::Output(0), Arg::Symbols]).collect();
    Ok(plan_of(Launch { desc, args, groups }, chain(op)).with_axes(along_keys(op, chip)?))
}

/// The plan of attention whose queries are rotated as they are read: `rope_attention`.
pub fn plan_with_rotation(request: &Request) -> Result<NodePlan> {
    plan_rotated(request, Chip::Any)
}

/// The same on the tensor cores of Hopper chips.
pub fn plan_with_rotation_hopper(request: &Request) -> Result<NodePlan> {
    plan_rotated(request, Chip::Hopper)
}

/// The plan of attention with rotated queries; keys are rotated as they are appended, and come as they are.
fn plan_rotated(request: &Request, chip: Chip) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let node = body.only_node("attention", |op| matches!(op, Op::Attention(_)))?;
    let rope = body.only_node("rotation", |op| matches!(op, Op::Rope(_)))?;
    let (Op::Attention(op), [_, keys, values]) = (&node.op, &node.inputs[..]) else {
        return Err(unserved_error(request));
    };
    let halves = [rope.inputs[0], *keys, *values].iter().all(|&value| body.ty(value).dtype == DType::F16);
    let found = kernel(op, true, chip, request.info).filter(|_| halves);
    let (desc, groups) = found.ok_or_else(|| unserved_error(request))?;
    let mut args = body.read_all([rope.inputs[0], rope.inputs[1], *keys, *values])?;
    args.extend([body.write(node.outputs[0])?, Arg::Symbols]);
    Ok(plan_of(Launch { desc, args, groups }, chain(op)).with_axes(along_keys(op, chip)?))
}

/// The plan of new keys, rotated, and new values behind the cached ones: `rope_append`.
pub fn plan_appending(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let rope = body.only_node("rotation", |op| matches!(op, Op::Rope(_)))?;
    let appends: Vec<&Node> = body.nodes().iter().filter(|node| matches!(node.op, Op::Append(_))).collect();
    let keys = appends.iter().find(|node| node.inputs[1] == rope.outputs[0]);
    let values = appends.iter().find(|node| node.inputs[1] != rope.outputs[0]);
    let (Some(keys), Some(values), Op::Rope(op)) = (keys, values, &rope.op) else {
        return Err(unserved_error(request));
    };
    // Keys and values are bound under their own names; which append is which is told by the rotation.
    let [k, v, cache] = [rope.inputs[0], values.inputs[1], keys.inputs[0]];
    let all = [k, v, cache, values.inputs[0]];
    let halves = all.iter().all(|&value| body.ty(value).dtype == DType::F16);
    let width = constant("a row of keys", &body.ty(k).shape[1])?;
    // A thread moves 16 elements, the two halves of a pair of pieces.
    let fits = halves && body.ty(v).shape == body.ty(k).shape && op.head_dim.is_multiple_of(16);
    let found = rope_kv_write(width / op.head_dim.max(1), op.head_dim, request.info).filter(|_| fits);
    let (desc, groups) = found.ok_or_else(|| unserved_error(request))?;
    let grown = [body.write(keys.outputs[0])?, body.write(values.outputs[0])?];
    let mut args = body.read_all([k, v, rope.inputs[1]])?;
    args.extend(grown.into_iter().chain([Arg::Symbols]));
    let places =
        body.input(cache).zip(body.input(values.inputs[0])).ok_or_else(|| unserved_error(request))?;
    let plan = plan_of(Launch { desc, args, groups }, 1);
    with_copies(plan, body.ty(cache), [(places.0, grown[0]), (places.1, grown[1])])
}

/// The kernel and its grid for `n` f16 queries; `None` if it does not serve such attention, or the device cannot run it.
///
/// It binds the queries, if `joined` the angles by which they are rotated first, the caches of keys and values, and the
/// output.
fn kernel(op: &Attention, joined: bool, chip: Chip, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    // Bytes of a head.
    let row = op.head_dim * 2;
    let ([queries, threads, stages], beside) = match chip {
        Chip::Hopper => (HOPPER_BLOCK, HOPPER_BLOCK[0] * row + ALIGNMENT),
        Chip::Any => ([QUERIES, THREADS, STAGES], 0),
    };
    // A stage has keys and values.
    let memory = stages * 2 * KEYS * row + beside;
    if !serves(op) || info.features.cuda < Some(COPIES) || memory > info.limits.max_workgroup_memory {
        return None;
    }
    let mut desc = match chip {
        Chip::Hopper => {
            desc(info, "flash_prefill/cuda", "cuda/flash_prefill_hopper.cu", HOPPER_TEXT, threads, memory)
        }
        Chip::Any => desc(info, "flash_prefill/cuda", "cuda/flash_prefill.cu", TEXT, threads, memory),
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
    Some((desc, [Extent::from_dim(u64::from(op.heads)), tiles, single_workgroup()]))
}

/// The kernel and its grid that rotates `n` new keys of such heads and writes them and their values to the caches.
///
/// It binds keys, values and angles, and, written, the caches of keys and values.
fn rope_kv_write(kv_heads: u32, head_dim: u32, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let mut desc = desc(info, "rope_kv_write/cuda", "cuda/rope_kv_write.cu", ROPE_KV_WRITE, KEEPERS, 0);
    desc.bindings = bindings(3, 2);
    desc.constants = vec![("KV_HEADS".into(), f64::from(kv_heads)), ("D".into(), f64::from(head_dim))];
    // 16 elements each.
    let items = Dim::symbol(Symbol::N).checked_mul(u64::from(kv_heads * (head_dim / 16)))?;
    Some((desc, [Extent::ceil_div(items, KEEPERS), single_workgroup(), single_workgroup()]))
}

/// What changes along the keys: stages of them, as many as there are at once, and the window.
fn along_keys(op: &Attention, chip: Chip) -> Result<Vec<Axis>> {
    let keys = keys_of_run()?;
    let stages = match chip {
        Chip::Hopper => HOPPER_BLOCK[2],
        Chip::Any => STAGES,
    };
    let mut all = axes(op, &keys, KEYS);
    all.push(Axis::limit("keys", keys, u64::from(stages * KEYS)));
    Ok(all)
}

/// The longest chain of additions over a context of a thousand: the products of a score, 16 at a time; or within a stage of
/// keys the tensor cores' additions of two planes, or those of the chances, and then stage after stage.
fn chain(op: &Attention) -> u32 {
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
        for (capability, chip, file) in [
            (Some(75), Chip::Any, None),
            (Some(80), Chip::Any, Some("cuda/flash_prefill.cu")),
            (Some(90), Chip::Hopper, Some("cuda/flash_prefill_hopper.cu")),
            (Some(100), Chip::Any, Some("cuda/flash_prefill.cu")),
        ] {
            info.features.cuda = capability;
            let kernel = kernel(&op, true, chip, &info);
            assert_eq!(kernel.as_ref().map(|(desc, _)| desc.source.file.as_str()), file);
        }
    }
}
