//! `rope_append_attention/gemv`: one row's attention over parts of the keys, with the rotations and the appending in front. A
//! team of lanes takes a key at a time, so that scores meet within subgroups; devices whose
//! subgroups are smaller than a team have no use for it.
//!
//! This is split-K attention, as in Flash-Decoding: parts of the keys are treated by workgroups of their own, each
//! with a running maximum, and brought together at the end. If the device lets a workgroup see what others wrote, the
//! last one to finish does that; else a second launch.

use super::super::Request;
use super::super::body::FusedBody;
use super::super::compose::{Composition, Fragment, fragment};
use super::super::source::{KernelSource, plan_of, single_workgroup, unserved_error};
use super::{Appending, axes, keys_of_run, split, with_copies};
use crate::axis::Axis;
use crate::plan::{Arg, Launch, NodePlan, Scratch};
use tapml_device::DeviceInfo;
use tapml_graph::op::Attention;
use tapml_graph::{DType, Extent, Result};

/// Invocations of a workgroup.
const LANES: u32 = 256;
/// Parts of the keys.
/// They are workgroups of one block of heads.
const PARTS: u32 = 32;
/// Heads of a block.
/// Heads of a block read the same keys and values, which are loaded a single time for all of them.
const MAX_BLOCK: u32 = 8;
/// Keys of a context of a thousand, for which the chain of a row's sums is declared.
const CONTEXT: u32 = 1024;
/// Lanes of a subgroup, at least, as of products of one row: narrower ones are those of processors, and emulated ones, in which
/// all of a workgroup must take part.
const LEAST: u32 = 16;
/// Sizes of the sums of all subgroups, in units of 16 bytes.
const POOLS: [u32; 4] = [256, 512, 1024, 2048];

/// The pool of sums comes on top of the memory given here; see [`with_end`].
const KERNEL: KernelSource = KernelSource {
    name: "rope_append_attention/gemv",
    file: "",
    text: "",
    weights: false,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 2 * 4 * 256 + 4 * MAX_BLOCK,
};

/// Up to where the heads of a block begin.
const ROW: Fragment = fragment!("attention/row.wgsl", ["POOL", "nothing", "symbols"] => ["main"]);
/// Where their sums have been put together.
const END: Fragment = fragment!("attention/row_end.wgsl", ["give"] => []);
/// What brings the parts together, or leaves them.
/// The last workgroup of a block does it, told by a counter in scratch memory.
const LAST: Fragment = fragment!("attention/row_last.wgsl", [] => ["give", "nothing", "symbols"]);
/// They stay in scratch memory for another launch.
const PARTED: Fragment = fragment!("attention/row_parts.wgsl", [] => ["give", "nothing", "symbols"]);

/// The text for blocks of so many heads with such a pool, which brings the parts together itself or leaves them.
fn text(block: u32, pool: u32, together: bool) -> Composition {
    let mut text = Composition::default();
    text.declare("POOL", format!("const POOL = {pool}u;"));
    text.add(&ROW);
    over_keys(&mut text, block);
    text.add(&END);
    text.add(if together { &LAST } else { &PARTED });
    text
}

/// What is done for each head of a block. Heads are variables of their own, and stay in registers whatever a compiler makes of
/// loops.
fn over_keys(text: &mut Composition, block: u32) {
    let each = |text: &mut Composition, line: &dyn Fn(u32) -> String| {
        (0..block).for_each(|head| text.line(line(head)));
    };
    each(text, &|h| format!("    var head{h} = head_of(block * BLOCK + {h}u, i % half, i, own < count);"));
    text.line("    for (var start = first; start < end; start += 4u * apart) {");
    text.line("        let keys = vec4<u32>(place.key) + vec4<u32>(0u, 1u, 2u, 3u) * apart;");
    text.line("        let is_new = keys == vec4<u32>(p);");
    text.line("        let seen = keys < vec4<u32>(end);");
    text.line("        let four_keys = four_of(words.key, fresh_key, is_new);");
    each(text, &|h| format!("        let scores{h} = scores_by(head{h}, four_keys, seen);"));
    text.line("        let values = four_of(words.value, fresh_value, is_new);");
    each(text, &|h| format!("        head{h} = seen_by(head{h}, values, scores{h}, seen);"));
    text.line("        place.key += 4u * apart;");
    text.line("        words = words_at(place, cached);");
    text.line("    }");
    each(text, &|h| format!("    put(head{h}, {h}u, subgroup, within, size);"));
}

/// Every text.
pub fn texts() -> Vec<String> {
    let pools = |block| POOLS.into_iter().map(move |pool| (block, pool));
    let all = (1..=MAX_BLOCK).flat_map(pools);
    all.flat_map(|(block, pool)| [false, true].map(|together| text(block, pool, together).into_text()))
        .collect()
}

/// Blocks of heads that can be counted.
/// Each has a counter in scratch memory that is kept between runs.
const BLOCKS: u32 = 256;

/// The plan: where workgroups see what others have left, in one launch; else the parts are brought together by another.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let found = Appending::from_body(&body)?;
    let (op, act, info) = (found.op, found.q.dtype, request.info);
    if !split::is_plain(op) {
        return Err(unserved_error(request));
    }
    // A barrier of the whole device's memory lets the last workgroup read what the others have left.
    let together = info.features.device_barriers.then(|| with_end(&found, act, info, true)).flatten();
    if let Some((launch, words)) = together {
        let mut plan = plan_of(launch, chain(op)).with_axes(along_keys(op, act)?);
        // The counters must be zero at the first run; the kernel leaves them at zero behind each.
        plan.scratch = vec![Scratch::Kept(4 * words)];
        return with_copies(plan, found.cache, found.pairs());
    }
    let (parts, _) = with_end(&found, act, info, false).ok_or_else(|| unserved_error(request))?;
    let mut plan = plan_of(parts, chain(op)).with_axes(along_keys(op, act)?);
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
    // Narrow subgroups mean many sums: the narrowest that the device has counts.
    let subgroups = LANES / least.clamp(1, LANES);
    let group = op.heads / op.kv_heads.max(1);
    let sums = |block: u32| subgroups * block * op.head_dim.div_ceil(4);
    let fits = |block: &u32| group.is_multiple_of(*block) && sums(*block) <= POOLS[3];
    // More heads than four have too many numbers for the registers of a lane, but one alone reads keys for itself.
    let block = (2..=4).rev().find(fits).or_else(|| (1..=MAX_BLOCK).rev().find(fits))?;
    let pool = POOLS.into_iter().find(|pool| sums(block) <= *pool)?;
    // A rotation joins the two halves of a head, each of whole pieces.
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
    let blocks = Extent::from_dim(u64::from(op.heads / block * PARTS));
    let mut launch = launch.groups([blocks, single_workgroup(), single_workgroup()]);
    text(block, pool, together).put_into(&mut launch.desc.source);
    // Four more bytes hold whether this workgroup is the last.
    launch.desc.workgroup_memory += 16 * pool + if together { 4 } else { 0 };
    launch.desc.check_limits(info).ok()?;
    // Of each head and part: its results, the largest score and the sum of exponentials; and the counters.
    let words = u64::from(op.heads) * u64::from(PARTS) * u64::from(op.head_dim + 2) + u64::from(BLOCKS);
    Some((launch, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_have_what_they_need() {
        [ROW, END, LAST, PARTED].iter().for_each(Fragment::expect_names);
        for block in 1..=MAX_BLOCK {
            for together in [false, true] {
                assert_eq!(text(block, POOLS[0], together).missing(), Vec::<&str>::new());
            }
        }
    }
}
