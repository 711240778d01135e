//! One [`tapml_device::Device`] over HIP, for GPUs of AMD. The runtime and its compiler (hipRTC) are loaded when they are
//! first used: a machine without them is told so. WGSL kernels are printed as HIP by `tapml-cfamily`. It knows buffers,
//! kernels and command lists, no operators.
//!
//! What is common to drivers that compile text and work in order stands in `tapml-cfamily`; here is only
//! what HIP does its own way.
#![warn(missing_docs)]

mod adapter;
mod error;
mod rtc;
mod runtime;
#[cfg(test)]
mod stub;
mod sys;
#[cfg(test)]
mod tests;

pub use adapter::{adapters, compiler};

/// A HIP device with one stream that keeps the order of calls.
pub type HipDevice = tapml_cfamily::device::Driven<runtime::Hip>;
