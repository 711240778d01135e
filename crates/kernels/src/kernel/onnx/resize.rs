//! `Resize` and `Upsample`, by the nearest neighbour or linear.
//!
//! See <https://onnx.ai/onnx/operators/onnx__Resize.html>. An invocation computes one element of the output;
//! coordinates are in f32.

use super::{OnnxNode, plan_with, strides, whole, words};
use crate::kernel::Request;
use crate::kernel::source::KernelSource;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{DType, Dim, Result};

/// Modes are constants of the one text.
const KERNEL: KernelSource =
    KernelSource::flat("onnx/resize", "onnx/resize.wgsl", include_str!("resize.wgsl"));

/// Attributes; some matter only in modes that are refused.
const READ: [&str; 8] = [
    "mode",
    "nearest_mode",
    "coordinate_transformation_mode",
    "antialias",
    "exclude_outside",
    "extrapolation_value",
    "cubic_coeff_a",
    "keep_aspect_ratio_policy",
];

/// The plan of either operator.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let node = OnnxNode::from_request(request)?;
    node.reads(&READ)?;
    let dtype = node.float_dtype()?;
    let (x, y) = (node.input(0)?, node.output(0)?);
    // Versions before 11 have other defaults and another place of the scales.
    let old = node.version() < 11;
    let linear = match node.text("mode", "nearest")? {
        "nearest" => 0u32,
        "linear" | "bilinear" | "trilinear" => 1,
        other => return Err(node.unserved_error(&format!("`mode` of `{other}`"))),
    };
    let nearest = match node.text("nearest_mode", if old { "simple" } else { "round_prefer_floor" })? {
        "round_prefer_floor" => 0u32,
        "round_prefer_ceil" => 1,
        "floor" => 2,
        "ceil" => 3,
        "simple" => 4,
        other => return Err(node.unserved_error(&format!("`nearest_mode` of `{other}`"))),
    };
    let mode = node.text("coordinate_transformation_mode", if old { "asymmetric" } else { "half_pixel" })?;
    let coordinates = match mode {
        "half_pixel" => 0u32,
        "pytorch_half_pixel" => 1,
        "align_corners" => 2,
        "asymmetric" => 3,
        other => return Err(node.unserved_error(&format!("`coordinate_transformation_mode` of `{other}`"))),
    };
    // An empty tensor stands for an input that is left out.
    let filled =
        |place: usize| node.optional(place).filter(|given| given.count().is_ok_and(|count| count > 0));
    let scales = filled(if old { 1 } else { 2 });
    // Other policies keep the aspect ratio, which is not served.
    let stretches = node.text("keep_aspect_ratio_policy", "stretch")? == "stretch";
    let (from, to) = (x.sizes()?, y.sizes()?);
    let wide = scales
        .is_some_and(|scales| scales.dtype() != DType::F32 || scales.count().ok() != Some(from.len() as u32));
    let flags = node.int("antialias", 0)? != 0 || node.int("exclude_outside", 0)? != 0;
    let empty = from.contains(&0) && !to.contains(&0);
    // The text has room for five dimensions.
    if from.len() != to.len() || from.len() > 5 || y.dtype() != dtype || empty || flags || wide || !stretches
    {
        return Err(node.unserved_error("such attributes or sizes"));
    }
    let own = strides(&from);
    let launch = KERNEL.launch(dtype, dtype)?.read(whole(x)).read(scales.map_or(Arg::Constant(0), whole));
    let launch = launch.read(Arg::Constant(0)).output(y.index).set("COUNT", y.count()?);
    let launch = launch.set("RANK", from.len() as u32).set("LINEAR", linear).set("NEAREST", nearest);
    let launch = launch.set("COORDINATES", coordinates).set("HAS_SCALES", u32::from(scales.is_some()));
    let constant = words(to.iter().chain(&from).chain(&own).copied());
    let launches = vec![launch.flat(Dim::from(u64::from(y.count()?)))];
    // Linear along a dimension takes two neighbours.
    let changed = from.iter().zip(&to).filter(|(from, to)| from != to).count() as u32;
    Ok(plan_with(&KERNEL, launches, vec![constant], if linear == 1 { 1 << changed } else { 0 }))
}
