//! `embedding`: launch planner. One invocation per element of the output; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`. A table beyond one binding is split by rows, with one launch for each part.

use super::Request;
use super::compose::{Joined, joined};
use super::source::{Kernel, constant, elements, plan as planned, rows_and_width, wrong_op};
use super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: Joined = joined!("embedding/portable.wgsl", "embedding/bindings.wgsl");
const KERNEL: Kernel = Kernel { weights: true, ..Kernel::flat("embedding/portable", TEXT.file, TEXT.text) };

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Embedding(_) = request.op else { return Err(wrong_op(request)) };
    plan_with(&KERNEL, request, &Weight::plain(request, 1))
}

/// The plan of a kernel of this form whose operator has this table.
pub fn plan_with(kernel: &Kernel, request: &Request, table: &Weight) -> Result<NodePlan> {
    let out = &request.outputs[0];
    // One id is one row, even where the count of ids is constant.
    let rows = &out.shape[0];
    let vocab = constant("the rows of the table", &table.ty.shape[0])?;
    let (_, width) = rows_and_width(&table.ty)?;
    let mut launches = Vec::new();
    for part in table.split(request.info)? {
        let launch =
            kernel.launch(out.dtype, out.dtype)?.input(0).weight(table, &part)?.output(0).rows(rows)?;
        let launch = launch.set("K", width);
        let launch = launch.set("FIRST", part.first).set("COUNT", part.rows).set("VOCAB", vocab);
        launches.push(launch.flat(elements(rows, width)?));
    }
    Ok(NodePlan { constants: table.stand_in(None), ..planned(kernel, launches, 0) })
}
