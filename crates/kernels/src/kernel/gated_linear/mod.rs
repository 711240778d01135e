//! `gated_linear`: launch planner. Workgroup `(x, y)` stands for outputs `4·x` to `4·x + 3` of all rows when there are
//! few, and for a tile of 16 outputs and 32 rows when there are many. Weights beyond one binding are split by rows, both
//! alike, with one launch for each part.

use super::Request;
use super::linear::{chain, row_tiles, run};
use super::source::{Kernel, PART_ROWS, constant, one, plan as planned, split, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Extent, Op, Result};

/// Outputs of a workgroup when there are few rows.
const OUTPUTS: u32 = PART_ROWS;

const KERNEL: Kernel = Kernel {
    name: "gated_linear/portable",
    file: "gated_linear/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: 64,
    workgroup_memory: 2 * 128 * 16,
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::GatedLinear(_) = request.op else { return Err(wrong_op(request)) };
    let (x, w) = (&request.inputs[0], &request.inputs[1]);
    let (rows, k) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let width = constant("the number of outputs", &w.shape[0])?;
    let mut launches = Vec::new();
    for part in split(w, request.info)? {
        let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).read(part.of(1)).read(part.of(2)).output(0);
        let launch = launch.rows(rows)?.weight_dtype(w.dtype)?.set("K", k).set("RUN", run(k));
        let launch = launch.set("O", part.rows).set("FIRST", part.first).set("WIDTH", width);
        let groups = Extent::of(u64::from(part.rows.div_ceil(OUTPUTS)));
        launches.push(launch.groups([groups, row_tiles(rows), one()]));
    }
    Ok(planned(&KERNEL, launches, chain(k)))
}
