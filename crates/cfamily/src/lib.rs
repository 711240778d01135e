//! Prints WGSL kernels as text of the C family: CUDA C++ for NVRTC, HIP for hipRTC and clang, OpenCL C 1.2. One writer
//! serves all three; what differs is in the preludes. Loads no driver; [`device`] is what backends over one share.
//!
//! The text keeps WGSL's meaning: integers wrap, quotients by zero and shifts are defined, conversions saturate, rounding
//! is half to even, workgroup and local memory begins as zeros, and indices stay inside their arrays unless
//! [`Bounds::Unchecked`] is chosen. An `f16` is kept as its 16 bits and every operation on it is an `f32` operation
//! rounded once, so that devices without half-precision arithmetic run it too.
#![warn(missing_docs)]

mod access;
mod collective;
mod compose;
mod control;
mod convert;
pub mod device;
mod emulated;
mod expr;
mod function;
mod helpers;
mod kernel;
mod math;
mod matrix;
mod names;
mod options;
mod pack;
mod printed;
mod scalar;
mod stmt;
mod subgroup;
mod text;
mod types;
mod uniform;
mod writer;

pub use options::{Bounds, Dialect, PrintOptions};
pub use printed::{Arg, Printed};
use tapml_device::{DeviceInfo, KernelDesc, Result};
pub use tapml_wgsl::{Location, SourceMap};

/// Prints a kernel for a device.
///
/// Fails as a compiler does: with [`tapml_device::ErrorKind::Unsupported`] if the kernel is beyond the device's limits or
/// uses what no dialect has, else with [`tapml_device::ErrorKind::Compile`], which names kernel, file and line.
pub fn print(desc: &KernelDesc, info: &DeviceInfo, options: PrintOptions) -> Result<Printed> {
    let refusal = "no text of the C family is written for";
    let (module, text) = tapml_wgsl::compile(desc, info, refusal, |module| kernel::write(module, options))?;
    let kernel::EntryText { text, name, args, lines } = text;
    Ok(Printed { text, name, args, lines, min_sizes: module.min_sizes, source: module.source })
}
