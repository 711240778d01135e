//! `add_rms_norm`: launch planner. Workgroup `x` treats row `x`. Without a weight, four zero bytes are bound in its place.
//!
//! The sum of both inputs is an output, too.

use super::Request;
use super::norm::{LANES, Runs, WORKGROUP_MEMORY};
use super::source::{KernelSource, plan as planned, stand_in, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds both terms and the weight, then the two outputs.
const KERNEL: KernelSource = KernelSource {
    name: "add_rms_norm/portable",
    file: "add_rms_norm/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: true,
    math: false,
    norm: true,
    formula: "",
    lanes: LANES,
    workgroup_memory: WORKGROUP_MEMORY,
};

/// The plan of `add_rms_norm`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::AddRmsNorm(op) = request.op else { return Err(wrong_op(request)) };
    let (x, weight) = (&request.inputs[0], request.inputs.get(2));
    let runs = Runs::from_type(x, None)?;
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).input(1).optional(2, weight).output(0).output(1);
    let launch = launch.with_presence(["HAS_WEIGHT", "W_DTYPE"], weight)?;
    let launch = launch.set("EPS", op.eps).set("OFFSET", op.offset);
    let launches = vec![runs.launch(launch)?];
    Ok(NodePlan { constants: stand_in(&[weight]), ..planned(&KERNEL, launches, runs.chain()) })
}
