//! Safe handles on what the runtime keeps: the stream that works in order, memory and kernels. Callers check ranges.
//!
//! Every object keeps the stream alive and frees itself. Writes and reads wait for the stream, because
//! their host memory is the caller's.
#![allow(unsafe_code)]

use crate::error::{HipFailure, HipResult, check};
use crate::sys::{Api, HipAddress, HipObject, Rtc};
use crate::{adapter, rtc};
use std::ffi::{CString, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use tapml_cfamily::device::{Argument, Driver, DriverOptions, Refusal};
use tapml_cfamily::{Dialect, Printed};
use tapml_device::DeviceInfo;
use tapml_graph::{Error, ErrorKind};

/// An open device of HIP and its compiler.
pub struct Hip {
    /// Shared with memory and kernels.
    stream: Arc<Stream>,
    /// Loaded one time in the process.
    rtc: &'static Rtc,
}

/// A device with one stream that keeps the order of calls.
struct Stream {
    api: &'static Api,
    /// Number of the device, made that of the thread before each call.
    device: c_int,
    /// Owned; everything runs on it in the order of the calls.
    raw: HipObject,
}

// SAFETY: streams, memory and modules of HIP may be used from any thread; each call that works with them comes after
// `enter`, which makes the device that of the thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.enter();
        // SAFETY: owned and destroyed once.
        unsafe { (self.api.hipStreamDestroy)(self.raw) };
    }
}

/// Memory of the device.
pub struct HipMemory {
    stream: Arc<Stream>,
    /// Owned.
    raw: HipAddress,
}

// SAFETY: see `Stream`.
unsafe impl Send for HipMemory {}

impl Drop for HipMemory {
    fn drop(&mut self) {
        let _ = self.stream.enter();
        // SAFETY: owned and freed once; the call waits for the work that uses it.
        unsafe { (self.stream.api.hipFree)(self.raw) };
    }
}

impl HipMemory {
    /// A place within the memory; callers check the range.
    fn address_at(&self, offset: usize) -> HipAddress {
        self.raw.wrapping_byte_add(offset)
    }
}

/// A kernel that was loaded.
pub struct HipKernel {
    stream: Arc<Stream>,
    /// Owned; holds the function.
    module: HipObject,
    /// Belongs to the module.
    function: HipObject,
}

// SAFETY: see `Stream`.
unsafe impl Send for HipKernel {}

impl Drop for HipKernel {
    fn drop(&mut self) {
        let _ = self.stream.enter().and_then(|()| self.stream.finish());
        // SAFETY: owned and unloaded once, after the work that uses it.
        unsafe { (self.stream.api.hipModuleUnload)(self.module) };
    }
}

impl Stream {
    /// A stream of its own on a device.
    fn open(api: &'static Api, device: c_int) -> HipResult<Arc<Stream>> {
        let mut raw = ptr::null_mut();
        // SAFETY: gives a stream of the device that was made that of the thread.
        check(unsafe { (api.hipSetDevice)(device) })?;
        // SAFETY: as above.
        check(unsafe { (api.hipStreamCreate)(&mut raw) })?;
        Ok(Arc::new(Stream { api, device, raw }))
    }

    /// Makes the device that of this thread.
    /// The runtime keeps the choice by thread.
    fn enter(&self) -> HipResult {
        // SAFETY: takes a number.
        check(unsafe { (self.api.hipSetDevice)(self.device) })
    }

    /// Loads a code object and takes its kernel `name`.
    fn load(self: &Arc<Stream>, code: &[u8], name: &str) -> HipResult<HipKernel> {
        let name = CString::new(name).unwrap_or_default();
        let mut module = ptr::null_mut();
        // SAFETY: a code object says itself how long it is.
        check(unsafe { (self.api.hipModuleLoadData)(&mut module, code.as_ptr().cast()) })?;
        // Made before the function is looked for, so that a failure unloads the module.
        let mut kernel = HipKernel { stream: Arc::clone(self), module, function: ptr::null_mut() };
        // SAFETY: a name that ends with a zero.
        check(unsafe { (self.api.hipModuleGetFunction)(&mut kernel.function, module, name.as_ptr()) })?;
        Ok(kernel)
    }

    /// Waits for all work.
    fn finish(&self) -> HipResult {
        // SAFETY: the stream is alive.
        check(unsafe { (self.api.hipStreamSynchronize)(self.raw) })
    }
}

