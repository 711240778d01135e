//! Attention of many rows on matrix units: `matrix.wgsl`, in place of the launches of `attention/split` for them.
//! Activations and caches are f16, heads of [`SIZES`] elements.

use super::super::source::{Kernel, one};
use crate::plan::Arg;
use std::fmt::Write as _;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Extent, Symbol};

/// Elements of a head.
const SIZES: [u32; 2] = [64, 128];
/// Invocations of a workgroup.
const LANES: u32 = 128;
/// Rows of a workgroup.
const ROWS: u32 = 64;
/// Rows, columns and depth of one product on matrix units.
const UNIT: u32 = 16;
/// Keys at a time.
const KEYS: u32 = 32;
/// Keys of a context of a thousand, for which the chain of a row's sums is declared.
const CONTEXT: u32 = 1024;

/// The kernel and its grid for rows that are exactly `n`; `None` if it does not serve such attention, or the device cannot
/// run it. It binds queries, keys, values, the results and the symbols.
pub fn kernel(op: &Attention, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let plain = op.causal && op.alibi.is_none() && op.chunk.is_none() && op.softcap.is_none();
    let size = op.head_dim;
    if !info.features.matrices || !plain || op.value_size() != size || !SIZES.contains(&size) {
        return None;
    }
    let mut kernel =
        Kernel { math: true, lanes: LANES, ..Kernel::flat("attention/matrix", "attention/matrix.wgsl", "") };
    kernel.workgroup_memory = memory(size);
    let mut launch = kernel.launch(DType::F16, DType::F16).ok()?;
    for written in [false, false, false, true] {
        launch = launch.bind(written, Arg::Symbols);
    }
    let launch = launch.rows(&Dim::symbol(Symbol::N)).ok()?.set("HEADS", op.heads);
    let launch = launch.set("KV_HEADS", op.kv_heads).set("SCALE", op.scale);
    let launch = launch.set("WINDOW", op.window.unwrap_or(0)).subgroups();
    let groups = [Extent::of(u64::from(op.heads)), Extent::ceil_div(Dim::symbol(Symbol::N), ROWS), one()];
    let mut launch = launch.groups(groups);
    launch.desc.source.text = text(size);
    launch.desc.check_limits(info).ok()?;
    Some((launch.desc, launch.groups))
}

/// The longest chain of additions: those of 16 at a time, of two planes, in a context of [`CONTEXT`].
pub fn chain() -> u32 {
    2 * CONTEXT / UNIT + UNIT
}

/// Every text.
pub fn texts() -> impl Iterator<Item = String> {
    SIZES.into_iter().map(text)
}

/// Bytes of workgroup memory.
fn memory(size: u32) -> u32 {
    8 * ROWS * (size / 4 + 2) + 4 * 2048 + 8 * 8 * UNIT * (KEYS / 4 + 2)
}

fn text(size: u32) -> String {
    let mut text = format!("enable wgpu_cooperative_matrix;\nconst DIM = {size}u;\n");
    text.push_str(include_str!("matrix.wgsl"));
    let _ = main(&mut text, size / UNIT);
    text
}

