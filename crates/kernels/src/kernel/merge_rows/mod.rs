//! `merge_rows`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, affine, constant, elements, plan as planned, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds rows, the rows that take their places, the places, then the output.
const KERNEL: KernelSource =
    KernelSource::flat("merge_rows/portable", "merge_rows/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `merge_rows`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::MergeRows(_) = request.op else { return Err(wrong_op(request)) };
    let (x, source) = (&request.inputs[0], &request.inputs[1]);
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    // How many rows are merged in may depend on the run, as the number of rows does.
    let [n, p, c] = affine(&source.shape[0])?;
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).input(1).input(2).output(0).rows(rows)?;
    let launch = launch.set("K", width).set("SOURCE_N", n).set("SOURCE_P", p).set("SOURCE_C", c);
    Ok(planned(&KERNEL, vec![launch.flat(elements(rows, width)?)], 0))
}
