//! `columns`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds the rows, then the output.
const KERNEL: KernelSource =
    KernelSource::flat("columns/portable", "columns/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `columns`, which takes a range of each group of columns.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Columns(op) = request.op else { return Err(wrong_op(request)) };
    let (x, y) = (&request.inputs[0], &request.outputs[0]);
    let rows = &x.shape[0];
    let (from, to) = (constant("the row length", &x.shape[1])?, constant("the row length", &y.shape[1])?);
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).output(0).rows(rows)?;
    let launch = launch.set("FROM", from).set("TO", to);
    let launch = launch.set("GROUP", op.group).set("FIRST", op.first).set("COUNT", op.count);
    Ok(planned(&KERNEL, vec![launch.flat(elements(rows, to)?)], 0))
}
