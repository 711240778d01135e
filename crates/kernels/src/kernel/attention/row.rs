//! `rope_append_attention/gemv`: one row's attention over parts of the keys, with the rotations and the appending in front. A
//! team of lanes takes a key at a time, so that scores meet within subgroups; devices whose
//! subgroups are smaller than a team have no use for it.

use super::super::Request;
use super::super::body::Body;
use super::super::source::{Kernel, one, plan_of, unserved};
use super::{Appending, axes, keys_of_run, split, with_copies};
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use crate::regime::Axis;
use tapml_device::DeviceInfo;
use tapml_graph::op::Attention;
use tapml_graph::{DType, Extent, Result};

/// Invocations of a workgroup.
const LANES: u32 = 256;
/// Parts of the keys.
const PARTS: u32 = 32;
/// Heads of a block.
const MAX_BLOCK: u32 = 8;
/// Keys of a context of a thousand, for which the chain of a row's sums is declared.
const CONTEXT: u32 = 1024;
/// Lanes of a subgroup, at least, as of products of one row: narrower ones are those of processors, and emulated ones, in which
/// all of a workgroup must take part.
const LEAST: u32 = 16;
/// Sizes of the sums of all subgroups, in units of 16 bytes.
const POOLS: [u32; 4] = [256, 512, 1024, 2048];

const KERNEL: Kernel = Kernel {
    name: "rope_append_attention/gemv",
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

/// The plan: where workgroups see what others have left, in one launch; else the parts are brought together by another.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let body = Body::of_request(request)?;
    let found = Appending::of(&body)?;
    let (op, act, info) = (found.op, found.q.dtype, request.info);
    if !split::is_plain(op) {
        return Err(unserved(request));
    }
    // A barrier of the whole device's memory lets the last workgroup read what the others have left.
    let together = info.features.device_barriers.then(|| with_end(&found, act, info, true)).flatten();
    if let Some((launch, words)) = together {
        let mut plan = plan_of(launch, chain(op)).along(along_keys(op, act)?);
        plan.scratch = vec![Scratch::Kept(4 * words)];
        return with_copies(plan, found.cache, found.pairs());
    }
    let (parts, _) = with_end(&found, act, info, false).ok_or_else(|| unserved(request))?;
    let mut plan = plan_of(parts, chain(op)).along(along_keys(op, act)?);
    let (merge, scratch) = split::merge(op, act, PARTS, found.y)?;
    plan.launches.push(merge);
    plan.scratch = vec![scratch];
    with_copies(plan, found.cache, found.pairs())
}

/// What changes along the keys: parts of them, and in each as many at a time as there are teams.
fn along_keys(op: &Attention, act: DType) -> Result<Vec<Axis>> {
    let keys = keys_of_run()?;
    let teams = LANES / team(op, act).clamp(1, LANES);
    let mut all = axes(op, &keys, teams);
    all.extend([PARTS, PARTS * teams].map(|most| Axis::limit("keys", keys.clone(), u64::from(most))));
    Ok(all)
}

/// Lanes that share a key.
fn team(op: &Attention, act: DType) -> u32 {
    (op.head_dim / piece(act)).next_power_of_two()
}

/// Elements of 16 bytes.
fn piece(act: DType) -> u32 {
    if act == DType::F16 { 8 } else { 4 }
}

/// The longest chain of additions in a context of a thousand: those of a team's keys, of its part, and of the parts.
fn chain(op: &Attention) -> u32 {
    (op.head_dim.div_ceil(4) + 3).max(CONTEXT / PARTS + PARTS + LANES / 8)
}

/// The launch that brings the parts together itself, or leaves them in scratch memory, and the words of that memory.
fn with_end(found: &Appending, act: DType, info: &DeviceInfo, together: bool) -> Option<(Launch, u64)> {
    let op = found.op;
    let (least, _) = info.features.subgroups?;
    let (piece, team) = (piece(act), team(op, act));
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
    for arg in found.new {
        launch = launch.bind(false, arg);
    }
    for arg in found.grown.into_iter().chain([Arg::Scratch(0)]).chain(together.then_some(found.y)) {
        launch = launch.bind(true, arg);
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
    Some((launch, words))
}
