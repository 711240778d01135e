//! The list of operators. One row says all of an operator: domain, name, versions, function, facts.

use crate::NEWEST;
use crate::call::{Call, Outputs};
use crate::facts::{Facts, Sizes, each, exact, last_axis, rounded};
use crate::integers::OpenOutputs;
use crate::op::{
    attention, binary, boxes, cast, control, conv, einsum, elementwise, fused, gelu, grouped, index, loss,
    matmul, movement, multi_head, nbits, norm, order, pool, quantize, quantized, recurrent, reduce, resize,
    sampling, shape, slice, softmax, spectrum, unary,
};

/// How an operator is evaluated.
#[derive(Clone, Copy)]
pub enum Run {
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
pub struct Row {
    pub domain: &'static str,
    pub name: &'static str,
    /// First and last version that the function serves.
    pub since: u32,
    pub until: u32,
    pub run: Run,
    pub facts: fn(&Sizes<'_>) -> Facts,
    /// What its outputs of integers leave open, where it rounds to them.
    pub integers: Option<fn(&Call<'_>) -> OpenOutputs>,
}

impl Row {
    /// The row of an operator that rounds to integers.
    const fn rounds(self, integers: fn(&Call<'_>) -> OpenOutputs) -> Row {
        Row { integers: Some(integers), ..self }
    }

    /// The row for some versions only.
    const fn versions(self, since: u32, until: u32) -> Row {
        Row { since, until, ..self }
    }
}

/// An operator of the standard that looks at the dtypes itself, in all versions.
const fn any(name: &'static str, run: fn(&Call<'_>) -> Outputs, facts: fn(&Sizes<'_>) -> Facts) -> Row {
    Row { domain: "onnx", name, since: 1, until: NEWEST, run: Run::Any(run), facts, integers: None }
}

/// An operator of the standard that computes floats, in all versions.
macro_rules! float {
    ($name:literal, $family:ident :: $function:ident, $facts:expr) => {
        float!("onnx", $name, $family::$function, $facts)
    };
    ($domain:literal, $name:literal, $family:ident :: $function:ident, $facts:expr) => {
        Row {
            domain: $domain,
            name: $name,
            since: 1,
            until: NEWEST,
            run: Run::Float { single: $family::$function::<f32>, double: $family::$function::<f64> },
            facts: $facts,
            integers: None,
        }
    };
}

/// Every operator, by families; rows of one name stand together.
pub const ROWS: &[Row] = &[
    // Elementwise.
    any("Add", elementwise::add, each),
    any("Relu", elementwise::relu, exact),
    // Graphs within operators.
    any("If", control::branch, control::facts),
    any("Loop", control::turns, control::facts),
    any("Scan", control::scan, control::facts),
    // Movement.
    any("Reshape", movement::reshape, exact),
    any("Transpose", movement::transpose, exact),
    // Functions of one number.
    float!("Sqrt", unary::sqrt, each),
    float!("Erf", unary::erf, each),
    float!("Exp", unary::exp, each),
    float!("Log", unary::log, each),
    float!("Sin", unary::sin, each),
    float!("Cos", unary::cos, each),
    float!("Tan", unary::tan, each),
    float!("Asin", unary::asin, each),
    float!("Acos", unary::acos, each),
    float!("Atan", unary::atan, each),
    float!("Sinh", unary::sinh, each),
    float!("Cosh", unary::cosh, each),
    float!("Tanh", unary::tanh, each),
    float!("Asinh", unary::asinh, each),
    float!("Acosh", unary::acosh, each),
    float!("Atanh", unary::atanh, each),
    float!("Reciprocal", unary::reciprocal, each),
    float!("Sigmoid", unary::sigmoid, each),
    float!("HardSigmoid", unary::hard_sigmoid, each),
    float!("HardSwish", unary::hard_swish, each),
    float!("LeakyRelu", unary::leaky_relu, each),
    float!("Elu", unary::elu, each),
    float!("Celu", unary::celu, each),
    float!("Selu", unary::selu, each),
    float!("Softplus", unary::softplus, each),
    float!("Softsign", unary::softsign, each),
    float!("ThresholdedRelu", unary::thresholded_relu, each),
    float!("Gelu", unary::gelu, each),
    float!("Mish", unary::mish, each),
    float!("Swish", unary::swish, each),
    float!("Shrink", unary::shrink, each),
    any("Abs", unary::abs, exact),
    any("Neg", unary::neg, exact),
    any("Sign", unary::sign, exact),
    any("Floor", unary::floor, exact),
    any("Ceil", unary::ceil, exact),
    any("Round", unary::round, exact),
    any("BitwiseNot", unary::bitwise_not, exact),
    any("Not", unary::not, exact),
    any("IsNaN", unary::is_nan, exact),
    any("IsInf", unary::is_inf, exact),
    any("Clip", unary::clip, exact),
    any("Identity", unary::identity, exact),
    any("Dropout", unary::dropout, exact),
    // Functions of two numbers or more.
    any("Sub", binary::sub, each),
    any("Mul", binary::mul, each),
    any("Div", binary::div, each),
    any("Pow", binary::pow, each),
    any("PRelu", binary::prelu, each),
    any("Mod", binary::modulo, binary::modulo_facts),
    any("BitShift", binary::bit_shift, exact),
    any("BitwiseAnd", binary::bitwise_and, exact),
    any("BitwiseOr", binary::bitwise_or, exact),
    any("BitwiseXor", binary::bitwise_xor, exact),
    any("And", binary::and, exact),
    any("Or", binary::or, exact),
    any("Xor", binary::xor, exact),
    any("Equal", binary::equal, exact),
    any("Less", binary::less, exact),
    any("Greater", binary::greater, exact),
    any("LessOrEqual", binary::less_or_equal, exact),
    any("GreaterOrEqual", binary::greater_or_equal, exact),
    any("Max", binary::max, exact),
    any("Min", binary::min, exact),
    any("Where", binary::choose, exact),
    any("Sum", binary::sum, binary::input_terms),
    float!("Mean", binary::mean, binary::input_terms),
    // Elements taken together along axes.
    any("ReduceSum", reduce::sum, reduce::reduced_terms),
    any("ReduceMean", reduce::mean, reduce::reduced_terms),
    any("ReduceProd", reduce::prod, reduce::reduced_terms),
    any("ReduceL1", reduce::l1, reduce::reduced_terms),
    any("ReduceSumSquare", reduce::sum_square, reduce::reduced_terms),
    float!("ReduceL2", reduce::l2, reduce::reduced_terms),
    float!("ReduceLogSum", reduce::log_sum, reduce::reduced_terms),
    float!("ReduceLogSumExp", reduce::log_sum_exp, reduce::reduced_terms),
    any("ReduceMax", reduce::max, exact),
    any("ReduceMin", reduce::min, exact),
    any("ArgMax", reduce::arg_max, exact),
    any("ArgMin", reduce::arg_min, exact),
    any("CumSum", reduce::cum_sum, reduce::running_terms),
    any("CumProd", reduce::cum_prod, reduce::running_terms),
    float!("Det", reduce::det, reduce::det_terms),
    // Shapes.
    any("Shape", shape::shape, exact),
    any("Size", shape::size, exact),
    any("Squeeze", shape::squeeze, exact),
    any("Unsqueeze", shape::unsqueeze, exact),
    any("Flatten", shape::flatten, exact),
    any("Expand", shape::expand, exact),
    any("ConstantOfShape", shape::constant_of_shape, exact),
    any("EyeLike", shape::eye_like, exact),
    any("OneHot", shape::one_hot, exact),
    any("NonZero", shape::non_zero, exact),
    any("Trilu", shape::trilu, exact),
    any("ReverseSequence", shape::reverse_sequence, exact),
    any("Range", shape::range, each),
    // Cutting and joining.
    any("Slice", slice::slice, exact),
    any("Concat", slice::concat, exact),
    any("Split", slice::split, exact),
    any("Pad", slice::pad, exact),
    any("Tile", slice::tile, exact),
    any("DepthToSpace", slice::depth_to_space, exact),
    any("SpaceToDepth", slice::space_to_depth, exact),
    // Indices.
    any("Gather", index::gather, exact),
    any("GatherElements", index::gather_elements, exact),
    any("GatherND", index::gather_nd, exact),
    any("TensorScatter", index::tensor_scatter, exact),
    any("Compress", index::compress, exact),
    any("ScatterElements", index::scatter_elements, index::scatter_elements_facts),
    any("Scatter", index::scatter_elements, index::scatter_elements_facts),
    any("ScatterND", index::scatter_nd, index::scatter_nd_facts),
    any("TopK", order::top_k, exact),
    any("Unique", order::unique, exact),
    // Dtypes.
    any("Cast", cast::cast, exact).rounds(cast::cast_integers),
    any("CastLike", cast::cast_like, exact).rounds(cast::cast_like_integers),
    any("BitCast", cast::bit_cast, exact),
    float!("QuantizeLinear", quantize::quantize, each).rounds(quantize::quantize_integers),
    float!("DequantizeLinear", quantize::dequantize, each),
    float!("DynamicQuantizeLinear", quantize::dynamic_quantize, each)
        .rounds(quantize::dynamic_quantize_integers),
    // Products.
    any("MatMul", matmul::matmul, matmul::matmul_terms),
    float!("Gemm", matmul::gemm, matmul::gemm_terms),
    // Convolutions and pools.
    float!("Conv", conv::conv, conv::conv_terms),
    float!("ConvTranspose", conv::conv_transpose, conv::conv_transpose_terms),
    any("MaxPool", pool::max_pool, exact),
    float!("MaxUnpool", pool::max_unpool, exact),
    float!("AveragePool", pool::average_pool, pool::window_terms),
    float!("LpPool", pool::lp_pool, pool::window_terms),
    float!("GlobalAveragePool", pool::global_average_pool, pool::channel_terms),
    float!("GlobalMaxPool", pool::global_max_pool, exact),
    float!("GlobalLpPool", pool::global_lp_pool, pool::channel_terms),
    // Sizes of images.
    any("Resize", resize::resize, resize::facts).versions(10, NEWEST),
    any("Upsample", resize::resize, resize::facts).versions(7, 9),
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
    float!("RotaryEmbedding", attention::rotary, each).versions(23, NEWEST),
    float!("com.microsoft", "RotaryEmbedding", attention::rotary_from, each),
    float!("com.microsoft", "GroupQueryAttention", grouped::grouped, grouped::grouped_terms),
    float!("com.microsoft", "MultiHeadAttention", multi_head::multi_head, multi_head::multi_head_terms),
    float!("com.microsoft", "Attention", multi_head::projected, multi_head::projected_terms),
    // Images and signals.
    float!("GridSample", sampling::grid_sample, sampling::grid_terms).versions(16, NEWEST),
    float!("AffineGrid", sampling::affine_grid, sampling::affine_terms).versions(20, NEWEST),
    float!("DeformConv", sampling::deform_conv, conv::conv_terms).versions(19, NEWEST),
    float!("RoiAlign", sampling::roi_align, sampling::roi_terms).versions(10, NEWEST),
    float!("Col2Im", sampling::col2im, sampling::col2im_terms).versions(18, NEWEST),
    any("CenterCropPad", sampling::center_crop_pad, exact).versions(18, NEWEST),
    float!("NonMaxSuppression", boxes::non_max_suppression, exact).versions(10, NEWEST),
    float!("DFT", spectrum::dft, spectrum::axis_terms).versions(17, NEWEST),
    float!("STFT", spectrum::stft, spectrum::frame_terms).versions(17, NEWEST),
    float!("HannWindow", spectrum::hann, rounded).versions(17, NEWEST),
    float!("HammingWindow", spectrum::hamming, rounded).versions(17, NEWEST),
    float!("BlackmanWindow", spectrum::blackman, rounded).versions(17, NEWEST),
    float!("MelWeightMatrix", spectrum::mel_weight_matrix, rounded).versions(17, NEWEST),
    // Losses.
    float!("NegativeLogLikelihoodLoss", loss::negative_log_likelihood, loss::loss_terms).versions(12, NEWEST),
    float!("SoftmaxCrossEntropyLoss", loss::softmax_cross_entropy, loss::loss_terms).versions(12, NEWEST),
    // Activations of attention's relatives.
    float!("com.microsoft", "Gelu", gelu::bias_gelu, each),
    float!("com.microsoft", "BiasGelu", gelu::bias_gelu, each),
    float!("com.microsoft", "FastGelu", gelu::fast_gelu, each),
    float!("com.microsoft", "QuickGelu", gelu::quick_gelu, each),
    // Products of integers.
    any("MatMulInteger", quantized::matmul_integer, exact).versions(10, NEWEST),
    any("ConvInteger", quantized::conv_integer, exact).versions(10, NEWEST),
    any("QLinearMatMul", quantized::qlinear_matmul, rounded)
        .versions(10, NEWEST)
        .rounds(quantized::qlinear_matmul_integers),
    any("QLinearConv", quantized::qlinear_conv, rounded)
        .versions(10, NEWEST)
        .rounds(quantized::qlinear_conv_integers),
    float!("com.microsoft", "FusedMatMul", matmul::fused, matmul::fused_terms),
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
