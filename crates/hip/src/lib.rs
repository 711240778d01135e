//! One [`tapml_device::Device`] over HIP, for GPUs of AMD. The runtime and its compiler (hipRTC) are loaded when they are
//! first used: a machine without them is told so. WGSL kernels are printed as HIP by `tapml-cfamily`. It knows buffers,
//! kernels and command lists, no operators.
#![warn(missing_docs)]

mod adapter;
mod compile;
mod device;
mod error;
mod options;
mod rtc;
mod runtime;
#[cfg(test)]
mod stub;
mod sys;

pub use adapter::adapters;
pub use device::HipDevice;
