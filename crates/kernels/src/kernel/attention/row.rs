//! `attention/row`: one row's attention over parts of the keys, with the rotations and the appending in front, as
//! [`super::split`] joins them. A team of lanes takes a key at a time, so that scores meet within subgroups; devices whose
//! subgroups are smaller than a team have no use for it.

use super::super::source::{Kernel, one};
use crate::plan::Arg;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Extent};

/// Invocations of a workgroup.
const LANES: u32 = 256;
/// Parts of the keys.
const PARTS: u32 = 32;
/// Heads of a block.
const MAX_BLOCK: u32 = 8;
/// Lanes of a subgroup, at least, as of `product/row`: narrower ones are those of processors, and emulated ones, in which
/// all of a workgroup must take part.
const LEAST: u32 = 16;
/// Sizes of the sums of all subgroups, in units of 16 bytes.
const POOLS: [u32; 4] = [256, 512, 1024, 2048];

const KERNEL: Kernel = Kernel {
    name: "attention/row",
    file: "attention/row.wgsl",
    text: include_str!("row.wgsl"),
    weights: false,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 2 * 4 * 256 + 4 * MAX_BLOCK,
};

/// The text for blocks of so many heads with such a pool, which brings the parts together itself or leaves them. Heads are
/// variables of their own, and stay in registers whatever a compiler makes of loops.
fn text(block: u32, pool: u32, together: bool) -> String {
    let end = if together { include_str!("row_last.wgsl") } else { include_str!("row_parts.wgsl") };
    let of =
        |line: &str, h: u32| line.replace("head0", &format!("head{h}")).replace("HEAD0", &format!("{h}u"));
    let lines =
        KERNEL.text.lines().flat_map(|line| match line.contains("(head0") || line.contains(" head0 =") {
            true => (0..block).map(|h| of(line, h)).collect(),
            false => vec![line.to_string()],
        });
    let text: String = lines.map(|line| line + "\n").collect();
    text.replace("POOL", &pool.to_string()) + end
}

/// Every text.
pub fn texts() -> Vec<String> {
    let pools = |block| POOLS.into_iter().map(move |pool| (block, pool));
    let all = (1..=MAX_BLOCK).flat_map(pools);
    all.flat_map(|(block, pool)| [text(block, pool, false), text(block, pool, true)]).collect()
}

/// Blocks of heads that can be counted.
const BLOCKS: u32 = 256;

/// The launch.
pub struct Found {
    /// The kernel.
    pub desc: KernelDesc,
    /// Its grid.
    pub groups: Grid,
    /// Whether it brings the parts together: bytes of the memory that it has the parts in, which is its own and zero before
    /// the first run. It binds the result behind it then.
    pub together: Option<u64>,
}

/// Whether a workgroup sees what others have left before they counted: `storageBarrier` is one of the whole device's memory
/// in what wgpu makes of it for Vulkan, and in the emulator; elsewhere it says nothing of other workgroups.
fn sees_others(info: &DeviceInfo) -> bool {
    ["vulkan", "emulator"].contains(&info.platform.as_str())
}

/// The launch for such attention, which is causal, has no slopes, and values as long as its keys, if the device can run it.
/// It binds what [`super::split::joined`] says.
pub fn kernel(op: &Attention, act: DType, info: &DeviceInfo) -> Option<Found> {
    let together = sees_others(info).then(|| with_end(op, act, info, true)).flatten();
    together.or_else(|| with_end(op, act, info, false))
}

fn with_end(op: &Attention, act: DType, info: &DeviceInfo, together: bool) -> Option<Found> {
    let (least, _) = info.features.subgroups?;
    let piece = if act == DType::F16 { 8 } else { 4 };
    let team = (op.head_dim / piece).next_power_of_two();
    let subgroups = LANES / least.clamp(1, LANES);
    let group = op.heads / op.kv_heads.max(1);
    let sums = |block: u32| subgroups * block * op.head_dim.div_ceil(4);
    let fits = |block: &u32| group.is_multiple_of(*block) && sums(*block) <= POOLS[3];
    // More heads than four have too many numbers for the registers of a lane, but one alone reads keys for itself.
    let block = (2..=4).rev().find(fits).or_else(|| (1..=MAX_BLOCK).rev().find(fits))?;
    let pool = POOLS.into_iter().find(|pool| sums(block) <= *pool)?;
    let halves = op.head_dim > 0 && op.head_dim.is_multiple_of(2 * piece);
    if !halves || least < LEAST || team > least || subgroups * MAX_BLOCK > 256 || op.heads / block > BLOCKS {
        return None;
    }
    let mut launch = KERNEL.launch(act, act).ok()?;
    for written in [false, false, false, false, true, true, true].into_iter().chain(together.then_some(true))
    {
        launch = launch.bind(written, Arg::Symbols);
    }
    let launch = launch.set("HEADS", op.heads).set("KV_HEADS", op.kv_heads).set("HEAD_DIM", op.head_dim);
    let launch = launch.set("SCALE", op.scale).set("WINDOW", op.window.unwrap_or(0));
    let launch = launch.set("CHUNK", op.chunk.unwrap_or(u32::MAX)).set("SOFTCAP", op.softcap.unwrap_or(0.0));
    let launch = launch.set("BLOCK", block).set("PIECE", piece).set("TEAM", team).subgroups();
    let blocks = Extent::of(u64::from(op.heads / block * PARTS));
    let mut launch = launch.groups([blocks, one(), one()]);
    launch.desc.source.file =
        ["attention/row.wgsl", if together { "row_last.wgsl" } else { "row_parts.wgsl" }].join("+attention/");
    launch.desc.source.text = text(block, pool, together);
    launch.desc.workgroup_memory += 16 * pool + if together { 4 } else { 0 };
    launch.desc.check_limits(info).ok()?;
    let words = u64::from(op.heads) * u64::from(PARTS) * u64::from(op.head_dim + 2) + u64::from(BLOCKS);
    Some(Found { desc: launch.desc, groups: launch.groups, together: together.then_some(4 * words) })
}
