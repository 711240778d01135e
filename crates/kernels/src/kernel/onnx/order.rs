//! Operators that look for the first elements of lines along an axis: `ArgMax`, `ArgMin`, `TopK`.
//!
//! The order is total: NaN has a place in it, and of equal elements the first index comes first unless a node asks
//! otherwise.

use super::{OnnxNode, count, grid, launch, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::{KernelSource, LaunchBuilder};
use crate::plan::{NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{DType, Error, Extent, Result};

/// A number and an index for each of 256 lanes lie in workgroup memory.
const ARGUMENT: KernelSource = KernelSource {
    workgroup_memory: 2048,
    ..KernelSource::flat("onnx/argument", "onnx/ahead.wgsl+onnx/argument.wgsl", "")
};
/// Of integers of two words.
const LONG_ARGUMENT: KernelSource = KernelSource { workgroup_memory: 3072, ..ARGUMENT };
/// A workgroup looks for the next element of its line again and again.
const TOP_K: KernelSource = KernelSource {
    workgroup_memory: 1024,
    ..KernelSource::flat("onnx/top_k", "onnx/ahead.wgsl+onnx/top_k.wgsl", "")
};

/// Lines along an axis: their elements, the distance of two, how many lines there are.
struct Lines {
    /// Elements of a line.
    k: u32,
    /// Elements of the tensor from one of a line to the next.
    step: u32,
    /// Lines.
    count: u32,
}

impl Lines {
    /// The lines along an axis of a tensor of these sizes.
    fn from_axis(sizes: &[u32], axis: usize) -> Result<Lines> {
        let (k, step) = (sizes[axis], count(&sizes[axis + 1..])?);
        Ok(Lines { k, step, count: count(&sizes[..axis])?.saturating_mul(step) })
    }

    /// Sets the constants of the texts.
    fn set(&self, launch: LaunchBuilder) -> LaunchBuilder {
        launch.set("K", self.k).set("STEP", self.step).set("LINES", self.count)
    }
}

/// The numbers of a dtype with their order, in front of a text.
///
/// The dtype is that of the activations in the text: integers are declared by the text itself.
fn order_text(node: &OnnxNode, text: &str) -> Result<(DType, String)> {
    let dtype = node.input(0)?.dtype();
    let (numbers, order) = match dtype {
        DType::F32 | DType::F16 => (
            concat!(include_str!("numbers_float.wgsl"), include_str!("order.wgsl")),
            include_str!("ahead_float.wgsl"),
        ),
        DType::I32 => (include_str!("numbers_i32.wgsl"), include_str!("ahead_i32.wgsl")),
        DType::U32 => (include_str!("numbers_u32.wgsl"), include_str!("ahead_i32.wgsl")),
        DType::I64 => (include_str!("numbers_i64.wgsl"), include_str!("ahead_i64.wgsl")),
        other => return Err(node.unserved_error(&format!("{other}"))),
    };
    let act = if dtype == DType::F16 { DType::F16 } else { DType::F32 };
    Ok((act, format!("{numbers}{}{order}{text}", include_str!("ahead.wgsl"))))
}

/// `ArgMax` and `ArgMin`.
pub fn plan_argument(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis", "keepdims", "select_last_index"])?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let axis = node.axis(node.int("axis", 0)?, sizes.len())?;
    let lines = Lines::from_axis(&sizes, axis)?;
    let kept: &[u32] = if node.int("keepdims", 1)? != 0 { &[1] } else { &[] };
    let y = node.gives(0, DType::I64, &[&sizes[..axis], kept, &sizes[axis + 1..]].concat())?;
    if x.count()? == 0 {
        return Err(node.unserved_error("an empty tensor"));
    }
    let (act, text) = order_text(&node, include_str!("argument.wgsl"))?;
    let kernel = if x.dtype() == DType::I64 { &LONG_ARGUMENT } else { &ARGUMENT };
    // Short lines share a workgroup: a lane has about four elements.
    let team = lines.k.div_ceil(4).next_power_of_two().min(256);
    let launch = lines.set(launch(kernel, act, text)?.read(whole(x)).output(y.index)).set("TEAM", team);
    let launch = launch.set("LAST", u32::from(node.int("select_last_index", 0)? != 0));
    let largest = u32::from(node.op.name() == "ArgMax");
    // Both operators take NaN as what they look for, as NumPy does.
    let launch = launch.set("LARGEST", largest).set("NAN_FIRST", 1u32);
    let launch = launch.groups(grid(lines.count.div_ceil(256 / team)));
    Ok(plan_with(kernel, vec![launch], Vec::new(), 0))
}

/// `TopK`. How many are wanted is an input, which the declared sizes tell.
pub fn plan_top_k(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis", "largest", "sorted", "k"])?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let axis = node.axis(node.int("axis", -1)?, sizes.len())?;
    let places: Vec<_> = [0, 1].into_iter().filter_map(|place| node.output(place).ok()).collect();
    let declared = places.first().ok_or_else(|| node.unserved_error("no outputs"))?.sizes()?;
    let first = declared.get(axis).copied().unwrap_or(0);
    let mut chosen = sizes.clone();
    chosen[axis] = first;
    if first > sizes[axis] {
        return Err(Error::invalid(format!("the first {first} of {} along axis {axis}", x.ty)));
    }
    let outputs = [(0, x.dtype()), (1, DType::I64)].map(|(place, dtype)| {
        let asked = node.outputs.get(place).copied().flatten();
        asked.map(|_| node.gives(place, dtype, &chosen)).transpose()
    });
    let [values, indices] = outputs;
    let lines = Lines::from_axis(&sizes, axis)?;
    if count(&chosen)? == 0 {
        return Ok(plan_with(&TOP_K, Vec::new(), Vec::new(), 0));
    }
    let (act, text) = order_text(&node, include_str!("top_k.wgsl"))?;
    // What nobody asks for is written beside.
    let mut scratch = Vec::new();
    let mut launch = launch(&TOP_K, act, text)?.read(whole(x));
    for (output, size) in [(values?, x.dtype().size()), (indices?, 8)] {
        launch = match output {
            Some(output) => launch.output(output.index),
            None => {
                let bytes = u64::from(count(&chosen)?) * size as u64;
                scratch.push(Scratch::Temporary(Extent::from_dim(bytes.next_multiple_of(4))));
                launch.scratch(scratch.len() - 1, BindingKind::ReadWrite)
            }
        };
    }
    let largest = u32::from(node.int("largest", 1)? != 0);
    let launch = lines.set(launch).set("FIRST", first).set("LARGEST", largest).set("NAN_FIRST", largest);
    let launches = vec![launch.groups(grid(lines.count))];
    Ok(NodePlan { scratch, ..plan_with(&TOP_K, launches, Vec::new(), 0) })
}
