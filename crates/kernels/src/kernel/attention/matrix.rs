//! Attention of many rows on matrix units: `matrix.wgsl`, in place of the launches of `attention/split` for them.
//! Activations and caches are f16, heads of [`SIZES`] elements.
//!
//! The keys are gone over twice, for the largest score of each row and then for the sums. The algorithm needs no
//! rescaling of sums, which the online softmax of FlashAttention does, at the price of a second pass over the keys.

use super::super::Request;
use super::super::compose::{Composition, Fragment, fragment};
use super::super::source::{KernelSource, plan_of, single_workgroup, unserved_error, wrong_op};
use crate::plan::{Arg, Launch, NodePlan};
use std::fmt::Write as _;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Extent, Op, Result, Symbol};

/// Elements of a head.
/// Other sizes go to the other kernels of `attention`.
const SIZES: [u32; 2] = [64, 128];
/// Invocations of a workgroup.
/// Four subgroups of 32.
const LANES: u32 = 128;
/// Rows of a workgroup.
/// Each subgroup has 16 of them.
const ROWS: u32 = 64;
/// Rows, columns and depth of one product on matrix units.
const UNIT: u32 = 16;
/// Keys at a time, the second time over them.
/// The first time, twice as many.
const KEYS: u32 = 32;
/// Keys of a context of a thousand, for which the chain of a row's sums is declared.
const CONTEXT: u32 = 1024;

/// The plan of attention of many rows.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Attention(op) = request.op else { return Err(wrong_op(request)) };
    let found = kernel(op, request.info).filter(|_| super::is_plain_f16(request));
    let (desc, groups) = found.ok_or_else(|| unserved_error(request))?;
    let inputs = (0..3).map(|index| Arg::Input { index, offset: 0, len: 0 });
    let args = inputs.chain([Arg::Output(0), Arg::Symbols]).collect();
    let plan = plan_of(Launch { desc, args, groups }, chain());
    let keys = &request.inputs[1].shape[0];
    // Both passes have steps of their own.
    Ok(plan.with_axes(super::axes(op, keys, KEYS)).with_axes(super::axes(op, keys, 2 * KEYS)))
}

/// The kernel and its grid for rows that are exactly `n`; `None` if it does not serve such attention, or the device cannot
/// run it. It binds queries, keys, values, the results and the symbols.
/// Masks that the text does not know are refused, not ignored.
fn kernel(op: &Attention, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let plain = op.causal && op.alibi.is_none() && op.chunk.is_none() && op.softcap.is_none();
    let size = op.head_dim;
    if !info.features.matrices || !plain || op.value_size() != size || !SIZES.contains(&size) {
        return None;
    }
    let mut kernel =
        KernelSource { math: true, lanes: LANES, ..KernelSource::flat("attention/matrix", "", "") };
    kernel.workgroup_memory = memory(size);
    let mut launch = kernel.launch(DType::F16, DType::F16).ok()?;
    for written in [false, false, false, true] {
        // Only the kinds count here: `plan` binds the arguments.
        launch = launch.bind(written, Arg::Symbols);
    }
    let launch = launch.rows(&Dim::symbol(Symbol::N)).ok()?.set("HEADS", op.heads);
    let launch = launch.set("KV_HEADS", op.kv_heads).set("SCALE", op.scale);
    let launch = launch.set("WINDOW", op.window.unwrap_or(0)).subgroups();
    let groups = [
        Extent::from_dim(u64::from(op.heads)),
        Extent::ceil_div(Dim::symbol(Symbol::N), ROWS),
        single_workgroup(),
    ];
    let mut launch = launch.groups(groups);
    text(size).put_into(&mut launch.desc.source);
    launch.desc.check_limits(info).ok()?;
    Some((launch.desc, launch.groups))
}

/// The longest chain of additions: those of what KEYS keys give in a context of [`CONTEXT`], and of two planes of these, 16
/// at a time.
fn chain() -> u32 {
    CONTEXT / KEYS + 2 * KEYS / UNIT + UNIT
}