/// The entry point for heads of so many units: everything of a subgroup has a name, so that it stays in registers.
fn main(text: &mut String, units: u32) -> std::fmt::Result {
    text.push_str(include_str!("matrix_start.wgsl"));
    for i in 0..units {
        writeln!(
            text,
            "    let q{i} = coopLoadT<coop_mat16x16<f16, A>>(&stage[own * STEP + {}u], STEP);",
            4 * i
        )?;
        writeln!(text, "    var o{i} = coop_mat16x16<f32, C>();")?;
    }
    writeln!(
        text,
        "    for (var start = begin; start < end; start += KEYS) {{\n        workgroupBarrier();"
    )?;
    writeln!(text, "        load_keys(start, keys, kv_head, lane);\n        workgroupBarrier();")?;
    scores(text, units)?;
    text.push_str(include_str!("matrix_first.wgsl"));
    writeln!(
        text,
        "    for (var start = begin; start < end; start += KEYS) {{\n        workgroupBarrier();"
    )?;
    writeln!(text, "        load_keys(start, keys, kv_head, lane);")?;
    writeln!(text, "        load_values(start, keys, kv_head, lane);\n        workgroupBarrier();")?;
    scores(text, units)?;
    text.push_str(include_str!("matrix_second.wgsl"));
    for part in 0..KEYS / UNIT {
        for plane in 0..2 {
            let at = format!("(subgroup * 2u + {plane}u) * PLANE + {}u", part * UNIT / 4);
            writeln!(
                text,
                "        let p{part}_{plane} = coopLoadT<coop_mat16x16<f16, A>>(&chances[{at}], SPAN);"
            )?;
        }
        for i in 0..units {
            let at = format!("(KEYS + {}u) * STEP + {}u", part * UNIT, 4 * i);
            writeln!(
                text,
                "        let v{part}_{i} = coopLoadT<coop_mat16x16<f16, B>>(&stage[{at}], STEP);"
            )?;
            writeln!(text, "        o{i} = coopMultiplyAdd(p{part}_0, v{part}_{i}, o{i});")?;
            writeln!(text, "        o{i} = coopMultiplyAdd(p{part}_1, v{part}_{i}, o{i});")?;
        }
    }
    writeln!(text, "    }}")?;
    for i in 0..units {
        writeln!(text, "    coopStoreT(o{i}, &scores[subgroup * 512u], 16u);\n    workgroupBarrier();")?;
        writeln!(text, "    for (var i = 0u; i < 8u; i++) {{")?;
        writeln!(
            text,
            "        let value = scores[subgroup * 512u + lane % 32u / 2u * 16u + lane % 2u * 8u + i];"
        )?;
        writeln!(text, "        if row < rows {{")?;
        writeln!(
            text,
            "            y[(row * HEADS + head) * DIM + {}u + lane % 2u * 8u + i] = to_act(value / total);",
            i * UNIT
        )?;
        writeln!(text, "        }}\n    }}\n    workgroupBarrier();")?;
    }
    writeln!(text, "}}")
}

/// The scores of a subgroup's rows with the keys at hand.
fn scores(text: &mut String, units: u32) -> std::fmt::Result {
    for column in 0..KEYS / UNIT {
        writeln!(text, "        var s{column} = coop_mat16x16<f32, C>();")?;
        for i in 0..units {
            let at = format!("{}u * STEP + {}u", column * UNIT, 4 * i);
            writeln!(
                text,
                "        let k{column}_{i} = coopLoad<coop_mat16x16<f16, B>>(&stage[{at}], STEP);"
            )?;
            writeln!(text, "        s{column} = coopMultiplyAdd(q{i}, k{column}_{i}, s{column});")?;
        }
        writeln!(
            text,
            "        coopStoreT(s{column}, &scores[subgroup * 512u + {}u], KEYS);",
            column * UNIT
        )?;
    }
    writeln!(text, "        workgroupBarrier();")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wgsl::declared;

    #[test]
    fn texts_are_valid() {
        let mut info = crate::any_device();
        info.features.subgroups = Some((32, 32));
        info.features.matrices = true;
        info.limits.max_workgroup_memory = 48 << 10;
        for size in SIZES {
            let (desc, _) = kernel(&Attention::causal(8, 2, size, 0.1), &info).unwrap();
            let found = declared(&desc.source, true).unwrap();
            assert_eq!(found.workgroup_memory, Some(desc.workgroup_memory));
        }
        let window = Attention { window: Some(5), ..Attention::causal(8, 2, 64, 0.1) };
        assert!(kernel(&window, &info).is_some());
        assert!(kernel(&Attention { causal: false, ..window }, &info).is_none());
    }
}
