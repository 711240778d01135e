//! The list of operators. One row says all of an operator: domain, name, versions, function, facts.

use crate::NEWEST;
use crate::call::{Call, Outputs};
use crate::facts::{Facts, Sizes, each, exact, last_axis};
use crate::op::{
    attention, conv, einsum, elementwise, matmul, movement, norm, pool, recurrent, resize, softmax,
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
    float!("Einsum", einsum::einsum, einsum::einsum_terms),
];
