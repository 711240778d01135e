//! `SkipLayerNormalization` and `SkipSimplifiedLayerNormalization` of ONNX Runtime: the sum of two tensors, normalised along the
//! last dimension: <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>.

use super::{OnnxNode, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::norm::{LANES, WORKGROUP_MEMORY};
use crate::kernel::source::{KernelSource, single_workgroup};
use crate::plan::{Arg, NodePlan, Scratch};
use tapml_device::BindingKind;
use tapml_graph::{Error, Extent, Result};

/// A workgroup for each row.
const KERNEL: KernelSource = KernelSource {
    norm: true,
    workgroup_memory: WORKGROUP_MEMORY,
    ..KernelSource::flat("onnx/skip_norm", "onnx/skip_norm.wgsl", include_str!("skip_norm.wgsl"))
};

/// The plan of either operator.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["epsilon"])?;
    let dtype = node.float_dtype()?;
    let (x, skip) = (node.input(0)?, node.input(1)?);
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    let k = *sizes.last().ok_or_else(|| node.unserved_error("a tensor without dimensions"))?;
    let repeated = skip.sizes()?;
    // Leading sizes of 1 stretch: what is left has to be the end of the sizes.
    let repeated: Vec<u32> = repeated.iter().copied().skip_while(|&size| size == 1).collect();
    if !sizes.ends_with(&repeated) || skip.dtype() != dtype {
        return Err(Error::invalid(format!("`{}` adds {} to {}", node.op.kind(), skip.ty, x.ty)));
    }
    let centred = node.op.name() == "SkipLayerNormalization";
    // The simplified operator has no beta, and its bias stands in that place.
    let (beta, bias) = if centred { (node.may_take(3, dtype, &[k])?, 4) } else { (None, 3) };
    let (gamma, bias) = (node.takes(2, dtype, &[k])?, node.may_take(bias, dtype, &[k])?);
    if node.outputs.iter().skip(1).take(2).any(Option::is_some) || x.count()? == 0 || k == 0 {
        return Err(node.unserved_error("means and deviations as outputs, or an empty tensor"));
    }
    let sum = match node.outputs.get(3).copied().flatten() {
        Some(_) => Some(node.gives(3, dtype, &sizes)?),
        None => None,
    };
    let rows = x.count()? / k;
    let given = |input: Option<super::Placed>| input.map_or(Arg::Constant(0), whole);
    let launch = KERNEL.launch(dtype, dtype)?.read(whole(x)).read(whole(skip)).read(whole(gamma));
    let launch = launch.read(given(beta)).read(given(bias));
    let launch = match sum {
        Some(sum) => launch.output(sum.index),
        None => launch.scratch(0, BindingKind::ReadWrite),
    };
    let launch = launch.output(y.index).set("K", k).set("ROWS", rows).set("SKIPS", count(&repeated)?);
    let launch = launch.set("EPS", node.float("epsilon", 1e-12)?).set("CENTRED", u32::from(centred));
    let launch = launch.set("HAS_BIAS", u32::from(bias.is_some())).set("HAS_BETA", u32::from(beta.is_some()));
    let launch = launch.set("HAS_SUM", u32::from(sum.is_some()));
    let grid = [
        Extent::from_dim(u64::from(rows.min(65535))),
        Extent::from_dim(u64::from(rows.div_ceil(65535))),
        single_workgroup(),
    ];
    let plan = plan_with(&KERNEL, vec![launch.groups(grid)], vec![vec![0; 4]], k.div_ceil(LANES));
    // The text binds the sum in any case; where nobody asks for it, it is not written.
    let unasked = if sum.is_none() { vec![Scratch::Temporary(Extent::from_dim(4u64))] } else { Vec::new() };
    Ok(NodePlan { scratch: unasked, ..plan })
}
