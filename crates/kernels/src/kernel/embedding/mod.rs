//! `embedding`: launch planner. One invocation per element of the output; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`. A table beyond one binding is split by rows, with one launch for each part.

use super::Request;
use super::source::{Kernel, constant, elements, plan as planned, rows_and_width, split, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const KERNEL: Kernel = Kernel {
    weights: true,
    ..Kernel::flat("embedding/portable", "embedding/portable.wgsl", include_str!("portable.wgsl"))
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Embedding(_) = request.op else { return Err(wrong_op(request)) };
    let (table, out) = (&request.inputs[1], &request.outputs[0]);
    // One id is one row, even where the count of ids is constant.
    let rows = &out.shape[0];
    let vocab = constant("the rows of the table", &table.shape[0])?;
    let (_, width) = rows_and_width(table)?;
    let mut launches = Vec::new();
    for part in split(table, request.info)? {
        let launch = KERNEL.launch(out.dtype, out.dtype)?.input(0).read(part.of(1)).output(0).rows(rows)?;
        let launch = launch.weight_dtype(table.dtype)?.set("K", width);
        let launch = launch.set("FIRST", part.first).set("COUNT", part.rows).set("VOCAB", vocab);
        launches.push(launch.flat(elements(rows, width)?));
    }
    Ok(planned(&KERNEL, launches, 0))
}
