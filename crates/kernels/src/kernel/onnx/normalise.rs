//! Normalisations: by given statistics, and by those of rows.

use super::{Node, Placed, count, plan_with, whole};
use crate::kernel::Request;
use crate::kernel::layer_norm;
use crate::kernel::norm::{LANES, WORKGROUP_MEMORY};
use crate::kernel::source::{Kernel, one};
use crate::plan::NodePlan;
use tapml_graph::op::LayerNorm;
use tapml_graph::{Dim, Extent, Op, Result, TensorType};

const BATCH: Kernel =
    Kernel::flat("onnx/batch_norm", "onnx/batch_norm.wgsl", include_str!("batch_norm.wgsl"));
const INSTANCE: Kernel = Kernel {
    norm: true,
    workgroup_memory: WORKGROUP_MEMORY,
    ..Kernel::flat("onnx/instance_norm", "onnx/instance_norm.wgsl", include_str!("instance_norm.wgsl"))
};

pub fn plan_batch(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&["epsilon", "momentum", "spatial", "training_mode", "is_test"])?;
    let dtype = node.float_dtype()?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    let channels = sizes.get(1).copied().unwrap_or(1);
    let trains = node.int("training_mode", 0)? != 0 || node.outputs.iter().skip(1).any(Option::is_some);
    if trains || node.version() < 7 || node.int("spatial", 1)? == 0 {
        return Err(node.unserved("training, or statistics of each element"));
    }
    let statistics = (1..5).map(|place| node.takes(place, dtype, &[channels]));
    let statistics: Vec<Placed> = statistics.collect::<Result<_>>()?;
    let launch = BATCH.launch(dtype, dtype)?.read(whole(x));
    let launch = statistics.iter().fold(launch, |launch, &given| launch.read(whole(given))).output(y.index);
    let launch = launch.set("COUNT", x.count()?).set("CHANNELS", channels.max(1));
    let launch = launch.set("INNER", count(sizes.get(2..).unwrap_or_default())?.max(1));
    let launch = launch.set("EPS", node.float("epsilon", 1e-5)?);
    Ok(plan_with(&BATCH, vec![launch.flat(Dim::from(u64::from(x.count()?)))], Vec::new(), 2))
}

/// `LayerNormalization`: the kernel of TapML's own operator, on rows of all dimensions from the axis on.
pub fn plan_layer(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&["axis", "epsilon", "stash_type"])?;
    let dtype = node.float_dtype()?;
    let sizes = node.input(0)?.sizes()?;
    let axis = node.axis(node.int("axis", -1)?, sizes.len())?;
    node.gives(0, dtype, &sizes)?;
    node.takes(1, dtype, &sizes[axis..])?;
    let bias = node.may_take(2, dtype, &sizes[axis..])?;
    let (rows, k) = (count(&sizes[..axis])?, count(&sizes[axis..])?);
    if node.outputs.iter().skip(1).any(Option::is_some) || rows == 0 || k == 0 {
        return Err(node.unserved("further outputs, or an empty tensor"));
    }
    let flat = |sizes: &[u32]| TensorType::new(dtype, sizes.iter().map(|&size| u64::from(size)));
    let inputs = [flat(&[rows, k]), flat(&[k]), flat(&[k])];
    let op = Op::from(LayerNorm::new(node.float("epsilon", 1e-5)? as f32));
    let given = if bias.is_some() { 3 } else { 2 };
    let request = Request { op: &op, inputs: &inputs[..given], outputs: &inputs[..1], ..*request };
    layer_norm::plan(&request)
}

/// `InstanceNormalization`: a workgroup for each channel of each element of the batch.
pub fn plan_instance(request: &Request) -> Result<NodePlan> {
    let node = Node::of(request)?;
    node.reads(&["epsilon"])?;
    let dtype = node.float_dtype()?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    let (&[batch, channels], inner) =
        (sizes.get(..2).unwrap_or_default(), sizes.get(2..).unwrap_or_default())
    else {
        return Err(node.unserved(&format!("{}", x.ty)));
    };
    let (scale, bias) = (node.takes(1, dtype, &[channels])?, node.takes(2, dtype, &[channels])?);
    let (rows, k) = (count(&[batch, channels])?, count(inner)?);
    if x.count()? == 0 {
        return Err(node.unserved("an empty tensor"));
    }
    let launch = INSTANCE.launch(dtype, dtype)?.read(whole(x)).read(whole(scale)).read(whole(bias));
    let launch = launch.output(y.index).set("K", k).set("CHANNELS", channels).set("ROWS", rows);
    let launch = launch.set("EPS", node.float("epsilon", 1e-5)?);
    let grid = [Extent::of(u64::from(rows.min(65535))), Extent::of(u64::from(rows.div_ceil(65535))), one()];
    Ok(plan_with(&INSTANCE, vec![launch.groups(grid)], Vec::new(), k.div_ceil(LANES)))
}
