//! Safe handles on what the driver keeps: a context with one stream, memory, events, kernels and graphs. Callers check
//! ranges.
//!
//! All `unsafe` of the backend is here and below, in `sys` and in `nvrtc`. Every object keeps the driver alive and
//! frees itself.
#![allow(unsafe_code)]

mod memory;

pub(crate) use memory::CudaMemory;

use crate::error::{CudaFailure, CudaResult, check};
use crate::sys::{self, Api, CuAddress, CuObject, LaunchAttribute, LaunchConfig, MapShape, TensorMap};
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// How many threads a launch has, and what they share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchGeometry {
    /// Blocks in x, y and z; none is 0.
    pub(crate) groups: [u32; 3],
    /// Blocks of a cluster along x; 1 for a grid without clusters.
    pub(crate) cluster: u32,
    /// Threads of a block.
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub(crate) shared: u32,
}

/// A context of a device, of its own so that its loss is not that of others, and one stream that keeps the order of calls.
pub(crate) struct Driver {
    api: &'static Api,
    context: CuObject,
    stream: CuObject,
}

// SAFETY: the driver's objects may be used from any thread once their context is current there, which every call sees to.
unsafe impl Send for Driver {}
// SAFETY: as above; the driver takes its own locks.
unsafe impl Sync for Driver {}

impl Drop for Driver {
    fn drop(&mut self) {
        let _current = self.enter();
        // SAFETY: both are owned and destroyed once. What else there was in the context held on to it.
        unsafe {
            (self.api.cuStreamDestroy_v2)(self.stream);
            (self.api.cuCtxDestroy_v2)(self.context);
        }
    }
}

impl Driver {
    /// Opens a device of the driver.
    pub(crate) fn open(api: &'static Api, device: c_int) -> CudaResult<Arc<Driver>> {
        let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: gives a context that is owned from here on.
        check(unsafe { (api.cuCtxCreate_v2)(&mut context, 0, device) })?;
        // SAFETY: the context is current after its creation.
        let made = check(unsafe { (api.cuStreamCreate)(&mut stream, sys::STREAM_NON_BLOCKING) });
        if let Err(failure) = made {
            // SAFETY: owned and destroyed once.
            unsafe { (api.cuCtxDestroy_v2)(context) };
            return Err(failure);
        }
        Ok(Arc::new(Driver { api, context, stream }))
    }

    /// Makes the context that of the calling thread.
    pub(crate) fn enter(&self) -> CudaResult {
        // SAFETY: the context is alive.
        check(unsafe { (self.api.cuCtxSetCurrent)(self.context) })
    }

