//! What a program is compiled for.

use crate::lower::Fusing;
use crate::overrides::Overrides;
use std::collections::HashSet;
use tapml_graph::Symbols;

/// What a program is compiled for.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// The largest `n` and `p` of any run; buffers are sized by it.
    /// Both must fit 32 bits, because the uniform block holds them as `u32`.
    pub capacity: Symbols,
    /// The largest `n + p` of any run, if less than the sum of both capacities: the model's context length.
    pub context: Option<u64>,
    /// Kernels to use instead of the built-in ones.
    pub overrides: Overrides,
    /// Which fused operators may take the place of nodes.
    pub fusing: Fusing,
    /// Whether a buffer serves several values whose lifetimes do not overlap.
    pub reuse_memory: bool,
    /// Whether a buffer is filled with NaNs before each value is written to it, so that a kernel which reads what nobody
    /// wrote shows. For debugging.
    /// The fills are steps of the program, before the steps of the node that writes the value.
    pub poison: bool,
    /// Names of nodes whose inputs and outputs are copied before and after they run, into further outputs of the program;
    /// see [`trace_port`]. For debugging.
    pub trace: HashSet<String>,
}

impl CompileOptions {
    /// Up to these sizes, with built-in kernels and fusions, memory reused, nothing poisoned.
    /// Nothing is traced, and the context is as long as both capacities together.
    pub fn new(capacity: Symbols) -> CompileOptions {
        CompileOptions {
            capacity,
            context: None,
            overrides: Overrides::default(),
            fusing: Fusing::All,
            reuse_memory: true,
            poison: false,
            trace: HashSet::new(),
        }
    }

    /// The fusions of a program of these options: nodes that someone looks at one by one run by themselves.
    /// A fused operator would hide the values within it.
    pub(super) fn active_fusions(&self) -> &Fusing {
        let watched = self.poison || !self.trace.is_empty();
        if watched { &Fusing::Off } else { &self.fusing }
    }
}
