//! The norm of one row: `rms_norm.cu`. It adds up in the order of a product that normalises its
//! input itself.
//!
//! A result is the same to the bit, whether the norm is fused with a product of its row or not.

use super::{COPIES, bindings, desc};
use crate::kernel::Request;
use crate::kernel::source::{constant, may_be_one, plan_of, single_workgroup, unserved_error, weight_code};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{DType, Op, Result, TensorType};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("rms_norm.cu");
/// Warps of the one block.
const WARPS: u32 = 8;
/// The longest row, which a block keeps in registers.
const LONGEST: u32 = 16384;

/// The plan of a norm of one whole row.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let (adds, eps, offset) = match request.op {
        Op::RmsNorm(op) if op.group.is_none() => (false, op.eps, op.offset),
        Op::AddRmsNorm(op) => (true, op.eps, op.offset),
        _ => return Err(unserved_error(request)),
    };
    let x = &request.inputs[0];
    let weight = request.inputs.get(if adds { 2 } else { 1 });
    // A norm without weights is left to the other kernels.
    let found = weight.and_then(|w| kernel(x, w, adds, [eps, offset], request.info));
    let (desc, k) = found.filter(|_| may_be_one(&x.shape[0])).ok_or_else(|| unserved_error(request))?;
    // Inputs and outputs are bound in the operator's own order.
    let inputs = (0..request.inputs.len()).map(|index| Arg::Input { index, offset: 0, len: 0 });
    let outputs = (0..request.outputs.len()).map(Arg::Output);
    let args = inputs.chain(outputs).chain([Arg::Symbols]).collect();
    Ok(plan_of(
        Launch { desc, args, groups: [single_workgroup(), single_workgroup(), single_workgroup()] },
        chain(k),
    ))
}

/// The kernel and the row length; `None` if it does not serve such rows, or the device cannot run it.
fn kernel(
    x: &TensorType,
    weight: &TensorType,
    adds: bool,
    [eps, offset]: [f32; 2],
    info: &DeviceInfo,
) -> Option<(KernelDesc, u32)> {
    let k = constant("the row length", x.shape.get(1)?).ok()?;
    let dtype = weight_code(weight.dtype).ok()?;
    let fits =
        matches!(x.dtype, DType::F16 | DType::F32) && k.is_multiple_of(8) && (1..=LONGEST).contains(&k);
    if info.features.cuda < Some(COPIES) || !fits {
        return None;
    }
    let mut desc = desc(info, "rms_norm/cuda", "cuda/rms_norm.cu", TEXT, WARPS * 32, 0);
    desc.bindings = if adds { bindings(3, 2) } else { bindings(2, 1) };
    desc.constants = [
        ("K", f64::from(k)),
        ("WARPS", f64::from(WARPS)),
        ("ADD", f64::from(u8::from(adds))),
        ("EPS", f64::from(eps)),
        ("OFFSET", f64::from(offset)),
        ("NORM_DTYPE", f64::from(dtype)),
        ("ACT_F32", f64::from(u8::from(x.dtype == DType::F32))),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec();
    Some((desc, k))
}

/// The longest chain of additions: eight squares, a tree of 32, blocks of 256 four by four.
pub fn chain(k: u32) -> u32 {
    8 + 5 + 2 + k.div_ceil(1024)
}
