//! The list of operators. One row says all of an operator: its name, its arguments that are tensors, its definition.
//!
//! Names are those of PyTorch's `native_functions.yaml`, with the overload behind the point. A version of an ONNX operator in a
//! definition is one that reads the attributes and inputs which the definition gives.

use super::arguments::Arguments;
use super::arithmetic::{self, Defined};
use super::builder::Builder;
use super::{movement, products, reduction, windows};

/// One operator.
pub struct AtenRow {
    /// Without the domain.
    pub name: &'static str,
    /// The arguments of its schema that are tensors, in order; `*` in front of a list of them.
    pub tensors: &'static [&'static str],
    /// Adds the steps of the definition and gives its outputs by their places.
    pub define: fn(&mut Builder, &Arguments) -> Defined,
}

/// An operator with these tensors.
const fn row(
    name: &'static str,
    tensors: &'static [&'static str],
    define: fn(&mut Builder, &Arguments) -> Defined,
) -> AtenRow {
    AtenRow { name, tensors, define }
}

/// An operator of the one tensor `self`.
const fn define_row(name: &'static str, define: fn(&mut Builder, &Arguments) -> Defined) -> AtenRow {
    row(name, &["self"], define)
}

/// An operator of the tensors `self` and `other`, either of which may be a number instead.
const fn two(name: &'static str, define: fn(&mut Builder, &Arguments) -> Defined) -> AtenRow {
    row(name, &["self", "other"], define)
}

/// Tensors of linear layers, convolutions and normalisations. The last two may be absent.
const NORM: &[&str] = &["input", "weight", "bias"];
/// Tensors of a batch normalisation in inference.
const STATISTICS: &[&str] = &["input", "weight", "bias", "running_mean", "running_var"];

