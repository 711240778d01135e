//! `paged_attention/teams`: a workgroup has a row of queries for a block of heads that read the same keys. A team of lanes
//! takes four keys at a time; the teams' sums are brought together at the end, as parts of keys are in Flash-Decoding.
//!
//! Which team takes a key depends on the key's position alone, and rows have workgroups of their own. So a row has the same
//! bits whatever rows are beside it.

use super::super::Request;
use super::super::compose::{Composition, Fragment, fragment};
use super::super::source::{KernelSource, plan_of, single_workgroup, unserved_error, wrong_op};
use super::{bind, check_heads};
use crate::plan::{Launch, NodePlan};
use tapml_device::AdapterKind;
use tapml_graph::op::{Attention, PagedAttention};
use tapml_graph::{DType, Extent, Op, Result};

/// Invocations of a workgroup.
const LANES: u32 = 256;
/// Heads of a block, at most.
const MAX_BLOCK: u32 = 8;
/// Elements that a lane has of a head.
const EACH: u32 = 8;
/// Lanes of a team, at least: each of four has the scores of a key.
const SMALLEST_TEAM: u32 = 4;
/// Elements of a head, at most: those of a team as large as a subgroup of 32.
const MAX_HEAD_DIM: u32 = 256;
/// Keys of a context of a thousand, for which the chain of a row's sums is declared.
const CONTEXT: u32 = 1024;

/// Sums of a head; largest scores and sums of exponentials of all teams and heads.
const KERNEL: KernelSource = KernelSource {
    name: "paged_attention/teams",
    file: "",
    text: "",
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * EACH * LANES + 2 * 4 * MAX_BLOCK * (LANES / SMALLEST_TEAM),
};

/// Lanes of a subgroup, at least: narrower ones are those of processors, and emulated ones, in which all of a workgroup must
/// take part. It is not shown that all do here.
const LEAST: u32 = 16;

/// Up to where the heads of a block begin.
const TEAMS: Fragment = fragment!("paged_attention/teams.wgsl", [] => ["main"]);

/// The text for blocks of so many heads. Heads are variables of their own, and stay in registers whatever a compiler makes of
/// loops.
fn text(block: u32) -> Composition {
    let mut text = Composition::default();
    let each = |text: &mut Composition, line: &dyn Fn(u32) -> String| {
        (0..block).for_each(|head| text.line(line(head)));
    };
    text.add(&TEAMS);
    each(&mut text, &|h| format!("    var head{h} = head_of(row, group.x * BLOCK + {h}u, piece);"));
    text.line("    for (var start = first; start < end; start += 4u * apart) {");
    for (name, read) in [("key", "key_words"), ("value", "value_words")] {
        for (letter, part) in ["a", "b", "c", "d"].into_iter().zip(["x", "y", "z", "w"]) {
            text.line(format!("        let {name}_{letter} = {read}(places.{part}, {name}_at);"));
        }
    }
    text.line("        let mine = keys.x + own % 4u * apart;");
    text.line("        let seen = mine < end;");
    // Where the next keys lie is looked up while these are on their way.
    text.line("        keys += vec4<u32>(4u * apart);");
    text.line("        places = rows_of(table, keys, last);");
    for name in ["key", "value"] {
        let four = ["a", "b", "c", "d"].map(|letter| format!("numbers({name}_{letter})")).join(", ");
        text.line(format!("        let four_{name}s = Four({four});"));
        if name == "key" {
            each(&mut text, &|h| {
                let score =
                    format!("score_by(head{h}, four_keys, group.x * BLOCK + {h}u, position - mine, own)");
                format!("        let score{h} = select(LOWEST, {score}, seen);")
            });
        }
    }
    each(&mut text, &|h| format!("        head{h} = seen_by(head{h}, four_values, score{h}, seen, own);"));
    text.line("    }");
    each(&mut text, &|h| format!("    put(head{h}, {h}u, team, own);"));
    text.line("    workgroupBarrier();");
    each(&mut text, &|h| {
        format!("    give(head{h}, {h}u, group.x * BLOCK + {h}u, row, first >= end, lane);")
    });
    text.line("}");
    text
}

/// Every text.
pub fn texts() -> impl Iterator<Item = String> {
    (1..=MAX_BLOCK).map(|block| text(block).into_text())
}

/// On a GPU. A processor that stands in for one gains nothing.
pub fn on_any_gpu(request: &Request) -> bool {
    request.info.kind != AdapterKind::Cpu
}

/// The plan.
///
/// # Errors
/// `Unsupported` for values that are larger than keys, for heads that are no whole pieces of eight elements, and where a team
/// is larger than a subgroup, or a subgroup has few lanes.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::PagedAttention(PagedAttention { attention: op, page }) = request.op else {
        return Err(wrong_op(request));
    };
    check_heads(op, request)?;
    let sizes = [op.head_dim, op.value_size()];
    let whole = sizes.iter().all(|size| size.is_multiple_of(EACH));
    let served = op.causal && whole && (EACH..=op.head_dim).contains(&op.value_size());
    let team = (op.head_dim / EACH).next_power_of_two().max(SMALLEST_TEAM);
    let least = request.info.features.subgroups.map_or(0, |(least, _)| least);
    if !served || !(EACH..=MAX_HEAD_DIM).contains(&op.head_dim) || team.max(LEAST) > least {
        return Err(unserved_error(request));
    }
    let group = op.heads / op.kv_heads.max(1);
    let divides = |block: &u32| group.is_multiple_of(*block);
    // More heads than four have too many numbers for the registers of a lane, but one alone reads keys for itself.
    let block = (2..=4).rev().find(divides).or_else(|| (1..=MAX_BLOCK).rev().find(divides)).unwrap_or(1);
    let launch = launch(op, *page, request, block, team)?;
    let plan = plan_of(launch, CONTEXT * team / LANES + LANES / team + EACH);
    Ok(NodePlan { constants: super::slopes(op), ..plan })
}

/// The launch for blocks of so many heads, with teams of so many lanes.
fn launch(op: &Attention, page: u32, request: &Request, block: u32, team: u32) -> Result<Launch> {
    let q = &request.inputs[0];
    let launch = bind(&KERNEL, op, page, request)?.set("HEADS", op.heads).set("KV_HEADS", op.kv_heads);
    let launch = launch.set("HEAD_DIM", op.head_dim).set("VALUE_DIM", op.value_size()).set("SCALE", op.scale);
    let launch = launch.set("WINDOW", op.window.unwrap_or(0)).set("CHUNK", op.chunk.unwrap_or(u32::MAX));
    let launch = launch.set("SOFTCAP", op.softcap.unwrap_or(0.0));
    let launch = launch.set("HAS_SINKS", u32::from(request.inputs.len() > PagedAttention::SINKS));
    let launch = launch.set("HAS_ALIBI", u32::from(op.alibi.is_some()));
    let launch = launch.set("BLOCK", block).set("TEAM", team);
    let launch = launch.set("PIECE", if q.dtype == DType::F16 { 8u32 } else { 4 }).subgroups();
    let blocks = Extent::from_dim(u64::from(op.heads / block));
    let mut launch = launch.groups([blocks, Extent::from_dim(q.shape[0].clone()), single_workgroup()]);
    text(block).put_into(&mut launch.desc.source);
    Ok(launch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_have_what_they_need() {
        TEAMS.expect_names();
        assert!((1..=MAX_BLOCK).all(|block| text(block).missing().is_empty()));
    }
}
