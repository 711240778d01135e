//! Operators that give the elements of their first input in the same order: `Reshape`, `Squeeze`, `Unsqueeze`, `Flatten`,
//! `Identity`, and `Dropout` where nothing is dropped. The sizes of the output are declared, so that their other inputs are
//! not read.

use super::{Node, Placed, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::Kernel;
use crate::plan::NodePlan;
use tapml_graph::{DType, Dim, Result};

const KERNEL: Kernel = Kernel::flat("onnx/copy", "onnx/layout.wgsl", include_str!("layout.wgsl"));

pub fn plan(request: &Request) -> Result<NodePlan> {
    Node::of(request)?.reads(&["axis", "axes", "shape", "allowzero", "ratio", "seed"])?;
    plan_copy(request)
}

/// The plan of a node that copies, whatever its attributes.
pub fn plan_copy(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    let flag = |place: usize| node.outputs.get(place).copied().flatten().is_some();
    if x.dtype() != y.dtype() || flag(1) || (node.op.name() == "Dropout" && node.optional(2).is_some()) {
        return Err(node.unserved("such outputs"));
    }
    let words = words_of(&y)?;
    let launch = KERNEL.launch(DType::F32, DType::F32)?.read(whole(x)).output(y.index).set("WORDS", words);
    Ok(plan_with(&KERNEL, vec![launch.flat(Dim::from(u64::from(words)))], Vec::new(), 0))
}

/// Words of 32 bits that hold a tensor.
pub fn words_of(value: &Placed) -> Result<u32> {
    let bytes = u64::from(value.count()?) * value.dtype().size() as u64;
    let words = u32::try_from(bytes.div_ceil(4));
    words.map_err(|_| tapml_graph::Error::unsupported(format!("{} takes {bytes} bytes", value.ty)))
}
