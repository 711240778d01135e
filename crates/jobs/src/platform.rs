//! From a platform's word to the thing itself. The only place where backends meet; a new one is a row in [`BACKENDS`].
//!
//! A word has the form `NAME[:INDEX][?OPTION=VALUE&…]`; see `PlatformSpec`. Words with `://` or `hub` are
//! devices elsewhere, words of runtimes are Python processes, `cpu` is the reference, everything else is a
//! row of the table.

use tapml_device::{Device, DeviceInfo};
use tapml_exec::{CpuPlatform, DevicePlatform, RanksPlatform};
pub use tapml_exec::{Platform, PlatformSpec};
use tapml_graph::{Error, ErrorKind, Result};
use tapml_kernels::Overrides;

/// A backend that serves one platform word.
struct Backend {
    /// The word on the command line.
    word: &'static str,
    /// What there is, without opening it for work.
    list: fn() -> Result<Vec<DeviceInfo>>,
    /// Opens one by index and options.
    open: fn(&PlatformSpec) -> Result<Box<dyn Device>>,
    /// Finds the library that compiles kernels, where that is not a part of the driver, and gives its name and version.
    compiler: Option<fn() -> Result<String>>,
}

// The order is that in which `device list` shows them and `fastest` tries them.
const BACKENDS: &[Backend] = &[
    #[cfg(feature = "emulator")]
    Backend { word: "emulator", list: emulator::list, open: emulator::open, compiler: None },
    #[cfg(feature = "cuda")]
    Backend {
        word: "cuda",
        list: tapml_cuda::adapters,
        open: open_cuda,
        compiler: Some(tapml_cuda::compiler),
    },
    #[cfg(feature = "wgpu")]
    Backend { word: "vulkan", list: || tapml_wgpu::adapters("vulkan"), open: open_wgpu, compiler: None },
    #[cfg(feature = "wgpu")]
    Backend { word: "metal", list: || tapml_wgpu::adapters("metal"), open: open_wgpu, compiler: None },
    #[cfg(feature = "wgpu")]
    Backend { word: "dx12", list: || tapml_wgpu::adapters("dx12"), open: open_wgpu, compiler: None },
    #[cfg(feature = "hip")]
    Backend { word: "hip", list: tapml_hip::adapters, open: open_hip, compiler: Some(tapml_hip::compiler) },
    #[cfg(feature = "opencl")]
    Backend { word: "opencl", list: tapml_opencl::adapters, open: open_opencl, compiler: None },
];

/// The words of all backends in this build, in the order in which `device list` shows them.
pub fn device_words() -> impl Iterator<Item = &'static str> {
    BACKENDS.iter().map(|b| b.word)
}

/// The devices behind a word of this machine. [`ErrorKind::Unavailable`] with advice if there are none.
pub fn devices(word: &str) -> Result<Vec<DeviceInfo>> {
    (backend(word)?.list)()
}

/// Name and version of the library that compiles kernels for a word of this machine; `None` where the driver does.
/// [`ErrorKind::Unavailable`] with advice if it is missing.
pub fn compiler(word: &str) -> Option<Result<String>> {
    backend(word).ok()?.compiler.map(|find| find())
}

/// How often this process has opened a device elsewhere again whose connection was lost.
pub fn count_reopened() -> u64 {
    remote::count_reopened()
}

/// Opens a device by word, index and options, such as `vulkan:1`, `emulator?check=all` or `ws://host:port/vulkan`.
///
/// # Errors
/// `Unavailable` if this build or machine has no such device; invalid input on a wrong option.
pub fn open_device(spec: &PlatformSpec) -> Result<Box<dyn Device>> {
    if spec.is_remote() {
        return remote::open(spec).map_err(|e| e.context(format!("platform `{spec}`")));
    }
    (backend(&spec.word)?.open)(spec).map_err(|e| e.context(format!("platform `{spec}`")))
}

