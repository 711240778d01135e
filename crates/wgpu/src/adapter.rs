//! Finding adapters: platform words, a stable order, and what to install when there is none.
//!
//! Adapters of one machine stand in the same order in every process, so that an index names the same one.

use crate::options::WgpuOptions;
use std::cmp::Reverse;
use std::sync::OnceLock;
use tapml_device::{AdapterKind, DeviceInfo, Features, Limits};
use tapml_graph::{Error, ErrorKind, Result};

/// A platform word and the operating systems that this build serves it on.
struct Platform {
    /// The word that users write.
    word: &'static str,
    /// The API behind it.
    backend: wgpu::Backends,
    /// Whether this build has it.
    present: bool,
    /// Operating systems, for messages.
    runs_on: &'static str,
    /// What to install if no adapter is found.
    install: &'static str,
}

/// The platforms of wgpu that TapML serves, one row each.
const PLATFORMS: [Platform; 3] = [
    Platform {
        word: "vulkan",
        backend: wgpu::Backends::VULKAN,
        present: cfg!(any(target_os = "linux", target_os = "android", target_os = "freebsd", windows)),
        runs_on: "Linux, Android, FreeBSD and Windows",
        install: "install the GPU maker's driver, or the software one: on Debian and Ubuntu \
                  `apt-get install mesa-vulkan-drivers`, on Fedora `dnf install mesa-vulkan-drivers`; \
                  `VK_DRIVER_FILES` can name a driver's json file",
    },
    Platform {
        word: "metal",
        backend: wgpu::Backends::METAL,
        present: cfg!(target_vendor = "apple"),
        runs_on: "macOS and iOS",
        install: "use a Mac with macOS 11 or later",
    },
    Platform {
        word: "dx12",
        backend: wgpu::Backends::DX12,
        present: cfg!(windows),
        runs_on: "Windows",
        install: "install the GPU maker's driver; Windows itself brings the software adapter WARP",
    },
];

/// Whether a word names a platform of wgpu, on this operating system or another.
pub fn is_platform(word: &str) -> bool {
    PLATFORMS.iter().any(|platform| platform.word == word)
}

/// Everything the adapters of a platform (`vulkan`, `metal` or `dx12`) offer: discrete GPUs first, then integrated ones,
/// others, and software. The place in this list is the index that [`crate::WgpuDevice::open`] takes.
///
/// Fails with [`ErrorKind::Unavailable`] if the platform does not exist on this operating system or has no adapter; the
/// hint says what to install.
pub fn adapters(platform: &str) -> Result<Vec<DeviceInfo>> {
    Ok(find(platform)?.iter().map(|a| describe(platform, a, &a.limits(), offered_features(a))).collect())
}

/// The adapters themselves, in the same order; at least one.
fn find(word: &str) -> Result<Vec<wgpu::Adapter>> {
    let platform = PLATFORMS.iter().find(|p| p.word == word).ok_or_else(|| {
        Error::invalid(format!("`{word}` is no platform of wgpu: expected `vulkan`, `metal` or `dx12`"))
    })?;
    if !platform.present {
        let text = format!("{word} exists on {} only, not on {}", platform.runs_on, std::env::consts::OS);
        return Err(Error::new(ErrorKind::Unavailable, text).with_hint("choose another platform"));
    }
    let mut found = pollster::block_on(instance(platform).enumerate_adapters(platform.backend));
    // Adapters without compute shaders cannot run a kernel.
    found.retain(|a| a.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS));
    found.sort_by_cached_key(|a| {
        let info = a.get_info();
        // Of equal kinds the one with the larger buffers; bus and name make the order total.
        (rank(info.device_type), Reverse(a.limits().max_buffer_size), info.device_pci_bus_id, info.name)
    });
    if found.is_empty() {
        let text = format!("no {word} adapter found");
        return Err(Error::new(ErrorKind::Unavailable, text).with_hint(platform.install));
    }
    Ok(found)
}

/// The platform's API, opened once in a process: NVIDIA's driver for Vulkan stops giving adapters after some two hundred
/// instances were made, even though all but one were dropped.
fn instance(platform: &Platform) -> &wgpu::Instance {
    static OPEN: [OnceLock<wgpu::Instance>; PLATFORMS.len()] = [const { OnceLock::new() }; PLATFORMS.len()];
    let index = PLATFORMS.iter().position(|p| p.word == platform.word).unwrap_or(0);
    OPEN[index].get_or_init(|| {
        let mut desc = wgpu::InstanceDescriptor::new_without_display_handle();
        desc.backends = platform.backend;
        // Neither validation layers nor debug labels, unless the environment asks for them.
        desc.flags = wgpu::InstanceFlags::empty().with_env();
        wgpu::Instance::new(desc)
    })
}

/// The place of a kind of adapter in the order; lower comes first.
fn rank(kind: wgpu::DeviceType) -> u8 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// A device of an adapter.
pub(crate) struct OpenAdapter {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// What it offers.
    pub(crate) info: DeviceInfo,
}

