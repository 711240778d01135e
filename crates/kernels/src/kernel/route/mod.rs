//! `route`: launch planner. Workgroup `x` treats row `x`.
//!
//! It gives the experts that each row chooses and their weights. The limit of 64 experts that are chosen follows from
//! the size of a workgroup; how many there are to choose from is not limited by it.

use super::Request;
use super::source::{KernelSource, constant, plan as planned, single_workgroup, stand_in, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::op::{GroupScore, Scores};
use tapml_graph::{Error, Extent, Op, Result};

/// Invocations of a workgroup. Each keeps one chosen expert, and weighs one group.
const LANES: u32 = 64;

/// Binds the logits, the bias, then chosen experts and their weights.
const KERNEL: KernelSource = KernelSource {
    name: "route/portable",
    file: "route/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 3 * 4 * LANES,
};

/// The plan of `route`.
///
/// # Errors
/// `Unsupported` with the limit in its details for more chosen experts or groups than a workgroup has lanes.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Route(op) = request.op else { return Err(wrong_op(request)) };
    let (logits, bias) = (&request.inputs[0], request.inputs.get(1));
    let (rows, experts) = (&logits.shape[0], constant("the number of experts", &logits.shape[1])?);
    for (what, limit, asked) in
        [("chosen experts", "k", op.k), ("groups", "groups", op.groups.map_or(1, |g| g.count))]
    {
        if asked > LANES {
            return Err(Error::unsupported(format!("{asked} {what}: the kernel takes {LANES}"))
                .with_detail("limit", limit)
                .with_detail("asked", asked.to_string())
                .with_detail("offered", LANES.to_string()));
        }
    }
    // The numbers are those of the text's constant SCORES.
    let scores = match op.scores {
        Scores::Softmax => 0u32,
        Scores::Sigmoid => 1,
        Scores::SoftmaxOfTop => 2,
    };
    let launch = KERNEL.launch(logits.dtype, logits.dtype)?.input(0).optional(1, bias).output(0).output(1);
    let launch = launch.rows(rows)?.with_presence(["HAS_BIAS", "W_DTYPE"], bias)?;
    let launch = launch.set("EXPERTS", experts).set("SLOTS", op.k).set("SCORES", scores);
    let launch = launch.set("BY_LOGITS", u32::from(op.by_logits(bias.is_some())));
    let mut launch = launch.set("NORMALIZE", u32::from(op.normalize)).set("SCALE", op.scale);
    if let Some(groups) = op.groups {
        launch = launch.set("GROUPS", groups.count).set("SELECTED", groups.selected);
        launch = launch.set("TWO", u32::from(groups.by == GroupScore::Top2Sum));
    }
    let launches =
        vec![launch.groups([Extent::from_dim(rows.clone()), single_workgroup(), single_workgroup()])];
    // A lane adds up the scores of every 64th expert.
    let chain = experts.div_ceil(LANES);
    Ok(NodePlan { constants: stand_in(&[bias]), ..planned(&KERNEL, launches, chain) })
}
