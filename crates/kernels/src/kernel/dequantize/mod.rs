//! `dequantize`: launch planner. One invocation per element of the output; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`.

use super::Request;
use super::compose::{FixedComposition, joined};
use super::source::{KernelSource, elements, plan as planned, rows_and_width, wrong_op};
use super::weights::BoundWeight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// The kernel, and the bindings of a packed weight.
const TEXT: FixedComposition = joined!("dequantize/portable.wgsl", "weights/one_packed.wgsl");
/// Binds the sections of the weight, then the output.
const KERNEL: KernelSource =
    KernelSource { weights: true, ..KernelSource::flat("dequantize/portable", TEXT.file, TEXT.text) };

/// The plan of `dequantize`. The weight is bound as a whole: one beyond the device's limits is refused.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Dequantize(_) = request.op else { return Err(wrong_op(request)) };
    let w = BoundWeight::from_packed_input(request, 0)?;
    let out = &request.outputs[0];
    let (rows, width) = rows_and_width(out)?;
    let launch = KERNEL.launch(out.dtype, out.dtype)?.weight(&w, &w.whole())?.output(0).rows(&rows)?;
    let launch = launch.set("K", width).flat(elements(&rows, width)?);
    Ok(NodePlan { constants: w.stand_in(None), ..planned(&KERNEL, vec![launch], 0) })
}
