//! The kernels: one folder for each operator, listed once below. A folder holds the launch planner and the sources.

use crate::plan::NodePlan;
use settings::Setting;
use tapml_device::{AdapterKind, DeviceInfo};
use tapml_graph::{Op, Result, TensorType};

mod add;
mod add_rms_norm;
mod append;
pub(crate) mod argmax;
mod asked;
pub(crate) mod attention;
mod causal_conv;
mod clamp;
mod columns;
mod combine;
mod concat;
pub(crate) mod cuda;
mod dequantize;
mod elementwise;
mod embedding;
mod expert_gated_linear;
mod expert_linear;
mod gated_linear;
mod gelu;
mod last_row;
mod layer_norm;
mod lerp;
mod linear;
mod merge_rows;
mod merge_squares;
mod mul;
mod norm;
mod patches;
mod position_scale;
mod positions;
pub(crate) mod product;
mod quantized_embedding;
mod quantized_expert_gated_linear;
mod quantized_expert_linear;
mod quantized_gated_linear;
mod quantized_linear;
mod relu;
mod relu_squared;
mod rms_norm;
mod rope;
mod rope_angles;
mod route;
mod rows;
mod scale;
mod selective_scan;
pub(crate) mod settings;
mod sigmoid;
mod silu;
mod softcap;
mod softplus;
pub(crate) mod source;
mod state;
mod tanh;
mod token_shift;
mod weights;
mod wkv;
mod wkv7;
mod wkv_bonus;

/// What a planner is asked for: an operator at these types on such a device.
pub struct Request<'a> {
    /// The operator.
    pub op: &'a Op,
    /// Types of its inputs.
    pub inputs: &'a [TensorType],
    /// Types of its outputs.
    pub outputs: &'a [TensorType],
    /// The device.
    pub info: &'a DeviceInfo,
    /// Whether a kernel must serve any number of rows by itself.
    pub alone: bool,
    /// Sizes of the kernel that are not its defaults.
    pub setting: Setting,
}

/// The kernels of one operator.
#[derive(Clone, Copy)]
pub struct KernelRow {
    /// The operator's name.
    pub op: &'static str,
    /// Plans a node of this operator.
    pub plan: fn(&Request) -> Result<NodePlan>,
}

/// The kernel list: every operator that runs on devices.
pub const KERNELS: &[KernelRow] = &[
    KernelRow { op: "embedding", plan: embedding::plan },
    KernelRow { op: "rms_norm", plan: rms_norm::plan },
    KernelRow { op: "layer_norm", plan: layer_norm::plan },
    KernelRow { op: "linear", plan: linear::plan },
    KernelRow { op: "rope_angles", plan: rope_angles::plan },
    KernelRow { op: "rope", plan: rope::plan },
    KernelRow { op: "append", plan: append::plan },
    KernelRow { op: "attention", plan: attention::plan },
    KernelRow { op: "add", plan: add::plan },
    KernelRow { op: "mul", plan: mul::plan },
    KernelRow { op: "lerp", plan: lerp::plan },
    KernelRow { op: "silu", plan: silu::plan },
    KernelRow { op: "gelu", plan: gelu::plan },
    KernelRow { op: "relu", plan: relu::plan },
    KernelRow { op: "relu_squared", plan: relu_squared::plan },
    KernelRow { op: "sigmoid", plan: sigmoid::plan },
    KernelRow { op: "tanh", plan: tanh::plan },
    KernelRow { op: "softplus", plan: softplus::plan },
    KernelRow { op: "scale", plan: scale::plan },
    KernelRow { op: "softcap", plan: softcap::plan },
    KernelRow { op: "clamp", plan: clamp::plan },
    KernelRow { op: "columns", plan: columns::plan },
    KernelRow { op: "concat", plan: concat::plan },
    KernelRow { op: "rows", plan: rows::plan },
    KernelRow { op: "patches", plan: patches::plan },
    KernelRow { op: "merge_squares", plan: merge_squares::plan },
    KernelRow { op: "last_row", plan: last_row::plan },
    KernelRow { op: "merge_rows", plan: merge_rows::plan },
    KernelRow { op: "positions", plan: positions::plan },
    KernelRow { op: "position_scale", plan: position_scale::plan },
    KernelRow { op: "route", plan: route::plan },
    KernelRow { op: "expert_linear", plan: expert_linear::plan },
    KernelRow { op: "combine", plan: combine::plan },
    KernelRow { op: "token_shift", plan: token_shift::plan },
    KernelRow { op: "wkv", plan: wkv::plan },
    KernelRow { op: "wkv7", plan: wkv7::plan },
    KernelRow { op: "wkv_bonus", plan: wkv_bonus::plan },
    KernelRow { op: "causal_conv", plan: causal_conv::plan },
    KernelRow { op: "selective_scan", plan: selective_scan::plan },
    KernelRow { op: "dequantize", plan: dequantize::plan },
    KernelRow { op: "add_rms_norm", plan: add_rms_norm::plan },
    KernelRow { op: "gated_linear", plan: gated_linear::plan },
    KernelRow { op: "expert_gated_linear", plan: expert_gated_linear::plan },
    KernelRow { op: "quantized_linear", plan: quantized_linear::plan },
    KernelRow { op: "quantized_gated_linear", plan: quantized_gated_linear::plan },
    KernelRow { op: "quantized_embedding", plan: quantized_embedding::plan },
    KernelRow { op: "quantized_expert_linear", plan: quantized_expert_linear::plan },
    KernelRow { op: "quantized_expert_gated_linear", plan: quantized_expert_gated_linear::plan },
];

/// A kernel beside the one that every device takes.
#[derive(Clone, Copy)]
pub struct VariantRow {
    /// Operator and variant, such as `linear/subgroup`.
    pub kernel: &'static str,
    /// Plans a node of this operator; fails with [`tapml_graph::ErrorKind::Unsupported`] where the variant does not apply.
    pub plan: fn(&Request) -> Result<NodePlan>,
    /// Whether it is taken, where it applies, unless a measurement says otherwise.
    pub preferred: fn(&Request) -> bool,
}

impl VariantRow {
    /// The operator's name.
    pub fn op(&self) -> &'static str {
        self.kernel.split_once('/').map_or(self.kernel, |(op, _)| op)
    }
}

/// The variants. Of several that are preferred the first that applies is taken.
pub const VARIANTS: &[VariantRow] = &[
    VariantRow { kernel: "linear/subgroup", plan: linear::subgroup::plan, preferred: on_gpu },
    VariantRow { kernel: "gated_linear/subgroup", plan: gated_linear::subgroup::plan, preferred: on_gpu },
    VariantRow {
        kernel: "quantized_linear/subgroup",
        plan: quantized_linear::subgroup::plan,
        preferred: on_gpu,
    },
    VariantRow {
        kernel: "quantized_gated_linear/subgroup",
        plan: quantized_gated_linear::subgroup::plan,
        preferred: on_gpu,
    },
    VariantRow { kernel: "attention/split", plan: attention::split::plan, preferred: on_gpu },
];

/// On a GPU with subgroups through an API of its maker's choice; CUDA has kernels of its own, and a processor that stands
/// in for a GPU gains nothing.
fn on_gpu(request: &Request) -> bool {
    let DeviceInfo { kind, features, .. } = request.info;
    *kind != AdapterKind::Cpu && features.subgroups.is_some() && features.cuda.is_none()
}

#[cfg(test)]
mod tests;
