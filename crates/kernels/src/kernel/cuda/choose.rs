//! The choice of experts for one row: `choose.cu`, which stands for a norm, the router, `route`, and the gate of a dense layer.

use super::linear::Norm;
use super::{OVERLAP, bindings, desc};
use crate::kernel::source::{one, weight_code};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::{Route, Scores};
use tapml_graph::{DType, Extent};

const TEXT: &str = include_str!("choose.cu");
/// Blocks of the cluster.
const BLOCKS: u32 = 8;
/// Warps of a block at most; each has one output of the router.
const MOST_WARPS: u32 = 32;
/// Registers of a thread that hold weights at most, by whether a block has more than 16 warps.
const REGISTERS: [u32; 2] = [64, 32];
/// Slots, a lane each.
const MOST_SLOTS: u32 = 32;
/// Elements that a warp takes at a time.
const STEP: u32 = 256;

/// The sizes of a choice.
#[derive(Clone, Copy, Debug)]
pub struct Router {
    /// Row length.
    pub k: u32,
    /// Outputs of the router.
    pub experts: u32,
    /// Storage of the weights of router and gate.
    pub stored: DType,
    /// Dtype of rows and results.
    pub act: DType,
}

/// The kernel and its grid; `None` if it does not serve such a choice, or the device cannot run it.
///
/// It binds the row, the weights of the norm, of the router and of the gate; and, written, the normalised row, the chosen experts, their
/// weights, and the share.
pub fn kernel(router: &Router, route: &Route, norm: Norm, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let &Router { k, experts, stored, act } = router;
    let warps = (experts + 1).div_ceil(BLOCKS);
    let registers = k.div_ceil(STEP) * if stored == DType::F32 { 8 } else { 4 };
    let fits = k > 0 && k.is_multiple_of(STEP) && warps <= MOST_WARPS && experts > 0;
    let held = registers <= REGISTERS[usize::from(warps > 16)];
    let plain = route.groups.is_none() && route.k <= MOST_SLOTS && matches!(act, DType::F16 | DType::F32);
    if !fits || !held || !plain || info.features.cuda < Some(OVERLAP) {
        return None;
    }
    let mut desc = desc(info, "choose/cuda", "cuda/choose.cu", TEXT, warps * 32, 0);
    desc.bindings = bindings(4, 4);
    let scores = match route.scores {
        Scores::Softmax => 0,
        Scores::Sigmoid => 1,
        Scores::SoftmaxOfTop => 2,
    };
    desc.constants = [
        ("K", f64::from(k)),
        ("EXPERTS", f64::from(experts)),
        ("SLOTS", f64::from(route.k)),
        ("WARPS", f64::from(warps)),
        ("SCORES", f64::from(scores)),
        ("NORMALIZE", f64::from(u8::from(route.normalize))),
        ("SCALE", f64::from(route.scale)),
        ("W_DTYPE", f64::from(weight_code(stored).ok()?)),
        ("NORM_DTYPE", f64::from(weight_code(norm.dtype).ok()?)),
        ("EPS", f64::from(norm.eps)),
        ("OFFSET", f64::from(norm.offset)),
        ("ACT_F32", f64::from(u8::from(act == DType::F32))),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec();
    desc.check_limits(info).ok()?;
    Some((desc, [Extent::of(u64::from(BLOCKS)), one(), one()]))
}
