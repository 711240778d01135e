//! The functions of OpenCL 1.2 that a device needs, from the library that is loaded when it is first used. Types and
//! numbers are those of the Khronos headers `cl.h` and `cl_platform.h`.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use tapml_cfamily::functions;

/// An object of OpenCL: a platform, device, context, queue, buffer, program or kernel.
pub(crate) type Object = *mut c_void;
/// A status: 0 or a negative error.
pub(crate) type Status = i32;

pub(crate) const DEVICE_TYPE_CPU: u64 = 1 << 1;
pub(crate) const DEVICE_TYPE_GPU: u64 = 1 << 2;
pub(crate) const DEVICE_TYPE_ALL: u64 = 0xffff_ffff;
pub(crate) const MEM_READ_WRITE: u64 = 1;
pub(crate) const TRUE: u32 = 1;
pub(crate) const PLATFORM_NAME: u32 = 0x0902;
pub(crate) const DEVICE_TYPE: u32 = 0x1000;
pub(crate) const DEVICE_MAX_WORK_GROUP_SIZE: u32 = 0x1004;
pub(crate) const DEVICE_MAX_WORK_ITEM_SIZES: u32 = 0x1005;
pub(crate) const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
pub(crate) const DEVICE_MAX_PARAMETER_SIZE: u32 = 0x1017;
pub(crate) const DEVICE_LOCAL_MEM_SIZE: u32 = 0x1023;
pub(crate) const DEVICE_ENDIAN_LITTLE: u32 = 0x1026;
pub(crate) const DEVICE_AVAILABLE: u32 = 0x1027;
pub(crate) const DEVICE_COMPILER_AVAILABLE: u32 = 0x1028;
pub(crate) const DEVICE_NAME: u32 = 0x102b;
pub(crate) const DRIVER_VERSION: u32 = 0x102d;
pub(crate) const DEVICE_HOST_UNIFIED_MEMORY: u32 = 0x1035;
pub(crate) const PROGRAM_BUILD_LOG: u32 = 0x1183;
pub(crate) const MEM_OBJECT_ALLOCATION_FAILURE: Status = -4;
pub(crate) const OUT_OF_RESOURCES: Status = -5;
pub(crate) const OUT_OF_HOST_MEMORY: Status = -6;
pub(crate) const BUILD_PROGRAM_FAILURE: Status = -11;

functions! {
    /// The loaded functions.
    Api "system" {
        clGetPlatformIDs: fn(u32, *mut Object, *mut u32) -> Status;
        clGetPlatformInfo: fn(Object, u32, usize, *mut c_void, *mut usize) -> Status;
        clGetDeviceIDs: fn(Object, u64, u32, *mut Object, *mut u32) -> Status;
        clGetDeviceInfo: fn(Object, u32, usize, *mut c_void, *mut usize) -> Status;
        clCreateContext: fn(*const isize, u32, *const Object, *const c_void, *mut c_void, *mut Status) -> Object;
        clReleaseContext: fn(Object) -> Status;
        clCreateCommandQueue: fn(Object, Object, u64, *mut Status) -> Object;
        clReleaseCommandQueue: fn(Object) -> Status;
        clCreateBuffer: fn(Object, u64, usize, *mut c_void, *mut Status) -> Object;
        clReleaseMemObject: fn(Object) -> Status;
        clEnqueueReadBuffer: fn(Object, Object, u32, usize, usize, *mut c_void, u32, *const Object, *mut Object) -> Status;
        clEnqueueWriteBuffer: fn(Object, Object, u32, usize, usize, *const c_void, u32, *const Object, *mut Object) -> Status;
        clEnqueueCopyBuffer: fn(Object, Object, Object, usize, usize, usize, u32, *const Object, *mut Object) -> Status;
        clEnqueueFillBuffer: fn(Object, Object, *const c_void, usize, usize, usize, u32, *const Object, *mut Object) -> Status;
        clCreateProgramWithSource: fn(Object, u32, *const *const c_char, *const usize, *mut Status) -> Object;
        clBuildProgram: fn(Object, u32, *const Object, *const c_char, *const c_void, *mut c_void) -> Status;
        clGetProgramBuildInfo: fn(Object, Object, u32, usize, *mut c_void, *mut usize) -> Status;
        clReleaseProgram: fn(Object) -> Status;
        clCreateKernel: fn(Object, *const c_char, *mut Status) -> Object;
        clReleaseKernel: fn(Object) -> Status;
        clSetKernelArg: fn(Object, u32, usize, *const c_void) -> Status;
        clEnqueueNDRangeKernel: fn(Object, Object, u32, *const usize, *const usize, *const usize, u32, *const Object, *mut Object) -> Status;
        clFlush: fn(Object) -> Status;
        clFinish: fn(Object) -> Status;
    }
}

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
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    });
    loaded.as_ref().map_err(String::as_str)
}
