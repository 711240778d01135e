//! `Softmax` and `LogSoftmax`: along one dimension, and up to version 12 along all behind one.
//!
//! A team of lanes treats one line: the maximum, then the sum of exponentials, then the results.

use super::{OnnxNode, count, grid, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::NodePlan;
use tapml_graph::Result;

/// A number for each of 256 lanes lies in workgroup memory.
const KERNEL: KernelSource = KernelSource {
    math: true,
    workgroup_memory: 1024,
    ..KernelSource::flat(
        "onnx/softmax",
        "onnx/order.wgsl+onnx/softmax.wgsl",
        concat!(include_str!("order.wgsl"), include_str!("softmax.wgsl")),
    )
};

/// The plan of either operator.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis"])?;
    let dtype = node.float_dtype()?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    // The default axis is another one, too: 1 before that version, the last dimension from it on.
    let flat = node.version() < 13;
    let axis = node.axis(node.int("axis", if flat { 1 } else { -1 })?, sizes.len())?;
    let (k, step) =
        if flat { (count(&sizes[axis..])?, 1) } else { (sizes[axis], count(&sizes[axis + 1..])?) };
    let total = x.count()?;
    if total == 0 {
        return Err(node.unserved_error("an empty tensor"));
    }
    let (lines, team) = (total / k, k.div_ceil(4).next_power_of_two().min(256));
    let launch = KERNEL.launch(dtype, dtype)?.read(whole(x)).output(y.index).set("LINES", lines).set("K", k);
    let is_log = u32::from(node.op.name() == "LogSoftmax");
    let launch = launch.set("STEP", step).set("LOGARITHM", is_log).set("TEAM", team);
    let groups = lines.div_ceil(256 / team);
    Ok(plan_with(&KERNEL, vec![launch.groups(grid(groups))], Vec::new(), k.div_ceil(team)))
}