/// Every operator, by families.
pub const ROWS: &[AtenRow] = &[
    // Functions of one number.
    define_row("relu.default", |b, a| arithmetic::unary(b, a, &["onnx.Relu@14"])),
    define_row("neg.default", |b, a| arithmetic::unary(b, a, &["onnx.Neg@13"])),
    define_row("abs.default", |b, a| arithmetic::unary(b, a, &["onnx.Abs@13"])),
    define_row("sign.default", |b, a| arithmetic::unary(b, a, &["onnx.Sign@13"])),
    define_row("sigmoid.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Sigmoid@13"])),
    define_row("tanh.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Tanh@13"])),
    define_row("exp.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Exp@13"])),
    define_row("log.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Log@13"])),
    define_row("sqrt.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Sqrt@13"])),
    define_row("rsqrt.default", |b, a| {
        arithmetic::float_unary(b, a, &["onnx.Sqrt@13", "onnx.Reciprocal@13"])
    }),
    define_row("reciprocal.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Reciprocal@13"])),
    define_row("sin.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Sin@7"])),
    define_row("cos.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Cos@7"])),
    define_row("erf.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Erf@13"])),
    define_row("floor.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Floor@13"])),
    define_row("ceil.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Ceil@13"])),
    define_row("round.default", |b, a| arithmetic::float_unary(b, a, &["onnx.Round@11"])),
    define_row("hardswish.default", |b, a| arithmetic::float_unary(b, a, &["onnx.HardSwish@14"])),
    define_row("hardsigmoid.default", arithmetic::hard_sigmoid),
    define_row("silu.default", arithmetic::silu),
    define_row("mish.default", arithmetic::mish),
    define_row("softplus.default", arithmetic::softplus),
    define_row("gelu.default", arithmetic::gelu),
    define_row("elu.default", arithmetic::elu),
    define_row("leaky_relu.default", arithmetic::leaky_relu),
    define_row("clamp.default", |b, a| arithmetic::clamp(b, a, ["min", "max"], [None, None])),
    define_row("hardtanh.default", |b, a| {
        arithmetic::clamp(b, a, ["min_val", "max_val"], [Some(-1.0), Some(1.0)])
    }),
    // The bounds are no arguments: the defaults hold.
    define_row("relu6.default", |b, a| arithmetic::clamp(b, a, ["min", "max"], [Some(0.0), Some(6.0)])),
    define_row("logical_not.default", arithmetic::not),
    define_row("bitwise_not.default", arithmetic::not),
    define_row("clone.default", arithmetic::pass_through),
    define_row("alias.default", arithmetic::pass_through),
    define_row("detach.default", arithmetic::pass_through),
    define_row("_to_copy.default", arithmetic::to_dtype),
    define_row("to.dtype", arithmetic::to_dtype),
    // Functions of two numbers or more.
    two("add.Tensor", |b, a| arithmetic::sum(b, a, "onnx.Add@14")),
    two("add.Scalar", |b, a| arithmetic::sum(b, a, "onnx.Add@14")),
    two("sub.Tensor", |b, a| arithmetic::sum(b, a, "onnx.Sub@14")),
    two("sub.Scalar", |b, a| arithmetic::sum(b, a, "onnx.Sub@14")),
    // `other − alpha · self`, with the operands exchanged.
    two("rsub.Scalar", arithmetic::reversed_difference),
    two("mul.Tensor", |b, a| arithmetic::pair(b, a, "onnx.Mul@14")),
    two("mul.Scalar", |b, a| arithmetic::pair(b, a, "onnx.Mul@14")),
    two("div.Tensor", arithmetic::quotient),
    two("div.Scalar", arithmetic::quotient),
    two("maximum.default", |b, a| arithmetic::pair(b, a, "onnx.Max@13")),
    two("minimum.default", |b, a| arithmetic::pair(b, a, "onnx.Min@13")),
    row("pow.Tensor_Scalar", &["self", "exponent"], arithmetic::power),
    row("pow.Tensor_Tensor", &["self", "exponent"], arithmetic::power),
    two("eq.Tensor", |b, a| arithmetic::compare(b, a, "onnx.Equal@13", false)),
    two("eq.Scalar", |b, a| arithmetic::compare(b, a, "onnx.Equal@13", false)),
    // ONNX has no `NotEqual`: the flag asks for a negation.
    two("ne.Tensor", |b, a| arithmetic::compare(b, a, "onnx.Equal@13", true)),
    two("ne.Scalar", |b, a| arithmetic::compare(b, a, "onnx.Equal@13", true)),
    two("lt.Tensor", |b, a| arithmetic::compare(b, a, "onnx.Less@13", false)),
    two("lt.Scalar", |b, a| arithmetic::compare(b, a, "onnx.Less@13", false)),
    two("gt.Tensor", |b, a| arithmetic::compare(b, a, "onnx.Greater@13", false)),
    two("gt.Scalar", |b, a| arithmetic::compare(b, a, "onnx.Greater@13", false)),
    two("le.Tensor", |b, a| arithmetic::compare(b, a, "onnx.LessOrEqual@16", false)),
    two("le.Scalar", |b, a| arithmetic::compare(b, a, "onnx.LessOrEqual@16", false)),
    two("ge.Tensor", |b, a| arithmetic::compare(b, a, "onnx.GreaterOrEqual@16", false)),
    two("ge.Scalar", |b, a| arithmetic::compare(b, a, "onnx.GreaterOrEqual@16", false)),
    two("logical_and.default", |b, a| arithmetic::logical(b, a, "onnx.And@7")),
    two("logical_or.default", |b, a| arithmetic::logical(b, a, "onnx.Or@7")),
    two("bitwise_and.Tensor", |b, a| arithmetic::logical(b, a, "onnx.And@7")),
    two("bitwise_or.Tensor", |b, a| arithmetic::logical(b, a, "onnx.Or@7")),
    row("where.self", &["condition", "self", "other"], arithmetic::choose),
    row("masked_fill.Scalar", &["self", "mask"], arithmetic::fill_mask),
    row("masked_fill.Tensor", &["self", "mask", "value"], arithmetic::fill_mask),
    // Movement.
    define_row("view.default", |b, a| movement::view(b, a, "size")),
    define_row("_unsafe_view.default", |b, a| movement::view(b, a, "size")),
    define_row("reshape.default", |b, a| movement::view(b, a, "shape")),
    define_row("flatten.using_ints", movement::flatten),
    define_row("unsqueeze.default", movement::unsqueeze),
    define_row("squeeze.default", movement::squeeze),
    define_row("squeeze.dim", movement::squeeze),
    define_row("squeeze.dims", movement::squeeze),
    define_row("permute.default", movement::permute),
    define_row("transpose.int", movement::transpose),
    define_row("t.default", movement::transpose_matrix),
    define_row("expand.default", movement::expand),
    define_row("repeat.default", movement::repeat),
    define_row("slice.Tensor", movement::slice),
    define_row("select.int", movement::select),
    row("cat.default", &["*tensors"], movement::concat),
    row("stack.default", &["*tensors"], movement::stack),
    // Both forms have one definition, which looks at its arguments.
    define_row("split_with_sizes.default", movement::split),
    define_row("split.Tensor", movement::split),
    define_row("constant_pad_nd.default", movement::pad),
    row("embedding.default", &["weight", "indices"], movement::embedding),
    row("index_select.default", &["self", "index"], movement::index_select),
    row("gather.default", &["self", "index"], movement::gather),
    row("full.default", &[], |b, a| movement::full(b, a, None)),
    row("zeros.default", &[], |b, a| movement::full(b, a, Some(0.0))),
    row("ones.default", &[], |b, a| movement::full(b, a, Some(1.0))),
    define_row("full_like.default", |b, a| movement::full(b, a, None)),
    define_row("zeros_like.default", |b, a| movement::full(b, a, Some(0.0))),
    define_row("ones_like.default", |b, a| movement::full(b, a, Some(1.0))),
    row("arange.default", &[], movement::arange),
    row("arange.start", &[], movement::arange),
    row("arange.start_step", &[], movement::arange),
    // Reductions.
    // `ReduceMean` before version 18 and `ReduceSum` before 13 have their axes as attributes.
    define_row("mean.default", |b, a| reduction::reduce(b, a, "onnx.ReduceMean@13")),
    define_row("mean.dim", |b, a| reduction::reduce(b, a, "onnx.ReduceMean@13")),
    define_row("sum.default", |b, a| reduction::reduce(b, a, "onnx.ReduceSum@11")),
    define_row("sum.dim_IntList", |b, a| reduction::reduce(b, a, "onnx.ReduceSum@11")),
    define_row("amax.default", |b, a| reduction::reduce(b, a, "onnx.ReduceMax@13")),
    define_row("amin.default", |b, a| reduction::reduce(b, a, "onnx.ReduceMin@13")),
    define_row("var.correction", reduction::variance),
    define_row("argmax.default", |b, a| reduction::arg(b, a, "onnx.ArgMax@13")),
    define_row("argmin.default", |b, a| reduction::arg(b, a, "onnx.ArgMin@13")),
    define_row("cumsum.default", reduction::cumulative_sum),
    // Products, attention and normalisation.
    row("linear.default", NORM, products::linear),
    row("mm.default", &["self", "mat2"], products::mm),
    row("bmm.default", &["self", "mat2"], products::bmm),
    row("addmm.default", &["self", "mat1", "mat2"], products::addmm),
    row("baddbmm.default", &["self", "batch1", "batch2"], products::baddbmm),
    row("matmul.default", &["self", "other"], products::matmul),
    row("scaled_dot_product_attention.default", &["query", "key", "value", "attn_mask"], products::attention),
    define_row("_softmax.default", |b, a| products::softmax(b, a, "onnx.Softmax@13")),
    define_row("softmax.int", |b, a| products::softmax(b, a, "onnx.Softmax@13")),
    define_row("_log_softmax.default", |b, a| products::softmax(b, a, "onnx.LogSoftmax@13")),
    define_row("log_softmax.int", |b, a| products::softmax(b, a, "onnx.LogSoftmax@13")),
    row("layer_norm.default", NORM, products::layer_norm),
    row("group_norm.default", NORM, products::group_norm),
    row("batch_norm.default", STATISTICS, products::batch_norm),
    // Further outputs are statistics of training and have no definition.
    row("_native_batch_norm_legit_no_training.default", STATISTICS, products::batch_norm),
    // Convolutions, pools and sampling.
    row("convolution.default", NORM, |b, a| windows::convolution(b, a, None)),
    row("conv1d.default", NORM, |b, a| windows::convolution(b, a, Some(1))),
    row("conv2d.default", NORM, |b, a| windows::convolution(b, a, Some(2))),
    define_row("max_pool2d.default", |b, a| windows::max_pool(b, a, 2)),
    define_row("max_pool2d_with_indices.default", |b, a| windows::max_pool(b, a, 2)),
    define_row("avg_pool1d.default", |b, a| windows::average_pool(b, a, 1)),
    define_row("avg_pool2d.default", |b, a| windows::average_pool(b, a, 2)),
    define_row("adaptive_avg_pool2d.default", |b, a| windows::adaptive_average_pool(b, a, 2)),
    define_row("_adaptive_avg_pool2d.default", |b, a| windows::adaptive_average_pool(b, a, 2)),
    row("upsample_nearest2d.vec", &["input"], |b, a| windows::upsample(b, a, false)),
    row("upsample_bilinear2d.vec", &["input"], |b, a| windows::upsample(b, a, true)),
];
