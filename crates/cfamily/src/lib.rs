//! Prints WGSL kernels as text of the C family: CUDA C++ for NVRTC, HIP for hipRTC and clang, OpenCL C 1.2. One writer
//! serves all three; what differs is in the preludes. Loads no driver; [`device`] is what backends over one share.
//!
//! The text keeps WGSL's meaning: integers wrap, quotients by zero and shifts are defined, conversions saturate, rounding
//! is half to even, workgroup and local memory begins as zeros, and indices stay inside their arrays unless
//! [`Bounds::Unchecked`] is chosen. An `f16` is kept as its 16 bits and every operation on it is an `f32` operation
//! rounded once, so that devices without half-precision arithmetic run it too.
#![warn(missing_docs)]

mod access;
mod compose;
mod control;
mod convert;
pub mod device;
mod emulated;
mod expr;
mod function;
mod helpers;
mod math;
mod matrix;
mod names;
mod pack;
mod scalar;
mod stmt;
mod subgroup;
mod types;
mod uniform;
mod writer;

use tapml_device::{DeviceInfo, KernelDesc, Result};
pub use tapml_wgsl::{Location, SourceMap};

/// Prints a kernel for a device.
///
/// Fails as a compiler does: with [`tapml_device::ErrorKind::Unsupported`] if the kernel is beyond the device's limits or
/// uses what no dialect has, else with [`tapml_device::ErrorKind::Compile`], which names kernel, file and line.
pub fn print(desc: &KernelDesc, info: &DeviceInfo, options: PrintOptions) -> Result<Printed> {
    let refusal = "no text of the C family is written for";
    let (module, text) = tapml_wgsl::compile(desc, info, refusal, |module| writer::write(module, options))?;
    let writer::EntryText { text, name, args, lines } = text;
    Ok(Printed { text, name, args, lines, min_sizes: module.min_sizes, source: module.source })
}

/// A dialect of the C family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// CUDA C++ as NVRTC compiles it, without any header.
    Cuda,
    /// HIP as hipRTC compiles it, and clang for AMD's processors without ROCm.
    Hip,
    /// OpenCL C 1.2.
    OpenCl,
}

/// What is done about indices outside an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bounds {
    /// They are moved to the last element.
    Clamp,
    /// The kernel is trusted.
    Unchecked,
}

/// Choices of the printer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrintOptions {
    /// The dialect.
    pub dialect: Dialect,
    /// Indices.
    pub bounds: Bounds,
    /// Whether workgroup memory is cleared at a kernel's start.
    pub zero_workgroup: bool,
    /// Whether subgroup operations of OpenCL C go through workgroup memory: subgroups of 8. One that perhaps not all
    /// invocations of a workgroup reach together is unsupported.
    pub emulate_subgroups: bool,
}

impl PrintOptions {
    /// What WGSL guarantees, in a dialect.
    pub fn new(dialect: Dialect) -> PrintOptions {
        PrintOptions { dialect, bounds: Bounds::Clamp, zero_workgroup: true, emulate_subgroups: false }
    }
}

/// One argument of the printed kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// The address of the range bound to this binding; of its buffer if [`Arg::Offset`] follows.
    Pointer(u32),
    /// Where in the buffer the range begins, in bytes, as an unsigned number of 64 bits. Only OpenCL has it.
    Offset(u32),
    /// The length in bytes of that range, as an unsigned word.
    Bytes(u32),
}

/// A kernel as text, and how to launch it.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The whole text.
    pub text: String,
    /// Name of the kernel in the text.
    pub name: String,
    /// Its arguments in order. Bindings that the entry point does not use have none.
    pub args: Vec<Arg>,
    /// Fewest bytes that each binding of the description must have.
    pub min_sizes: Vec<u32>,
    /// For every line of the text, the line of the WGSL (prelude and text, from 1) that it came from; 0 for none.
    pub lines: Vec<u32>,
    /// Places in the kernel's file.
    pub source: SourceMap,
}

impl Printed {
    /// Where in the kernel's file line `line` (from 1) of the printed text comes from; the nearest line above that came
    /// from anywhere.
    pub fn locate(&self, line: u32) -> Option<Location> {
        let upto = self.lines.get(..line as usize)?;
        let full = upto.iter().rev().copied().find(|&l| l > 0)?;
        Some(self.source.locate_line(full))
    }
}
