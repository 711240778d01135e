//! The functions of the HIP runtime and of hipRTC that a device needs, from libraries that are loaded when they are first
//! used. Types and numbers are those of AMD's headers `hip_runtime_api.h` and `hiprtc.h`, alike in ROCm 5, 6 and 7.
//!
//! Nothing is linked: a build for HIP runs on machines without it.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use tapml_cfamily::functions;

/// An object of the runtime: a stream, module or function; or a program of hipRTC.
pub(crate) type HipObject = *mut c_void;
/// An address in the device's memory.
pub(crate) type HipAddress = *mut c_void;
/// A status: 0 or an error.
pub(crate) type HipStatus = c_int;

/// `hipErrorOutOfMemory`.
pub(crate) const OUT_OF_MEMORY: HipStatus = 2;

/// Numbers of `hipDeviceAttribute_t`.
pub(crate) mod attribute {
    use super::c_int;
    /// Whether memory is shared with the host.
    pub(crate) const INTEGRATED: c_int = 16;
    /// Those of y and z follow it.
    pub(crate) const MAX_BLOCK_DIM_X: c_int = 26;
    pub(crate) const MAX_THREADS_PER_BLOCK: c_int = 56;
    pub(crate) const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 74;
    /// Lanes of a wave: 32 or 64.
    pub(crate) const WARP_SIZE: c_int = 87;
}

functions! {
    /// The loaded functions of the runtime.
    Api "C" {
        hipInit: fn(c_uint) -> HipStatus;
        hipRuntimeGetVersion: fn(*mut c_int) -> HipStatus;
        hipGetErrorString: fn(HipStatus) -> *const c_char;
        hipGetDeviceCount: fn(*mut c_int) -> HipStatus;
        hipSetDevice: fn(c_int) -> HipStatus;
        hipDeviceGetName: fn(*mut c_char, c_int, c_int) -> HipStatus;
        hipDeviceGetAttribute: fn(*mut c_int, c_int, c_int) -> HipStatus;
        hipDeviceTotalMem: fn(*mut usize, c_int) -> HipStatus;
        hipMalloc: fn(*mut HipAddress, usize) -> HipStatus;
        hipFree: fn(HipAddress) -> HipStatus;
        hipMemcpyHtoDAsync: fn(HipAddress, *mut c_void, usize, HipObject) -> HipStatus;
        hipMemcpyDtoHAsync: fn(*mut c_void, HipAddress, usize, HipObject) -> HipStatus;
        hipMemcpyDtoDAsync: fn(HipAddress, HipAddress, usize, HipObject) -> HipStatus;
        hipMemsetD32Async: fn(HipAddress, c_int, usize, HipObject) -> HipStatus;
        hipStreamCreate: fn(*mut HipObject) -> HipStatus;
        hipStreamDestroy: fn(HipObject) -> HipStatus;
        hipStreamSynchronize: fn(HipObject) -> HipStatus;
        hipModuleLoadData: fn(*mut HipObject, *const c_void) -> HipStatus;
        hipModuleUnload: fn(HipObject) -> HipStatus;
        hipModuleGetFunction: fn(*mut HipObject, HipObject, *const c_char) -> HipStatus;
        hipModuleLaunchKernel: fn(HipObject, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, HipObject, *mut *mut c_void, *mut *mut c_void) -> HipStatus;
    }
}

functions! {
    /// The loaded functions of hipRTC.
    Rtc "C" {
        hiprtcCreateProgram: fn(*mut HipObject, *const c_char, *const c_char, c_int, *mut *const c_char, *mut *const c_char) -> HipStatus;
        hiprtcDestroyProgram: fn(*mut HipObject) -> HipStatus;
        hiprtcCompileProgram: fn(HipObject, c_int, *mut *const c_char) -> HipStatus;
        hiprtcGetProgramLogSize: fn(HipObject, *mut usize) -> HipStatus;
        hiprtcGetProgramLog: fn(HipObject, *mut c_char) -> HipStatus;
        hiprtcGetCodeSize: fn(HipObject, *mut usize) -> HipStatus;
        hiprtcGetCode: fn(HipObject, *mut c_char) -> HipStatus;
    }
}

/// Newest first; a name without a version last, as it may be of any release.
const RUNTIMES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]
};

/// As [`RUNTIMES`].
const COMPILERS: &[&str] = if cfg!(windows) {
    &["hiprtc0700.dll", "hiprtc0602.dll", "hiprtc.dll"]
} else {
    &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"]
};

/// Folders of ROCm that the system's loader may not know.
fn places(name: &str) -> Vec<std::path::PathBuf> {
    let roots = std::env::var_os("ROCM_PATH").into_iter().chain(["/opt/rocm".into()]);
    let installed = roots.map(|root| std::path::Path::new(&root).join("lib").join(name));
    std::iter::once(name.into()).chain(installed).collect()
}

/// The first library that loads; the last failure if none does.
fn load<T>(names: &[&str], from: fn(Library) -> Result<T, libloading::Error>) -> Result<T, String> {
    let mut why = String::new();
    for place in names.iter().flat_map(|name| places(name)) {
        // SAFETY: loading these libraries runs their initialisers only.
        let library = unsafe { Library::new(&place) };
        match library.and_then(from) {
            Ok(found) => return Ok(found),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// The runtime, loaded once in a process, or why it is not there.
pub(crate) fn api() -> Result<&'static Api, &'static str> {
    static LOADED: OnceLock<Result<Api, String>> = OnceLock::new();
    LOADED.get_or_init(|| load(RUNTIMES, Api::from)).as_ref().map_err(String::as_str)
}

/// The compiler, loaded once in a process, or why it is not there.
pub(crate) fn rtc() -> Result<&'static Rtc, &'static str> {
    static LOADED: OnceLock<Result<Rtc, String>> = OnceLock::new();
    LOADED.get_or_init(|| load(COMPILERS, Rtc::from)).as_ref().map_err(String::as_str)
}