    /// Free and all bytes of the device's memory.
    pub(crate) fn free_memory(&self) -> CudaResult<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: gives two numbers.
        check(unsafe { (self.api.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Host memory of so many bytes that the device reads and writes by itself.
    pub(crate) fn allocate_pinned(self: &Arc<Driver>, size: usize) -> CudaResult<Pinned> {
        let mut start = ptr::null_mut();
        // SAFETY: gives an address that is owned from here on.
        check(unsafe { (self.api.cuMemHostAlloc)(&mut start, size, 0) })?;
        Ok(Pinned { driver: Arc::clone(self), start: start.cast(), size })
    }

    /// An event that has not been recorded.
    pub(crate) fn event(self: &Arc<Driver>) -> CudaResult<Event> {
        let mut raw = ptr::null_mut();
        // SAFETY: gives an event that is owned from here on.
        check(unsafe { (self.api.cuEventCreate)(&mut raw, 0) })?;
        Ok(Event { driver: Arc::clone(self), raw })
    }

    /// Loads a compiled module and takes its kernel `name`; `None` if it has none of that name.
    pub(crate) fn kernel(self: &Arc<Driver>, image: &[u8], name: &str) -> CudaResult<Option<CudaKernel>> {
        let mut module = ptr::null_mut();
        // SAFETY: the image is a whole module, or text that ends with a zero.
        check(unsafe { (self.api.cuModuleLoadData)(&mut module, image.as_ptr().cast()) })?;
        let mut kernel = CudaKernel { driver: Arc::clone(self), module, raw: ptr::null_mut() };
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: a name that ends with a zero.
        match check(unsafe { (self.api.cuModuleGetFunction)(&mut kernel.raw, module, name.as_ptr()) }) {
            Ok(()) => Ok(Some(kernel)),
            Err(CudaFailure(sys::NOT_FOUND)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Fills memory with a word.
    pub(crate) fn fill(&self, memory: &CudaMemory, word: u32) -> CudaResult {
        let words = memory.size() / 4;
        self.fill_words(memory, word, words as usize)
    }

    /// Fills memory and what is behind it with zeros.
    pub(crate) fn clear(&self, memory: &CudaMemory) -> CudaResult {
        self.fill_words(memory, 0, memory.room() / 4)
    }

    fn fill_words(&self, memory: &CudaMemory, word: u32, count: usize) -> CudaResult {
        // SAFETY: so many words fit.
        check(unsafe { (self.api.cuMemsetD32Async)(memory.address(), word, count, self.stream) })
    }

    /// Copies a range to another memory.
    pub(crate) fn copy(
        &self,
        src: &CudaMemory,
        from: u64,
        dst: &CudaMemory,
        to: u64,
        len: usize,
    ) -> CudaResult {
        // SAFETY: the caller has checked both ranges, and the memories differ.
        check(unsafe {
            (self.api.cuMemcpyDtoDAsync_v2)(dst.address() + to, src.address() + from, len, self.stream)
        })
    }

    /// Has the device fetch a range of pinned memory, which must stay as it is until then.
    pub(crate) fn upload(
        &self,
        memory: &CudaMemory,
        offset: u64,
        pinned: &Pinned,
        from: usize,
        len: usize,
    ) -> CudaResult {
        // SAFETY: the callers have checked both ranges.
        check(unsafe {
            let start = pinned.start.add(from).cast_const().cast();
            (self.api.cuMemcpyHtoDAsync_v2)(memory.address() + offset, start, len, self.stream)
        })
    }

    /// Has the device write a range to pinned memory, to be read after it was waited for.
    pub(crate) fn download(
        &self,
        memory: &CudaMemory,
        offset: u64,
        pinned: &Pinned,
        to: usize,
        len: usize,
    ) -> CudaResult {
        // SAFETY: the callers have checked both ranges.
        check(unsafe {
            let start = pinned.start.add(to).cast();
            (self.api.cuMemcpyDtoHAsync_v2)(start, memory.address() + offset, len, self.stream)
        })
    }

    /// The map of an array at an address.
    pub(crate) fn map(&self, at: CuAddress, shape: &MapShape) -> CudaResult<TensorMap> {
        let (mut map, steps) = (TensorMap([0; 16]), [1; 2]);
        let (sizes, area) = (shape.sizes.as_ptr(), shape.area.as_ptr());
        let encode = self.api.cuTensorMapEncodeTiled;
        // SAFETY: writes the map, and reads two sizes, one stride, the box and its steps.
        check(unsafe {
            encode(
                &mut map,
                shape.dtype,
                2,
                at,
                sizes,
                &shape.row,
                area,
                steps.as_ptr(),
                0,
                shape.swizzle,
                sys::MAP_PROMOTION,
                0,
            )
        })?;
        Ok(map)
    }

    /// Starts a kernel with these arguments: numbers of 8 bytes or of 4, and tensor maps. One that `overlaps` may begin before the
    /// kernel in front of it has ended.
    pub(crate) fn launch(
        &self,
        kernel: &CudaKernel,
        arguments: &[Argument],
        geometry: LaunchGeometry,
        overlaps: bool,
    ) -> CudaResult {
        let LaunchGeometry { groups, cluster, block, shared } = geometry;
        let attribute = |id, numbers: &[c_int]| {
            let mut value = [0; 16];
            value[..numbers.len()].copy_from_slice(numbers);
            LaunchAttribute { id, pad: [0; 4], value }
        };
        let mut attributes = Vec::with_capacity(2);
        if overlaps {
            attributes.push(attribute(sys::LAUNCH_PROGRAMMATIC, &[1]));
        }
        if cluster > 1 {
            attributes.push(attribute(sys::LAUNCH_CLUSTER, &[cluster as c_int, 1, 1]));
        }
        let config = LaunchConfig {
            grid: groups,
            block,
            shared,
            stream: self.stream,
            attributes: attributes.as_ptr(),
            count: attributes.len() as u32,
        };
        let packed = PackedArguments::new(arguments);
        let mut places = packed.places();
        let launch = self.api.cuLaunchKernelEx;
        // SAFETY: the arguments have the types that the kernel declares, in its order; the call copies them.
        check(unsafe { launch(&config, kernel.raw, places.as_mut_ptr(), ptr::null_mut()) })
    }

    /// Collects the calls that `work` makes into a graph instead of running them.
    pub(crate) fn capture(self: &Arc<Driver>, work: impl FnOnce() -> CudaResult) -> CudaResult<CudaGraph> {
        // SAFETY: the stream is alive; only this thread calls on it.
        check(unsafe { (self.api.cuStreamBeginCapture_v2)(self.stream, sys::CAPTURE_THREAD_LOCAL) })?;
        let worked = work();
        let (mut template, mut raw) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the capture was begun on this stream; gives a graph that is owned from here on.
        let ended = check(unsafe { (self.api.cuStreamEndCapture)(self.stream, &mut template) });
        worked.and(ended)?;
        // SAFETY: the graph is whole, and destroyed once.
        let made = unsafe {
            let made = check((self.api.cuGraphInstantiateWithFlags)(&mut raw, template, 0));
            (self.api.cuGraphDestroy)(template);
            made
        };
        made.map(|()| CudaGraph { driver: Arc::clone(self), raw })
    }

    /// Runs a graph.
    pub(crate) fn run(&self, graph: &CudaGraph) -> CudaResult {
        // SAFETY: the graph is alive, and so is what it uses, which the caller sees to.
        check(unsafe { (self.api.cuGraphLaunch)(graph.raw, self.stream) })
    }

    /// Waits for all work.
    pub(crate) fn finish(&self) -> CudaResult {
        // SAFETY: the stream is alive.
        check(unsafe { (self.api.cuStreamSynchronize)(self.stream) })
    }
}

/// The alignment of a tensor map among parameters.
const MAP_ALIGNMENT: usize = 64;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Address(CuAddress),
    Bytes(u32),
    Map(TensorMap),
}

/// Arguments, one behind the other as parameters lie. So a kernel can take them one by one, or the first of them, or all, as
/// one structure.
struct PackedArguments {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl PackedArguments {
    fn new(arguments: &[Argument]) -> PackedArguments {
        let mut packed =
            PackedArguments { bytes: Vec::with_capacity(arguments.len() * 8), offsets: Vec::new() };
        for argument in arguments {
            match argument {
                Argument::Address(address) => packed.push(&address.to_ne_bytes(), 8),
                Argument::Bytes(bytes) => packed.push(&bytes.to_ne_bytes(), 4),
                Argument::Map(map) => {
                    let bytes: Vec<u8> = map.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    packed.push(&bytes, MAP_ALIGNMENT);
                }
            }
        }
        packed
    }

    fn push(&mut self, value: &[u8], alignment: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), 0);
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(value);
    }

    /// Where each argument is. The driver reads as many bytes as the kernel declares there.
    fn places(&self) -> Vec<*mut c_void> {
        let place = |&offset: &usize| self.bytes.as_ptr().wrapping_add(offset).cast_mut().cast();
        self.offsets.iter().map(place).collect()
    }
}

/// Host memory that the device reads and writes by itself.
pub(crate) struct Pinned {
    driver: Arc<Driver>,
    start: *mut u8,
    size: usize,
}

// SAFETY: owned memory; see also `Driver`.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Puts bytes at `offset`. The caller sees to it that the device is not reading there.
    pub(crate) fn put(&mut self, offset: usize, data: &[u8]) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.size), "within the memory");
        // SAFETY: the range was checked, and `data` is no part of this memory.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(offset), data.len()) };
    }

