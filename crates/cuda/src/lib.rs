//! One [`tapml_device::Device`] over CUDA. Driver and compiler (NVRTC) are loaded when they are first used: a machine
//! without them is told so. WGSL kernels are printed as CUDA C++ by `tapml-cfamily`, kernels in CUDA C++ are taken as they
//! are. A list that runs again is one launch of a CUDA graph. It knows buffers, kernels and command lists, no operators.
//!
//! Every list is checked in full before anything of it runs. Kernels are compiled for the device at hand
//! and kept on disk.
#![warn(missing_docs)]

mod adapter;
mod cache;
mod cluster;
mod compile;
mod device;
mod driver;
mod error;
mod launch;
mod list;
mod map;
mod nvrtc;
mod options;
mod staging;
#[cfg(test)]
mod stub;
mod sys;

pub use adapter::{adapters, compiler};
pub use device::CudaDevice;
