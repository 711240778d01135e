//! The programs of a site as they are compiled: the model's own, and the encoder of images of a model that sees.

use tapml_device::DeviceInfo;
use tapml_graph::{Graph, Result};
use tapml_kernels::{CompileOptions, PhaseNodes, Program, Validator, compile_with_nodes};

/// A compiled part of the model, and where its nodes stand.
pub(super) struct CompiledPart {
    pub(super) program: Program,
    pub(super) lists: Vec<PhaseNodes>,
}

impl CompiledPart {
    /// Compiles a graph for a device; every kernel is valid and within its limits.
    pub(super) fn new(info: &DeviceInfo, graph: &Graph, options: &CompileOptions) -> Result<CompiledPart> {
        let (program, lists) = compile_with_nodes(graph, info, options)?;
        let mut validator = Validator::new();
        program.kernels.iter().try_for_each(|kernel| {
            kernel.check_limits(info)?;
            validator.check(kernel)
        })?;
        Ok(CompiledPart { program, lists })
    }
}