    /// Takes bytes from `offset` on. The caller sees to it that the device has written there.
    pub(crate) fn take(&self, offset: usize, out: &mut [u8]) {
        assert!(offset.checked_add(out.len()).is_some_and(|end| end <= self.size), "within the memory");
        // SAFETY: the range was checked, and `out` is no part of this memory.
        unsafe { ptr::copy_nonoverlapping(self.start.add(offset), out.as_mut_ptr(), out.len()) };
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _current = self.driver.enter();
        // SAFETY: owned and freed once, after all work that uses it.
        unsafe {
            (self.driver.api.cuStreamSynchronize)(self.driver.stream);
            (self.driver.api.cuMemFreeHost)(self.start.cast())
        };
    }
}

/// A place in the order of the stream.
pub(crate) struct Event {
    driver: Arc<Driver>,
    raw: CuObject,
}

// SAFETY: see `Driver`.
unsafe impl Send for Event {}

impl Event {
    /// Puts the event behind all work so far.
    pub(crate) fn record(&self) -> CudaResult {
        // SAFETY: both are alive.
        check(unsafe { (self.driver.api.cuEventRecord)(self.raw, self.driver.stream) })
    }

    /// Waits for the work in front of it; at once if it was never recorded.
    pub(crate) fn wait(&self) -> CudaResult {
        // SAFETY: the event is alive.
        check(unsafe { (self.driver.api.cuEventSynchronize)(self.raw) })
    }

