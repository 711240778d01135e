//! What the ONNX standard says of its operators that a call does not show: names of inputs, and flags.
//! Source: the operator schemas of ONNX 1.21 (<https://onnx.ai/onnx/operators/>).

/// Names of the inputs of operators, by place; those of one input are left out.
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
pub(super) fn input_name(op: &str, place: usize) -> Option<&'static str> {
    let (_, names) = INPUTS.iter().find(|(name, _)| *name == op)?;
    names.get(place).copied()
}

/// Attributes that are 0 or 1, with what they are where they are absent.
pub(super) const FLAGS: &[(&str, &str, u8)] = &[
    ("ArgMax", "select_last_index", 0),
    ("ArgMin", "select_last_index", 0),
    ("Attention", "is_causal", 0),
    ("AveragePool", "ceil_mode", 0),
    ("AveragePool", "count_include_pad", 0),
    ("CumSum", "exclusive", 0),
    ("CumSum", "reverse", 0),
    ("GRU", "linear_before_reset", 0),
    ("Gemm", "transA", 0),
    ("Gemm", "transB", 0),
    ("GridSample", "align_corners", 0),
    ("LpPool", "ceil_mode", 0),
    ("MaxPool", "ceil_mode", 0),
    ("Mod", "fmod", 0),
    ("NonMaxSuppression", "center_point_box", 0),
    ("Resize", "antialias", 0),
    ("Resize", "exclude_outside", 0),
    ("RotaryEmbedding", "interleaved", 0),
    ("TopK", "largest", 1),
    ("Trilu", "upper", 1),
];
