//! Safe handles on what the runtime keeps: the stream that works in order, memory and kernels. Callers check ranges.
#![allow(unsafe_code)]

use crate::error::{Done, check};
use crate::sys::{Address, Api, Object};
use std::ffi::{CString, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// A device with one stream that keeps the order of calls.
pub(crate) struct Stream {
    api: &'static Api,
    device: c_int,
    raw: Object,
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
pub(crate) struct Memory {
    stream: Arc<Stream>,
    raw: Address,
    /// Bytes: a multiple of 4, at least 4.
    size: usize,
}

// SAFETY: see `Stream`.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.stream.enter();
        // SAFETY: owned and freed once; the call waits for the work that uses it.
        unsafe { (self.stream.api.hipFree)(self.raw) };
    }
}

impl Memory {
    pub(crate) fn size(&self) -> u64 {
        self.size as u64
    }

    /// Where it begins.
    #[cfg(test)]
    pub(crate) fn raw_address(&self) -> u64 {
        self.raw as u64
    }

    fn at(&self, offset: usize) -> Address {
        self.raw.wrapping_byte_add(offset)
    }
}

/// A kernel that was loaded.
pub(crate) struct Kernel {
    stream: Arc<Stream>,
    module: Object,
    function: Object,
}

// SAFETY: see `Stream`.
unsafe impl Send for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.stream.enter().and_then(|()| self.stream.finish());
        // SAFETY: owned and unloaded once, after the work that uses it.
        unsafe { (self.stream.api.hipModuleUnload)(self.module) };
    }
}

/// An argument of a kernel.
pub(crate) enum Argument<'a> {
    /// An address so many bytes behind the memory's first.
    Memory(&'a Memory, u64),
    Bytes(u32),
}

impl Stream {
    /// Opens a device.
    pub(crate) fn open(api: &'static Api, device: c_int) -> Done<Arc<Stream>> {
        let mut raw = ptr::null_mut();
        // SAFETY: gives a stream of the device that was made that of the thread.
        check(unsafe { (api.hipSetDevice)(device) })?;
        // SAFETY: as above.
        check(unsafe { (api.hipStreamCreate)(&mut raw) })?;
        Ok(Arc::new(Stream { api, device, raw }))
    }

    /// Makes the device that of this thread.
    pub(crate) fn enter(&self) -> Done {
        // SAFETY: takes a number.
        check(unsafe { (self.api.hipSetDevice)(self.device) })
    }

    /// Memory of `size` bytes, in whole words.
    pub(crate) fn memory(self: &Arc<Stream>, size: usize) -> Done<Memory> {
        let size = size.max(4).next_multiple_of(4);
        let mut raw = ptr::null_mut();
        // SAFETY: gives an address.
        check(unsafe { (self.api.hipMalloc)(&mut raw, size) })?;
        Ok(Memory { stream: Arc::clone(self), raw, size })
    }

    /// Loads a code object and takes its kernel `name`.
    pub(crate) fn kernel(self: &Arc<Stream>, code: &[u8], name: &str) -> Done<Kernel> {
        let name = CString::new(name).unwrap_or_default();
        let mut module = ptr::null_mut();
        // SAFETY: a code object says itself how long it is.
        check(unsafe { (self.api.hipModuleLoadData)(&mut module, code.as_ptr().cast()) })?;
        let mut kernel = Kernel { stream: Arc::clone(self), module, function: ptr::null_mut() };
        // SAFETY: a name that ends with a zero.
        check(unsafe { (self.api.hipModuleGetFunction)(&mut kernel.function, module, name.as_ptr()) })?;
        Ok(kernel)
    }

    /// Copies a range to another memory, from `to` on.
    pub(crate) fn copy(&self, src: &Memory, dst: &Memory, from: Range<usize>, to: usize) -> Done {
        let (dst, src) = (dst.at(to), src.at(from.start));
        // SAFETY: the caller has checked both ranges, and the memories differ.
        check(unsafe { (self.api.hipMemcpyDtoDAsync)(dst, src, from.len(), self.raw) })
    }

    /// Fills the whole memory with a word.
    pub(crate) fn fill(&self, memory: &Memory, word: u32) -> Done {
        // SAFETY: the memory has so many words.
        check(unsafe {
            (self.api.hipMemsetD32Async)(memory.raw, word.cast_signed(), memory.size / 4, self.raw)
        })
    }

    /// Writes bytes that fit behind `offset`; they are taken over when the call returns.
    pub(crate) fn write(&self, memory: &Memory, offset: usize, data: &[u8]) -> Done {
        let start = data.as_ptr().cast_mut().cast();
        // SAFETY: the caller has checked the range; the bytes are only read, and live until the stream is done.
        check(unsafe { (self.api.hipMemcpyHtoDAsync)(memory.at(offset), start, data.len(), self.raw) })?;
        self.finish()
    }

    /// Waits for all work so far and reads bytes that lie behind `offset`.
    pub(crate) fn read(&self, memory: &Memory, offset: usize, out: &mut [u8]) -> Done {
        let start = out.as_mut_ptr().cast();
        // SAFETY: the caller has checked the range, and `out` lives until the stream is done.
        check(unsafe { (self.api.hipMemcpyDtoHAsync)(start, memory.at(offset), out.len(), self.raw) })?;
        self.finish()
    }

    /// Runs a kernel over so many workgroups of this size.
    pub(crate) fn run(
        &self,
        kernel: &Kernel,
        arguments: &[Argument<'_>],
        groups: [u32; 3],
        size: [u32; 3],
    ) -> Done {
        // Each value in 8 bytes: the runtime reads as many as the kernel declares, and words come first in them.
        let mut values: Vec<u64> = arguments.iter().map(value).collect();
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|v| ptr::from_mut(v).cast()).collect();
        let ([gx, gy, gz], [x, y, z]) = (groups, size);
        // SAFETY: the arguments have the types that the printer declared, in its order; the call copies them.
        check(unsafe {
            let launch = self.api.hipModuleLaunchKernel;
            let none = ptr::null_mut();
            launch(kernel.function, gx, gy, gz, x, y, z, 0, self.raw, places.as_mut_ptr(), none)
        })
    }

    /// Waits for all work.
    pub(crate) fn finish(&self) -> Done {
        // SAFETY: the stream is alive.
        check(unsafe { (self.api.hipStreamSynchronize)(self.raw) })
    }
}

/// An argument's bytes, the first ones first.
fn value(argument: &Argument<'_>) -> u64 {
    match *argument {
        Argument::Memory(memory, offset) => memory.raw as u64 + offset,
        Argument::Bytes(bytes) => u64::from(bytes).to_le(),
    }
}
