//! Finding HIP devices, and what to install when there is none.
//!
//! As for CUDA, everything is asked of the runtime. A device tells its limits before it is opened.

use crate::error::{HipResult, check};
use crate::sys::{self, Api, Rtc, attribute};
use std::ffi::c_int;
use tapml_cfamily::device::DriverOptions;
use tapml_device::{AdapterKind, DeviceInfo, Features, Limits};
use tapml_graph::{Error, ErrorKind, Result};

// An argument of 32 bits; sizes are multiples of 4.
/// Lengths of ranges are handed to kernels as words.
const MAX_BINDING: u64 = u32::MAX as u64 & !3;

/// Every HIP device in the runtime's order. The place in this list is the index that [`crate::HipDevice::open`] takes.
///
/// Fails with [`ErrorKind::Unavailable`] if there is no runtime or no device; the hint says what to install.
pub fn adapters() -> Result<Vec<DeviceInfo>> {
    let api = load_api()?;
    (0..count(api)?).map(|index| describe(api, index, DriverOptions::default())).collect()
}

/// The error of a machine without runtime or device.
fn no_device(text: String) -> Error {
    Error::new(ErrorKind::Unavailable, text)
        .with_hint("install AMD's driver and ROCm (`libamdhip64`, `libhiprtc`); ROCM_PATH names its folder")
}

/// The runtime, or what to install.
pub(crate) fn load_api() -> Result<&'static Api> {
    sys::api().map_err(|why| no_device(format!("no HIP runtime found: {why}")))
}

/// Devices of the runtime, at least one.
#[allow(unsafe_code)]
fn count(api: &Api) -> Result<c_int> {
    let mut count = 0;
    // SAFETY: may be called at any time, and again.
    let started = check(unsafe { (api.hipInit)(0) });
    // SAFETY: gives a number.
    let counted = started.and_then(|()| check(unsafe { (api.hipGetDeviceCount)(&mut count) }));
    counted.map_err(|failure| no_device(format!("the HIP runtime does not start: {failure}")))?;
    if count > 0 { Ok(count) } else { Err(no_device("no HIP device found".into())) }
}

/// The compiler, or what to install.
pub(crate) fn load_rtc() -> Result<&'static Rtc> {
    sys::rtc().map_err(|why| no_device(format!("no compiler of HIP kernels (hipRTC) found: {why}")))
}

/// The name of the compiler of kernels, with or without a device.
///
/// Fails with [`ErrorKind::Unavailable`] if it is not found; the hint says what to install.
pub fn compiler() -> Result<String> {
    load_rtc().map(|_| "hipRTC".into())
}

/// Device `index` of this runtime, with what it tells about itself.
pub(crate) fn find_device(api: &Api, index: usize, options: DriverOptions) -> Result<(c_int, DeviceInfo)> {
    let count = count(api)?;
    let at = c_int::try_from(index).ok().filter(|&at| at < count).ok_or_else(|| {
        Error::new(ErrorKind::Unavailable, format!("no device hip:{index}, found {count}"))
            .with_hint("`tapml device list` shows those that there are")
    })?;
    Ok((at, describe(api, at, options)?))
}

/// What a device tells about itself, with a failure as an error.
fn describe(api: &Api, index: c_int, options: DriverOptions) -> Result<DeviceInfo> {
    let info = ask(api, index, options);
    info.map_err(|failure| no_device(format!("HIP device {index} does not tell what it is: {failure}")))
}

/// Asks the runtime for everything that a device's info holds.
#[allow(unsafe_code)]
fn ask(api: &Api, device: c_int, options: DriverOptions) -> HipResult<DeviceInfo> {
    let number = |what: c_int| -> HipResult<u32> {
        let mut value = 0;
        // SAFETY: gives a number.
        check(unsafe { (api.hipDeviceGetAttribute)(&mut value, what, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let (mut memory, mut version) = (0usize, 0);
    // SAFETY: gives a number.
    check(unsafe { (api.hipDeviceTotalMem)(&mut memory, device) })?;
    // SAFETY: gives a number.
    check(unsafe { (api.hipRuntimeGetVersion)(&mut version) })?;
    let mut name = [0u8; 256];
    // SAFETY: room for as many bytes as are said, with the zero at the end.
    check(unsafe { (api.hipDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int, device) })?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let block = |axis: c_int| number(attribute::MAX_BLOCK_DIM_X + axis);
    // 32 or 64, by the family of chips.
    let lanes = number(attribute::WARP_SIZE)?;
    let memory = memory as u64 & !3;
    Ok(DeviceInfo {
        platform: "hip".into(),
        name: String::from_utf8_lossy(name).into_owned(),
        // `MAJOR·10⁷ + MINOR·10⁵ + PATCH`.
        driver: format!("HIP {}.{}", version / 10_000_000, version / 100_000 % 100),
        kind: match number(attribute::INTEGRATED)? {
            0 => AdapterKind::Discrete,
            _ => AdapterKind::Integrated,
        },
        limits: Limits {
            max_buffer_size: memory,
            max_binding_size: memory.min(MAX_BINDING),
            max_uniform_size: memory.min(MAX_BINDING),
            max_storage_buffers: 64,
            max_invocations: number(attribute::MAX_THREADS_PER_BLOCK)?,
            max_workgroup_size: [block(0)?, block(1)?, block(2)?],
            max_workgroup_memory: number(attribute::MAX_SHARED_MEMORY_PER_BLOCK)?,
            max_groups_per_dim: 65535,
            min_offset_alignment: 256,
        },
        features: Features {
            f16: options.f16,
            subgroups: Some((lanes, lanes)),
            cuda: None,
            matrices: false,
            device_barriers: false,
            processors: None,
        },
    })
}
