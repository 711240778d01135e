//! The list of operators. One row says all of an operator: domain, name, versions, function, facts.
//!
//! Versions are those of operator sets. A function serves every version of its row and asks the call where versions differ.

use crate::call::{Call, NEWEST, Outputs};
use crate::facts::{CallFacts, InputSizes, elementwise_facts, exact, last_axis, rounding_facts};
use crate::integers::OpenOutputs;
use crate::op::{
    attention, binary, boxes, cast, control, conv, einsum, elementwise, fused, gelu, grouped, index, loss,
    matmul, movement, multi_head, nbits, norm, order, pool, quantize, quantized, recurrent, reduce, resize,
    sampling, shape, slice, softmax, spectrum, unary,
};

/// How an operator is evaluated.
#[derive(Clone, Copy)]
pub enum EvaluationKind {
    /// One function, for `f32` and for `f64`.
    Float {
        /// In `f32`.
        single: fn(&Call<'_>) -> Outputs,
        /// In `f64`.
        double: fn(&Call<'_>) -> Outputs,
    },
    /// A function that looks at the dtypes itself.
    Any(fn(&Call<'_>) -> Outputs),
}

/// One operator, or some versions of it.
pub struct OperatorRow {
    /// `onnx` for the standard, else the domain of the node.
    pub domain: &'static str,
    /// The operator's name, as nodes have it.
    pub name: &'static str,
    /// First and last version that the function serves.
    pub since: u32,
    pub until: u32,
    /// How it is evaluated.
    pub run: EvaluationKind,
    /// What a verdict has to know of it, from the sizes of its inputs.
    pub facts: fn(&InputSizes<'_>) -> CallFacts,
    /// What its outputs of integers leave open, where it rounds to them.
    pub integers: Option<fn(&Call<'_>) -> OpenOutputs>,
}

impl OperatorRow {
    /// The row of an operator that rounds to integers.
    const fn rounds(self, integers: fn(&Call<'_>) -> OpenOutputs) -> OperatorRow {
        OperatorRow { integers: Some(integers), ..self }
    }

    /// The row for some versions only.
    const fn versions(self, since: u32, until: u32) -> OperatorRow {
        OperatorRow { since, until, ..self }
    }
}

/// An operator of the standard that looks at the dtypes itself, in all versions.
///
/// A function that serves only some versions is narrowed by [`OperatorRow::versions`].
const fn any_version(
    name: &'static str,
    run: fn(&Call<'_>) -> Outputs,
    facts: fn(&InputSizes<'_>) -> CallFacts,
) -> OperatorRow {
    OperatorRow {
        domain: "onnx",
        name,
        since: 1,
        until: NEWEST,
        run: EvaluationKind::Any(run),
        facts,
        integers: None,
    }
}

/// An operator of the standard that computes floats, in all versions.
/// It is compiled for `f32` and for `f64`, and the call says which one runs.
macro_rules! float {
    ($name:literal, $family:ident :: $function:ident, $facts:expr) => {
        float!("onnx", $name, $family::$function, $facts)
    };
    ($domain:literal, $name:literal, $family:ident :: $function:ident, $facts:expr) => {
        OperatorRow {
            domain: $domain,
            name: $name,
            since: 1,
            until: NEWEST,
            run: EvaluationKind::Float {
                single: $family::$function::<f32>,
                double: $family::$function::<f64>,
            },
            facts: $facts,
            integers: None,
        }
    };
}

/// Every operator, by families; rows of one name stand together.
pub const ROWS: &[OperatorRow] = &[
    // Elementwise.
    any_version("Add", elementwise::add, elementwise_facts),
    any_version("Relu", elementwise::relu, exact),
    // Graphs within operators.
    any_version("If", control::branch, control::facts),
    any_version("Loop", control::run_loop, control::facts),
    any_version("Scan", control::scan, control::facts),
    // Movement.
    any_version("Reshape", movement::reshape, exact),
    any_version("Transpose", movement::transpose, exact),
    // Functions of one number.
    float!("Sqrt", unary::sqrt, elementwise_facts),
    float!("Erf", unary::erf, elementwise_facts),
    float!("Exp", unary::exp, elementwise_facts),
    float!("Log", unary::log, elementwise_facts),
    float!("Sin", unary::sin, elementwise_facts),
    float!("Cos", unary::cos, elementwise_facts),
    float!("Tan", unary::tan, elementwise_facts),
    float!("Asin", unary::asin, elementwise_facts),
    float!("Acos", unary::acos, elementwise_facts),
    float!("Atan", unary::atan, elementwise_facts),
    float!("Sinh", unary::sinh, elementwise_facts),
    float!("Cosh", unary::cosh, elementwise_facts),
    float!("Tanh", unary::tanh, elementwise_facts),
    float!("Asinh", unary::asinh, elementwise_facts),
    float!("Acosh", unary::acosh, elementwise_facts),
    float!("Atanh", unary::atanh, elementwise_facts),
    float!("Reciprocal", unary::reciprocal, elementwise_facts),
    float!("Sigmoid", unary::sigmoid, elementwise_facts),
    float!("HardSigmoid", unary::hard_sigmoid, elementwise_facts),
    float!("HardSwish", unary::hard_swish, elementwise_facts),
    float!("LeakyRelu", unary::leaky_relu, elementwise_facts),
    float!("Elu", unary::elu, elementwise_facts),
    float!("Celu", unary::celu, elementwise_facts),
    float!("Selu", unary::selu, elementwise_facts),
    float!("Softplus", unary::softplus, elementwise_facts),
    float!("Softsign", unary::softsign, elementwise_facts),
    float!("ThresholdedRelu", unary::thresholded_relu, elementwise_facts),
    float!("Gelu", unary::gelu, elementwise_facts),
    float!("Mish", unary::mish, elementwise_facts),
    float!("Swish", unary::swish, elementwise_facts),
    float!("Shrink", unary::shrink, elementwise_facts),
    any_version("Abs", unary::abs, exact),
    any_version("Neg", unary::neg, exact),
    any_version("Sign", unary::sign, exact),
    any_version("Floor", unary::floor, exact),
    any_version("Ceil", unary::ceil, exact),
    any_version("Round", unary::round, exact),
    any_version("BitwiseNot", unary::bitwise_not, exact),
    any_version("Not", unary::not, exact),
    any_version("IsNaN", unary::is_nan, exact),
    any_version("IsInf", unary::is_inf, exact),
    any_version("Clip", unary::clip, exact),
    any_version("Identity", unary::identity, exact),
    any_version("Dropout", unary::dropout, exact),
    // Functions of two numbers or more.
    any_version("Sub", binary::sub, elementwise_facts),
    any_version("Mul", binary::mul, elementwise_facts),
    any_version("Div", binary::div, elementwise_facts),
    any_version("Pow", binary::pow, elementwise_facts),
    any_version("PRelu", binary::prelu, elementwise_facts),
    any_version("Mod", binary::modulo, binary::modulo_facts),
    any_version("BitShift", binary::bit_shift, exact),
    any_version("BitwiseAnd", binary::bitwise_and, exact),
    any_version("BitwiseOr", binary::bitwise_or, exact),
    any_version("BitwiseXor", binary::bitwise_xor, exact),
    any_version("And", binary::and, exact),
    any_version("Or", binary::or, exact),
    any_version("Xor", binary::xor, exact),
    any_version("Equal", binary::equal, exact),
    any_version("Less", binary::less, exact),
    any_version("Greater", binary::greater, exact),
    any_version("LessOrEqual", binary::less_or_equal, exact),
    any_version("GreaterOrEqual", binary::greater_or_equal, exact),
    any_version("Max", binary::max, exact),
    any_version("Min", binary::min, exact),
    any_version("Where", binary::choose, exact),
    any_version("Sum", binary::sum, binary::input_terms),
    float!("Mean", binary::mean, binary::input_terms),
    // Elements taken together along axes.
    any_version("ReduceSum", reduce::sum, reduce::reduced_terms),
    any_version("ReduceMean", reduce::mean, reduce::reduced_terms),
    any_version("ReduceProd", reduce::prod, reduce::reduced_terms),
    any_version("ReduceL1", reduce::l1, reduce::reduced_terms),
    any_version("ReduceSumSquare", reduce::sum_square, reduce::reduced_terms),
    float!("ReduceL2", reduce::l2, reduce::reduced_terms),
    float!("ReduceLogSum", reduce::log_sum, reduce::reduced_terms),
    float!("ReduceLogSumExp", reduce::log_sum_exp, reduce::reduced_terms),
    any_version("ReduceMax", reduce::max, exact),
    any_version("ReduceMin", reduce::min, exact),
    any_version("ArgMax", reduce::arg_max, exact),
    any_version("ArgMin", reduce::arg_min, exact),
    any_version("CumSum", reduce::cum_sum, reduce::running_terms),
    any_version("CumProd", reduce::cum_prod, reduce::running_terms),
    float!("Det", reduce::det, reduce::det_terms),
    // Shapes.
    any_version("Shape", shape::shape, exact),
    any_version("Size", shape::size, exact),
    any_version("Squeeze", shape::squeeze, exact),
    any_version("Unsqueeze", shape::unsqueeze, exact),
    any_version("Flatten", shape::flatten, exact),
    any_version("Expand", shape::expand, exact),
    any_version("ConstantOfShape", shape::constant_of_shape, exact),
    any_version("EyeLike", shape::eye_like, exact),
    any_version("OneHot", shape::one_hot, exact),
    any_version("NonZero", shape::non_zero, exact),
    any_version("Trilu", shape::trilu, exact),
    any_version("ReverseSequence", shape::reverse_sequence, exact),
    any_version("Range", shape::range, elementwise_facts),
    // Cutting and joining.
    any_version("Slice", slice::slice, exact),
    any_version("Concat", slice::concat, exact),
    any_version("Split", slice::split, exact),
    any_version("Pad", slice::pad, exact),
    any_version("Tile", slice::tile, exact),
    any_version("DepthToSpace", slice::depth_to_space, exact),
    any_version("SpaceToDepth", slice::space_to_depth, exact),
    // Indices.
    any_version("Gather", index::gather, exact),
    any_version("GatherElements", index::gather_elements, exact),
    any_version("GatherND", index::gather_nd, exact),
    any_version("TensorScatter", index::tensor_scatter, exact),
    any_version("Compress", index::compress, exact),
    any_version("ScatterElements", index::scatter_elements, index::scatter_elements_facts),
    any_version("Scatter", index::scatter_elements, index::scatter_elements_facts),
    any_version("ScatterND", index::scatter_nd, index::scatter_nd_facts),
    any_version("TopK", order::top_k, exact),
    any_version("Unique", order::unique, exact),
    // Dtypes.
    any_version("Cast", cast::cast, exact).rounds(cast::cast_integers),
    any_version("CastLike", cast::cast_like, exact).rounds(cast::cast_like_integers),
    any_version("BitCast", cast::bit_cast, exact),
    float!("QuantizeLinear", quantize::quantize, elementwise_facts).rounds(quantize::quantize_integers),
    float!("DequantizeLinear", quantize::dequantize, elementwise_facts),
    float!("DynamicQuantizeLinear", quantize::dynamic_quantize, elementwise_facts)
        .rounds(quantize::dynamic_quantize_integers),
    // Products.
    any_version("MatMul", matmul::matmul, matmul::matmul_terms),
    float!("Gemm", matmul::gemm, matmul::gemm_terms),
    // Convolutions and pools.
    float!("Conv", conv::conv, conv::conv_terms),
    float!("ConvTranspose", conv::conv_transpose, conv::conv_transpose_terms),
    any_version("MaxPool", pool::max_pool, exact),
    float!("MaxUnpool", pool::max_unpool, exact),
    float!("AveragePool", pool::average_pool, pool::window_terms),
    float!("LpPool", pool::lp_pool, pool::window_terms),
    float!("GlobalAveragePool", pool::global_average_pool, pool::channel_terms),
    float!("GlobalMaxPool", pool::global_max_pool, exact),
    float!("GlobalLpPool", pool::global_lp_pool, pool::channel_terms),
    // Sizes of images.
    any_version("Resize", resize::resize, resize::facts).versions(10, NEWEST),
    any_version("Upsample", resize::resize, resize::facts).versions(7, 9),
    // Normalizations.
    float!("BatchNormalization", norm::batch, norm::batch_terms),
    float!("LayerNormalization", norm::layer, norm::layer_terms),
    float!("RMSNormalization", norm::rms, norm::layer_terms),
    float!("SimplifiedLayerNormalization", norm::rms, norm::layer_terms),
    float!("com.microsoft", "SkipLayerNormalization", norm::skip_layer, last_axis),
    float!("com.microsoft", "SkipSimplifiedLayerNormalization", norm::skip_rms, last_axis),
    float!("InstanceNormalization", norm::instance, norm::image_terms),
    float!("GroupNormalization", norm::group, norm::group_terms),
    float!("LRN", norm::local_response, norm::local_terms),
    float!("LpNormalization", norm::lp, last_axis),
    float!("MeanVarianceNormalization", norm::mean_variance, norm::axes_terms),
    float!("Softmax", softmax::softmax, softmax::row_terms),
    float!("LogSoftmax", softmax::log_softmax, softmax::row_terms),
    float!("Hardmax", softmax::hardmax, exact),
    // Sequences.
    float!("LSTM", recurrent::lstm, recurrent::step_terms),
    float!("GRU", recurrent::gru, recurrent::step_terms),
    float!("RNN", recurrent::rnn, recurrent::step_terms),
    float!("com.microsoft", "DynamicQuantizeLSTM", recurrent::dynamic_lstm, recurrent::dynamic_step_terms),
    float!("Attention", attention::attention, attention::attention_terms).versions(23, NEWEST),
    float!("RotaryEmbedding", attention::rotary, elementwise_facts).versions(23, NEWEST),
    float!("com.microsoft", "RotaryEmbedding", attention::rotary_from, elementwise_facts),
    float!("com.microsoft", "GroupQueryAttention", grouped::group_query_attention, grouped::grouped_terms),
    float!("com.microsoft", "MultiHeadAttention", multi_head::multi_head, multi_head::multi_head_terms),
    float!("com.microsoft", "Attention", multi_head::project_and_attend, multi_head::projected_terms),
    // Images and signals.
    float!("GridSample", sampling::grid_sample, sampling::grid_terms).versions(16, NEWEST),
    float!("AffineGrid", sampling::affine_grid, sampling::affine_terms).versions(20, NEWEST),
    float!("DeformConv", sampling::deform_conv, conv::conv_terms).versions(19, NEWEST),
    float!("RoiAlign", sampling::roi_align, sampling::roi_terms).versions(10, NEWEST),
    float!("Col2Im", sampling::col2im, sampling::col2im_terms).versions(18, NEWEST),
    any_version("CenterCropPad", sampling::center_crop_pad, exact).versions(18, NEWEST),
    float!("NonMaxSuppression", boxes::non_max_suppression, exact).versions(10, NEWEST),
    float!("DFT", spectrum::dft, spectrum::axis_terms).versions(17, NEWEST),
    float!("STFT", spectrum::stft, spectrum::frame_terms).versions(17, NEWEST),
    float!("HannWindow", spectrum::hann, rounding_facts).versions(17, NEWEST),
    float!("HammingWindow", spectrum::hamming, rounding_facts).versions(17, NEWEST),
    float!("BlackmanWindow", spectrum::blackman, rounding_facts).versions(17, NEWEST),
    float!("MelWeightMatrix", spectrum::mel_weight_matrix, rounding_facts).versions(17, NEWEST),
    // Losses.
    float!("NegativeLogLikelihoodLoss", loss::negative_log_likelihood, loss::loss_terms).versions(12, NEWEST),
    float!("SoftmaxCrossEntropyLoss", loss::softmax_cross_entropy, loss::loss_terms).versions(12, NEWEST),
    // Activations of attention's relatives.
    float!("com.microsoft", "Gelu", gelu::bias_gelu, elementwise_facts),
    float!("com.microsoft", "BiasGelu", gelu::bias_gelu, elementwise_facts),
    float!("com.microsoft", "FastGelu", gelu::fast_gelu, elementwise_facts),
    float!("com.microsoft", "QuickGelu", gelu::quick_gelu, elementwise_facts),
    // Products of integers.
    any_version("MatMulInteger", quantized::matmul_integer, exact).versions(10, NEWEST),
    any_version("ConvInteger", quantized::conv_integer, exact).versions(10, NEWEST),
    any_version("QLinearMatMul", quantized::qlinear_matmul, rounding_facts)
        .versions(10, NEWEST)
        .rounds(quantized::qlinear_matmul_integers),
    any_version("QLinearConv", quantized::qlinear_conv, rounding_facts)
        .versions(10, NEWEST)
        .rounds(quantized::qlinear_conv_integers),
    float!("com.microsoft", "FusedMatMul", matmul::fused_matmul, matmul::fused_terms),
    float!("com.microsoft", "FusedGemm", fused::gemm, fused::terms_of_gemm),
    float!("com.microsoft", "FusedConv", fused::conv, fused::terms_of_conv),
    float!("com.microsoft", "MatMulNBits", nbits::matmul, nbits::terms_of),
    float!("Einsum", einsum::einsum, einsum::einsum_terms),
];

/// Operators of the standard that draw random numbers, so that there is no value to compare with.
pub const RANDOM: &[&str] =
    &["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"];

#[cfg(test)]
mod tests {
    use super::*;

    /// Each version of an operator has one row, and its rows stand together.
    #[test]
    fn rows_do_not_overlap() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(row.since <= row.until, "{}.{}", row.domain, row.name);
            let later = ROWS[at + 1..].iter().enumerate();
            for (gap, other) in
                later.filter(|(_, other)| (other.domain, other.name) == (row.domain, row.name))
            {
                let between = &ROWS[at + 1..at + 1 + gap];
                assert!(
                    between.iter().all(|b| (b.domain, b.name) == (row.domain, row.name)),
                    "{} stands twice",
                    row.name
                );
                assert!(
                    row.until < other.since || other.until < row.since,
                    "{}.{} overlaps",
                    row.domain,
                    row.name
                );
            }
        }
    }
}
