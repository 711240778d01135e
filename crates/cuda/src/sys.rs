//! The functions of the CUDA driver and of NVRTC that a device needs, from libraries that are loaded when they are first
//! used. Types and numbers are those of NVIDIA's headers `cuda.h` and `nvrtc.h`.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use tapml_cfamily::functions;

/// An object of the driver: a context, stream, event, module, function or graph; or a program of NVRTC.
pub(crate) type Object = *mut c_void;
/// An address in the device's memory.
pub(crate) type Address = u64;
/// A status: 0 or an error.
pub(crate) type Status = c_int;

pub(crate) const OUT_OF_MEMORY: Status = 2;
pub(crate) const NOT_FOUND: Status = 500;

/// Numbers of `CUdevice_attribute`.
pub(crate) mod attribute {
    use super::c_int;
    pub(crate) const MAX_THREADS_PER_BLOCK: c_int = 1;
    pub(crate) const MAX_BLOCK_DIM_X: c_int = 2;
    pub(crate) const MULTIPROCESSOR_COUNT: c_int = 16;
    pub(crate) const INTEGRATED: c_int = 18;
    pub(crate) const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    pub(crate) const COMPUTE_CAPABILITY_MINOR: c_int = 76;
    pub(crate) const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
}

/// Numbers of `CUfunction_attribute`.
pub(crate) const FUNCTION_MAX_THREADS: c_int = 0;
pub(crate) const FUNCTION_STATIC_SHARED: c_int = 1;
pub(crate) const FUNCTION_MAX_DYNAMIC_SHARED: c_int = 8;

pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
pub(crate) const CAPTURE_THREAD_LOCAL: c_int = 1;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
pub(crate) const LAUNCH_OVERLAPS: c_int = 6;

/// `CUlaunchAttribute`: its value is a union of 64 bytes, of which a number is the first.
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_int,
    pub(crate) pad: [u8; 4],
    pub(crate) value: [c_int; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: Object,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) count: c_uint,
}

/// `CU_TENSOR_MAP_DATA_TYPE_UINT32` and `_FLOAT16`.
pub(crate) const MAP_U32: c_int = 2;
pub(crate) const MAP_F16: c_int = 6;
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`.
pub(crate) const MAP_PROMOTION: c_int = 2;

/// `CUtensorMap`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct TensorMap(pub(crate) [u64; 16]);

/// What a tensor map says of an array of two dimensions, the neighbours first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) dtype: c_int,
    pub(crate) sizes: [u64; 2],
    /// Bytes from a row to the next.
    pub(crate) row: u64,
    /// The box.
    pub(crate) area: [c_uint; 2],
    pub(crate) swizzle: c_int,
}

functions! {
    /// The loaded functions of the driver.
    Api "system" {
        cuInit: fn(c_uint) -> Status;
        cuDriverGetVersion: fn(*mut c_int) -> Status;
        cuGetErrorString: fn(Status, *mut *const c_char) -> Status;
        cuDeviceGetCount: fn(*mut c_int) -> Status;
        cuDeviceGet: fn(*mut c_int, c_int) -> Status;
        cuDeviceGetName: fn(*mut c_char, c_int, c_int) -> Status;
        cuDeviceGetAttribute: fn(*mut c_int, c_int, c_int) -> Status;
        cuDeviceTotalMem_v2: fn(*mut usize, c_int) -> Status;
        cuCtxCreate_v2: fn(*mut Object, c_uint, c_int) -> Status;
        cuCtxDestroy_v2: fn(Object) -> Status;
        cuCtxSetCurrent: fn(Object) -> Status;
        cuMemGetInfo_v2: fn(*mut usize, *mut usize) -> Status;
        cuMemAlloc_v2: fn(*mut Address, usize) -> Status;
        cuMemFree_v2: fn(Address) -> Status;
        cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint) -> Status;
        cuMemFreeHost: fn(*mut c_void) -> Status;
        cuMemcpyHtoDAsync_v2: fn(Address, *const c_void, usize, Object) -> Status;
        cuMemcpyDtoHAsync_v2: fn(*mut c_void, Address, usize, Object) -> Status;
        cuMemcpyDtoDAsync_v2: fn(Address, Address, usize, Object) -> Status;
        cuMemsetD32Async: fn(Address, c_uint, usize, Object) -> Status;
        cuStreamCreate: fn(*mut Object, c_uint) -> Status;
        cuStreamDestroy_v2: fn(Object) -> Status;
        cuStreamSynchronize: fn(Object) -> Status;
        cuStreamBeginCapture_v2: fn(Object, c_int) -> Status;
        cuStreamEndCapture: fn(Object, *mut Object) -> Status;
        cuEventCreate: fn(*mut Object, c_uint) -> Status;
        cuEventDestroy_v2: fn(Object) -> Status;
        cuEventRecord: fn(Object, Object) -> Status;
        cuEventSynchronize: fn(Object) -> Status;
        cuEventElapsedTime: fn(*mut f32, Object, Object) -> Status;
        cuModuleLoadData: fn(*mut Object, *const c_void) -> Status;
        cuModuleUnload: fn(Object) -> Status;
        cuModuleGetFunction: fn(*mut Object, Object, *const c_char) -> Status;
        cuFuncGetAttribute: fn(*mut c_int, c_int, Object) -> Status;
        cuFuncSetAttribute: fn(Object, c_int, c_int) -> Status;
        cuLaunchKernelEx: fn(*const LaunchConfig, Object, *mut *mut c_void, *mut *mut c_void) -> Status;
        cuTensorMapEncodeTiled: fn(*mut TensorMap, c_int, c_uint, Address, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int) -> Status;
        cuGraphInstantiateWithFlags: fn(*mut Object, Object, u64) -> Status;
        cuGraphDestroy: fn(Object) -> Status;
        cuGraphExecDestroy: fn(Object) -> Status;
        cuGraphLaunch: fn(Object, Object) -> Status;
    }
}

functions! {
    /// The loaded functions of NVRTC.
    Nvrtc "system" {
        nvrtcVersion: fn(*mut c_int, *mut c_int) -> Status;
        nvrtcGetNumSupportedArchs: fn(*mut c_int) -> Status;
        nvrtcGetSupportedArchs: fn(*mut c_int) -> Status;
        nvrtcCreateProgram: fn(*mut Object, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Status;
        nvrtcDestroyProgram: fn(*mut Object) -> Status;
        nvrtcCompileProgram: fn(Object, c_int, *const *const c_char) -> Status;
        nvrtcGetProgramLogSize: fn(Object, *mut usize) -> Status;
        nvrtcGetProgramLog: fn(Object, *mut c_char) -> Status;
        nvrtcGetCUBINSize: fn(Object, *mut usize) -> Status;
        nvrtcGetCUBIN: fn(Object, *mut c_char) -> Status;
        nvrtcGetPTXSize: fn(Object, *mut usize) -> Status;
        nvrtcGetPTX: fn(Object, *mut c_char) -> Status;
    }
}

const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// The driver, loaded and initialised once in a process, or why it is not there.
pub(crate) fn api() -> Result<&'static Api, &'static str> {
    static LOADED: OnceLock<Result<Api, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let mut why = Vec::new();
        for name in NAMES {
            // SAFETY: loading the driver's library runs its initialisers only.
            let library = unsafe { Library::new(name) };
            match library.and_then(Api::from) {
                Ok(api) => return Ok(api),
                Err(error) => why.push(error.to_string()),
            }
        }
        Err(why.join("; "))
    });
    loaded.as_ref().map_err(String::as_str)
}
