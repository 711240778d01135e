//! `position_scale`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`.
//!
//! The factor of a row follows from its position, which is given, or counts from the cached rows on. Without positions four
//! zero bytes are bound in their place.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, stand_in, wrong_op};
use crate::axis::Axis;
use crate::plan::NodePlan;
use tapml_graph::op::PositionForm;
use tapml_graph::{Op, Result};

/// Binds the rows, their positions, then the output; the logarithm is that of the `math` prelude.
const KERNEL: KernelSource = KernelSource {
    math: true,
    ..KernelSource::flat(
        "position_scale/portable",
        "position_scale/portable.wgsl",
        include_str!("portable.wgsl"),
    )
};

/// The plan of `position_scale`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::PositionScale(op) = request.op else { return Err(wrong_op(request)) };
    let x = &request.inputs[0];
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let given = request.inputs.get(1);
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).optional(1, given).output(0).rows(rows)?;
    let launch = launch.set("K", width).set("GIVEN", u32::from(given.is_some()));
    let launch = match op.form {
        PositionForm::Llama4 { beta, floor, shift } => {
            launch.set("FORM", 0u32).set("FACTOR", beta).set("FLOOR", floor).set("SHIFT", shift)
        }
        PositionForm::LogN { train } => {
            // The reciprocal is rounded a single time, from f64.
            let factor = f64::from(train).ln().recip() as f32;
            launch.set("FORM", 1u32).set("FACTOR", factor).set("FLOOR", 1u32).set("SHIFT", 0u32)
        }
    };
    let plan = planned(&KERNEL, vec![launch.flat(elements(rows, width)?)], 1);
    Ok(NodePlan { constants: stand_in(&[given]), ..plan.with_axes([Axis::cached_axis()]) })
}