/// Every text.
pub fn texts() -> impl Iterator<Item = String> {
    SIZES.into_iter().map(|size| text(size).into_text())
}

/// Bytes of workgroup memory.
/// Queries and staged keys and values; scores; and two planes of the exponentials of each subgroup.
fn memory(size: u32) -> u32 {
    8 * ROWS * (size / 4 + 2) + 4 * ROWS * (2 * KEYS + 4) + 8 * 8 * UNIT * (KEYS / 4 + 2)
}

/// Sizes, bindings and functions.
const MATRIX: Fragment = fragment!("attention/matrix.wgsl", ["DIM"] => []);
/// The entry point up to the loops over the keys.
const START: Fragment = fragment!("attention/matrix_start.wgsl", [] => ["main"]);
/// What is done with the scores, the first time and the second time over the keys.
const FIRST: Fragment = fragment!("attention/matrix_first.wgsl", [] => []);
const SECOND: Fragment = fragment!("attention/matrix_second.wgsl", [] => []);

/// The text for heads of so many elements.
fn text(size: u32) -> Composition {
    let mut text = Composition::default();
    text.line("enable wgpu_cooperative_matrix;");
    text.declare("DIM", format!("const DIM = {size}u;"));
    text.add(&MATRIX);
    text.add(&START);
    // Writing to a string cannot fail.
    let _ = main(&mut text, size);
    text
}

/// The entry point for heads of so many elements: everything of a subgroup has a name, so that it stays in registers.
fn main(text: &mut Composition, size: u32) -> std::fmt::Result {
    let units = size / UNIT;
    for i in 0..units {
        let at = format!("own * STEP + {}u", 4 * i);
        writeln!(text, "    let q{i} = coopLoadT<coop_mat16x16<f16, A>>(&stage[{at}], STEP);")?;
        writeln!(text, "    var o{i} = coop_mat16x16<f32, C>();")?;
    }
    over_keys(text, 2 * KEYS, &["k"], size)?;
    scores(text, units, 2 * KEYS, "own * WIDE", "WIDE")?;
    text.add(&FIRST);
    over_keys(text, KEYS, &["k", "v"], size)?;
    scores(text, units, KEYS, "own * WIDE", "NARROW")?;
    text.add(&SECOND);
    values(text, units)?;
    writeln!(text, "    }}\n    total += subgroupShuffleXor(total, 1u);")?;
    for i in 0..units {
        writeln!(text, "    coopStoreT(o{i}, &scores[own * WIDE], 4u);\n    workgroupBarrier();")?;
        writeln!(text, "    for (var i = 0u; i < 2u; i++) {{")?;
        writeln!(text, "        let found = scores[own * WIDE + lane % 32u * 2u + i] / total;")?;
        writeln!(text, "        if row < rows {{")?;
        let at = format!("(row * HEADS + head) * DIM + {}u + lane % 2u * 8u + i * 4u", i * UNIT);
        writeln!(text, "            let at = {at};")?;
        for (i, part) in ["x", "y", "z", "w"].iter().enumerate() {
            writeln!(text, "            y[at + {i}u] = to_act(found.{part});")?;
        }
        writeln!(text, "        }}\n    }}\n    workgroupBarrier();")?;
    }
    writeln!(text, "}}")
}

