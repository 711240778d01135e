//! Comparisons and truths, and casts: elements of all dtypes as bits in words.
//!
//! The kernels write whole words of four truths, so that no two invocations write one word.

use super::joining::{self, words_of};
use super::walk::OperandWalk;
use super::{OnnxNode, launch, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Error, Result};

/// Elements are read as bits: no dtype needs a text of its own.
const COMPARE: KernelSource =
    KernelSource::flat("onnx/compare", "onnx/compare.wgsl", include_str!("compare.wgsl"));
/// The text of halves stands in front of it: casts round to them without a device's f16.
const CAST: KernelSource = KernelSource::flat("onnx/cast", "onnx/cast.wgsl", "");

/// The number by which the kernels know a dtype.
///
/// # Errors
/// `Unsupported` for a dtype that they do not know.
fn code(node: &OnnxNode, dtype: DType) -> Result<u32> {
    Ok(match dtype {
        DType::F32 => 0,
        DType::I32 => 1,
        DType::U32 => 2,
        DType::I64 => 3,
        DType::Bool => 4,
        DType::F16 => 5,
        DType::U8 => 6,
        DType::I8 => 7,
        other => return Err(node.unserved_error(&format!("{other}"))),
    })
}

/// The plan of a comparison, of a logical operator, or of `Cast`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    if node.op.name() == "Cast" {
        return plan_cast(&node);
    }
    let of_infinities = ["detect_negative", "detect_positive"];
    node.reads(if node.op.name() == "IsInf" { &of_infinities } else { &[] })?;
    let relation = match node.op.name() {
        "Equal" => 0u32,
        "Less" => 1,
        "LessOrEqual" => 2,
        "Greater" => 3,
        "GreaterOrEqual" => 4,
        "And" => 5,
        "Or" => 6,
        "Xor" => 7,
        "Not" => 8,
        "IsNaN" => 9,
        "IsInf" => {
            let detects = |sign: &str| Ok::<bool, Error>(node.int(&format!("detect_{sign}"), 1)? != 0);
            match (detects("positive")?, detects("negative")?) {
                (true, true) => 10,
                (true, false) => 11,
                (false, true) => 12,
                (false, false) => return Err(node.unserved_error("infinities of no sign")),
            }
        }
        _ => return Err(node.unserved_error("it")),
    };
    let (a, y) = (node.input(0)?, node.output(0)?);
    // Operators of one operand bind it twice, since the text has two.
    let b = if relation >= 8 { a } else { node.input(1)? };
    let code = code(&node, a.dtype())?;
    if relation >= 9 {
        node.float_dtype()?;
    }
    let is_logical = (5..9).contains(&relation);
    // Truths are compared by `Equal` alone, and logical operators take nothing else.
    if is_logical != (code == 4) && relation != 0 {
        return Err(Error::invalid(format!("`{}` of {}", node.op.kind(), a.ty)));
    }
    // Early versions stretch the second operand by an attribute.
    if node.version() < 7 && relation < 8 || code > 5 || a.dtype() != b.dtype() {
        return Err(node.unserved_error(&format!("{} and {}", a.ty, b.ty)));
    }
    if y.dtype() != DType::Bool {
        return Err(Error::invalid(format!("`{}` declares {}, expected bool", node.op.kind(), y.ty)));
    }
    let walk = OperandWalk::from_operands(&y.sizes()?, &[&a.sizes()?, &b.sizes()?])?;
    let launch = COMPARE.launch(DType::F32, DType::F32)?.read(whole(a)).read(whole(b)).read(Arg::Constant(0));
    let launch = launch.output(y.index).set("COUNT", y.count()?).set("RANK", walk.rank());
    let launch = launch.set("TYPE", code).set("RELATION", relation);
    let launches = vec![launch.flat(Dim::from(u64::from(words_of(&y)?)))];
    Ok(plan_with(&COMPARE, launches, vec![walk.words()], 0))
}

/// A cast to the same dtype copies.
fn plan_cast(node: &OnnxNode) -> Result<NodePlan> {
    // The dtype is that of the declared output; `saturate` concerns numbers of 8 bits, which are not served.
    node.reads(&["to", "saturate"])?;
    let x = node.input(0)?;
    let y = node.gives(0, node.output(0)?.dtype(), &x.sizes()?)?;
    if x.dtype() == y.dtype() {
        return joining::plan_copied(node, &y);
    }
    let words = words_of(&y)?;
    let text =
        [include_str!("../../prelude/half.wgsl"), include_str!("order.wgsl"), include_str!("cast.wgsl")];
    let launch =
        launch(&CAST, DType::F32, text.concat())?.read(whole(x)).output(y.index).set("COUNT", y.count()?);
    let launch = launch.set("WORDS", words).set("FROM", code(node, x.dtype())?);
    let launch = launch.set("TO", code(node, y.dtype())?).flat(Dim::from(u64::from(words)));
    Ok(plan_with(&CAST, vec![launch], Vec::new(), 1))
}
