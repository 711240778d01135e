//! `embedding`: launch planner. One invocation per element of the output; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`. A table beyond one binding is split by rows, with one launch for each part.

use super::Request;
use super::compose::{FixedComposition, joined};
use super::source::{KernelSource, constant, elements, plan as planned, rows_and_width, wrong_op};
use super::weights::BoundWeight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// For plain tables.
const TEXT: FixedComposition = joined!("embedding/portable.wgsl", "embedding/bindings.wgsl");
/// Binds the ids, the table, then the output.
const KERNEL: KernelSource =
    KernelSource { weights: true, ..KernelSource::flat("embedding/portable", TEXT.file, TEXT.text) };
/// For packed tables.
const PACKED_TEXT: FixedComposition =
    joined!("embedding/portable.wgsl", "embedding/packed_bindings.wgsl", "weights/one_packed.wgsl");
/// Binds the sections of the table in its place.
const PACKED: KernelSource = KernelSource {
    weights: true,
    ..KernelSource::flat("embedding/packed", PACKED_TEXT.file, PACKED_TEXT.text)
};

/// A packed weight is unpacked as it is read, by the text that binds its sections.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let table = BoundWeight::from_input(request, 1)?;
    plan_with(if table.is_packed() { &PACKED } else { &KERNEL }, request, &table)
}

/// The plan by either of both.
fn plan_with(kernel: &KernelSource, request: &Request, table: &BoundWeight) -> Result<NodePlan> {
    let Op::Embedding(_) = request.op else { return Err(wrong_op(request)) };
    let out = &request.outputs[0];
    // One id is one row, even where the count of ids is constant.
    let rows = &out.shape[0];
    let vocab = constant("the rows of the table", &table.ty.shape[0])?;
    let (_, width) = rows_and_width(table.ty)?;
    let mut launches = Vec::new();
    for part in table.split(request.info)? {
        let launch =
            kernel.launch(out.dtype, out.dtype)?.input(0).weight(table, &part)?.output(0).rows(rows)?;
        let launch = launch.set("K", width);
        // Each launch writes the rows whose ids are in its part.
        let launch = launch.set("FIRST", part.first).set("COUNT", part.rows).set("VOCAB", vocab);
        launches.push(launch.flat(elements(rows, width)?));
    }
    Ok(NodePlan { constants: table.stand_in(None), ..planned(kernel, launches, 0) })
}