/// The head of a loop over the keys, so many at a time, that brings these of them to `stage`, one behind the other.
fn over_keys(text: &mut Composition, keys: u32, given: &[&str], size: u32) -> std::fmt::Result {
    let pieces = keys * size / 8 / LANES;
    let names = || given.iter().flat_map(|given| (0..pieces).map(move |i| (*given, i)));
    let load = |text: &mut Composition, indent: &str, first: &str| {
        names().try_for_each(|(from, i)| {
            let at = format!("piece_at({first}, keys, KV_HEADS, kv_head, lane + {}u)", i * LANES);
            writeln!(text, "{indent}{from}_{keys}_{i} = {from}[{at}];")
        })
    };
    // The first keys are loaded in front of the loop, and in it always the next: their latency is hidden behind the
    // products.
    load(text, "    var ", "begin")?;
    writeln!(
        text,
        "    for (var start = begin; start < end; start += {keys}u) {{\n        workgroupBarrier();"
    )?;
    for (i, (from, piece)) in names().enumerate() {
        writeln!(text, "        put_piece(lane + {}u, {from}_{keys}_{piece});", i as u32 * LANES)?;
    }
    writeln!(text, "        workgroupBarrier();")?;
    load(text, "        ", &format!("start + {keys}u"))
}

/// The scores of a subgroup's rows with so many keys, as rows of `scores` from `at` on.
fn scores(text: &mut Composition, units: u32, keys: u32, at: &str, step: &str) -> std::fmt::Result {
    for column in 0..keys / UNIT {
        let mut sum = "coop_mat16x16<f32, C>()".to_string();
        for i in 0..units {
            let from = format!("{}u * STEP + {}u", column * UNIT, 4 * i);
            let key = format!("k{column}_{i}");
            writeln!(text, "        let {key} = coopLoad<coop_mat16x16<f16, B>>(&stage[{from}], STEP);")?;
            sum = format!("coopMultiplyAdd(q{i}, {key}, {sum})");
        }
        writeln!(text, "        coopStoreT({sum}, &scores[{at} + {}u], {step});", column * UNIT / 4)?;
    }
    writeln!(text, "        workgroupBarrier();")
}

/// The sums of the values at hand. Matrix units cut bits off: what they give is added as f32.
///
/// Exponentials go by two planes of f16, upper and lower part, so that no more is lost of them than of f32.
fn values(text: &mut Composition, units: u32) -> std::fmt::Result {
    for part in 0..KEYS / UNIT {
        for plane in 0..2 {
            let at = format!("(subgroup * 2u + {plane}u) * PLANE + {}u", part * UNIT / 4);
            let name = format!("p{part}_{plane}");
            writeln!(text, "        let {name} = coopLoadT<coop_mat16x16<f16, A>>(&chances[{at}], SPAN);")?;
        }
    }
    for i in 0..units {
        let mut sum = "coop_mat16x16<f32, C>()".to_string();
        for part in 0..KEYS / UNIT {
            let at = format!("(KEYS + {}u) * STEP + {}u", part * UNIT, 4 * i);
            let value = format!("v{part}_{i}");
            writeln!(text, "        let {value} = coopLoadT<coop_mat16x16<f16, B>>(&stage[{at}], STEP);")?;
            for plane in 0..2 {
                sum = format!("coopMultiplyAdd(p{part}_{plane}, {value}, {sum})");
            }
        }
        writeln!(text, "        o{i} = o{i} + {sum};")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wgsl::parse_declarations;

    #[test]
    fn fragments_have_what_they_need() {
        [MATRIX, START, FIRST, SECOND].iter().for_each(Fragment::expect_names);
        assert!(SIZES.iter().all(|size| text(*size).missing().is_empty()));
    }

    #[test]
    fn texts_are_valid() {
        let mut info = crate::any_device();
        info.features.subgroups = Some((32, 32));
        info.features.matrices = true;
        info.limits.max_workgroup_memory = 48 << 10;
        for size in SIZES {
            let (desc, _) = kernel(&Attention::causal(8, 2, size, 0.1), &info).unwrap();
            let found = parse_declarations(&desc.source, true).unwrap();
            assert_eq!(found.workgroup_memory, Some(desc.workgroup_memory));
        }
        let window = Attention { window: Some(5), ..Attention::causal(8, 2, 64, 0.1) };
        assert!(kernel(&window, &info).is_some());
        assert!(kernel(&Attention { causal: false, ..window }, &info).is_none());
    }
}
