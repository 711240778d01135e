//! The sum of a sparse layer and a dense one beside it, for many rows: `moe_combine.cu`.
//!
//! The sum is that of the slots' results times their weights, plus the dense result times the sigmoid of its gate.

use super::{COPIES, bindings, desc};
use crate::kernel::Request;
use crate::kernel::body::FusedBody;
use crate::kernel::source::{affine, constant, plan_of, single_workgroup, unserved_error};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_device::{DeviceInfo, Grid, KernelDesc};
use tapml_graph::{DType, Dim, Extent, Op, Result};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("moe_combine.cu");
/// Threads of a block, each with eight elements.
const THREADS: u32 = 256;

/// The plan of `moe_combine`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let combine = body.only_node("combination", |op| matches!(op, Op::Combine(_)))?;
    let sigmoid = body.only_node("share", |op| matches!(op, Op::Sigmoid(_)))?;
    let scaled = body.only_node("scaling", |op| matches!(op, Op::Mul(_)))?;
    let sum = body.only_node("addition", |op| matches!(op, Op::Add(_)))?;
    let (Op::Combine(op), ty) = (&combine.op, body.ty(sum.outputs[0])) else {
        return Err(unserved_error(request));
    };
    let read = [combine.inputs[0], combine.inputs[1], scaled.inputs[0], sigmoid.inputs[0]];
    let halves = read.iter().all(|&value| body.ty(value).dtype == DType::F16) && ty.dtype == DType::F16;
    let [rows, width] = &ty.shape[..] else { return Err(unserved_error(request)) };
    let found = kernel(rows, constant("a row's length", width)?, op.k, request.info);
    let (desc, groups) = found.filter(|_| halves).ok_or_else(|| unserved_error(request))?;
    let mut args = body.read_all(read)?;
    args.extend([body.write(sum.outputs[0])?, Arg::Symbols]);
    body.expect_outputs(&args)?;
    // A slot after the other, then the dense layer.
    Ok(plan_of(Launch { desc, args, groups }, op.k + 2))
}

/// The kernel and its grid for so many rows of f16, of this width, with so many slots; `None` if it does not serve these, or the device
/// cannot run it.
///
/// It binds what the experts give, the slots' weights, what the dense layer gives, its gate, and, written, the sum.
fn kernel(rows: &Dim, width: u32, slots: u32, info: &DeviceInfo) -> Option<(KernelDesc, Grid)> {
    let [n, p, c] = affine(rows).ok()?;
    if width == 0 || !width.is_multiple_of(8) || slots == 0 || info.features.cuda < Some(COPIES) {
        return None;
    }
    let mut desc = desc(info, "moe_combine/cuda", "cuda/moe_combine.cu", TEXT, THREADS, 0);
    desc.bindings = bindings(4, 1);
    desc.constants = [("WIDTH", width), ("SLOTS", slots), ("ROWS_N", n), ("ROWS_P", p), ("ROWS_C", c)]
        .map(|(name, value)| (name.to_string(), f64::from(value)))
        .to_vec();
    desc.check_limits(info).ok()?;
    // Eight elements of f16 are 16 bytes.
    let eights = rows.checked_mul(u64::from(width / 8))?;
    Some((desc, [Extent::ceil_div(eights, THREADS), single_workgroup(), single_workgroup()]))
}
