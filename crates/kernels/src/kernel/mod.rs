//! The kernels: each is one row of the list below, and nothing else runs on a device. An operator's folder holds the launch
//! planners and sources of its portable kernel and of those that WGSL has beside it; `cuda` those in CUDA C++.

mod list;
mod needs;

pub use list::KERNELS;
pub use needs::{Needs, RowCount};
pub use request::{PlanStep, Request};

use crate::plan::NodePlan;
use settings::Setting;
use tapml_device::AdapterKind;
use tapml_graph::Result;
use tapml_graph::op::{Foreign, Sample, samples_of};

mod add;
mod add_rms_norm;
mod all_gather;
mod all_reduce;
mod append;
mod argmax;
mod aten;
pub(crate) mod attention;
mod body;
mod causal_conv;
mod clamp;
mod columns;
mod combine;
mod compose;
mod concat;
pub(crate) mod cuda;
mod dequantize;
mod elementwise;
mod embedding;
mod exp_sums;
mod expert_gated_linear;
mod expert_linear;
mod formula;
mod gated_linear;
mod gelu;
mod gemm_problem;
mod last_row;
mod layer_norm;
mod lerp;
mod linear;
mod merge_rows;
mod merge_squares;
mod mul;
mod norm;
mod onnx;
mod paged_append;
pub(crate) mod paged_attention;
mod paged_recurrence;
mod patches;
mod position_scale;
mod positions;
pub(crate) mod product;
mod relu;
mod relu_squared;
mod request;
mod rms_norm;
mod rope;
mod rope_angles;
mod route;
mod row_kinds;
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
mod take_rows;
mod tanh;
mod token_shift;
mod top_k;
mod weights;
mod wkv;
mod wkv7;
mod wkv_bonus;

/// A kernel.
#[derive(Clone, Copy)]
pub struct KernelRow {
    /// The operator that it implements, and its own name: `linear/gemv`.
    pub name: &'static str,
    /// The name that its plans have for other inputs, if they have two.
    pub also: Option<&'static str>,
    /// What it asks of a device.
    pub needs: Needs,
    /// The numbers of rows that it serves.
    pub rows: RowCount,
    /// Plans a node; fails with [`tapml_graph::ErrorKind::Unsupported`] where the kernel does not serve it.
    pub plan: fn(&Request) -> Result<NodePlan>,
    /// Whether it is taken for such a node on such a device, where it serves it, unless a measurement says otherwise.
    pub preferred: fn(&Request) -> bool,
    /// The text in the place of the planner's own, if it has another with the same bindings, constants and grid.
    pub text: Option<OwnText>,
    /// Promises that no sum adds more terms one after the other than its plan's [`crate::Accumulate::chain`] says, and that
    /// each of these additions is rounded to nearest in the dtype of the sums. A verdict holds the kernel to it by calls that
    /// lose terms in a longer chain. Tensor cores, which do not round every addition, cannot promise it.
    pub keeps_chain: bool,
    /// The settings with which a row's results depend on that row alone, bit by bit, whatever rows are beside it and however
    /// many there are; `None` if there is no such setting, or if nobody has shown that there is.
    pub row_invariant: Option<RowInvariance>,
}

/// Settings with which a row's results depend on that row alone. Both give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowInvariance {
    /// For runs of the decode phase; see [`DECODE_ROWS`](crate::DECODE_ROWS).
    pub decode: Setting,
    /// For all others.
    pub prefill: Setting,
}

impl RowInvariance {
    /// One setting for all runs.
    pub const fn for_all(setting: Setting) -> RowInvariance {
        RowInvariance { decode: setting, prefill: setting }
    }
}

/// A text in WGSL of a row that plans as another does.
#[derive(Clone, Copy)]
pub struct OwnText {
    /// The file's name in messages.
    pub file: &'static str,
    /// What is in it.
    pub text: &'static str,
}

/// The text in a file of the kernels.
macro_rules! own_text {
    ($file:literal) => {
        Some($crate::kernel::OwnText {
            file: $file,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernel/", $file)),
        })
    };
}
use own_text;

impl KernelRow {
    /// The operator's name; that of an operator of others without its version.
    pub fn op(&self) -> &'static str {
        self.name.split_once('/').map_or(self.name, |(op, _)| op)
    }

    /// The sample cases of the operator.
    pub fn samples(&self) -> Vec<Sample> {
        // Operators of others have samples in text files here; those of the library bring their own.
        if Foreign::is_kind(self.op()) { onnx::samples_of(self.op()) } else { samples_of(self.op()) }
    }
}

/// For every node on every device.
fn serves_all(_: &Request) -> bool {
    true
}

/// On a GPU with subgroups; CUDA has kernels of its own, and a processor that stands in for a GPU gains nothing.
fn on_gpu(request: &Request) -> bool {
    request.info.kind != AdapterKind::Cpu && request.info.features.cuda.is_none()
}

#[cfg(test)]
mod tests;
