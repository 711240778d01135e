//! `attention/keep`: the rotations and the appending in front of an attention of many rows, in one launch.

use super::super::source::{FLAT_ELEMENTS, Kernel, one};
use crate::plan::Arg;
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::Attention;
use tapml_graph::{DType, Dim, Extent, Symbol};

/// The text.
pub const TEXT: &str = include_str!("keep.wgsl");

const KERNEL: Kernel = Kernel::flat("attention/keep", "attention/keep.wgsl", TEXT);

/// The kernel and its grid for `n` rows, if the device can run it. It binds queries, keys, values and angles, and, written,
/// rotated queries and the caches of keys and values, which hold `p` rows.
pub fn kernel(op: &Attention, act: DType, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let rows = Dim::symbol(Symbol::N);
    let heads = u64::from(op.heads) + 2 * u64::from(op.kv_heads);
    let items = rows.checked_mul(heads * u64::from(op.head_dim / 2))?;
    let mut launch = KERNEL.launch(act, act).ok()?;
    for written in [false, false, false, false, true, true, true] {
        launch = launch.bind(written, Arg::Symbols);
    }
    let launch = launch.rows(&rows).ok()?.set("HEADS", op.heads).set("KV_HEADS", op.kv_heads);
    let launch = launch.set("HEAD_DIM", op.head_dim);
    let launch = launch.groups([Extent::ceil_div(items, FLAT_ELEMENTS), one(), one()]);
    let fits = op.value_size() == op.head_dim && op.head_dim.is_multiple_of(2);
    (fits && launch.desc.check_limits(info).is_ok()).then_some((launch.desc, launch.groups))
}
