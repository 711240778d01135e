//! Finding OpenCL devices: a stable order, and what to install when there is none.
//!
//! Devices of all platforms stand in one list. A device that is not available, has no compiler or is big-endian is left out.

use crate::error::ClResult;
use crate::listed::ListedDevice;
use crate::sys;
use std::sync::{Mutex, PoisonError};
use tapml_cfamily::device::DriverOptions;
use tapml_device::{AdapterKind, DeviceInfo, Features, Limits};
use tapml_graph::{Error, ErrorKind, Result};

/// Lengths of ranges are handed to kernels as words.
/// Rounded down to whole words.
const MAX_BINDING: u64 = u32::MAX as u64 & !3;

/// Invocations of an emulated subgroup. Few enough that no kernel is planned whose subgroups part ways, as those of products
/// of one row do.
const SUBGROUP: u32 = 8;

/// Every OpenCL device: discrete GPUs first, then integrated ones, others, and processors. The place in this list is the
/// index that [`crate::OpenClDevice::open`] takes.
///
/// Fails with [`ErrorKind::Unavailable`] if there is no OpenCL library or no device; the hint says what to install.
pub fn adapters() -> Result<Vec<DeviceInfo>> {
    Ok(find()?.into_iter().map(|found| describe(found.info, DriverOptions::default())).collect())
}

/// A device of OpenCL and what it offers.
/// Limits in `info` are those of the device itself, without what emulated subgroups take.
struct FoundDevice {
    device: ListedDevice,
    info: DeviceInfo,
}

/// All devices that can be used, in the order of [`adapters`].
fn find() -> Result<Vec<FoundDevice>> {
    let api = sys::api().map_err(|why| no_device(&format!("no OpenCL library found: {why}")))?;
    // PoCL finds no device while another thread is making its first.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let listed =
        ListedDevice::all(api).map_err(|failure| no_device(&format!("no OpenCL device found: {failure}")))?;
    let mut found = Vec::new();
    for device in listed {
        let yes = |what| device.number(what).is_ok_and(|n| n != 0);
        let usable = [sys::DEVICE_AVAILABLE, sys::DEVICE_COMPILER_AVAILABLE, sys::DEVICE_ENDIAN_LITTLE];
        // A device that does not answer is passed over, so that it does not hide the others.
        if let (true, Ok(info)) = (usable.into_iter().all(yes), ask(&device)) {
            found.push(FoundDevice { device, info });
        }
    }
    // Stable: devices of one kind stay in the order of the loader.
    found.sort_by_key(|f| match f.info.kind {
        AdapterKind::Discrete => 0,
        AdapterKind::Integrated => 1,
        AdapterKind::Other => 2,
        AdapterKind::Cpu => 3,
    });
    if found.is_empty() { Err(no_device("no OpenCL device found")) } else { Ok(found) }
}

/// The error of a machine without OpenCL, or without a device.
fn no_device(text: &str) -> Error {
    Error::new(ErrorKind::Unavailable, text).with_hint(
        "install the OpenCL driver of the GPU's maker and the loader (`libOpenCL`), or the software one: on Debian \
         and Ubuntu `apt-get install pocl-opencl-icd ocl-icd-libopencl1`",
    )
}

/// Device `index`, with what it offers under these options.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if there is no such device, or if the driver refuses a context or a queue.
pub(crate) fn find_device(index: usize, options: DriverOptions) -> Result<(ListedDevice, DeviceInfo)> {
    let mut found = find()?;
    if index >= found.len() {
        let names = found.iter().enumerate().map(|(i, f)| format!("opencl:{i} {}", f.info.name));
        let text = format!("no device opencl:{index}, found {}", found.len());
        let hint = format!("devices here: {}", names.collect::<Vec<_>>().join(", "));
        return Err(Error::new(ErrorKind::Unavailable, text).with_hint(hint));
    }
    let FoundDevice { device, info } = found.swap_remove(index);
    Ok((device, describe(info, options)))
}

/// Emulated subgroups take a word of workgroup memory for each invocation.
/// Whether there is `f16` depends on the options alone.
fn describe(info: DeviceInfo, options: DriverOptions) -> DeviceInfo {
    let subgroups = options.subgroups.then_some((SUBGROUP, SUBGROUP));
    // Taken for the largest workgroup, since the size of a kernel's is not known here.
    let taken = if options.subgroups { 4 * info.limits.max_invocations } else { 0 };
    let max_workgroup_memory = info.limits.max_workgroup_memory.saturating_sub(taken);
    DeviceInfo {
        limits: Limits { max_workgroup_memory, ..info.limits },
        features: Features {
            f16: options.f16,
            subgroups,
            cuda: None,
            matrices: false,
            device_barriers: false,
            processors: None,
        },
        ..info
    }
}

/// What a device says about itself. A GPU that shares the host's memory is an integrated one.
///
/// # Errors
///
/// The status of the first question that the driver does not answer.
fn ask(device: &ListedDevice) -> ClResult<DeviceInfo> {
    let ty = device.number(sys::DEVICE_TYPE)?;
    let kind = if ty & sys::DEVICE_TYPE_GPU != 0 && device.number(sys::DEVICE_HOST_UNIFIED_MEMORY)? != 0 {
        AdapterKind::Integrated
    } else if ty & sys::DEVICE_TYPE_GPU != 0 {
        AdapterKind::Discrete
    } else if ty & sys::DEVICE_TYPE_CPU != 0 {
        AdapterKind::Cpu
    } else {
        AdapterKind::Other
    };
    let memory = device.number(sys::DEVICE_MAX_MEM_ALLOC_SIZE)? & !3;
    let binding = memory.min(MAX_BINDING);
    let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let sizes = device.numbers(sys::DEVICE_MAX_WORK_ITEM_SIZES)?;
    let size = |axis: usize| word(sizes.get(axis).copied().unwrap_or(1));
    let limits = Limits {
        // One allocation, not all memory of the device.
        max_buffer_size: memory,
        max_binding_size: binding,
        max_uniform_size: binding,
        // Each takes an address, an offset and a length.
        max_storage_buffers: word(device.number(sys::DEVICE_MAX_PARAMETER_SIZE)? / 24)
            .saturating_sub(4)
            .min(32),
        max_invocations: word(device.number(sys::DEVICE_MAX_WORK_GROUP_SIZE)?),
        max_workgroup_size: [size(0), size(1), size(2)],
        max_workgroup_memory: word(device.number(sys::DEVICE_LOCAL_MEM_SIZE)?),
        // OpenCL has no such limit; this one is WebGPU's.
        max_groups_per_dim: 65535,
        // Offsets are added to addresses in the kernel. WebGPU's alignment keeps lists the same on all devices.
        min_offset_alignment: 256,
    };
    Ok(DeviceInfo {
        platform: "opencl".into(),
        name: device.text(sys::DEVICE_NAME)?,
        driver: format!("{} {}", device.platform_name()?, device.text(sys::DRIVER_VERSION)?),
        kind,
        limits,
        features: Features::default(),
    })
}
