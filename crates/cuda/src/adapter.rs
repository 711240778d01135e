//! Finding CUDA devices, and what to install when there is none.
//!
//! Everything is asked of the driver; nothing is looked up by a chip's name. A device tells its limits
//! before it is opened.

use crate::driver::Driver;
use crate::error::{CudaResult, check};
use crate::nvrtc;
use crate::options::CudaOptions;
use crate::sys::{self, Api, attribute};
use std::ffi::c_int;
use std::sync::Arc;
use tapml_device::{AdapterKind, DeviceInfo, Features, Limits};
use tapml_graph::{Error, ErrorKind, Result};

// The length of a range is an argument of 32 bits; sizes are multiples of 4.
/// Lengths of ranges are handed to WGSL kernels as words.
const MAX_BINDING: u64 = u32::MAX as u64 & !3;
/// The first release with launches that overlap and graphs of them.
const LEAST_DRIVER: c_int = 12_000;

/// Every CUDA device in the driver's order. The place in this list is the index that [`crate::CudaDevice::open`] takes.
///
/// Fails with [`ErrorKind::Unavailable`] if there is no driver or no device; the hint says what to do.
pub fn adapters() -> Result<Vec<DeviceInfo>> {
    let (api, count) = load_api()?;
    let version = release(api)?;
    (0..count).map(|index| Ok(describe(api, index, version, CudaOptions::default())?.0)).collect()
}

/// The error of a machine without driver or device.
fn no_device(text: String) -> Error {
    Error::new(ErrorKind::Unavailable, text)
        .with_hint("install NVIDIA's driver; in a container, start it with access to the GPU (`--gpus all`)")
}

/// The driver, ready for use, and the number of devices.
#[allow(unsafe_code)]
fn load_api() -> Result<(&'static Api, c_int)> {
    let api = sys::api().map_err(|why| no_device(format!("no CUDA driver found: {why}")))?;
    let mut count = 0;
    // SAFETY: may be called at any time, and again.
    let started = check(unsafe { (api.cuInit)(0) });
    // SAFETY: gives a number.
    let counted = started.and_then(|()| check(unsafe { (api.cuDeviceGetCount)(&mut count) }));
    counted.map_err(|failure| no_device(format!("the CUDA driver does not start: {failure}")))?;
    if count == 0 {
        return Err(no_device("no CUDA device found".into()));
    }
    Ok((api, count))
}

/// The release of CUDA that the driver has, such as 13000 for 13.0.
#[allow(unsafe_code)]
fn release(api: &Api) -> Result<c_int> {
    let mut version = 0;
    // SAFETY: gives a number.
    let told = check(unsafe { (api.cuDriverGetVersion)(&mut version) });
    told.map_err(|failure| no_device(format!("the CUDA driver does not tell its release: {failure}")))?;
    if version < LEAST_DRIVER {
        let text = format!("the CUDA driver is of release {}, needed is 12.0 or later", text_of(version));
        return Err(Error::new(ErrorKind::Unavailable, text).with_hint("update NVIDIA's driver"));
    }
    Ok(version)
}

/// `13000` as `13.0`.
fn text_of(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Name and release of the compiler of kernels, such as `NVRTC 12.9`, with or without a driver.
///
/// Fails with [`ErrorKind::Unavailable`] if it is not found; the hint says what to install.
pub fn compiler() -> Result<String> {
    let driver = load_api().and_then(|(api, _)| release(api)).map_or(0, |version| version / 1000);
    let (major, minor) = nvrtc::compiler(driver)?.version;
    Ok(format!("NVRTC {major}.{minor}"))
}

/// An open device, what it tells about itself, and the major release of its driver.
pub(crate) struct Opened {
    pub(crate) driver: Arc<Driver>,
    pub(crate) info: DeviceInfo,
    /// Compute capability times ten.
    pub(crate) capability: u32,
    pub(crate) release: i32,
}

/// Opens device `index`.
pub(crate) fn open(index: usize, options: CudaOptions) -> Result<Opened> {
    let (api, count) = load_api()?;
    let version = release(api)?;
    let at = c_int::try_from(index).ok().filter(|&at| at < count).ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, format!("no device cuda:{index}, found {count}"))
            .with_hint("`tapml device list` shows those that there are")
    })?;
    open_on(api, at, version, options)
}

