//! `MaxPool` and `AveragePool`.
//!
//! See <https://onnx.ai/onnx/operators/onnx__MaxPool.html> and
//! <https://onnx.ai/onnx/operators/onnx__AveragePool.html>. An invocation goes over the window of one element of the
//! output.

use super::window::{Window, WindowSizes, windowed};
use super::{OnnxNode, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::NodePlan;
use tapml_graph::{Dim, Error, Result};

/// Maximum and mean are one text, told apart by a constant.
const KERNEL: KernelSource = windowed!("pool", "order.wgsl", "pool.wgsl");

/// The plan of either operator.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    let mean = node.op.name() == "AveragePool";
    let read = ["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"];
    node.reads(&[&read[..], &["storage_order"]].concat())?;
    let dtype = node.float_dtype()?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    let (from, to) = (x.sizes()?, y.sizes()?);
    let kernel = node.ints("kernel_shape")?.unwrap_or_default();
    let kernel: Option<Vec<u32>> = kernel
        .iter()
        .map(|&size| u32::try_from(size).ok().filter(|size| (1..32768).contains(size)))
        .collect();
    let kernel = kernel
        .ok_or_else(|| Error::invalid("`kernel_shape` has a size that is no small positive integer"))?;
    if from.len() < 3
        || to.get(..2) != from.get(..2)
        || y.dtype() != dtype
        // The second output of `MaxPool` would be the indices.
        || node.outputs.iter().skip(1).any(Option::is_some)
    {
        return Err(node.unserved_error(&format!("{} with such outputs", x.ty)));
    }
    let window = Window::from_node(
        &node,
        WindowSizes { input: &from[2..], output: &to[2..], kernel: &kernel },
        false,
    )?;
    let launch = KERNEL.launch(dtype, dtype)?.read(whole(x)).output(y.index).set("COUNT", y.count()?);
    // Whether the divisor of a mean counts elements of the padding.
    let counts = mean && node.int("count_include_pad", 0)? != 0;
    let launch = launch.set("MEAN", u32::from(mean)).set("COUNT_PADS", u32::from(counts));
    let launch = window.set(launch).flat(Dim::from(u64::from(y.count()?)));
    // A maximum adds nothing up.
    let chain = if mean { super::count(&kernel)? } else { 0 };
    Ok(plan_with(&KERNEL, vec![launch], Vec::new(), chain))
}
