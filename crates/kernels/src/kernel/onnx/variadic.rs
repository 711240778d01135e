//! Operators of any number of operands that stretch to the sizes of the output: `Sum`, `Mean`, and `Max` and `Min` of other than two.

use super::formulas::formula;
use super::walk::OperandWalk;
use super::{OnnxNode, Placed, joining, launch, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use std::fmt::Write;
use tapml_graph::{DType, Dim, Result};

/// The text is put together for the number of operands.
const KERNEL: KernelSource =
    KernelSource { math: true, ..KernelSource::flat("onnx/variadic", "onnx/variadic.wgsl", "") };

/// Operands that a device of WebGPU's limits binds beside the sizes and the output.
/// WebGPU promises eight storage buffers.
const MOST_OPERANDS: usize = 6;

/// `Sum` and `Mean`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    if node.op.name() == "Mean" { plan_node(&node, " / f32(OPERANDS)") } else { plan_node(&node, "") }
}

/// A plan that takes all operands together by the formula of two; `finish` stands behind the result.
pub fn plan_node(node: &OnnxNode, finish: &str) -> Result<NodePlan> {
    node.reads(&[])?;
    let y = node.output(0)?;
    let operands: Option<Vec<Placed>> = node.inputs.iter().copied().collect();
    let operands = operands.filter(|operands| (1..=MOST_OPERANDS).contains(&operands.len()));
    let operands =
        operands.ok_or_else(|| node.unserved_error(&format!("other than 1 to {MOST_OPERANDS} operands")))?;
    // Early versions do not stretch operands, and name an attribute that means nothing.
    if node.version() < 8 || operands.iter().any(|operand| operand.dtype() != y.dtype()) {
        return Err(node.unserved_error("such operands"));
    }
    let shapes = operands.iter().map(Placed::sizes).collect::<Result<Vec<_>>>()?;
    let walk =
        OperandWalk::from_operands(&y.sizes()?, &shapes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    // One operand of floats is copied bit by bit.
    if operands.len() == 1 && y.dtype().is_float() {
        return joining::plan_copied(node, &y);
    }
    let name = if matches!(node.op.name(), "Sum" | "Mean") { "Add" } else { node.op.name() };
    let found = formula(name, y.dtype());
    let (numbers, formula) = found.ok_or_else(|| node.unserved_error(&format!("{}", y.dtype())))?;
    if y.count()? == 0 {
        return Ok(plan_with(&KERNEL, Vec::new(), Vec::new(), 0));
    }
    let dtype = if y.dtype() == DType::F16 { DType::F16 } else { DType::F32 };
    let text =
        format!("{numbers}{formula}\n{}{}", bindings(operands.len(), finish), include_str!("variadic.wgsl"));
    let launch = launch(&KERNEL, dtype, text)?;
    let launch = operands.iter().fold(launch, |launch, &operand| launch.read(whole(operand)));
    let launch = launch.read(Arg::Constant(0)).output(y.index).set("COUNT", y.count()?);
    let launch = launch.set("RANK", walk.rank()).flat(Dim::from(u64::from(y.count()?)));
    Ok(plan_with(&KERNEL, vec![launch], vec![walk.words()], operands.len() as u32))
}

/// What the text needs of the operands: their bindings, the function that takes them together, and what becomes of the result.
fn bindings(count: usize, finish: &str) -> String {
    let mut text = format!("const OPERANDS = {count}u;\n");
    // Operands are taken together from the first to the last.
    let mut total = String::from("    var v = val(x0[meeting(e, 0u)]);\n");
    for at in 0..count {
        let _ = writeln!(text, "@group(0) @binding({at}) var<storage, read> x{at}: array<num>;");
        if at > 0 {
            let _ = writeln!(total, "    v = formula(v, val(x{at}[meeting(e, {at}u)]));");
        }
    }
    text + &format!(
        "@group(0) @binding({count}) var<storage, read> sizes: array<u32>; // of y; strides of each operand\n\
         @group(0) @binding({}) var<storage, read_write> y: array<num>;\n\
         @group(0) @binding({}) var<uniform> symbols: Symbols;\n\
         \nfn total(e: u32) -> val {{\n{total}    return v;\n}}\n\
         \nfn finish(v: val) -> val {{\n    return v{finish};\n}}\n\n",
        count + 1,
        count + 2
    )
}
