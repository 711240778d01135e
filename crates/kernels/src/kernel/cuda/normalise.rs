//! Normalisation of f16 rows: `normalise.cu`.
//!
//! A block has a row. It serves any number of rows; a single one goes to `rms_norm.cu` where that serves it.

use super::{COPIES, bindings, desc};
use crate::kernel::Request;
use crate::kernel::source::{
    constant, factors, plan_of, single_workgroup, stand_in, unserved_error, weight_code,
};
use crate::plan::{Arg, Launch, NodePlan};
use tapml_graph::{DType, Dim, Extent, Op, Result};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("normalise.cu");
/// Threads of a block.
const THREADS: u32 = 256;
/// Elements of a row at most: each thread holds its part.
const LONGEST: u32 = 1 << 14;

/// The plan of a norm of f16 rows.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let (launch, chain) = launch(request).ok_or_else(|| unserved_error(request))?;
    let weight = request.inputs.get(if matches!(request.op, Op::AddRmsNorm(_)) { 2 } else { 1 });
    Ok(NodePlan { constants: stand_in(&[weight]), ..plan_of(launch, chain) })
}

/// The launch and the longest chain of additions; `None` if the kernel does not serve the node.
fn launch(request: &Request) -> Option<(Launch, u32)> {
    let (add, eps, offset, group) = match request.op {
        Op::RmsNorm(op) => (false, op.eps, op.offset, op.group),
        Op::AddRmsNorm(op) => (true, op.eps, op.offset, None),
        _ => return None,
    };
    let (x, weight) = (&request.inputs[0], request.inputs.get(if add { 2 } else { 1 }));
    let [rows, k] = x.shape.as_slice() else { return None };
    let k = constant("the row length", k).ok()?;
    // A weight of another length belongs to groups of columns, which this kernel does not know.
    let whole = weight.is_none_or(|ty| ty.elements() == Some(Dim::from(u64::from(k))));
    let served =
        x.dtype == DType::F16 && group.is_none() && whole && k.is_multiple_of(8) && k > 0 && k <= LONGEST;
    if !served || request.info.features.cuda < Some(COPIES) {
        return None;
    }
    let [n, p, s, c] = factors(rows).ok()?;
    let dtype = weight.map_or(Some(0), |ty| weight_code(ty.dtype).ok())?;
    let name = if add { "add_rms_norm/cuda" } else { "rms_norm/cuda" };
    let mut desc = desc(request.info, name, "cuda/normalise.cu", TEXT, THREADS, 0);
    desc.bindings = bindings(if add { 3 } else { 2 }, if add { 2 } else { 1 });
    desc.constants = [
        ("K", f64::from(k)),
        ("ADD", f64::from(u8::from(add))),
        ("WEIGHT", f64::from(u8::from(weight.is_some()))),
        ("W_DTYPE", f64::from(dtype)),
        ("EPS", f64::from(eps)),
        ("OFFSET", f64::from(offset)),
        ("ROWS_N", f64::from(n)),
        ("ROWS_P", f64::from(p)),
        ("ROWS_S", f64::from(s)),
        ("ROWS_C", f64::from(c)),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec();
    let input = |index| Arg::Input { index, offset: 0, len: 0 };
    // A kernel binds as many buffers whether a weight is given or not.
    let weights = if weight.is_some() { input(if add { 2 } else { 1 }) } else { Arg::Constant(0) };
    let args = if add {
        vec![input(0), input(1), weights, Arg::Output(0), Arg::Output(1), Arg::Symbols]
    } else {
        vec![input(0), weights, Arg::Output(0), Arg::Symbols]
    };
    let groups = [Extent::from_dim(rows.clone()), single_workgroup(), single_workgroup()];
    Some((Launch { desc, args, groups }, k.div_ceil(THREADS) + 16))
}
