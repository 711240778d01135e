//! From a kernel description to code.

use crate::code::Code;
use crate::lower::{self, LowerChoices};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use tapml_device::{DeviceInfo, KernelDesc, Result};
use tapml_wgsl::SourceMap;

/// A kernel ready to run.
pub struct ReadyKernel {
    pub desc: KernelDesc,
    pub code: Code,
    pub source: SourceMap,
    /// Fewest bytes of each binding.
    pub min_sizes: Vec<u32>,
    /// Nanoseconds that one workgroup took when the kernel ran last; 0 before.
    pub group_nanos: AtomicU64,
    /// The instruction at which it was stopped because it did not end.
    pub stopped: OnceLock<usize>,
}

/// Compiles a kernel for a device.
pub fn compile(desc: &KernelDesc, info: &DeviceInfo, choices: LowerChoices) -> Result<ReadyKernel> {
    let lower = |module: &tapml_wgsl::Module| lower::lower(&module.naga, &module.info, module.entry, choices);
    let (module, code) = tapml_wgsl::compile(desc, info, "the emulator does not support", lower)?;
    Ok(ReadyKernel {
        desc: desc.clone(),
        code,
        source: module.source,
        min_sizes: module.min_sizes,
        group_nanos: AtomicU64::new(0),
        stopped: OnceLock::new(),
    })
}
