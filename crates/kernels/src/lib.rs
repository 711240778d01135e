//! Kernels: device code for every operator, how to launch it, and graphs compiled to [`Program`]s. Talks to no GPU API.
//!
//! A kernel binds, in this order, the operator's inputs, its outputs, scratch and constants, and last a uniform block
//! with the values of the symbols (see [`SYMBOLS`]). All other sizes are `override` constants, and grids are
//! [`tapml_graph::Extent`]s of the symbols, so a recorded command list is replayed with new sizes by rewriting 16 bytes.
#![warn(missing_docs)]

mod axis;
mod built_in;
mod cache;
mod choices;
mod choose;
mod compile;
mod cuda_text;
mod directives;
mod greedy;
mod instance;
pub mod kernel;
mod kernel_text;
mod lower;
mod memory;
mod observe;
mod output_rows;
mod overrides;
mod own;
mod plan;
mod planner;
mod program;
mod regime;
mod serve;
#[cfg(test)]
mod test_device;
mod validate;
mod wgsl;

pub use axis::{Axis, Border};
pub use built_in::{BuiltIn, any_device, is_built_in};
pub use cache::KernelCache;
pub use choices::{Choice, TuningCache, UNFUSED};
pub use choose::{plan_node, plan_settings, plan_variants};
pub use compile::{
    CompileOptions, DECODE_ROWS, NodePlace, ObservableNodes, POISON, PhaseNodes, TracedValue, compile,
    compile_observable, compile_with, compile_with_nodes, is_trace, trace_port,
};
pub use directives::{DeclaredChain, DeclaredSums};
pub use instance::Instance;
pub use kernel::settings::{
    SETTINGS, SKINNY_ROWS, Setting, SettingRow, SettingRows, matters, rows_of as settings,
};
pub use kernel::{KERNELS, KernelRow, Needs, RowCount};
pub use kernel_text::{BindingText, kernel_text};
pub use lower::{Fusing, lower};
pub use observe::{ObservedNode, WatchedNodes};
pub use output_rows::OutputRows;
pub use overrides::{GivenKernel, Overrides};
pub use own::own_kernel;
pub use plan::{
    Accumulate, Arg, InPlace, Launch, NodePlan, Phase, SYMBOLS, Scratch, program_symbols, symbol_bytes,
};
pub use planner::Planner;
pub use program::{BufferPlan, Content, Port, Program, ProgramMemory, ProgramStep, SCHEMA, Slice, StatePort};
pub use regime::{Regime, regimes};
pub use serve::rows_of;
pub use validate::Validator;

/// The memory of a device in which a rank meets the others.
pub mod meeting {
    pub use crate::kernel::cuda::meeting::{LATE_CALL, LATE_RANK, WAIT_TIMEOUT, words};
}
