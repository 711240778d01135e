//! What a device tells about itself: identity, limits, features.
//!
//! Everything serialises: a device elsewhere sends it, dry runs make it up, and tuning keys are derived
//! from it.

use serde::{Deserialize, Serialize};

/// The sort of processor behind a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdapterKind {
    /// A discrete GPU.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A software implementation on the host's processor.
    Cpu,
    /// Anything else, or unknown.
    Other,
}

/// Limits in the units of the WebGPU specification, section 3.6.2.
///
/// Backends of other APIs translate theirs into these units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest buffer, bytes.
    pub max_buffer_size: u64,
    /// Largest range bound as a storage buffer, bytes.
    pub max_binding_size: u64,
    /// Largest range bound as a uniform buffer, bytes.
    pub max_uniform_size: u64,
    /// Storage buffers of one kernel.
    pub max_storage_buffers: u32,
    /// Invocations of one workgroup.
    pub max_invocations: u32,
    /// Workgroup size in x, y and z.
    pub max_workgroup_size: [u32; 3],
    /// Workgroup memory, bytes.
    pub max_workgroup_memory: u32,
    /// Workgroups of one dispatch in each dimension.
    pub max_groups_per_dim: u32,
    /// Alignment of bound offsets, bytes.
    pub min_offset_alignment: u32,
}

impl Limits {
    // Section 3.6.2 of the specification, column "Default".
    /// The default limits that every WebGPU implementation grants.
    pub const WEBGPU: Limits = Limits {
        max_buffer_size: 256 << 20,
        max_binding_size: 128 << 20,
        max_uniform_size: 64 << 10,
        max_storage_buffers: 8,
        max_invocations: 256,
        max_workgroup_size: [256, 256, 64],
        max_workgroup_memory: 16 << 10,
        max_groups_per_dim: 65535,
        min_offset_alignment: 256,
    };
}

/// Optional abilities.
///
/// An ability that is not said to be there is absent; older agents leave out newer fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Features {
    /// `f16` in kernels and in storage.
    pub f16: bool,
    /// Subgroup operations, with the range of subgroup sizes.
    pub subgroups: Option<(u32, u32)>,
    /// Kernels in CUDA C++, with the compute capability times ten: 90 on Hopper.
    pub cuda: Option<u32>,
    /// Products of 16 by 16 by 16 on matrix units, of f16 with sums in f32, by subgroups of 32: kernels may
    /// `enable wgpu_cooperative_matrix`.
    pub matrices: bool,
    /// Whether `storageBarrier` orders what all workgroups of a dispatch write, not only those of one: the last workgroup
    /// that is done can then read what the others have left.
    pub device_barriers: bool,
    /// Multiprocessors, where the backend knows how many there are and kernels are made to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<u32>,
}

/// Identity, limits and features of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Platform word of the command line: `emulator`, `vulkan`, `metal`, …
    pub platform: String,
    /// The device's own name.
    pub name: String,
    /// Driver name and version.
    pub driver: String,
    /// The sort of processor.
    pub kind: AdapterKind,
    /// Limits.
    pub limits: Limits,
    /// Features.
    pub features: Features,
}
