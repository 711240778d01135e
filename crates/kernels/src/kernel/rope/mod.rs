//! `rope`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.
//!
//! Rotary position embedding (Su et al., "RoFormer", 2021): pairs of elements of each head are turned by the angles
//! of their row.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{DType, Error, Op, Result};

/// Binds the rows and the angles, then the output.
const KERNEL: KernelSource =
    KernelSource::flat("rope/portable", "rope/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `rope`.
///
/// # Errors
/// `Unsupported` unless the angles are f32.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Rope(op) = request.op else { return Err(wrong_op(request)) };
    let (x, angles) = (&request.inputs[0], &request.inputs[1]);
    if angles.dtype != DType::F32 {
        return Err(Error::unsupported(format!("angles of {}: kernels take f32", angles.dtype)));
    }
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).input(1).output(0).rows(rows)?;
    let launch = launch.set("K", width).set("HEAD_DIM", op.head_dim).set("ROTARY_DIM", op.rotary_dim);
    let launch = launch.set("INTERLEAVED", u32::from(op.interleaved));
    Ok(planned(&KERNEL, vec![launch.flat(elements(rows, width)?)], 1))
}
