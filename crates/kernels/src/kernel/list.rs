//! The kernel list. Of an operator's rows the first that serves a call and is preferred on the device is taken, unless a
//! measurement or a user says otherwise; the last of them is the one that asks for least.

use super::RowCount::{Any, Many, One};
use super::cuda::{COPIES, HOPPER, OVERLAP};
use super::{
    KernelRow, Needs, Request, RowCount, add, add_rms_norm, anywhere, append, argmax, attention, causal_conv,
    clamp, columns, combine, concat, cuda, dequantize, embedding, expert_gated_linear, expert_linear,
    gated_linear, gelu, last_row, layer_norm, lerp, linear, merge_rows, merge_squares, mul, on_gpu, onnx,
    own_text, patches, position_scale, positions, product, relu, relu_squared, rms_norm, rope, rope_angles,
    route, rows, scale, selective_scan, sigmoid, silu, softcap, softplus, tanh, token_shift, wkv, wkv_bonus,
    wkv7,
};
use crate::plan::NodePlan;
use tapml_graph::Result;

/// A kernel that every device can take.
const fn portable(name: &'static str, plan: fn(&Request) -> Result<NodePlan>) -> KernelRow {
    KernelRow { name, also: None, needs: Needs::NOTHING, rows: Any, plan, preferred: anywhere, text: None }
}

/// A kernel with subgroup operations.
const fn subgroup(name: &'static str, rows: RowCount, plan: fn(&Request) -> Result<NodePlan>) -> KernelRow {
    KernelRow { name, also: None, needs: Needs::SUBGROUPS, rows, plan, preferred: on_gpu, text: None }
}

/// A kernel on tensor cores, in WGSL.
const fn coop(name: &'static str, rows: RowCount, plan: fn(&Request) -> Result<NodePlan>) -> KernelRow {
    KernelRow { needs: Needs::COOPERATIVE_MATRICES, ..subgroup(name, rows, plan) }
}

/// A kernel in CUDA C++ for chips of at least this compute capability, times ten.
const fn cuda(
    name: &'static str,
    least: u32,
    rows: RowCount,
    plan: fn(&Request) -> Result<NodePlan>,
) -> KernelRow {
    KernelRow { needs: Needs::cuda(least), rows, ..portable(name, plan) }
}

/// A kernel in CUDA C++ for Hopper chips.
const fn hopper(name: &'static str, rows: RowCount, plan: fn(&Request) -> Result<NodePlan>) -> KernelRow {
    KernelRow { needs: Needs::cuda_exactly(HOPPER), rows, ..portable(name, plan) }
}

