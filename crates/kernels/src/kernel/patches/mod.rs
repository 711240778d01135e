//! `patches`: launch planner. One invocation per element of the output; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Error, Op, Result};

/// Binds the images, then the rows of patches.
const KERNEL: KernelSource =
    KernelSource::flat("patches/portable", "patches/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `patches`: each square of an image becomes a row.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Patches(op) = request.op else { return Err(wrong_op(request)) };
    let (x, y) = (&request.inputs[0], &request.outputs[0]);
    let [_, lines, width] = x.shape.as_slice() else {
        return Err(Error::bug(format!("images must have three sizes, found {x}")));
    };
    // Images lie below each other, so that the height is that of all.
    let lines = constant("the height", lines)?;
    let (rows, columns) = rows_and_width(y)?;
    let launch = KERNEL.launch(x.dtype, y.dtype)?.input(0).output(0).rows(&rows)?;
    let launch = launch.set("LINES", lines).set("HEIGHT", lines / op.images.max(1));
    let launch = launch.set("WIDTH", constant("the width", width)?).set("PATCH", op.patch);
    let launch = launch.set("LEAD", op.lead).set("COLUMNS", columns);
    Ok(planned(&KERNEL, vec![launch.flat(elements(&rows, columns)?)], 0))
}
