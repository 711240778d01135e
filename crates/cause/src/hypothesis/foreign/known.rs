//! What is known of operators that a call does not show: names of inputs, and attributes where they are absent.
//! Sources: the operator schemas of ONNX 1.21 (<https://onnx.ai/onnx/operators/>) and of ATen
//! (<https://docs.pytorch.org/docs/stable/torch.compiler_ir.html>).

use tapml_graph::aten;
use tapml_graph::op::Foreign;

/// Names of the inputs of operators of the ONNX standard, by place; those of one input are left out.
const INPUTS: &[(&str, &[&str])] = &[
    ("Attention", &["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]),
    ("BatchNormalization", &["X", "scale", "B", "input_mean", "input_var"]),
    ("Clip", &["input", "min", "max"]),
    ("Conv", &["X", "W", "B"]),
    ("ConvTranspose", &["X", "W", "B"]),
    ("CumSum", &["x", "axis"]),
    ("DequantizeLinear", &["x", "x_scale", "x_zero_point"]),
    ("Expand", &["input", "shape"]),
    ("GRU", &["X", "W", "R", "B", "sequence_lens", "initial_h"]),
    ("Gather", &["data", "indices"]),
    ("GatherElements", &["data", "indices"]),
    ("GatherND", &["data", "indices"]),
    ("Gemm", &["A", "B", "C"]),
    ("GridSample", &["X", "grid"]),
    ("GroupNormalization", &["X", "scale", "bias"]),
    ("InstanceNormalization", &["input", "scale", "B"]),
    ("LSTM", &["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]),
    ("LayerNormalization", &["X", "Scale", "B"]),
    ("MatMul", &["A", "B"]),
    (
        "NonMaxSuppression",
        &["boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"],
    ),
    ("OneHot", &["indices", "depth", "values"]),
    ("PRelu", &["X", "slope"]),
    ("Pad", &["data", "pads", "constant_value", "axes"]),
    ("Pow", &["X", "Y"]),
    ("QuantizeLinear", &["x", "y_scale", "y_zero_point"]),
    ("RNN", &["X", "W", "R", "B", "sequence_lens", "initial_h"]),
    ("ReduceL1", &["data", "axes"]),
    ("ReduceL2", &["data", "axes"]),
    ("ReduceMax", &["data", "axes"]),
    ("ReduceMean", &["data", "axes"]),
    ("ReduceMin", &["data", "axes"]),
    ("ReduceProd", &["data", "axes"]),
    ("ReduceSum", &["data", "axes"]),
    ("ReduceSumSquare", &["data", "axes"]),
    ("Reshape", &["data", "shape"]),
    ("Resize", &["X", "roi", "scales", "sizes"]),
    ("RoiAlign", &["X", "rois", "batch_indices"]),
    ("ScatterElements", &["data", "indices", "updates"]),
    ("ScatterND", &["data", "indices", "updates"]),
    ("Slice", &["data", "starts", "ends", "axes", "steps"]),
    ("Split", &["input", "split"]),
    ("Squeeze", &["data", "axes"]),
    ("Tile", &["input", "repeats"]),
    ("TopK", &["X", "K"]),
    ("Trilu", &["input", "k"]),
    ("Unsqueeze", &["data", "axes"]),
    ("Upsample", &["X", "scales"]),
    ("Where", &["condition", "X", "Y"]),
];

/// The name of an operator's input.
/// `None` for operators that are not in the table, and for places that they do not have.
pub(super) fn input_name(op: &Foreign, place: usize) -> Option<&'static str> {
    if op.domain() == aten::DOMAIN {
        return aten::input_name(op, place);
    }
    let (_, names) = INPUTS.iter().find(|(name, _)| *name == op.name())?;
    names.get(place).copied()
}

/// An attribute that may be absent, and what a platform may take it for then. Values are JSON.
pub(super) struct Absent {
    /// Name of the operator without domain and version.
    pub op: &'static str,
    /// Name of the attribute.
    pub attribute: &'static str,
    /// What the standard says it is.
    pub default: &'static str,
    /// What a platform may take it for.
    pub other: &'static str,
}

/// One row of the table.
const fn absent(
    op: &'static str,
    attribute: &'static str,
    default: &'static str,
    other: &'static str,
) -> Absent {
    Absent { op, attribute, default, other }
}

/// An attribute of the ONNX standard that is 0 or 1.
/// Its other value is the one that a platform may take it for.
const fn flag(op: &'static str, attribute: &'static str, default: bool) -> Absent {
    let [default, other] = if default { ["1", "0"] } else { ["0", "1"] };
    absent(op, attribute, default, other)
}

/// Attributes with what they are where they are absent.
/// Operators of ONNX come first, then those of ATen with their overload names.
pub(super) const ABSENT: &[Absent] = &[
    flag("ArgMax", "select_last_index", false),
    flag("ArgMin", "select_last_index", false),
    flag("Attention", "is_causal", false),
    flag("AveragePool", "ceil_mode", false),
    flag("AveragePool", "count_include_pad", false),
    flag("CumSum", "exclusive", false),
    flag("CumSum", "reverse", false),
    flag("GRU", "linear_before_reset", false),
    flag("Gemm", "transA", false),
    flag("Gemm", "transB", false),
    flag("GridSample", "align_corners", false),
    flag("LpPool", "ceil_mode", false),
    flag("MaxPool", "ceil_mode", false),
    flag("Mod", "fmod", false),
    flag("NonMaxSuppression", "center_point_box", false),
    flag("Resize", "antialias", false),
    flag("Resize", "exclude_outside", false),
    flag("RotaryEmbedding", "interleaved", false),
    flag("TopK", "largest", true),
    flag("Trilu", "upper", true),
    absent("avg_pool1d.default", "ceil_mode", "false", "true"),
    absent("avg_pool1d.default", "count_include_pad", "true", "false"),
    absent("avg_pool2d.default", "ceil_mode", "false", "true"),
    absent("avg_pool2d.default", "count_include_pad", "true", "false"),
    absent("gelu.default", "approximate", "\"none\"", "\"tanh\""),
    absent("max_pool2d.default", "ceil_mode", "false", "true"),
    absent("max_pool2d_with_indices.default", "ceil_mode", "false", "true"),
    absent("scaled_dot_product_attention.default", "is_causal", "false", "true"),
];
