//! What computes each element from two operands that stretch to the sizes of the output:
//! <https://github.com/onnx/onnx/blob/main/docs/Broadcasting.md>. One invocation for each element.

use super::formulas::formula;
use super::walk::OperandWalk;
use super::{OnnxNode, launch, plan_with, variadic, whole};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Result};

/// The text is put together for the operator and its dtype.
const KERNEL: KernelSource =
    KernelSource { math: true, ..KernelSource::flat("onnx/pairs", "onnx/pairs.wgsl", "") };

/// Fails unless a node has two operands that stretch to each other, and no attributes.
pub(super) fn expect_pair(node: &OnnxNode) -> Result<()> {
    node.reads(&[])?;
    node.input(1)?;
    if node.version() < 7 || node.optional(2).is_some() {
        return Err(node.unserved_error("such operands"));
    }
    Ok(())
}

/// The plan of an operator of two operands.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    // These take any number of operands.
    if matches!(node.op.name(), "Max" | "Min") && node.inputs.len() != 2 {
        return variadic::plan_node(&node, "");
    }
    let constant = match node.op.name() {
        "Mod" => Some(("FMOD", u32::from(node.int("fmod", 0)? != 0))),
        "BitShift" => match node.text("direction", "")? {
            "LEFT" => Some(("LEFT", 1)),
            "RIGHT" => Some(("LEFT", 0)),
            other => return Err(node.unserved_error(&format!("the direction `{other}`"))),
        },
        _ => None,
    };
    node.reads(match node.op.name() {
        "Mod" => &["fmod"],
        "BitShift" => &["direction"],
        _ => &[],
    })?;
    let (a, b, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    // Early versions stretch the second operand by an attribute.
    if node.version() < 7 || node.optional(2).is_some() {
        return Err(node.unserved_error("such operands"));
    }
    let found = formula(node.op.name(), y.dtype());
    let (numbers, formula) = found.ok_or_else(|| node.unserved_error(&format!("{}", y.dtype())))?;
    if a.dtype() != y.dtype() || b.dtype() != y.dtype() {
        return Err(node.unserved_error("operands of several dtypes"));
    }
    let walk = OperandWalk::from_operands(&y.sizes()?, &[&a.sizes()?, &b.sizes()?])?;
    if y.count()? == 0 {
        return Ok(plan_with(&KERNEL, Vec::new(), Vec::new(), 0));
    }
    let dtype = if y.dtype() == DType::F16 { DType::F16 } else { DType::F32 };
    let text = format!("{numbers}{}{formula}\n", include_str!("pairs.wgsl"));
    let launch = launch(&KERNEL, dtype, text)?.read(whole(a)).read(whole(b)).read(Arg::Constant(0));
    let launch = launch.output(y.index).set("COUNT", y.count()?).set("RANK", walk.rank());
    let launch = launch.set("A_FORM", walk.form(0)).set("B_FORM", walk.form(1));
    let launch = constant.into_iter().fold(launch, |launch, (name, value)| launch.set(name, value));
    let launches = vec![launch.flat(Dim::from(u64::from(y.count()?)))];
    Ok(plan_with(&KERNEL, launches, vec![walk.words()], 1))
}
