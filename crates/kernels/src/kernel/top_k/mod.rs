//! `top_k`: launch planner. Workgroup `(x, y)` of the first launch chooses from elements `4096·x` to `4096·x + 4095` of row `y`,
//! workgroup `(0, y)` of the second from what the parts of row `y` chose.
//!
//! Numbers are compared as integers of the same order, and of equal ones by their columns, so that no two are equal.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, single_workgroup, wrong_op};
use crate::plan::{NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{Error, Extent, Op, Result};

/// Invocations of a workgroup.
const LANES: u32 = 256;
/// Elements that one workgroup chooses from at first: 16 for each invocation.
const PART: u32 = 4096;
/// Elements for which a workgroup has memory.
const ROOM: u32 = 1024;

/// Binds the numbers, what the parts chose, then values and columns.
const KERNEL: KernelSource = KernelSource {
    name: "top_k/portable",
    file: "top_k/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: false,
    norm: false,
    formula: "",
    math: false,
    lanes: LANES,
    workgroup_memory: 8 * (LANES + ROOM + 1) + 4,
};

/// The plan of `top_k`.
///
/// # Errors
/// `Unsupported` with the limit in its details where more elements could be looked at than a workgroup has memory for.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::TopK(op) = request.op else { return Err(wrong_op(request)) };
    let x = &request.inputs[0];
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let count = width.div_ceil(PART);
    // Of K lanes every element may be among the greatest; the later choice is from `count·k` elements.
    let asked = [PART.min(width), count.saturating_mul(op.k)]
        .map(|elements| op.k.saturating_mul(elements.div_ceil(LANES)))
        .into_iter()
        .fold(0, u32::max);
    if op.k > LANES || asked > ROOM {
        let text = format!("the {} greatest of {width} elements: the kernel has memory for {ROOM}", op.k);
        return Err(Error::unsupported(text)
            .with_detail("limit", "k")
            .with_detail("asked", asked.to_string())
            .with_detail("offered", ROOM.to_string()));
    }
    let launch = |joins: u32, groups: u32| {
        let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).scratch(0, BindingKind::ReadWrite);
        let launch = launch.output(0).output(1).rows(rows)?.set("WIDTH", width).set("K", op.k);
        let launch = launch.set("PART", PART).set("COUNT", count).set("JOINS", joins);
        let groups = Extent::from_dim(u64::from(groups));
        Ok(launch.groups([groups, Extent::from_dim(rows.clone()), single_workgroup()]))
    };
    // An order and a column of 4 bytes for each element that a part chooses.
    let bytes = count.checked_mul(op.k).and_then(|elements| elements.checked_mul(8));
    let bytes = bytes.ok_or_else(|| Error::unsupported("the row length overflows"))?;
    Ok(NodePlan {
        scratch: vec![Scratch::Temporary(Extent::from_dim(elements(rows, bytes)?))],
        ..planned(&KERNEL, vec![launch(0, count)?, launch(1, 1)?], 0)
    })
}