/// As [`open_device`] for kernels that are planned, here or by a client elsewhere: those that are built in need no checks
/// while they run. A client could switch them off for all kernels, unless the agent has fixed `checks=on`.
///
/// wgpu can check every access of a kernel at a cost; built-in kernels are proven by the emulator.
pub(crate) fn open_for_plans(spec: &PlatformSpec) -> Result<Box<dyn Device>> {
    #[cfg(feature = "wgpu")]
    if !spec.is_remote() && tapml_wgpu::is_platform(&spec.word) {
        let opened = tapml_wgpu::WgpuDevice::open(&spec.word, spec.index, &query(spec));
        let device = opened.map_err(|e| e.context(format!("platform `{spec}`")))?;
        return Ok(Box::new(device.trust_kernels(tapml_kernels::is_built_in)));
    }
    open_device(spec)
}

/// Opens a platform: `cpu`, a device with its kernels and the user's overrides of them, or a device elsewhere that runs
/// operators itself.
///
/// # Errors
/// As [`open_device`], and if there are kernels to replace where none can be.
pub fn open(spec: &PlatformSpec, overrides: Overrides) -> Result<Box<dyn Platform>> {
    if spec.is_remote() {
        return remote::platform(spec, overrides).map_err(|e| e.context(format!("platform `{spec}`")));
    }
    if spec.is_runtime() {
        return remote::runtime(spec, &overrides).map_err(|e| e.context(format!("platform `{spec}`")));
    }
    if spec.word != "cpu" {
        return Ok(Box::new(open_with_kernels(spec, overrides)?));
    }
    // A misspelt option must not pass as none.
    spec.expect_options(&[])?;
    if spec.index > 0 {
        return Err(Error::invalid(format!("there is one `cpu`, not {}", spec.index + 1)));
    }
    if overrides.is_empty() {
        Ok(Box::new(CpuPlatform::new()))
    } else {
        Err(Error::invalid("`cpu` runs the reference, which has no kernels to replace")
            .with_hint("try the kernel on `emulator`, which needs no GPU"))
    }
}

/// Opens one platform, or several as the ranks of one; see [`RanksPlatform`]. `shared` is the number of ranks that the graphs
/// are shared out among already.
///
/// # Errors
/// As [`open`], with the rank.
pub(crate) fn open_ranks(
    specs: &[PlatformSpec],
    overrides: Overrides,
    shared: Option<u32>,
) -> Result<Box<dyn Platform>> {
    if let [spec] = specs {
        return open(spec, overrides);
    }
    let open = |(rank, spec): (usize, &PlatformSpec)| {
        open(spec, overrides.clone()).map_err(|e| e.context(format!("rank {rank}")))
    };
    let ranks = specs.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
    let platform = RanksPlatform::new(ranks)?;
    Ok(Box::new(if shared.is_some() { platform.with_shared_graphs() } else { platform }))
}

/// Opens a device with its kernels, which can be replaced later by [`DevicePlatform::set_overrides`].
///
/// Besides the device's own options there is `memory`, for finding faults between kernels: `plain` gives every value a
/// buffer of its own, `poison` fills each buffer with NaN before it is written first. And there is `tuning`: a file of
/// `tapml tune`, or `off` for none, even if choices are kept for the device.
pub fn open_with_kernels(spec: &PlatformSpec, overrides: Overrides) -> Result<DevicePlatform> {
    let device = open_for_plans(&without_memory(spec))?;
    with_kernels(spec, device, overrides)
}

/// The spec without the plan for memory and the choice of kernels, which are no options of a device.
pub(crate) fn without_memory(spec: &PlatformSpec) -> PlatformSpec {
    let mut device = spec.clone();
    device.options.retain(|(name, _)| name != "memory" && name != "tuning");
    device
}

/// The spec without the options that concern the connection alone: what is left decides results.
#[cfg(feature = "remote")]
pub(crate) fn deciding_spec(spec: &PlatformSpec) -> PlatformSpec {
    remote::identity(spec)
}

