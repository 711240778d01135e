//! The functions of OpenCL 1.2 that a device needs, from the library that is loaded when it is first used. Types and
//! numbers are those of the Khronos headers `cl.h` and `cl_platform.h`.
//!
//! Nothing links to OpenCL, so the program starts on a machine without it. Names of functions are OpenCL's own.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use tapml_cfamily::functions;

/// An object of OpenCL: a platform, device, context, queue, buffer, program or kernel.
pub(crate) type ClObject = *mut c_void;
/// A status: 0 or a negative error.
pub(crate) type ClStatus = i32;

/// Bits of `cl_device_type`.
pub(crate) const DEVICE_TYPE_CPU: u64 = 1 << 1;
pub(crate) const DEVICE_TYPE_GPU: u64 = 1 << 2;
pub(crate) const DEVICE_TYPE_ALL: u64 = 0xffff_ffff;
/// A flag of `cl_mem_flags`: kernels may read and write.
pub(crate) const MEM_READ_WRITE: u64 = 1;
/// `cl_bool`; a read or write with it blocks until the host memory may be used again.
pub(crate) const TRUE: u32 = 1;
/// Answered with a text.
pub(crate) const PLATFORM_NAME: u32 = 0x0902;
/// Answered with 8 bytes of `DEVICE_TYPE_*` bits.
pub(crate) const DEVICE_TYPE: u32 = 0x1000;
/// Answered with a `size_t`: invocations of a workgroup.
pub(crate) const DEVICE_MAX_WORK_GROUP_SIZE: u32 = 0x1004;
/// Answered with a `size_t` per dimension.
pub(crate) const DEVICE_MAX_WORK_ITEM_SIZES: u32 = 0x1005;
/// Answered with 8 bytes: the largest allocation in bytes.
pub(crate) const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
/// Answered with a `size_t`: bytes of all arguments of a kernel.
pub(crate) const DEVICE_MAX_PARAMETER_SIZE: u32 = 0x1017;
/// Answered with 8 bytes: workgroup memory in bytes.
pub(crate) const DEVICE_LOCAL_MEM_SIZE: u32 = 0x1023;
/// Answered with a `cl_bool` of 4 bytes.
pub(crate) const DEVICE_ENDIAN_LITTLE: u32 = 0x1026;
/// Answered with a `cl_bool` of 4 bytes.
pub(crate) const DEVICE_AVAILABLE: u32 = 0x1027;
/// Answered with a `cl_bool` of 4 bytes.
pub(crate) const DEVICE_COMPILER_AVAILABLE: u32 = 0x1028;
pub(crate) const DEVICE_NAME: u32 = 0x102b;
pub(crate) const DRIVER_VERSION: u32 = 0x102d;
/// Answered with a `cl_bool` of 4 bytes.
pub(crate) const DEVICE_HOST_UNIFIED_MEMORY: u32 = 0x1035;
/// Answered with a text.
pub(crate) const PROGRAM_BUILD_LOG: u32 = 0x1183;
pub(crate) const MEM_OBJECT_ALLOCATION_FAILURE: ClStatus = -4;
pub(crate) const OUT_OF_RESOURCES: ClStatus = -5;
pub(crate) const OUT_OF_HOST_MEMORY: ClStatus = -6;
/// The compiler refused the text; its log says why.
pub(crate) const BUILD_PROGRAM_FAILURE: ClStatus = -11;

functions! {
    /// The loaded functions.
    Api "system" {
        clGetPlatformIDs: fn(u32, *mut ClObject, *mut u32) -> ClStatus;
        clGetPlatformInfo: fn(ClObject, u32, usize, *mut c_void, *mut usize) -> ClStatus;
        clGetDeviceIDs: fn(ClObject, u64, u32, *mut ClObject, *mut u32) -> ClStatus;
        clGetDeviceInfo: fn(ClObject, u32, usize, *mut c_void, *mut usize) -> ClStatus;
        clCreateContext: fn(*const isize, u32, *const ClObject, *const c_void, *mut c_void, *mut ClStatus) -> ClObject;
        clReleaseContext: fn(ClObject) -> ClStatus;
        clCreateCommandQueue: fn(ClObject, ClObject, u64, *mut ClStatus) -> ClObject;
        clReleaseCommandQueue: fn(ClObject) -> ClStatus;
        clCreateBuffer: fn(ClObject, u64, usize, *mut c_void, *mut ClStatus) -> ClObject;
        clReleaseMemObject: fn(ClObject) -> ClStatus;
        clEnqueueReadBuffer: fn(ClObject, ClObject, u32, usize, usize, *mut c_void, u32, *const ClObject, *mut ClObject) -> ClStatus;
        clEnqueueWriteBuffer: fn(ClObject, ClObject, u32, usize, usize, *const c_void, u32, *const ClObject, *mut ClObject) -> ClStatus;
        clEnqueueCopyBuffer: fn(ClObject, ClObject, ClObject, usize, usize, usize, u32, *const ClObject, *mut ClObject) -> ClStatus;
        clEnqueueFillBuffer: fn(ClObject, ClObject, *const c_void, usize, usize, usize, u32, *const ClObject, *mut ClObject) -> ClStatus;
        clCreateProgramWithSource: fn(ClObject, u32, *const *const c_char, *const usize, *mut ClStatus) -> ClObject;
        clBuildProgram: fn(ClObject, u32, *const ClObject, *const c_char, *const c_void, *mut c_void) -> ClStatus;
        clGetProgramBuildInfo: fn(ClObject, ClObject, u32, usize, *mut c_void, *mut usize) -> ClStatus;
        clReleaseProgram: fn(ClObject) -> ClStatus;
        clCreateKernel: fn(ClObject, *const c_char, *mut ClStatus) -> ClObject;
        clReleaseKernel: fn(ClObject) -> ClStatus;
        clSetKernelArg: fn(ClObject, u32, usize, *const c_void) -> ClStatus;
        clEnqueueNDRangeKernel: fn(ClObject, ClObject, u32, *const usize, *const usize, *const usize, u32, *const ClObject, *mut ClObject) -> ClStatus;
        clFlush: fn(ClObject) -> ClStatus;
        clFinish: fn(ClObject) -> ClStatus;
    }
}

/// Names of the library, tried in order.
const NAMES: &[&str] = if cfg!(windows) {
    &["OpenCL.dll"]
} else if cfg!(target_vendor = "apple") {
    &["/System/Library/Frameworks/OpenCL.framework/OpenCL"]
} else {
    &["libOpenCL.so.1", "libOpenCL.so"]
};

/// The library, loaded once in a process, or why it is not there.
pub(crate) fn api() -> Result<&'static Api, &'static str> {
    static LOADED: OnceLock<Result<Api, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let mut why = String::new();
        for name in NAMES {
            // SAFETY: loading the library of OpenCL runs its initialisers only.
            let library = unsafe { Library::new(name) };
            match library.and_then(Api::from) {
                Ok(api) => return Ok(api),
                // The last reason is kept: earlier names are often just not there.
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    });
    loaded.as_ref().map_err(String::as_str)
}
