//! The choice of experts for one row: `moe_router.cu`, which stands for a norm, the router, `route`, and the gate of a dense layer.
//!
//! One launch does the work of several short ones. Its results are rounded where the separate kernels round theirs.

use super::linear::InputNorm;
use super::{OVERLAP, bindings, desc, rms_norm};
use crate::kernel::Request;
use crate::kernel::body::FusedBody;
use crate::kernel::source::{constant, plan_of, single_workgroup, unserved_error, weight_code};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::op::{Route, Scores};
use tapml_graph::{DType, Extent, Op, Result, ValueId};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("moe_router.cu");
/// Blocks of the cluster.
/// The outputs of the router are shared out over them.
const BLOCKS: u32 = 8;
/// Warps of a block at most; each has one output of the router.
const MOST_WARPS: u32 = 32;
/// Registers of a thread that hold weights at most, by whether a block has more than 16 warps.
const REGISTERS: [u32; 2] = [64, 32];
/// Slots, a lane each.
const MOST_SLOTS: u32 = 32;
/// Elements that a warp takes at a time.
/// Eight for each lane.
const STEP: u32 = 256;

/// The sizes of a choice.
#[derive(Clone, Copy, Debug)]
struct Router {
    /// Row length.
    k: u32,
    /// Outputs of the router.
    experts: u32,
    /// Storage of the weights of router and gate.
    stored: DType,
    /// Dtype of rows and results.
    act: DType,
}

/// The plan of `moe_router`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let norm = body.only_node("norm", |op| matches!(op, Op::RmsNorm(_)))?;
    let route = body.only_node("choice", |op| matches!(op, Op::Route(_)))?;
    let sigmoid = body.only_node("share", |op| matches!(op, Op::Sigmoid(_)))?;
    // The router and the gate are products of the same normalised row.
    let maker = |value| body.maker(value).filter(|node| matches!(node.op, Op::Linear(_)));
    let (router, gate) = (maker(route.inputs[0]), maker(sigmoid.inputs[0]));
    let (router, gate) = router.zip(gate).ok_or_else(|| unserved_error(request))?;
    let (Op::RmsNorm(of), Op::Route(choice)) = (&norm.op, &route.op) else {
        return Err(unserved_error(request));
    };
    let ([x, weight], [_, w], [_, g], [_]) =
        (&norm.inputs[..], &router.inputs[..], &gate.inputs[..], &route.inputs[..])
    else {
        return Err(unserved_error(request));
    };
    let act = body.ty(norm.outputs[0]).dtype;
    let size = |value: ValueId, at: usize| constant("a weight's size", &body.ty(value).shape[at]);
    // The kernel rounds all of them to one dtype.
    let logits = [router.outputs[0], gate.outputs[0], sigmoid.outputs[0]];
    let alike = body.ty(*w).dtype == body.ty(*g).dtype && size(*g, 0)? == 1;
    if !alike || logits.iter().any(|&value| body.ty(value).dtype != act) {
        return Err(unserved_error(request));
    }
    let sizes = Router { k: size(*w, 1)?, experts: size(*w, 0)?, stored: body.ty(*w).dtype, act };
    let of = InputNorm { eps: of.eps, offset: of.offset, dtype: body.ty(*weight).dtype };
    let (desc, groups) = kernel(&sizes, choice, of, request.info).ok_or_else(|| unserved_error(request))?;
    let mut args = body.read_all([*x, *weight, *w, *g])?;
    for value in [norm.outputs[0], route.outputs[0], route.outputs[1], sigmoid.outputs[0]] {
        args.push(body.write(value)?);
    }
    body.expect_outputs(&args)?;
    args.push(Arg::Symbols);
    // Eight products of a lane at a time and a tree, behind the sum of squares.
    let chain = sizes.k.div_ceil(STEP) * 8 + 5 + rms_norm::chain(sizes.k);
    Ok(plan_of(Launch { desc, args, groups }, chain))
}

/// The kernel and its grid; `None` if it does not serve such a choice, or the device cannot run it.
///
/// It binds the row, the weights of the norm, of the router and of the gate; and, written, the normalised row, the chosen experts, their
/// weights, and the share.
/// One output more than there are experts: the gate of the dense layer.
fn kernel(router: &Router, route: &Route, norm: InputNorm, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let &Router { k, experts, stored, act } = router;
    let warps = (experts + 1).div_ceil(BLOCKS);
    // Weights are loaded before the kernel in front has ended, and wait in registers for the row.
    let registers = k.div_ceil(STEP) * if stored == DType::F32 { 8 } else { 4 };
    let fits = k > 0 && k.is_multiple_of(STEP) && warps <= MOST_WARPS && experts > 0;
    let held = registers <= REGISTERS[usize::from(warps > 16)];
    let plain = route.groups.is_none() && route.k <= MOST_SLOTS && matches!(act, DType::F16 | DType::F32);
    if !fits || !held || !plain || info.features.cuda < Some(OVERLAP) {
        return None;
    }
    let mut desc = desc(info, "moe_router/cuda", "cuda/moe_router.cu", TEXT, warps * 32, 0);
    desc.bindings = bindings(4, 4);
    // The numbers are those of the text's constant SCORES.
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
    Some((desc, [Extent::from_dim(u64::from(BLOCKS)), single_workgroup(), single_workgroup()]))
}
