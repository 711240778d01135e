//! A [`tapml_device::Device`] that executes WGSL compute kernels on the CPU, for all invocations of a workgroup in
//! lockstep, and that can check them while they run.
//!
//! A kernel is parsed and validated by naga, lowered to instructions on registers that hold a value per invocation, and
//! run with a mask for divergent control flow. One instruction works on the whole workgroup, in loops that the compiler
//! vectorises; workgroups run on threads. Results do not depend on the number of threads or on the CPU, except in
//! kernels that race.
//!
//! Memory accesses out of bounds are clamped to the last element. [`EmulatorOptions`] chooses a device [`Profile`] and
//! [`Checks`]; what the checks find is taken with [`tapml_device::Device::take_findings`].
//!
//! ```
//! use tapml_device::*;
//! use tapml_emulator::{Emulator, EmulatorOptions};
//!
//! # fn main() -> tapml_device::Result<()> {
//! let text = "
//!     @group(0) @binding(0) var<storage, read_write> y: array<u32>;
//!     @compute @workgroup_size(4)
//!     fn main(@builtin(local_invocation_index) i: u32) { y[i + 1u] = i; }";
//! let source = Source { language: Language::Wgsl, file: "y.wgsl".into(), prelude: String::new(), text: text.into() };
//! let mut device = Emulator::new(EmulatorOptions::parse("check=bounds")?)?;
//! let kernel = device.create_kernel(&KernelDesc {
//!     name: "shift".into(),
//!     source,
//!     entry: "main".into(),
//!     constants: vec![],
//!     bindings: vec![BindingKind::ReadWrite],
//!     workgroup: [4, 1, 1],
//!     workgroup_memory: 0,
//!     needs_f16: false,
//!     needs_subgroups: false,
//!     dependent_launch: false,
//! })?;
//! let y = device.create_buffer("y", 16)?;
//! let one = || Extent::from_dim(1_u64);
//! let list = device.record(&[Command::Dispatch {
//!     label: "shift".into(),
//!     kernel,
//!     bindings: vec![Binding::whole(y)],
//!     groups: [one(), one(), one()],
//! }])?;
//! device.replay(list, &Symbols::new())?;
//! let findings = device.take_findings();
//! assert_eq!((findings[0].kind, findings[0].line), (FindingKind::OutOfBounds, 4));
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod check;
mod code;
mod commands;
mod device;
mod dispatch;
mod front;
mod lower;
mod options;
mod profile;
mod run;
mod vm;

pub use device::Emulator;
pub use options::{Checks, EmulatorOptions};
pub use profile::{Arithmetic, Profile};
