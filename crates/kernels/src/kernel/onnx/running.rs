//! `CumSum` and `CumProd`: one invocation for each line along the axis.
//!
//! Terms are added one after the other, in the order that the standard defines. The axis is an input that the kernel
//! reads.

use super::formulas::formula;
use super::movement::int_words;
use super::{OnnxNode, launch, plan_with, whole, words};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Error, Result};

/// The text is put together for the operator and its dtype.
const KERNEL: KernelSource = KernelSource::flat("onnx/running", "onnx/integers.wgsl+onnx/running.wgsl", "");

/// The plan of either operator.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["exclusive", "reverse"])?;
    let (x, axis) = (node.input(0)?, node.input(1)?);
    let sizes = x.sizes()?;
    let y = node.gives(0, x.dtype(), &sizes)?;
    if axis.count()? != 1 || sizes.is_empty() {
        return Err(Error::invalid(format!("an axis of {} for {}", axis.ty, x.ty)));
    }
    let sums = node.op.name() == "CumSum";
    let found = formula(if sums { "Add" } else { "Mul" }, x.dtype());
    let (numbers, formula) = found.ok_or_else(|| node.unserved_error(&format!("{}", x.dtype())))?;
    let first = match (sums, x.dtype().size()) {
        (true, _) => "val()",
        (false, 8) => "val(1u, 0u)",
        (false, _) => "val(1)",
    };
    if x.count()? == 0 {
        return Ok(plan_with(&KERNEL, Vec::new(), Vec::new(), 0));
    }
    let text = format!(
        "{numbers}{formula}\nfn first() -> val {{ return {first}; }}\n{}{}",
        include_str!("integers.wgsl"),
        include_str!("running.wgsl")
    );
    let act = if x.dtype() == DType::F16 { DType::F16 } else { DType::F32 };
    let launch = launch(&KERNEL, act, text)?.read(whole(x)).read(whole(axis)).read(Arg::Constant(0));
    let launch = launch.output(y.index).set("COUNT", x.count()?).set("RANK", sizes.len() as u32);
    let launch = launch.set("INT_WORDS", int_words(&node, &axis)?);
    let launch = launch.set("REVERSE", u32::from(node.int("reverse", 0)? != 0));
    let launch = launch.set("EXCLUSIVE", u32::from(node.int("exclusive", 0)? != 0));
    // Lines along an axis of one element are as many as there are elements.
    let shortest = sizes.iter().copied().min().unwrap_or(1).max(1);
    let launches = vec![launch.flat(Dim::from(u64::from(x.count()? / shortest)))];
    // The axis is not known here: the longest dimension bounds the chain.
    let longest = sizes.iter().copied().max().unwrap_or(1);
    Ok(plan_with(&KERNEL, launches, vec![words(sizes)], longest))
}