impl Hip {
    /// Opens device `index` of this runtime.
    ///
    /// Tests call it with tables of functions that need no runtime.
    pub(crate) fn open_on(
        api: &'static Api,
        rtc: &'static Rtc,
        index: usize,
        options: DriverOptions,
    ) -> tapml_graph::Result<(Hip, DeviceInfo)> {
        let (at, info) = adapter::find_device(api, index, options)?;
        let stream = Stream::open(api, at).map_err(|failure| {
            let text = format!("HIP device {at} ({}) cannot be opened: {failure}", info.name);
            Error::new(ErrorKind::Unavailable, text).with_hint("is it in use by others, or out of memory?")
        })?;
        Ok((Hip { stream, rtc }, info))
    }
}

impl Driver for Hip {
    const DIALECT: Dialect = Dialect::Hip;
    type Memory = HipMemory;
    type Kernel = HipKernel;
    type Failure = HipFailure;

    fn open(index: usize, options: DriverOptions) -> tapml_graph::Result<(Hip, DeviceInfo)> {
        Hip::open_on(adapter::load_api()?, adapter::load_rtc()?, index, options)
    }

    fn enter(&self) -> HipResult {
        self.stream.enter()
    }

    fn memory(&self, bytes: usize) -> HipResult<HipMemory> {
        let mut raw = ptr::null_mut();
        // SAFETY: gives an address.
        check(unsafe { (self.stream.api.hipMalloc)(&mut raw, bytes) })?;
        Ok(HipMemory { stream: Arc::clone(&self.stream), raw })
    }

    /// Compiled for the device of this thread.
    fn kernel(&self, printed: &Printed, _: &DeviceInfo) -> Result<HipKernel, Refusal<HipFailure>> {
        let code = rtc::compile(self.rtc, &printed.text)?;
        self.stream.load(&code, &printed.name).map_err(|failure| Refusal::Call("load", failure))
    }

    fn copy(&self, src: &HipMemory, dst: &HipMemory, from: Range<usize>, to: usize) -> HipResult {
        let (dst, src) = (dst.address_at(to), src.address_at(from.start));
        // SAFETY: the caller has checked both ranges, and the memories differ.
        check(unsafe { (self.stream.api.hipMemcpyDtoDAsync)(dst, src, from.len(), self.stream.raw) })
    }

    fn fill(&self, memory: &HipMemory, bytes: usize, word: u32) -> HipResult {
        // SAFETY: the memory has so many words.
        check(unsafe {
            (self.stream.api.hipMemsetD32Async)(memory.raw, word.cast_signed(), bytes / 4, self.stream.raw)
        })
    }

    fn write(&self, memory: &HipMemory, offset: usize, data: &[u8]) -> HipResult {
        let start = data.as_ptr().cast_mut().cast();
        // SAFETY: the caller has checked the range; the bytes are only read, and live until the stream is done.
        check(unsafe {
            (self.stream.api.hipMemcpyHtoDAsync)(
                memory.address_at(offset),
                start,
                data.len(),
                self.stream.raw,
            )
        })?;
        self.stream.finish()
    }

    fn read(&self, memory: &HipMemory, offset: usize, out: &mut [u8]) -> HipResult {
        let start = out.as_mut_ptr().cast();
        // SAFETY: the caller has checked the range, and `out` lives until the stream is done.
        check(unsafe {
            (self.stream.api.hipMemcpyDtoHAsync)(start, memory.address_at(offset), out.len(), self.stream.raw)
        })?;
        self.stream.finish()
    }

    fn run(
        &self,
        kernel: &HipKernel,
        arguments: &[Argument<'_, HipMemory>],
        groups: [u32; 3],
        size: [u32; 3],
    ) -> HipResult {
        // Each value in 8 bytes: the runtime reads as many as the kernel declares, and words come first in them.
        let mut values: Vec<u64> = arguments.iter().map(value).collect();
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|v| ptr::from_mut(v).cast()).collect();
        let ([gx, gy, gz], [x, y, z]) = (groups, size);
        // SAFETY: the arguments have the types that the printer declared, in its order; the call copies them.
        check(unsafe {
            let launch = self.stream.api.hipModuleLaunchKernel;
            let none = ptr::null_mut();
            launch(kernel.function, gx, gy, gz, x, y, z, 0, self.stream.raw, places.as_mut_ptr(), none)
        })
    }

    fn finish(&self) -> HipResult {
        self.stream.finish()
    }
}

/// An argument's bytes, the first ones first.
fn value(argument: &Argument<'_, HipMemory>) -> u64 {
    match *argument {
        Argument::Memory(memory, offset) => memory.raw as u64 + offset,
        Argument::Offset(offset) => offset,
        Argument::Bytes(bytes) => u64::from(bytes).to_le(),
    }
}