/// The device as it describes itself, wherever it is: choices of kernels are those of such devices.
pub(crate) fn as_it_says(spec: &PlatformSpec, info: &DeviceInfo) -> DeviceInfo {
    // A remote device shows where it is behind its own name.
    let name = if spec.is_remote() { remote::own_name(&info.name) } else { &info.name };
    DeviceInfo { name: name.into(), ..info.clone() }
}

/// The device with the kernel list on top; reads the options `memory` and `tuning`.
fn with_kernels(
    spec: &PlatformSpec,
    device: Box<dyn Device>,
    mut overrides: Overrides,
) -> Result<DevicePlatform> {
    overrides.expect_taken(device.info())?;
    if let Some(choices) = crate::tune::choices(spec.option("tuning"), &as_it_says(spec, device.info()))? {
        overrides.choose(choices);
    }
    // Poison reuses buffers as planned, so that a read of stale memory shows as NaN.
    let (reuse, poison) = match spec.option("memory") {
        None | Some("planned") => (true, false),
        Some("plain") => (false, false),
        Some("poison") => (true, true),
        Some(other) => {
            return Err(Error::invalid(format!("platform `{spec}`: unknown memory plan `{other}`"))
                .with_hint("known: planned, plain, poison"));
        }
    };
    let platform = DevicePlatform::new(device, overrides);
    Ok(platform.with_memory(reuse, poison).with_options(query(&remote::identity(spec))))
}

/// The fastest platform present: the first GPU of any backend, else `cpu`.
///
/// Software adapters count as none: the reference is the better choice then.
pub fn fastest() -> PlatformSpec {
    use tapml_device::AdapterKind;
    // The emulator is listed first, and is no device to be fast on.
    let gpu = BACKENDS.iter().filter(|b| b.word != "emulator").find_map(|b| {
        let kinds = (b.list)().ok()?;
        let index =
            kinds.iter().position(|d| matches!(d.kind, AdapterKind::Discrete | AdapterKind::Integrated))?;
        Some(PlatformSpec { word: b.word.into(), index, options: Vec::new() })
    });
    gpu.unwrap_or(PlatformSpec { word: "cpu".into(), index: 0, options: Vec::new() })
}

/// The row of a word.
fn backend(word: &str) -> Result<&'static Backend> {
    BACKENDS.iter().find(|b| b.word == word).ok_or_else(|| {
        let words: Vec<&str> = device_words().collect();
        Error::new(ErrorKind::Unavailable, format!("this build has no backend for `{word}`"))
            .with_hint(format!("its devices: {}; `cpu` is no device", words.join(", ")))
    })
}

