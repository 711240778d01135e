//! A [`tapml_device::Device`] that executes WGSL compute kernels on the CPU, for all invocations of a workgroup in
//! lockstep, and that can check them while they run.
//!
//! A kernel is parsed and validated by naga, lowered to instructions on registers that hold a value per invocation, and
//! run with a mask for divergent control flow. One instruction works on the whole workgroup, in loops that the compiler
//! vectorises; workgroups run on threads. Results do not depend on the number of threads or on the CPU, except in
//! kernels that race.
//!
//! Memory accesses out of bounds are clamped to the last element. [`Options`] chooses a device [`Profile`] and
//! [`Checks`].
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
mod source;
mod vm;

pub use device::Emulator;
pub use options::{Checks, Options};
pub use profile::{Arithmetic, Profile};
