//! Normalisations: by given statistics, and by those of rows.

use super::{Node, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::source::{Kernel, one};
use crate::plan::{Arg, NodePlan};
use tapml_graph::{Dim, Extent, Result};

const BATCH: Kernel =
    Kernel::flat("onnx/batch_norm", "onnx/batch_norm.wgsl", include_str!("batch_norm.wgsl"));
const LAYER: Kernel = Kernel {
    workgroup_memory: 1024,
    ..Kernel::flat("onnx/layer_norm", "onnx/layer_norm.wgsl", include_str!("layer_norm.wgsl"))
};

pub fn plan_batch(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&["epsilon", "momentum", "spatial", "training_mode", "is_test"])?;
    let dtype = node.float_dtype()?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    let statistics: Vec<_> = (1..5).map(|place| node.input(place)).collect::<Result<_>>()?;
    let trains = node.int("training_mode", 0)? != 0 || node.outputs.iter().skip(1).any(Option::is_some);
    if trains
        || node.version() < 7
        || node.int("spatial", 1)? == 0
        || statistics.iter().any(|s| s.dtype() != dtype)
    {
        return Err(node.unserved("training, or statistics of another dtype"));
    }
    let sizes = x.sizes()?;
    let launch = BATCH.launch(dtype, dtype)?.read(whole(x));
    let launch = statistics.iter().fold(launch, |launch, &given| launch.read(whole(given))).output(y.index);
    let launch = launch.set("COUNT", x.count()?).set("CHANNELS", sizes.get(1).copied().unwrap_or(1).max(1));
    let launch = launch.set("INNER", count(sizes.get(2..).unwrap_or_default())?.max(1));
    let launch = launch.set("EPS", node.float("epsilon", 1e-5)?);
    Ok(plan_with(&BATCH, vec![launch.flat(Dim::from(u64::from(x.count()?)))], Vec::new(), 2))
}

/// `LayerNormalization` and `InstanceNormalization`.
pub fn plan_layer(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&["axis", "epsilon", "stash_type"])?;
    let dtype = node.float_dtype()?;
    let (x, scale, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    let bias = node.optional(2);
    let sizes = x.sizes()?;
    let by_channel = node.op.name() == "InstanceNormalization";
    let axis = if by_channel { 2 } else { node.axis(node.int("axis", -1)?, sizes.len())? };
    let (rows, k) = (count(&sizes[..axis.min(sizes.len())])?, count(sizes.get(axis..).unwrap_or_default())?);
    let factors = if by_channel { sizes.get(1).copied().unwrap_or(0) } else { k };
    let fits = |given: super::Placed| Ok(given.dtype() == dtype && given.count()? == factors);
    let all_fit = fits(scale)? && bias.map_or(Ok::<_, tapml_graph::Error>(true), fits)?;
    if !all_fit || node.outputs.iter().skip(1).any(Option::is_some) || x.count()? == 0 {
        return Err(node.unserved("such factors or outputs"));
    }
    let launch = LAYER.launch(dtype, dtype)?.read(whole(x)).read(whole(scale));
    let launch =
        launch.read(bias.map_or(Arg::Constant(0), whole)).output(y.index).set("K", k).set("ROWS", rows);
    let launch = launch.set("EPS", node.float("epsilon", 1e-5)?).set("HAS_BIAS", u32::from(bias.is_some()));
    let launch = launch.set("BY_ROW", if by_channel { factors } else { 0 });
    let grid = [Extent::of(u64::from(rows.min(65535))), Extent::of(u64::from(rows.div_ceil(65535))), one()];
    Ok(plan_with(&LAYER, vec![launch.groups(grid)], vec![vec![0; 4]], k.div_ceil(256)))
}
