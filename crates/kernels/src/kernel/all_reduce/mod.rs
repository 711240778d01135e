//! `all_reduce`: launch planner, for a device that runs all ranks. One launch for each rank, in their order; one invocation
//! per element, of which workgroup `x` treats `1024·x` to `1024·x + 1023`. Sums stay in f32 until the last rank.

use super::Request;
use super::source::{KernelSource, elements, plan as planned, rows_and_width, unserved_error, wrong_op};
use crate::plan::{NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{Error, Extent, Op, Result};

/// Binds what one rank has computed, the sums so far, then the result.
const KERNEL: KernelSource =
    KernelSource::flat("all_reduce/portable", "all_reduce/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `all_reduce`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::AllReduce(op) = request.op else { return Err(wrong_op(request)) };
    if op.rank.is_some() {
        return Err(unserved_error(request));
    }
    let y = &request.outputs[0];
    let (rows, width) = rows_and_width(y)?;
    let count = elements(&rows, width)?;
    let launch = |rank: u32| {
        let launch = KERNEL.launch(y.dtype, y.dtype)?.input(rank as usize);
        let launch = launch.scratch(0, BindingKind::ReadWrite).output(0).rows(&rows)?.set("K", width);
        let launch = launch.set("FIRST", u32::from(rank == 0)).set("LAST", u32::from(rank + 1 == op.ranks));
        Ok(launch.flat(count.clone()))
    };
    let launches = (0..op.ranks).map(launch).collect::<Result<Vec<_>>>()?;
    let bytes = count.checked_mul(4).ok_or_else(|| Error::unsupported("the sums of ranks overflow"))?;
    let scratch = vec![Scratch::Temporary(Extent::from_dim(bytes))];
    Ok(NodePlan { scratch, ..planned(&KERNEL, launches, op.ranks) })
}
