//! The targets that a dry run plans for. A new one is a row in [`TARGETS`].
//!
//! Limits are those that nearly every device of the sort grants, not those of the best one. Memory is what
//! a model may take, less than the hardware has.

use super::{DType, Error};
use tapml_device::{AdapterKind, DeviceInfo, Features, Limits};

/// A sort of device, by what nearly all of its sort offer.
#[derive(Clone, Debug)]
pub struct Target {
    /// Word on the command line.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    /// Limits; `None` if none are assumed, so that nothing is planned for it.
    pub limits: Option<Limits>,
    /// Whether kernels may use f16; activations and caches are then in f16, else in f32.
    pub f16: bool,
    /// Bytes of memory assumed for one model.
    pub memory: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "mobile-webgpu",
        about: "a phone's browser: the limits that every WebGPU implementation grants, no f16",
        limits: Some(Limits::WEBGPU),
        f16: false,
        memory: 4_000_000_000,
    },
    Target {
        name: "webgpu",
        about: "a laptop's browser: the limits that every WebGPU implementation grants, f16",
        limits: Some(Limits::WEBGPU),
        f16: true,
        memory: 8_000_000_000,
    },
    Target {
        name: "vulkan",
        about: "a desktop card through wgpu, which binds at most 2 GiB at once",
        limits: Some(DESKTOP),
        f16: true,
        memory: 24_000_000_000,
    },
    Target {
        name: "cuda",
        about: "one card of a data centre through CUDA",
        limits: Some(CUDA),
        f16: true,
        memory: 80_000_000_000,
    },
    without_plan("hip", "its kernels are compiled, but have never run on hardware: no limits are known"),
    without_plan("opencl", "it runs, but its limits differ from driver to driver"),
];

// Sizes of buffers are multiples of 4.
/// What desktop cards offer through Vulkan and wgpu: 32-bit buffers, 1,024 invocations, 48 KiB of workgroup memory.
const DESKTOP: Limits = Limits {
    max_buffer_size: i32::MAX as u64 & !3,
    max_binding_size: i32::MAX as u64 & !3,
    max_uniform_size: 64 << 10,
    max_storage_buffers: 64,
    max_invocations: 1024,
    max_workgroup_size: [1024, 1024, 64],
    max_workgroup_memory: 48 << 10,
    max_groups_per_dim: 65535,
    min_offset_alignment: 64,
};

/// What cards since compute capability 9.0 offer through CUDA.
const CUDA: Limits = Limits {
    max_buffer_size: 80_000_000_000,
    max_binding_size: u32::MAX as u64 & !3,
    max_uniform_size: u32::MAX as u64 & !3,
    max_workgroup_memory: 227 << 10,
    min_offset_alignment: 256,
    ..DESKTOP
};

/// A target that is listed with the reason why nothing is planned for it.
const fn without_plan(name: &'static str, about: &'static str) -> Target {
    Target { name, about, limits: None, f16: true, memory: 0 }
}

impl Target {
    /// The target of a name. Fails with the list of them.
    pub fn find(name: &str) -> tapml_graph::Result<&'static Target> {
        TARGETS.iter().find(|t| t.name == name).ok_or_else(|| {
            let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
            Error::invalid(format!("there is no target `{name}` to plan for"))
                .with_hint(format!("targets: {}", names.join(", ")))
        })
    }

    /// The targets that can be planned for.
    pub fn planned_targets() -> impl Iterator<Item = &'static Target> {
        TARGETS.iter().filter(|t| t.limits.is_some())
    }

    /// Dtype of activations and caches.
    pub fn activation(&self) -> DType {
        if self.f16 { DType::F16 } else { DType::F32 }
    }

    /// The device that kernels are planned for, if its limits are known.
    pub(crate) fn info(&self) -> Option<DeviceInfo> {
        Some(DeviceInfo {
            platform: self.name.into(),
            name: self.name.into(),
            driver: String::new(),
            kind: AdapterKind::Other,
            limits: self.limits.clone()?,
            features: Features {
                f16: self.f16,
                // What only some devices of the sort have is not assumed.
                subgroups: None,
                cuda: None,
                matrices: false,
                device_barriers: false,
                processors: None,
            },
        })
    }

    /// The error of a target without limits.
    pub(crate) fn unsupported(&self) -> Error {
        let served: Vec<&str> = Target::planned_targets().map(|t| t.name).collect();
        Error::unsupported(format!("target `{}` is not planned for: {}", self.name, self.about))
            .with_hint(format!("plan for one of {}", served.join(", ")))
    }
}
