//! `Gelu` of ONNX Runtime and its relatives: <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. The
//! formulas are those of TapML's own operator.

use super::{OnnxNode, plan_with, whole};
use crate::kernel::elementwise;
use crate::kernel::formula::Formula;
use crate::kernel::source::KernelSource;
use crate::kernel::{Request, gelu};
use crate::plan::NodePlan;
use tapml_graph::op::GeluForm;
use tapml_graph::{Dim, Result};

/// The factor of `QuickGelu` that its formula has.
const QUICK: f64 = 1.702;

/// The plan of `Gelu`, `BiasGelu`, `FastGelu` or `QuickGelu`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    // The declared output comes from a file: it has to be what the kernel writes.
    node.gives(0, node.float_dtype()?, &node.input(0)?.sizes()?)?;
    let form = match node.op.name() {
        "Gelu" | "BiasGelu" => GeluForm::None,
        "FastGelu" => GeluForm::Tanh,
        "QuickGelu" => {
            node.reads(&["alpha"])?;
            let alpha = node.float("alpha", QUICK)?;
            // Files hold it in 32 bits.
            if alpha as f32 != QUICK as f32 {
                return Err(node.unserved_error(&format!("`alpha` of {alpha}")));
            }
            GeluForm::Quick
        }
        _ => return Err(node.unserved_error("it")),
    };
    // The other forms have no attributes.
    if form != GeluForm::Quick {
        node.reads(&[])?;
    }
    match node.optional(1) {
        None => elementwise::plan(request, "onnx/gelu", &gelu::formula(form)),
        Some(_) => plan_biased(&node, &gelu::formula(form)),
    }
}

/// The plan with a bias of the last dimension, which is added before the function.
fn plan_biased(node: &OnnxNode, formula: &Formula) -> Result<NodePlan> {
    let flat = KernelSource::flat("onnx/biased_gelu", "onnx/biased.wgsl", include_str!("biased.wgsl"));
    let kernel = KernelSource { math: true, formula: formula.text, ..flat };
    let (x, y, dtype) = (node.input(0)?, node.output(0)?, node.float_dtype()?);
    let width = x.sizes()?.last().copied().unwrap_or(1);
    let bias = node.takes(1, dtype, &[width])?;
    let launch = kernel.launch(dtype, dtype)?.read(whole(x)).read(whole(bias)).output(y.index);
    let launch = launch.set("COUNT", x.count()?).set("WIDTH", width.max(1)).formula(formula);
    Ok(plan_with(&kernel, vec![launch.flat(Dim::from(u64::from(x.count()?)))], Vec::new(), 1))
}
