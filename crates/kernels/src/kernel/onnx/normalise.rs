//! Normalisations: by given statistics, and by those of rows.
//!
//! Where TapML's own operators do the same, their planners are called with a request of their types, so that there is
//! a single kernel for both.

use super::{OnnxNode, Placed, count, grid, plan_with, strides, whole, words};
use crate::kernel::norm::{LANES, WORKGROUP_MEMORY};
use crate::kernel::source::KernelSource;
use crate::kernel::{Request, layer_norm, rms_norm};
use crate::plan::{Arg, NodePlan};
use tapml_graph::op::{LayerNorm, RmsNorm};
use tapml_graph::{Dim, Error, Op, Result, TensorType};

/// An invocation for each element.
const BATCH: KernelSource =
    KernelSource::flat("onnx/batch_norm", "onnx/batch_norm.wgsl", include_str!("batch_norm.wgsl"));
/// A workgroup for each row.
const INSTANCE: KernelSource = KernelSource {
    norm: true,
    workgroup_memory: WORKGROUP_MEMORY,
    ..KernelSource::flat("onnx/instance_norm", "onnx/instance_norm.wgsl", include_str!("instance_norm.wgsl"))
};

/// The statistics of so many channels by which a node normalises.
///
/// They are scale, bias, mean and variance, in the order of the inputs. Fails on a node that trains.
pub(super) fn expect_statistics<'a>(node: &OnnxNode<'a>, channels: u32) -> Result<Vec<Placed<'a>>> {
    node.reads(&["epsilon", "momentum", "spatial", "training_mode", "is_test"])?;
    // Further outputs are the running statistics of training.
    let trains = node.int("training_mode", 0)? != 0 || node.outputs.iter().skip(1).any(Option::is_some);
    if trains || node.version() < 7 || node.int("spatial", 1)? == 0 {
        return Err(node.unserved_error("training, or statistics of each element"));
    }
    (1..5).map(|place| node.takes(place, node.float_dtype()?, &[channels])).collect()
}

/// `BatchNormalization` with given statistics; see <https://onnx.ai/onnx/operators/onnx__BatchNormalization.html>.
pub fn plan_batch(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    let dtype = node.float_dtype()?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    let channels = sizes.get(1).copied().unwrap_or(1);
    let statistics = expect_statistics(&node, channels)?;
    let launch = BATCH.launch(dtype, dtype)?.read(whole(x));
    let launch = statistics.iter().fold(launch, |launch, &given| launch.read(whole(given))).output(y.index);
    let launch = launch.set("COUNT", x.count()?).set("CHANNELS", channels.max(1));
    let launch = launch.set("INNER", count(sizes.get(2..).unwrap_or_default())?.max(1));
    let launch = launch.set("EPS", node.float("epsilon", 1e-5)?);
    Ok(plan_with(&BATCH, vec![launch.flat(Dim::from(u64::from(x.count()?)))], Vec::new(), 2))
}

/// `LayerNormalization`: the kernel of TapML's own operator, on rows of all dimensions from the axis on.
pub fn plan_layer(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis", "epsilon", "stash_type"])?;
    let dtype = node.float_dtype()?;
    let sizes = node.input(0)?.sizes()?;
    let axis = node.axis(node.int("axis", -1)?, sizes.len())?;
    node.gives(0, dtype, &sizes)?;
    node.takes(1, dtype, &sizes[axis..])?;
    let bias = node.may_take(2, dtype, &sizes[axis..])?;
    let (rows, k) = (count(&sizes[..axis])?, count(&sizes[axis..])?);
    if node.outputs.iter().skip(1).any(Option::is_some) || rows == 0 || k == 0 {
        return Err(node.unserved_error("further outputs, or an empty tensor"));
    }
    // Rows are all dimensions in front of the axis, columns all from it on.
    let flat = |sizes: &[u32]| TensorType::new(dtype, sizes.iter().map(|&size| u64::from(size)));
    let inputs = [flat(&[rows, k]), flat(&[k]), flat(&[k])];
    let op = Op::from(LayerNorm::new(node.float("epsilon", 1e-5)? as f32));
    let given = if bias.is_some() { 3 } else { 2 };
    let request = Request { op: &op, inputs: &inputs[..given], outputs: &inputs[..1], ..*request };
    layer_norm::plan(&request)
}

/// `RMSNormalization`: the kernel of TapML's own operator, on rows of all dimensions from the axis on.
pub fn plan_rms(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["axis", "epsilon", "stash_type"])?;
    let dtype = node.float_dtype()?;
    let sizes = node.input(0)?.sizes()?;
    let axis = node.axis(node.int("axis", -1)?, sizes.len())?;
    node.gives(0, dtype, &sizes)?;
    node.takes(1, dtype, &sizes[axis..])?;
    let (rows, k) = (count(&sizes[..axis])?, count(&sizes[axis..])?);
    let more = node.inputs.len() > 2 || node.outputs.iter().skip(1).any(Option::is_some);
    if more || rows == 0 || k == 0 {
        return Err(node.unserved_error("further inputs or outputs, or an empty tensor"));
    }
    let flat = |sizes: &[u32]| TensorType::new(dtype, sizes.iter().map(|&size| u64::from(size)));
    let inputs = [flat(&[rows, k]), flat(&[k])];
    let op = Op::from(RmsNorm::new(node.float("epsilon", 1e-5)? as f32));
    let request = Request { op: &op, inputs: &inputs, outputs: &inputs[..1], ..*request };
    rms_norm::plan(&request)
}

