//! `all_gather`: launch planner, for a device that runs all ranks. One launch for each rank; one invocation per element of
//! its part, of which workgroup `x` treats `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, unserved_error, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds what one rank has computed, then the whole.
const KERNEL: KernelSource =
    KernelSource::flat("all_gather/portable", "all_gather/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `all_gather`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::AllGather(op) = request.op else { return Err(wrong_op(request)) };
    if op.rank.is_some() {
        return Err(unserved_error(request));
    }
    let y = &request.outputs[0];
    let (rows, width) = (&y.shape[0], constant("the row length", &y.shape[1])?);
    let (mut first, mut launches) = (0, Vec::new());
    for (rank, x) in request.inputs.iter().enumerate() {
        let part = constant("the row length", &x.shape[1])?;
        let launch = KERNEL.launch(y.dtype, y.dtype)?.input(rank).output(0).rows(rows)?;
        let launch = launch.set("ROW_X", part).set("ROW_Y", width).set("FIRST", first);
        launches.push(launch.flat(elements(rows, part)?));
        first += part;
    }
    Ok(planned(&KERNEL, launches, 0))
}