/// Opens a device of this driver.
///
/// Tests call it with a table of functions that needs no driver.
pub(crate) fn open_on(api: &'static Api, at: c_int, version: c_int, options: CudaOptions) -> Result<Opened> {
    let (info, capability) = describe(api, at, version, options)?;
    let driver = handle(api, at).and_then(|device| Driver::open(api, device)).map_err(|failure| {
        let text = format!("CUDA device {at} ({}) cannot be opened: {failure}", info.name);
        Error::new(ErrorKind::Unavailable, text).with_hint("is it in use by others, or out of memory?")
    })?;
    Ok(Opened { driver, info, capability, release: version / 1000 })
}

/// The driver's handle of a device.
#[allow(unsafe_code)]
fn handle(api: &Api, index: c_int) -> CudaResult<c_int> {
    let mut device = 0;
    // SAFETY: gives a number.
    check(unsafe { (api.cuDeviceGet)(&mut device, index) })?;
    Ok(device)
}

/// What a device tells about itself, and its compute capability times ten.
fn describe(api: &Api, index: c_int, version: c_int, options: CudaOptions) -> Result<(DeviceInfo, u32)> {
    let info = ask(api, index, version, options);
    info.map_err(|failure| no_device(format!("CUDA device {index} does not tell what it is: {failure}")))
}

/// Asks the driver for everything that a device's info holds.
#[allow(unsafe_code)]
fn ask(api: &Api, index: c_int, version: c_int, options: CudaOptions) -> CudaResult<(DeviceInfo, u32)> {
    let device = handle(api, index)?;
    let number = |what: c_int| -> CudaResult<u32> {
        let mut value = 0;
        // SAFETY: gives a number.
        check(unsafe { (api.cuDeviceGetAttribute)(&mut value, what, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let mut memory = 0usize;
    // SAFETY: gives a number.
    check(unsafe { (api.cuDeviceTotalMem_v2)(&mut memory, device) })?;
    let mut name = [0u8; 256];
    // SAFETY: room for as many bytes as are said, with the zero at the end.
    check(unsafe { (api.cuDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int, device) })?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let capability =
        10 * number(attribute::COMPUTE_CAPABILITY_MAJOR)? + number(attribute::COMPUTE_CAPABILITY_MINOR)?;
    let block = |axis: c_int| number(attribute::MAX_BLOCK_DIM_X + axis);
    let memory = memory as u64 & !3;
    let info = DeviceInfo {
        platform: "cuda".into(),
        name: String::from_utf8_lossy(name).into_owned(),
        driver: format!("CUDA {}", text_of(version)),
        kind: match number(attribute::INTEGRATED)? {
            0 => AdapterKind::Discrete,
            _ => AdapterKind::Integrated,
        },
        limits: Limits {
            max_buffer_size: memory,
            max_binding_size: memory.min(MAX_BINDING),
            max_uniform_size: memory.min(MAX_BINDING),
            // Arguments have 4 KiB; each binding takes an address and a length.
            max_storage_buffers: 64,
            max_invocations: number(attribute::MAX_THREADS_PER_BLOCK)?,
            max_workgroup_size: [block(0)?, block(1)?, block(2)?],
            max_workgroup_memory: number(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            // The limit in y and z; x could be larger, but grids of WebGPU are alike in all axes.
            max_groups_per_dim: 65535,
            // That of memory which the driver allocates, and WebGPU's default.
            min_offset_alignment: 256,
        },
        features: Features {
            f16: options.f16,
            subgroups: Some((32, 32)),
            cuda: options.tuned.then_some(capability),
            // Kernels in CUDA C++ use tensor cores by themselves.
            matrices: false,
            device_barriers: false,
            processors: Some(number(attribute::MULTIPROCESSOR_COUNT)?).filter(|&count| count > 0),
        },
    };
    Ok((info, capability))
}
