//! `concat`: launch planner. One invocation per element of the output; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Dim, Op, Result};

/// Binds both inputs, then the output.
const KERNEL: KernelSource =
    KernelSource::flat("concat/portable", "concat/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `concat`, which puts columns of two inputs side by side, part by part.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Concat(op) = request.op else { return Err(wrong_op(request)) };
    let (a, b, y) = (&request.inputs[0], &request.inputs[1], &request.outputs[0]);
    let rows = &y.shape[0];
    let width = |dim| constant("the row length", dim);
    let (from_a, from_b, to) = (width(&a.shape[1])?, width(&b.shape[1])?, width(&y.shape[1])?);
    let [k, l] = op.parts(a, b)?.map(Dim::from);
    let (k, l) = (width(&k)?, width(&l)?);
    let launch = KERNEL.launch(y.dtype, y.dtype)?.input(0).input(1).output(0).rows(rows)?;
    let launch = launch.set("ROW_A", from_a).set("ROW_B", from_b).set("ROW_Y", to);
    let launch = launch.set("K", k).set("L", l).set("STEP", if op.shared { 0 } else { l });
    Ok(planned(&KERNEL, vec![launch.flat(elements(rows, to)?)], 0))
}