/// `InstanceNormalization`: a workgroup for each channel of each element of the batch. `GroupNormalization`: for each group of
/// channels; scale and bias are those of a group before version 21, of a channel from it on.
pub fn plan_instance(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    let in_groups = node.op.name() == "GroupNormalization";
    node.reads(if in_groups { &["epsilon", "num_groups", "stash_type"] } else { &["epsilon"] })?;
    let dtype = node.float_dtype()?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    let (&[batch, channels], inner) =
        (sizes.get(..2).unwrap_or_default(), sizes.get(2..).unwrap_or_default())
    else {
        return Err(node.unserved_error(&format!("{}", x.ty)));
    };
    if x.count()? == 0 {
        return Err(node.unserved_error("an empty tensor"));
    }
    let image = count(inner)?;
    let groups = if in_groups { node.int("num_groups", 0)? } else { i64::from(channels) };
    let groups = u32::try_from(groups).ok().filter(|&groups| groups > 0 && channels % groups == 0);
    let groups = groups.ok_or_else(|| Error::invalid(format!("groups of {channels} channels")))?;
    let k = image.saturating_mul(channels / groups);
    // Scale and bias change at each group, or at each channel within it.
    let (weights, channel) = if in_groups && node.version() < 21 { (groups, k) } else { (channels, image) };
    let (scale, bias) = (node.takes(1, dtype, &[weights])?, node.takes(2, dtype, &[weights])?);
    let rows = count(&[batch, groups])?;
    let launch = INSTANCE.launch(dtype, dtype)?.read(whole(x)).read(whole(scale)).read(whole(bias));
    let launch = launch.output(y.index).set("K", k).set("GROUPS", groups).set("CHANNEL", channel);
    let launch = launch.set("ROWS", rows).set("EPS", node.float("epsilon", 1e-5)?);
    Ok(plan_with(&INSTANCE, vec![launch.groups(grid(rows))], Vec::new(), k.div_ceil(LANES)))
}

/// A workgroup for each index over the kept dimensions.
const ALONG: KernelSource = KernelSource {
    norm: true,
    workgroup_memory: WORKGROUP_MEMORY,
    ..KernelSource::flat(
        "onnx/norm_along",
        "onnx/place.wgsl+onnx/norm_along.wgsl",
        concat!(include_str!("place.wgsl"), include_str!("norm_along.wgsl")),
    )
};

/// `LpNormalization` along one dimension, `MeanVarianceNormalization` along some: a workgroup for each index over the others.
pub fn plan_along(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    let dtype = node.float_dtype()?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    let (axes, form) = if node.op.name() == "LpNormalization" {
        node.reads(&["axis", "p"])?;
        let form = node.int("p", 2)?;
        if !(1..=2).contains(&form) {
            return Err(node.unserved_error(&format!("`p` of {form}")));
        }
        (vec![node.int("axis", -1)?], form as u32)
    } else {
        node.reads(&["axes"])?;
        // The standard's default, which leaves the channels.
        (node.ints("axes")?.unwrap_or(vec![0, 2, 3]), 0)
    };
    if x.count()? == 0 {
        return Err(node.unserved_error("an empty tensor"));
    }
    let axes = axes.iter().map(|&axis| node.axis(axis, sizes.len())).collect::<Result<Vec<_>>>()?;
    let own = strides(&sizes);
    // Kept dimensions come first in the table: an index over them, then one over the others, gives a place.
    let (gone, kept): (Vec<usize>, Vec<usize>) = (0..sizes.len()).partition(|d| axes.contains(d));
    let order: Vec<usize> = kept.iter().chain(&gone).copied().collect();
    let table = words(order.iter().map(|&d| sizes[d]).chain(order.iter().map(|&d| own[d])));
    let of = |dims: &[usize]| count(&dims.iter().map(|&d| sizes[d]).collect::<Vec<_>>());
    let (rows, terms) = (of(&kept)?, of(&gone)?);
    let launch = ALONG.launch(dtype, dtype)?.read(whole(x)).read(Arg::Constant(0)).output(y.index);
    let launch = launch.set("ROWS", rows).set("TERMS", terms).set("KEPT", kept.len() as u32);
    let launch = launch.set("DIMS", order.len() as u32).set("FORM", form);
    Ok(plan_with(&ALONG, vec![launch.groups(grid(rows))], vec![table], terms.div_ceil(LANES)))
}

/// The power is that of `Pow`, of bounded error.
const LOCAL: KernelSource = KernelSource {
    math: true,
    ..KernelSource::flat(
        "onnx/local_response",
        "onnx/pow.wgsl+onnx/local_response.wgsl",
        concat!(include_str!("pow.wgsl"), include_str!("local_response.wgsl")),
    )
};

/// `LRN`: an invocation for each element.
pub fn plan_local(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&["alpha", "beta", "bias", "size"])?;
    let dtype = node.float_dtype()?;
    let x = node.input(0)?;
    let sizes = x.sizes()?;
    let y = node.gives(0, dtype, &sizes)?;
    let size = u32::try_from(node.int("size", 0)?).ok().filter(|&size| size > 0);
    let (Some(size), &[_, channels, ..]) = (size, sizes.as_slice()) else {
        return Err(node.unserved_error(&format!("such a size, or {}", x.ty)));
    };
    let launch = LOCAL.launch(dtype, dtype)?.read(whole(x)).output(y.index).set("COUNT", x.count()?);
    let launch = launch.set("CHANNELS", channels.max(1)).set("INNER", count(&sizes[2..])?.max(1));
    // The standard divides the sum by the size; the factor takes that in.
    let launch = launch.set("SIZE", size).set("ALPHA", node.float("alpha", 1e-4)? / f64::from(size));
    let launch = launch.set("BETA", node.float("beta", 0.75)?).set("BIAS", node.float("bias", 1.0)?);
    Ok(plan_with(&LOCAL, vec![launch.flat(Dim::from(u64::from(x.count()?)))], Vec::new(), size))
}
