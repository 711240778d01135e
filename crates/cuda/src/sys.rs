//! The functions of the CUDA driver and of NVRTC that a device needs, from libraries that are loaded when they are first
//! used. Types and numbers are those of NVIDIA's headers `cuda.h` and `nvrtc.h`.
//!
//! Nothing is linked: a build for CUDA runs on machines without it. Names end with `_v2` where the header
//! defines them so.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use tapml_cfamily::functions;

/// An object of the driver: a context, stream, event, module, function or graph; or a program of NVRTC.
pub(crate) type CuObject = *mut c_void;
/// An address in the device's memory.
pub(crate) type CuAddress = u64;
/// A status: 0 or an error.
pub(crate) type CuStatus = c_int;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: CuStatus = 2;
/// `CUDA_ERROR_NOT_FOUND`.
pub(crate) const NOT_FOUND: CuStatus = 500;

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: CuStatus = 704;

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

/// `CU_STREAM_NON_BLOCKING`: no order with the default stream of others.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may go on calling.
pub(crate) const CAPTURE_THREAD_LOCAL: c_int = 1;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
pub(crate) const LAUNCH_PROGRAMMATIC: c_int = 6;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`: its value is the size in x, y and z.
pub(crate) const LAUNCH_CLUSTER: c_int = 4;

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
    pub(crate) stream: CuObject,
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
pub(crate) struct MapShape {
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
        cuInit: fn(c_uint) -> CuStatus;
        cuDriverGetVersion: fn(*mut c_int) -> CuStatus;
        cuGetErrorString: fn(CuStatus, *mut *const c_char) -> CuStatus;
        cuDeviceGetCount: fn(*mut c_int) -> CuStatus;
        cuDeviceGet: fn(*mut c_int, c_int) -> CuStatus;
        cuDeviceGetName: fn(*mut c_char, c_int, c_int) -> CuStatus;
        cuDeviceGetAttribute: fn(*mut c_int, c_int, c_int) -> CuStatus;
        cuDeviceTotalMem_v2: fn(*mut usize, c_int) -> CuStatus;
        cuCtxCreate_v2: fn(*mut CuObject, c_uint, c_int) -> CuStatus;
        cuCtxDestroy_v2: fn(CuObject) -> CuStatus;
        cuCtxSetCurrent: fn(CuObject) -> CuStatus;
        cuCtxEnablePeerAccess: fn(CuObject, c_uint) -> CuStatus;
        cuMemGetInfo_v2: fn(*mut usize, *mut usize) -> CuStatus;
        cuMemAlloc_v2: fn(*mut CuAddress, usize) -> CuStatus;
        cuMemFree_v2: fn(CuAddress) -> CuStatus;
        cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint) -> CuStatus;
        cuMemFreeHost: fn(*mut c_void) -> CuStatus;
        cuMemcpyHtoDAsync_v2: fn(CuAddress, *const c_void, usize, CuObject) -> CuStatus;
        cuMemcpyDtoHAsync_v2: fn(*mut c_void, CuAddress, usize, CuObject) -> CuStatus;
        cuMemcpyDtoDAsync_v2: fn(CuAddress, CuAddress, usize, CuObject) -> CuStatus;
        cuMemsetD32Async: fn(CuAddress, c_uint, usize, CuObject) -> CuStatus;
        cuStreamCreate: fn(*mut CuObject, c_uint) -> CuStatus;
        cuStreamDestroy_v2: fn(CuObject) -> CuStatus;
        cuStreamSynchronize: fn(CuObject) -> CuStatus;
        cuStreamBeginCapture_v2: fn(CuObject, c_int) -> CuStatus;
        cuStreamEndCapture: fn(CuObject, *mut CuObject) -> CuStatus;
        cuEventCreate: fn(*mut CuObject, c_uint) -> CuStatus;
        cuEventDestroy_v2: fn(CuObject) -> CuStatus;
        cuEventRecord: fn(CuObject, CuObject) -> CuStatus;
        cuEventSynchronize: fn(CuObject) -> CuStatus;
        cuEventElapsedTime: fn(*mut f32, CuObject, CuObject) -> CuStatus;
        cuModuleLoadData: fn(*mut CuObject, *const c_void) -> CuStatus;
        cuModuleUnload: fn(CuObject) -> CuStatus;
        cuModuleGetFunction: fn(*mut CuObject, CuObject, *const c_char) -> CuStatus;
        cuFuncGetAttribute: fn(*mut c_int, c_int, CuObject) -> CuStatus;
        cuFuncSetAttribute: fn(CuObject, c_int, c_int) -> CuStatus;
        cuLaunchKernelEx: fn(*const LaunchConfig, CuObject, *mut *mut c_void, *mut *mut c_void) -> CuStatus;
        cuTensorMapEncodeTiled: fn(*mut TensorMap, c_int, c_uint, CuAddress, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int) -> CuStatus;
        cuGraphInstantiateWithFlags: fn(*mut CuObject, CuObject, u64) -> CuStatus;
        cuGraphDestroy: fn(CuObject) -> CuStatus;
        cuGraphExecDestroy: fn(CuObject) -> CuStatus;
        cuGraphLaunch: fn(CuObject, CuObject) -> CuStatus;
    }
}

functions! {
    /// The loaded functions of NVRTC.
    Nvrtc "system" {
        nvrtcVersion: fn(*mut c_int, *mut c_int) -> CuStatus;
        nvrtcGetNumSupportedArchs: fn(*mut c_int) -> CuStatus;
        nvrtcGetSupportedArchs: fn(*mut c_int) -> CuStatus;
        nvrtcCreateProgram: fn(*mut CuObject, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> CuStatus;
        nvrtcDestroyProgram: fn(*mut CuObject) -> CuStatus;
        nvrtcCompileProgram: fn(CuObject, c_int, *const *const c_char) -> CuStatus;
        nvrtcGetProgramLogSize: fn(CuObject, *mut usize) -> CuStatus;
        nvrtcGetProgramLog: fn(CuObject, *mut c_char) -> CuStatus;
        nvrtcGetCUBINSize: fn(CuObject, *mut usize) -> CuStatus;
        nvrtcGetCUBIN: fn(CuObject, *mut c_char) -> CuStatus;
        nvrtcGetPTXSize: fn(CuObject, *mut usize) -> CuStatus;
        nvrtcGetPTX: fn(CuObject, *mut c_char) -> CuStatus;
    }
}

const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// The driver, loaded and initialised once in a process, or why it is not there.
pub(crate) fn api() -> Result<&'static Api, &'static str> {
    static LOADED: OnceLock<Result<Api, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let mut why = Vec::new();
        // The name with a version first: the other one comes with development packages.
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