/// The options of a spec as the query string that backends parse.
fn query(spec: &PlatformSpec) -> String {
    let pairs: Vec<String> = spec.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// Without the feature there is no such row.
#[cfg(feature = "cuda")]
fn open_cuda(spec: &PlatformSpec) -> Result<Box<dyn Device>> {
    Ok(Box::new(tapml_cuda::CudaDevice::open(spec.index, &query(spec))?))
}

#[cfg(feature = "wgpu")]
fn open_wgpu(spec: &PlatformSpec) -> Result<Box<dyn Device>> {
    Ok(Box::new(tapml_wgpu::WgpuDevice::open(&spec.word, spec.index, &query(spec))?))
}

#[cfg(feature = "hip")]
fn open_hip(spec: &PlatformSpec) -> Result<Box<dyn Device>> {
    Ok(Box::new(tapml_hip::HipDevice::open(spec.index, &query(spec))?))
}

#[cfg(feature = "opencl")]
fn open_opencl(spec: &PlatformSpec) -> Result<Box<dyn Device>> {
    Ok(Box::new(tapml_opencl::OpenClDevice::open(spec.index, &query(spec))?))
}

/// Devices elsewhere.
#[cfg(feature = "remote")]
mod remote {
    use super::{Device, Error, Overrides, Platform, PlatformSpec, Result, with_kernels, without_memory};
    use tapml_exec::OperatorPlatform;
    use tapml_rpc::client::OPTIONS;
    pub use tapml_rpc::client::{count_reopened, own_name};
    use tapml_rpc::{Address, Remote, RemoteDevice};

    /// The platform of a device elsewhere, whichever sort it is of.
    pub fn platform(spec: &PlatformSpec, overrides: Overrides) -> Result<Box<dyn Platform>> {
        let device = without_memory(spec);
        match Remote::open(&Address::parse(&device.word, &device.options)?)? {
            Remote::Device(device) => Ok(Box::new(with_kernels(spec, device, overrides)?)),
            Remote::Operators(_) if !overrides.is_empty() => {
                Err(Error::invalid("the device runs operators itself and has no kernels to replace"))
            }
            Remote::Operators(_) if spec.option("memory").is_some() => {
                Err(Error::invalid("the device runs operators itself and has no memory to plan"))
            }
            Remote::Operators(operators) => Ok(Box::new(OperatorPlatform::new(operators))),
        }
    }

    /// Another runtime in a process of its own.
    pub fn runtime(spec: &PlatformSpec, overrides: &Overrides) -> Result<Box<dyn Platform>> {
        if !overrides.is_empty() {
            return Err(Error::invalid("the runtime runs operators itself and has no kernels to replace"));
        }
        if spec.index > 0 {
            let text = format!("`{}` has no devices by number, found `:{}`", spec.word, spec.index);
            return Err(Error::invalid(text).with_hint(format!("name it: `{}?device=NAME`", spec.word)));
        }
        Ok(Box::new(OperatorPlatform::new(Box::new(crate::agents::RuntimeServer::start(spec)?))))
    }

    pub fn open(spec: &PlatformSpec) -> Result<Box<dyn Device>> {
        Ok(Box::new(RemoteDevice::open(&Address::parse(&spec.word, &spec.options)?)?))
    }

    /// The spec without what concerns the connection alone.
    pub fn identity(spec: &PlatformSpec) -> PlatformSpec {
        let mut spec = spec.clone();
        if spec.is_remote() {
            spec.options.retain(|(name, _)| !OPTIONS.contains(&name.as_str()));
        }
        spec
    }
}

#[cfg(not(feature = "remote"))]
mod remote {
    use super::{Device, Error, ErrorKind, Overrides, Platform, PlatformSpec, Result};

    pub fn platform(_: &PlatformSpec, _: Overrides) -> Result<Box<dyn Platform>> {
        no_remote()
    }

    pub fn runtime(_: &PlatformSpec, _: &Overrides) -> Result<Box<dyn Platform>> {
        no_remote()
    }

    pub fn open(_: &PlatformSpec) -> Result<Box<dyn Device>> {
        no_remote()
    }

    /// The same error for all that needs the feature.
    fn no_remote<T>() -> Result<T> {
        Err(Error::new(ErrorKind::Unavailable, "this build has no remote devices"))
    }

    pub fn identity(spec: &PlatformSpec) -> PlatformSpec {
        spec.clone()
    }

    pub fn own_name(shown: &str) -> &str {
        shown
    }

    pub fn count_reopened() -> u64 {
        0
    }
}

#[cfg(feature = "emulator")]
mod emulator {
    use super::{Device, DeviceInfo, Error, PlatformSpec, Result, query};
    use tapml_emulator::{Emulator, EmulatorOptions};

    pub fn list() -> Result<Vec<DeviceInfo>> {
        Ok(vec![Emulator::new(EmulatorOptions::default())?.info().clone()])
    }

    pub fn open(spec: &PlatformSpec) -> Result<Box<dyn Device>> {
        if spec.index > 0 {
            return Err(Error::invalid(format!("there is one emulator, not {}", spec.index + 1))
                .with_hint("choose what it imitates by `emulator?profile=NAME`"));
        }
        Ok(Box::new(Emulator::new(EmulatorOptions::parse(&query(spec))?)?))
    }
}
