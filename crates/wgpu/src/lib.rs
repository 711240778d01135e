//! One [`tapml_device::Device`] over wgpu: Vulkan, Metal and DX12. It knows buffers, kernels and command lists, no
//! operators. What wgpu reports through callbacks comes back here as the result of the call that caused it.
//!
//! WebGPU's validation runs in wgpu; this crate adds what wgpu leaves unchecked and names the dispatch or kernel in every error. Files:
//!
//! * `adapter` finds and opens devices, `options` reads what a user chose;
//! * `gpu` is the only place that calls wgpu, and turns its callbacks into results;
//! * `compile` and `inspect` make kernels;
//! * `list`, `fill` and `replay` record and run commands; `transfer` moves bytes.
#![warn(missing_docs)]

mod adapter;
mod compile;
mod device;
mod fill;
mod gpu;
mod inspect;
mod list;
mod options;
mod parts;
mod replay;
mod transfer;

pub use adapter::{adapters, is_platform};
pub use device::WgpuDevice;