    /// Seconds since an event that was recorded before this one.
    pub(crate) fn seconds_since(&self, start: &Event) -> CudaResult<f64> {
        let mut milliseconds = 0.0;
        let elapsed = self.driver.api.cuEventElapsedTime;
        // SAFETY: both are alive.
        check(unsafe { elapsed(&mut milliseconds, start.raw, self.raw) })?;
        Ok(f64::from(milliseconds) / 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _current = self.driver.enter();
        // SAFETY: owned and destroyed once.
        unsafe { (self.driver.api.cuEventDestroy_v2)(self.raw) };
    }
}

/// A compiled kernel.
pub(crate) struct CudaKernel {
    driver: Arc<Driver>,
    module: CuObject,
    raw: CuObject,
}

// SAFETY: see `Driver`.
unsafe impl Send for CudaKernel {}
// SAFETY: see `Driver`.
unsafe impl Sync for CudaKernel {}

impl CudaKernel {
    /// Most threads of a block with which it can be launched, and bytes of shared memory that its text declares.
    pub(crate) fn limits(&self) -> CudaResult<(u32, u32)> {
        Ok((self.attribute(sys::FUNCTION_MAX_THREADS)?, self.attribute(sys::FUNCTION_STATIC_SHARED)?))
    }

    fn attribute(&self, what: c_int) -> CudaResult<u32> {
        let mut value = 0;
        // SAFETY: gives a number.
        check(unsafe { (self.driver.api.cuFuncGetAttribute)(&mut value, what, self.raw) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Allows launches with so much dynamic shared memory.
    pub(crate) fn allow_shared(&self, bytes: u32) -> CudaResult {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        let set = self.driver.api.cuFuncSetAttribute;
        // SAFETY: the kernel is alive.
        check(unsafe { set(self.raw, sys::FUNCTION_MAX_DYNAMIC_SHARED, bytes) })
    }
}

impl Drop for CudaKernel {
    fn drop(&mut self) {
        let _current = self.driver.enter();
        // SAFETY: owned and unloaded once, after the work that uses it.
        unsafe {
            (self.driver.api.cuStreamSynchronize)(self.driver.stream);
            (self.driver.api.cuModuleUnload)(self.module)
        };
    }
}

/// Calls that run as one.
pub(crate) struct CudaGraph {
    driver: Arc<Driver>,
    raw: CuObject,
}

// SAFETY: see `Driver`.
unsafe impl Send for CudaGraph {}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        let _current = self.driver.enter();
        // SAFETY: owned and destroyed once; the driver keeps what still runs.
        unsafe { (self.driver.api.cuGraphExecDestroy)(self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_as_parameters_do() {
        let map = Argument::Map(TensorMap(std::array::from_fn(|i| i as u64)));
        let packed =
            PackedArguments::new(&[Argument::Address(7), Argument::Bytes(5), Argument::Address(9), map, map]);
        assert_eq!(packed.offsets, [0, 8, 16, 64, 192]);
        assert_eq!(packed.bytes.len(), 320);
        assert_eq!((packed.bytes[0], packed.bytes[8], packed.bytes[16]), (7, 5, 9));
        assert_eq!((packed.bytes[64 + 8], packed.bytes[192 + 15 * 8]), (1, 15));
    }
}
