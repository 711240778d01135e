//! One [`tapml_device::Device`] over wgpu: Vulkan, Metal and DX12. It knows buffers, kernels and command lists, no
//! operators. What wgpu reports through callbacks comes back here as the result of the call that caused it.
#![warn(missing_docs)]

mod adapter;
mod compile;
mod device;
mod fill;
mod gpu;
mod inspect;
mod list;
mod options;
mod replay;
mod transfer;

pub use adapter::{adapters, is_platform};
pub use device::WgpuDevice;
