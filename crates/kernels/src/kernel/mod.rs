//! The kernels: each is one row of the list below, and nothing else runs on a device. An operator's folder holds the launch
//! planners and sources of its portable kernel and of those that WGSL has beside it; `cuda` those in CUDA C++.

mod list;
mod needs;

pub use list::KERNELS;
pub use needs::{Needs, RowCount};

use crate::plan::{Arg, NodePlan, Phase};
use settings::Setting;
use tapml_device::{AdapterKind, DeviceInfo};
use tapml_graph::op::{Foreign, Sample, samples_of};
use tapml_graph::{Dim, Op, Result, Symbol, Symbols, TensorType, byte_len};

mod add;
mod add_rms_norm;
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
mod expert_gated_linear;
mod expert_linear;
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
mod patches;
mod position_scale;
mod positions;
pub(crate) mod product;
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
    /// The phase in which the node runs.
    pub phase: Phase,
    /// Sizes of the kernel that are not its defaults.
    pub setting: Setting,
}

impl Request<'_> {
    /// How many rows the first input, or else the first output, has in such a run.
    pub fn row_count(&self) -> RowCount {
        let rows = self.inputs.first().or(self.outputs.first()).and_then(|ty| ty.shape.first());
        match rows {
            Some(rows) if rows.as_const() == Some(1) => RowCount::One,
            // In the decode phase `n` is 1. A size such as `n + p` is not one, whatever the phase.
            Some(rows) if *rows == Dim::symbol(Symbol::N) && self.phase == Phase::Decode => RowCount::One,
            _ => RowCount::Many,
        }
    }

    /// The arguments that bind these inputs as a whole: one each, or one for each section of a packed weight.
    fn args(&self, indices: &[usize]) -> Result<Vec<Arg>> {
        let mut args = Vec::with_capacity(indices.len());
        for &index in indices {
            args.extend(weights::args(index, &self.inputs[index])?);
        }
        Ok(args)
    }

    /// Whether a binding of the device holds every input of constant sizes as a whole, so that kernels which take weights
    /// as a whole and those that take them in parts do not both store them.
    pub fn binds_whole(&self) -> bool {
        // A whole weight is one buffer and one binding, so that both limits count.
        let limit = self.info.limits.max_binding_size.min(self.info.limits.max_buffer_size);
        let most_rows = u64::from(weights::PART_ROWS) * u64::from(self.info.limits.max_groups_per_dim);
        self.inputs.iter().all(|ty| {
            let sizes = ty.sizes(&Symbols::new());
            // Values of symbolic sizes are activations, which are never cut.
            let Ok(sizes) = sizes else { return true };
            // Sections of a packed weight are bound one by one.
            let bytes = match ty.dtype.packing().map(|packing| packing.sections(&sizes)) {
                Some(sections) => sections.ok().and_then(|all| all.iter().map(|section| section.len).max()),
                None => byte_len(ty.dtype, &sizes),
            };
            // Only matrices are cut by rows.
            let rows = ty.shape.first().filter(|_| ty.shape.len() == 2).and_then(Dim::as_const);
            bytes.is_some_and(|bytes| bytes as u64 <= limit) && rows.unwrap_or(0) <= most_rows
        })
    }
}

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
