//! `layer_norm`: launch planner. Workgroup `x` treats row `x`, or several groups of columns. Without a weight or bias,
//! four zero bytes are bound in its place.
//!
//! Sums are made in f32, by a team of lanes for each run of columns; see [`super::norm`].

use super::Request;
use super::norm::{LANES, Runs, WORKGROUP_MEMORY};
use super::source::{KernelSource, plan as planned, stand_in, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds the input, the weight, the bias, then the output.
const KERNEL: KernelSource = KernelSource {
    name: "layer_norm/portable",
    file: "layer_norm/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: true,
    math: false,
    norm: true,
    formula: "",
    lanes: LANES,
    workgroup_memory: WORKGROUP_MEMORY,
};

/// The plan of `layer_norm`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::LayerNorm(op) = request.op else { return Err(wrong_op(request)) };
    let (x, weight, bias) = (&request.inputs[0], request.inputs.get(1), request.inputs.get(2));
    let runs = Runs::from_type(x, op.group)?;
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).optional(1, weight).optional(2, bias).output(0);
    let launch =
        // Groups may share one run of weights, or have one each.
        launch.with_presence(["HAS_WEIGHT", "W_DTYPE"], weight)?.set("W_RUNS", runs.of_weight(weight));
    let launch = launch.with_presence(["HAS_BIAS", "B_DTYPE"], bias)?.set("B_RUNS", runs.of_weight(bias));
    let launch = launch.set("EPS", op.eps).set("OFFSET", op.offset);
    let launches = vec![runs.launch(launch)?];
    Ok(NodePlan { constants: stand_in(&[weight, bias]), ..planned(&KERNEL, launches, runs.chain()) })
}
