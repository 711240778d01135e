//! The list of operators. One row says all of an operator: domain, name, versions, function, facts.

use crate::NEWEST;
use crate::call::{Call, Outputs};
use crate::facts::{Facts, Sizes, each, exact, last_axis, rounded};
use crate::op::{
    attention, boxes, conv, einsum, elementwise, gelu, loss, matmul, movement, norm, pool, quantized,
    recurrent, resize, sampling, softmax, spectrum,
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
}

impl Row {
    /// The row for some versions only.
    const fn versions(self, since: u32, until: u32) -> Row {
        Row { since, until, ..self }
    }
}

/// An operator of the standard that looks at the dtypes itself, in all versions.
const fn any(name: &'static str, run: fn(&Call<'_>) -> Outputs, facts: fn(&Sizes<'_>) -> Facts) -> Row {
    Row { domain: "onnx", name, since: 1, until: NEWEST, run: Run::Any(run), facts }
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
        }
    };
}

/// Every operator, by families; rows of one name stand together.
pub const ROWS: &[Row] = &[
    // Elementwise.
    any("Add", elementwise::add, each),
    any("Relu", elementwise::relu, exact),
    // Movement.
    any("Reshape", movement::reshape, exact),
    any("Transpose", movement::transpose, exact),
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
    float!("Attention", attention::attention, attention::attention_terms).versions(23, NEWEST),
    float!("RotaryEmbedding", attention::rotary, each).versions(23, NEWEST),
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
    float!("Gelu", gelu::gelu, each).versions(20, NEWEST),
    float!("com.microsoft", "Gelu", gelu::bias_gelu, each),
    float!("com.microsoft", "BiasGelu", gelu::bias_gelu, each),
    float!("com.microsoft", "FastGelu", gelu::fast_gelu, each),
    float!("com.microsoft", "QuickGelu", gelu::quick_gelu, each),
    // Products of integers.
    any("MatMulInteger", quantized::matmul_integer, exact).versions(10, NEWEST),
    any("ConvInteger", quantized::conv_integer, exact).versions(10, NEWEST),
    any("QLinearMatMul", quantized::qlinear_matmul, rounded).versions(10, NEWEST),
    any("QLinearConv", quantized::qlinear_conv, rounded).versions(10, NEWEST),
    float!("com.microsoft", "FusedMatMul", matmul::fused, matmul::fused_terms),
    float!("Einsum", einsum::einsum, einsum::einsum_terms),
];

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
