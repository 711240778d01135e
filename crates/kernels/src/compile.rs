//! Graph to program: plans every node, assigns buffers by lifetime, and lays out the steps.

use crate::overrides::Overrides;
use crate::program::Program;
use tapml_device::DeviceInfo;
use tapml_graph::{Graph, Result, Symbols};

/// What a program is compiled for.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// The largest `n` and `p` of any run; buffers are sized by it.
    pub capacity: Symbols,
    /// The largest `n + p` of any run, if less than the sum of both capacities: the model's context length.
    pub context: Option<u64>,
    /// Kernels to use instead of the built-in ones.
    pub overrides: Overrides,
    /// Whether a buffer serves several values whose lifetimes do not overlap.
    pub reuse_memory: bool,
    /// Whether a buffer is filled with a signalling pattern before each value is written to it, so that a kernel which
    /// reads what nobody wrote shows. For debugging.
    pub poison: bool,
}

impl CompileOptions {
    /// Up to these sizes, with built-in kernels, memory reused, nothing poisoned.
    pub fn new(capacity: Symbols) -> CompileOptions {
        CompileOptions {
            capacity,
            context: None,
            overrides: Overrides::default(),
            reuse_memory: true,
            poison: false,
        }
    }
}

/// Compiles a graph for devices like this one.
///
/// Fails with [`tapml_graph::ErrorKind::Unsupported`] and a list of every node that has no kernel at its types.
pub fn compile(graph: &Graph, info: &DeviceInfo, options: &CompileOptions) -> Result<Program> {
    crate::memory::layout(graph, info, options)
}
