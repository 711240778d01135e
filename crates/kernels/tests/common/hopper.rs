//! A device that takes CUDA kernels, and what its programs launch.

use tapml_device::DeviceInfo;
use tapml_graph::Symbols;
use tapml_kernels::{Phase, Program, ProgramStep, any_device};

/// What a Hopper chip offers.
pub fn hopper() -> DeviceInfo {
    let mut info = any_device();
    info.features.cuda = Some(90);
    info.limits.max_workgroup_memory = 227 << 10;
    info.limits.max_invocations = 1024;
    info.limits.max_storage_buffers = 64;
    info.limits.max_workgroup_size = [1024, 1024, 64];
    info
}

/// Node and kernel of every dispatch at this number of rows.
pub fn list_dispatches(program: &Program, n: u64) -> Vec<(&str, &str)> {
    let symbols = Symbols::np(n, 0);
    let steps = program.steps.iter().filter(|step| step.runs_in(Phase::of_run(&symbols)));
    steps
        .filter_map(|step| match step {
            ProgramStep::Dispatch { node, kernel, .. } => {
                Some((node.as_str(), program.kernels[*kernel as usize].name.as_str()))
            }
            _ => None,
        })
        .collect()
}
