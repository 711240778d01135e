//! `gated_linear`: launch planner. Workgroup `(x, y)` stands for outputs `4·x` to `4·x + 3` of all rows when there are
//! few, and for a tile of 16 outputs and 32 rows when there are many, unless a setting says otherwise. Weights beyond one binding are split by rows, both
//! alike, with one launch for each part.

pub mod subgroup;

use super::Request;
use super::compose::{Joined, joined};
use super::linear::{chain, grid, run};
use super::source::{Kernel, constant, plan as planned, wrong_op};
use super::weights::Weight;
use crate::plan::NodePlan;
use crate::regime::Axis;
use tapml_graph::{Op, Result};

const TEXT: Joined = joined!(
    "gated_linear/portable.wgsl",
    "linear/reads.wgsl",
    "gated_linear/gated.wgsl",
    "gated_linear/bindings.wgsl",
    "weights/two.wgsl"
);
pub const KERNEL: Kernel = Kernel {
    name: "gated_linear/portable",
    file: TEXT.file,
    text: TEXT.text,
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: 64,
    workgroup_memory: 2 * 128 * 16,
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::GatedLinear(_) = request.op else { return Err(wrong_op(request)) };
    plan_with(&KERNEL, request, [&Weight::plain(request, 1), &Weight::plain(request, 2)])
}

/// The plan of a kernel of this form whose operator has these weights.
pub fn plan_with(kernel: &Kernel, request: &Request, [gate, up]: [&Weight; 2]) -> Result<NodePlan> {
    let x = &request.inputs[0];
    let (rows, k) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let width = constant("the number of outputs", &gate.ty.shape[0])?;
    let mut launches = Vec::new();
    for part in gate.split(request.info)? {
        let launch =
            kernel.launch(x.dtype, x.dtype)?.input(0).weight(gate, &part)?.weight(up, &part)?.output(0);
        let launch = launch.rows(rows)?.set("K", k).set("RUN", run(k));
        let launch = launch.set("O", part.rows).set("FIRST", part.first).set("WIDTH", width);
        let launch = launch.sized(request.setting);
        launches.push(launch.groups(grid(part.rows, rows, request.setting)));
    }
    let plan = planned(kernel, launches, chain(k)).along([Axis::few_rows(rows)]);
    Ok(NodePlan { constants: gate.stand_in(None), ..plan })
}
