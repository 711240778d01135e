//! One [`tapml_device::Device`] over OpenCL, whose library is loaded when it is first used: a machine without it is told
//! so. Kernels are printed as OpenCL C 1.2 by `tapml-cfamily`. It knows buffers, kernels and command lists, no operators.
#![warn(missing_docs)]

mod adapter;
mod compile;
mod device;
mod error;
mod options;
mod queue;
mod sys;

pub use adapter::adapters;
pub use device::OpenClDevice;