/// Every kernel.
pub const KERNELS: &[KernelRow] = &[
    KernelRow { also: Some("embedding/packed"), ..portable("embedding/portable", embedding::plan) },
    cuda("rms_norm/row_cuda", COPIES, One, cuda::rms_norm::plan),
    cuda("rms_norm/rows_cuda", COPIES, Any, cuda::normalise::plan),
    portable("rms_norm/portable", rms_norm::plan),
    portable("layer_norm/portable", layer_norm::plan),
    cuda("linear/gemv_cuda", COPIES, One, cuda::linear::plan),
    hopper("linear/gemm_hopper", Many, cuda::matmul::plan),
    cuda("linear/skinny_gemm_cuda", COPIES, Any, cuda::few::plan),
    subgroup("linear/gemv", One, product::row::plan),
    coop("linear/gemm_coopmat", Many, product::matrix::plan),
    KernelRow {
        also: Some("linear/packed_subgroup"),
        ..subgroup("linear/subgroup", Any, linear::subgroup::plan)
    },
    KernelRow { also: Some("linear/packed"), ..portable("linear/portable", linear::plan) },
    portable("rope_angles/portable", rope_angles::plan),
    portable("rope/portable", rope::plan),
    portable("append/portable", append::plan),
    cuda("attention/flash_decode_cuda", OVERLAP, One, cuda::attention::plan),
    hopper("attention/flash_prefill_hopper", Any, cuda::attend::plan_hopper),
    cuda("attention/flash_prefill_cuda", COPIES, Any, cuda::attend::plan),
    coop("attention/flash_coopmat", Many, attention::matrix::plan),
    subgroup("attention/split", Any, attention::split::plan),
    portable("attention/portable", attention::plan),
    KernelRow { also: Some("add/row"), ..portable("add/portable", add::plan) },
    KernelRow { also: Some("mul/row"), ..portable("mul/portable", mul::plan) },
    KernelRow { also: Some("lerp/row"), ..portable("lerp/portable", lerp::plan) },
    portable("silu/portable", silu::plan),
    portable("gelu/portable", gelu::plan),
    portable("relu/portable", relu::plan),
    portable("relu_squared/portable", relu_squared::plan),
    portable("sigmoid/portable", sigmoid::plan),
    portable("tanh/portable", tanh::plan),
    portable("softplus/portable", softplus::plan),
    portable("scale/portable", scale::plan),
    portable("softcap/portable", softcap::plan),
    portable("clamp/portable", clamp::plan),
    portable("columns/portable", columns::plan),
    portable("concat/portable", concat::plan),
    portable("rows/portable", rows::plan),
    portable("patches/portable", patches::plan),
    portable("merge_squares/portable", merge_squares::plan),
    portable("last_row/portable", last_row::plan),
    portable("merge_rows/portable", merge_rows::plan),
    portable("positions/portable", positions::plan),
    portable("position_scale/portable", position_scale::plan),
    portable("route/portable", route::plan),
    cuda("expert_linear/gemv_cuda", COPIES, One, cuda::linear::plan_stack),
    cuda("expert_linear/grouped_gemm_cuda", COPIES, Many, cuda::experts::plan),
    KernelRow {
        also: Some("expert_linear/packed"),
        ..portable("expert_linear/portable", expert_linear::plan)
    },
    portable("combine/portable", combine::plan),
    portable("token_shift/portable", token_shift::plan),
    portable("wkv/portable", wkv::plan),
    portable("wkv7/portable", wkv7::plan),
    portable("wkv_bonus/portable", wkv_bonus::plan),
    portable("causal_conv/portable", causal_conv::plan),
    portable("selective_scan/portable", selective_scan::plan),
    portable("dequantize/portable", dequantize::plan),
    cuda("argmax/cluster_cuda", OVERLAP, Any, cuda::argmax::plan),
    portable("argmax/portable", argmax::plan),
    cuda("add_rms_norm/row_cuda", COPIES, One, cuda::rms_norm::plan),
    cuda("add_rms_norm/rows_cuda", COPIES, Any, cuda::normalise::plan),
    KernelRow {
        text: own_text!("add_rms_norm/subgroup.wgsl"),
        ..subgroup("add_rms_norm/subgroup", Any, add_rms_norm::plan)
    },
    portable("add_rms_norm/portable", add_rms_norm::plan),
    cuda("gated_linear/gemv_cuda", COPIES, One, cuda::linear::plan),
    hopper("gated_linear/gemm_hopper", Many, cuda::matmul::plan),
    subgroup("gated_linear/gemv", One, product::row::plan),
    coop("gated_linear/gemm_coopmat", Many, product::matrix::plan),
    KernelRow {
        also: Some("gated_linear/packed_subgroup"),
        ..subgroup("gated_linear/subgroup", Any, gated_linear::subgroup::plan)
    },
    KernelRow { also: Some("gated_linear/packed"), ..portable("gated_linear/portable", gated_linear::plan) },
    cuda("expert_gated_linear/gemv_cuda", COPIES, One, cuda::linear::plan_stack),
    cuda("expert_gated_linear/grouped_gemm_cuda", COPIES, Many, cuda::experts::plan),
    KernelRow {
        also: Some("expert_gated_linear/packed"),
        ..portable("expert_gated_linear/portable", expert_gated_linear::plan)
    },
    cuda("moe_router/cluster_cuda", OVERLAP, One, cuda::choose::plan),
    cuda("moe_gated_linear/gemv_cuda", COPIES, One, cuda::linear::plan_moe_gated),
    cuda("moe_down/gemv_cuda", COPIES, One, cuda::linear::plan_moe_down),
    cuda("moe_combine/rows_cuda", COPIES, Many, cuda::mix::plan),
    cuda("rope_append_attention/flash_decode_cuda", OVERLAP, One, cuda::attention::plan_with_appending),
    subgroup("rope_append_attention/gemv", One, attention::row::plan),
    subgroup("rope_append_attention/split", One, attention::split::plan_with_appending),
    cuda("rope_append/rows_cuda", COPIES, Many, cuda::attend::plan_appending),
    subgroup("rope_append/rows", Many, attention::keep::plan),
    hopper("rope_attention/flash_prefill_hopper", Many, cuda::attend::plan_with_rotation_hopper),
    cuda("rope_attention/flash_prefill_cuda", COPIES, Many, cuda::attend::plan_with_rotation),
    cuda("norm_linear/gemv_cuda", COPIES, One, cuda::linear::plan_of_norm),
    subgroup("norm_linear/gemv", One, product::row::plan_of_norm),
    cuda("linear_add/gemv_cuda", COPIES, One, cuda::linear::plan_added),
    hopper("linears/gemm_hopper", Many, cuda::matmul::plan_several),
    portable("onnx.Relu/portable", onnx::plans::map),
    portable("onnx.LeakyRelu/portable", onnx::plans::map),
    portable("onnx.ThresholdedRelu/portable", onnx::plans::map),
    portable("onnx.Elu/portable", onnx::plans::map),
    portable("onnx.Selu/portable", onnx::plans::map),
    portable("onnx.HardSigmoid/portable", onnx::plans::map),
    portable("onnx.HardSwish/portable", onnx::plans::map),
    portable("onnx.Sigmoid/portable", onnx::plans::map),
    portable("onnx.Tanh/portable", onnx::plans::map),
    portable("onnx.Softplus/portable", onnx::plans::map),
    portable("onnx.Softsign/portable", onnx::plans::map),
    portable("onnx.Gelu/portable", onnx::plans::map),
    portable("onnx.Exp/portable", onnx::plans::map),
    portable("onnx.Log/portable", onnx::plans::map),
    portable("onnx.Sqrt/portable", onnx::plans::map),
    portable("onnx.Reciprocal/portable", onnx::plans::map),
    portable("onnx.Erf/portable", onnx::plans::map),
    portable("onnx.Abs/portable", onnx::plans::map),
    portable("onnx.Neg/portable", onnx::plans::map),
    portable("onnx.Floor/portable", onnx::plans::map),
    portable("onnx.Ceil/portable", onnx::plans::map),
    portable("onnx.Round/portable", onnx::plans::map),
    portable("onnx.Sign/portable", onnx::plans::map),
    portable("onnx.Clip/portable", onnx::plans::map),
    portable("onnx.Add/portable", onnx::plans::pairs),
    portable("onnx.Sub/portable", onnx::plans::pairs),
    portable("onnx.Mul/portable", onnx::plans::pairs),
    portable("onnx.Div/portable", onnx::plans::pairs),
    portable("onnx.Pow/portable", onnx::plans::pairs),
    portable("onnx.PRelu/portable", onnx::plans::pairs),
    portable("onnx.Max/portable", onnx::plans::pairs),
    portable("onnx.Min/portable", onnx::plans::pairs),
    portable("onnx.Equal/portable", onnx::plans::compare),
    portable("onnx.Less/portable", onnx::plans::compare),
    portable("onnx.LessOrEqual/portable", onnx::plans::compare),
    portable("onnx.Greater/portable", onnx::plans::compare),
    portable("onnx.GreaterOrEqual/portable", onnx::plans::compare),
    portable("onnx.And/portable", onnx::plans::compare),
    portable("onnx.Or/portable", onnx::plans::compare),
    portable("onnx.Xor/portable", onnx::plans::compare),
    portable("onnx.Not/portable", onnx::plans::compare),
    portable("onnx.Cast/portable", onnx::plans::compare),
    portable("onnx.Where/portable", onnx::plans::choose),
    portable("onnx.Reshape/portable", onnx::plans::copy),
    portable("onnx.Flatten/portable", onnx::plans::copy),
    portable("onnx.Squeeze/portable", onnx::plans::copy),
    portable("onnx.Unsqueeze/portable", onnx::plans::copy),
    portable("onnx.Identity/portable", onnx::plans::copy),
    portable("onnx.Dropout/portable", onnx::plans::copy),
    portable("onnx.Transpose/portable", onnx::plans::transpose),
    portable("onnx.Expand/portable", onnx::plans::expand),
    portable("onnx.Slice/portable", onnx::plans::slice),
    portable("onnx.Pad/portable", onnx::plans::pad),
    portable("onnx.Gather/portable", onnx::plans::gather),
    portable("onnx.Concat/portable", onnx::plans::concat),
    portable("onnx.Split/portable", onnx::plans::split),
    portable("onnx.ReduceMean/portable", onnx::plans::reduce),
    portable("onnx.ReduceSum/portable", onnx::plans::reduce),
    portable("onnx.ReduceMax/portable", onnx::plans::reduce),
    portable("onnx.ReduceMin/portable", onnx::plans::reduce),
    portable("onnx.ReduceProd/portable", onnx::plans::reduce),
    portable("onnx.ReduceL1/portable", onnx::plans::reduce),
    portable("onnx.ReduceL2/portable", onnx::plans::reduce),
    portable("onnx.ReduceSumSquare/portable", onnx::plans::reduce),
    portable("onnx.GlobalAveragePool/portable", onnx::plans::reduce),
    portable("onnx.GlobalMaxPool/portable", onnx::plans::reduce),
    portable("onnx.Softmax/portable", onnx::plans::softmax),
    portable("onnx.LogSoftmax/portable", onnx::plans::softmax),
    portable("onnx.BatchNormalization/portable", onnx::plans::batch_norm),
    portable("onnx.LayerNormalization/portable", onnx::plans::layer_norm),
    portable("onnx.InstanceNormalization/portable", onnx::plans::instance_norm),
    portable("onnx.Conv/portable", onnx::plans::convolution),
    portable("onnx.ConvTranspose/portable", onnx::plans::transposed_convolution),
    portable("onnx.MaxPool/portable", onnx::plans::pool),
    portable("onnx.AveragePool/portable", onnx::plans::pool),
    portable("onnx.MatMul/portable", onnx::plans::matmul),
    portable("onnx.Gemm/portable", onnx::plans::gemm),
    portable("onnx.Resize/portable", onnx::plans::resize),
    portable("onnx.LSTM/portable", onnx::plans::lstm),
    portable("onnx.Shape/portable", onnx::plans::sizes),
    portable("onnx.Size/portable", onnx::plans::sizes),
    portable("onnx.ConstantOfShape/portable", onnx::plans::filled),
    portable("onnx.Range/portable", onnx::plans::range),
];