/// A device of adapter `index`.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if there is no such platform or adapter here, or if the driver refuses a device.
pub(crate) fn open(word: &str, index: usize, options: &WgpuOptions) -> Result<OpenAdapter> {
    let found = find(word)?;
    let adapter = found.get(index).ok_or_else(|| {
        let names = found.iter().enumerate().map(|(i, a)| format!("{word}:{i} {}", a.get_info().name));
        let text = format!("no adapter {word}:{index}, found {}", found.len());
        Error::new(ErrorKind::Unavailable, text)
            .with_hint(format!("adapters here: {}", names.collect::<Vec<_>>().join(", ")))
    })?;
    let features = wanted_features(options) & offered_features(adapter);
    // The adapter's own limits, because WebGPU's defaults are too small for the weights of many models.
    let limits = if options.mobile {
        wgpu::Limits::defaults().or_worse_values_from(&adapter.limits())
    } else {
        adapter.limits()
    };
    let desc = wgpu::DeviceDescriptor {
        label: Some("tapml"),
        required_features: features,
        required_limits: limits,
        memory_hints: wgpu::MemoryHints::Performance,
        experimental_features: experiments(),
        ..Default::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&desc)).map_err(|e| {
        let name = adapter.get_info().name;
        Error::new(ErrorKind::Unavailable, format!("adapter {word}:{index} ({name}) gave no device: {e}"))
            .with_hint("is the driver in working order and is there free device memory?")
    })?;
    // What the device got, which may be less than the adapter offers.
    let info = describe(word, adapter, &device.limits(), device.features());
    Ok(OpenAdapter { device, queue, info })
}

/// What wgpu calls experimental: products on matrix units.
#[allow(unsafe_code)]
fn experiments() -> wgpu::ExperimentalFeatures {
    // SAFETY: experimental parts of wgpu and of drivers may go wrong. Only kernels use them that ask for matrix units.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

/// An adapter's features; matrix units only if they multiply what the kernels give them: 16 by 16 by 16 of f16, with sums
/// in f32, by subgroups of 32.
fn offered_features(adapter: &wgpu::Adapter) -> wgpu::Features {
    let (mut features, info) = (adapter.features(), adapter.get_info());
    let fits = |p: &wgpu::CooperativeMatrixProperties| {
        let halves =
            p.ab_type == wgpu::CooperativeScalarType::F16 && p.cr_type == wgpu::CooperativeScalarType::F32;
        halves && [p.m_size, p.n_size, p.k_size] == [16; 3]
    };
    let found = adapter.cooperative_matrix_properties().iter().any(fits);
    // A subgroup of another size would hold the matrices otherwise than the kernels expect.
    let whole = (info.subgroup_min_size, info.subgroup_max_size) == (32, 32);
    if !found || !whole {
        features.remove(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
    }
    features
}

/// Features that the options allow; a mobile device has none.
fn wanted_features(options: &WgpuOptions) -> wgpu::Features {
    let mut wanted = wgpu::Features::empty();
    wanted.set(wgpu::Features::SHADER_F16, options.f16 && !options.mobile);
    let matrices = options.matrices && options.f16 && options.subgroups && !options.mobile;
    wanted.set(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX, matrices);
    wanted.set(wgpu::Features::SUBGROUP, options.subgroups && !options.mobile);
    wanted
}

/// What a device or an adapter offers, in TapML's terms.
fn describe(
    word: &str,
    adapter: &wgpu::Adapter,
    limits: &wgpu::Limits,
    features: wgpu::Features,
) -> DeviceInfo {
    let info = adapter.get_info();
    let subgroups = features.contains(wgpu::Features::SUBGROUP);
    DeviceInfo {
        platform: word.into(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().into(),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
            wgpu::DeviceType::Cpu => AdapterKind::Cpu,
            wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => AdapterKind::Other,
        },
        limits: map_limits(limits),
        features: Features {
            f16: features.contains(wgpu::Features::SHADER_F16),
            subgroups: subgroups.then_some((info.subgroup_min_size, info.subgroup_max_size)),
            cuda: None,
            matrices: subgroups && features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
            // Naga writes the barrier for Vulkan with the scope of the device; Metal and DX12 have none such.
            device_barriers: info.backend == wgpu::Backend::Vulkan,
            processors: None,
        },
        name: info.name,
    }
}

/// Sizes are rounded down to whole words, since storage bindings are multiples of 4 bytes. One alignment serves both kinds of bindings.
fn map_limits(l: &wgpu::Limits) -> Limits {
    Limits {
        max_buffer_size: l.max_buffer_size & !3,
        max_binding_size: l.max_storage_buffer_binding_size.min(l.max_buffer_size) & !3,
        max_uniform_size: l.max_uniform_buffer_binding_size.min(l.max_buffer_size) & !3,
        max_storage_buffers: l.max_storage_buffers_per_shader_stage,
        max_invocations: l.max_compute_invocations_per_workgroup,
        max_workgroup_size: [
            l.max_compute_workgroup_size_x,
            l.max_compute_workgroup_size_y,
            l.max_compute_workgroup_size_z,
        ],
        max_workgroup_memory: l.max_compute_workgroup_storage_size,
        max_groups_per_dim: l.max_compute_workgroups_per_dimension,
        min_offset_alignment: l
            .min_storage_buffer_offset_alignment
            .max(l.min_uniform_buffer_offset_alignment),
    }
}
