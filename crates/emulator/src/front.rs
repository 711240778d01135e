//! From a kernel description to code.
//!
//! `tapml_wgsl` parses, validates and resolves the kernel; this file hands the module to the lowering.

use crate::code::Code;
use crate::lower::{self, LowerChoices};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use tapml_device::{DeviceInfo, KernelDesc, Result};
use tapml_wgsl::SourceMap;

/// A kernel ready to run.
///
/// The two last fields change while a kernel runs, behind a shared reference.
pub struct ReadyKernel {
    /// The description that it was made from.
    pub desc: KernelDesc,
    /// What the VM runs.
    pub code: Code,
    /// From spans of the module to lines of the kernel's file.
    pub source: SourceMap,
    /// Fewest bytes of each binding.
    /// One entry per binding of the description.
    pub min_sizes: Vec<u32>,
    /// Nanoseconds that one workgroup took when the kernel ran last; 0 before.
    /// It only decides whether a dispatch is worth waking threads, so stale values do no harm.
    pub group_nanos: AtomicU64,
    /// The instruction at which it was stopped because it did not end.
    /// Once set the kernel is refused, so that a loop without end costs its time limit once.
    pub stopped: OnceLock<usize>,
}

/// Compiles a kernel for a device.
///
/// # Errors
///
/// Those of `tapml_wgsl::compile`: text that does not parse or validate, limits, features, and constructs that the lowering does
/// not know.
pub fn compile(desc: &KernelDesc, info: &DeviceInfo, choices: LowerChoices) -> Result<ReadyKernel> {
    let lower = |module: &tapml_wgsl::Module| lower::lower(&module.naga, &module.info, module.entry, choices);
    let (module, code) = tapml_wgsl::compile(desc, info, "the emulator does not support", lower)?;
    Ok(ReadyKernel {
        desc: desc.clone(),
        code,
        source: module.source,
        min_sizes: module.min_sizes,
        // Nothing measured: the first dispatch uses all threads.
        group_nanos: AtomicU64::new(0),
        stopped: OnceLock::new(),
    })
}
