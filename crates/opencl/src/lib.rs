//! One [`tapml_device::Device`] over OpenCL, whose library is loaded when it is first used: a machine without it is told
//! so. Kernels are printed as OpenCL C 1.2 by `tapml-cfamily`. It knows buffers, kernels and command lists, no operators.
//!
//! What a device does with buffers, kernels and lists is in `tapml_cfamily::device`, which drives several APIs; this crate gives it the
//! calls of OpenCL. Only functions of OpenCL 1.2 are used.
#![warn(missing_docs)]

mod adapter;
mod error;
mod listed;
mod queue;
mod sys;

pub use adapter::adapters;

/// An OpenCL device with one queue that keeps the order of calls.
///
/// It opens as every device does, by the index of [`adapters`] and a query string of options.
pub type OpenClDevice = tapml_cfamily::device::Driven<queue::OpenCl>;
