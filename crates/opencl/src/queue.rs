//! Safe handles on what OpenCL keeps: contexts, memory, kernels and the queue that works in order. Callers check ranges.
//!
//! Every object is owned by one Rust value and released when it is dropped. Memory and kernels hold the queue, so the context outlives
//! them.
#![allow(unsafe_code)]

use crate::adapter;
use crate::error::{ClFailure, ClResult, check};
use crate::sys::{self, Api, ClObject};
use std::ffi::CString;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use tapml_cfamily::device::{Argument, Driver, DriverOptions, Refusal};
use tapml_cfamily::{Dialect, Printed};
use tapml_device::DeviceInfo;
use tapml_graph::{Error, ErrorKind};

/// An open device of OpenCL.
pub struct OpenCl(Arc<Queue>);

/// A device and its context with one queue that keeps the order of calls.
struct Queue {
    /// The loaded functions.
    api: &'static Api,
    /// Not owned: devices of a platform are never released.
    device: ClObject,
    /// Owned.
    context: ClObject,
    /// Owned; it runs commands in the order in which they are enqueued.
    queue: ClObject,
}

// SAFETY: OpenCL's objects may be used from any thread (OpenCL 1.2, appendix A.2); kernels, which are the exception when
// arguments are set, are used through exclusive owners.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: both are owned and released once; the queue holds on to its context.
        unsafe {
            (self.api.clReleaseCommandQueue)(self.queue);
            (self.api.clReleaseContext)(self.context);
        }
    }
}

/// Memory of the device.
pub struct ClMemory {
    /// Keeps the context alive.
    queue: Arc<Queue>,
    /// Owned.
    raw: ClObject,
}

// SAFETY: see `Queue`.
unsafe impl Send for ClMemory {}

impl Drop for ClMemory {
    fn drop(&mut self) {
        // SAFETY: owned and released once. OpenCL keeps the memory until the commands that use it have run.
        unsafe { (self.queue.api.clReleaseMemObject)(self.raw) };
    }
}

/// A compiled kernel.
pub struct ClKernel {
    queue: Arc<Queue>,
    /// Owned; the kernel is taken from it.
    program: ClObject,
    /// Owned; null while the program is being built.
    raw: ClObject,
}

// SAFETY: see `Queue`; only the device that owns the kernel sets its arguments.
unsafe impl Send for ClKernel {}

impl Drop for ClKernel {
    fn drop(&mut self) {
        // SAFETY: owned and released once.
        unsafe {
            if !self.raw.is_null() {
                (self.queue.api.clReleaseKernel)(self.raw);
            }
            (self.queue.api.clReleaseProgram)(self.program);
        }
    }
}

impl OpenCl {
    /// Opens a device that OpenCL has listed.
    fn open_device(api: &'static Api, device: ClObject) -> ClResult<OpenCl> {
        let mut status = 0;
        // SAFETY: one device, no properties, no callback.
        let context = unsafe {
            (api.clCreateContext)(ptr::null(), 1, &device, ptr::null(), ptr::null_mut(), &mut status)
        };
        check(status)?;
        // SAFETY: the device is the context's.
        let queue = unsafe { (api.clCreateCommandQueue)(context, device, 0, &mut status) };
        if status != 0 {
            // SAFETY: owned and released once.
            unsafe { (api.clReleaseContext)(context) };
        }
        check(status)?;
        Ok(OpenCl(Arc::new(Queue { api, device, context, queue })))
    }

    /// Builds a program and takes its kernel `name`.
    fn build(&self, text: &str, options: &str, name: &str) -> Result<ClKernel, Refusal<ClFailure>> {
        let (queue, api) = (&self.0, self.0.api);
        let call = |failure| Refusal::Call("compile", failure);
        // Both are made by TapML and hold no zero byte.
        let [options, name] = [options, name].map(|s| CString::new(s).unwrap_or_default());
        let (mut status, length, start) = (0, text.len(), text.as_ptr().cast());
        // SAFETY: one text of this length.
        let program =
            unsafe { (api.clCreateProgramWithSource)(queue.context, 1, &start, &length, &mut status) };
        check(status).map_err(call)?;
        // From here on dropping it releases the program, whatever fails.
        let mut kernel = ClKernel { queue: Arc::clone(queue), program, raw: ptr::null_mut() };
        // SAFETY: one device, options that end with a zero, no callback.
        status = unsafe {
            let build = api.clBuildProgram;
            build(program, 1, &queue.device, options.as_ptr(), ptr::null(), ptr::null_mut())
        };
        if status == sys::BUILD_PROGRAM_FAILURE {
            return Err(Refusal::Log(self.log(program)));
        }
        check(status).map_err(call)?;
        // SAFETY: a name that ends with a zero.
        kernel.raw = unsafe { (api.clCreateKernel)(program, name.as_ptr(), &mut status) };
        check(status).map_err(call)?;
        Ok(kernel)
    }

    /// What the compiler said about a program; at most 1 MiB of it.
    fn log(&self, program: ClObject) -> String {
        let (ask, what) = (self.0.api.clGetProgramBuildInfo, sys::PROGRAM_BUILD_LOG);
        let mut size = 0;
        // SAFETY: asks for the size alone.
        unsafe { ask(program, self.0.device, what, 0, ptr::null_mut(), &mut size) };
        let mut bytes = vec![0u8; size.min(1 << 20)];
        // SAFETY: room for as many bytes as are said.
        unsafe { ask(program, self.0.device, what, bytes.len(), bytes.as_mut_ptr().cast(), ptr::null_mut()) };
        String::from_utf8_lossy(&bytes).trim_matches(['\0', '\n', ' ']).to_string()
    }
}

/// What the driver's compiler is told. PoCL 3.1 (over LLVM 14), when it optimises, lets invocations store in a loop
/// behind conditions that are false for them: the kernel of `linear` then writes outputs past the end of a row. Oclgrind
/// does not know all instructions that optimising makes.
fn flags(info: &DeviceInfo) -> &'static str {
    let plain = ["Portable Computing Language", "Oclgrind"].iter().any(|name| info.driver.starts_with(name));
    if plain { "-cl-std=CL1.2 -cl-opt-disable" } else { "-cl-std=CL1.2" }
}

impl Driver for OpenCl {
    const DIALECT: Dialect = Dialect::OpenCl;
    type Memory = ClMemory;
    type Kernel = ClKernel;
    type Failure = ClFailure;

    fn open(index: usize, options: DriverOptions) -> tapml_graph::Result<(OpenCl, DeviceInfo)> {
        let (listed, info) = adapter::find_device(index, options)?;
        let opened = OpenCl::open_device(listed.api, listed.device).map_err(|failure| {
            let text = format!("OpenCL device {index} ({}) cannot be opened: {failure}", info.name);
            Error::new(ErrorKind::Unavailable, text).with_hint("is the driver in working order?")
        })?;
        Ok((opened, info))
    }

    // OpenCL refuses 0 bytes.
    fn memory(&self, bytes: usize) -> ClResult<ClMemory> {
        let (queue, mut status) = (&self.0, 0);
        // SAFETY: no host memory is handed over.
        let raw = unsafe {
            let create = queue.api.clCreateBuffer;
            create(queue.context, sys::MEM_READ_WRITE, bytes, ptr::null_mut(), &mut status)
        };
        check(status)?;
        Ok(ClMemory { queue: Arc::clone(queue), raw })
    }

    fn kernel(&self, printed: &Printed, info: &DeviceInfo) -> Result<ClKernel, Refusal<ClFailure>> {
        self.build(&printed.text, flags(info), &printed.name)
    }

    fn copy(&self, src: &ClMemory, dst: &ClMemory, from: Range<usize>, to: usize) -> ClResult {
        let (queue, len) = (self.0.queue, from.len());
        // SAFETY: the caller has checked both ranges, and the memories differ.
        check(unsafe {
            let copy = self.0.api.clEnqueueCopyBuffer;
            copy(queue, src.raw, dst.raw, from.start, to, len, 0, ptr::null(), ptr::null_mut())
        })
    }

    fn fill(&self, memory: &ClMemory, bytes: usize, word: u32) -> ClResult {
        let (queue, pattern) = (self.0.queue, ptr::from_ref(&word).cast());
        // SAFETY: the memory has this size, a multiple of the pattern's, which the call copies.
        check(unsafe {
            let fill = self.0.api.clEnqueueFillBuffer;
            fill(queue, memory.raw, pattern, 4, 0, bytes, 0, ptr::null(), ptr::null_mut())
        })
    }

    fn write(&self, memory: &ClMemory, offset: usize, data: &[u8]) -> ClResult {
        let (queue, start) = (self.0.queue, data.as_ptr().cast());
        // SAFETY: the caller has checked the range, and the call does not return before `data` was read.
        check(unsafe {
            let write = self.0.api.clEnqueueWriteBuffer;
            write(queue, memory.raw, sys::TRUE, offset, data.len(), start, 0, ptr::null(), ptr::null_mut())
        })
    }

    fn read(&self, memory: &ClMemory, offset: usize, out: &mut [u8]) -> ClResult {
        let (queue, start) = (self.0.queue, out.as_mut_ptr().cast());
        // SAFETY: the caller has checked the range, and the call does not return before `out` was written.
        check(unsafe {
            let read = self.0.api.clEnqueueReadBuffer;
            read(queue, memory.raw, sys::TRUE, offset, out.len(), start, 0, ptr::null(), ptr::null_mut())
        })
    }

    fn run(
        &self,
        kernel: &ClKernel,
        arguments: &[Argument<'_, ClMemory>],
        groups: [u32; 3],
        size: [u32; 3],
    ) -> ClResult {
        for (argument, index) in arguments.iter().zip(0..) {
            let (size, start) = match argument {
                Argument::Memory(memory, _) => (size_of::<ClObject>(), ptr::from_ref(&memory.raw).cast()),
                // `ulong` and `uint` in the printed kernel.
                Argument::Offset(offset) => (8, ptr::from_ref(offset).cast()),
                Argument::Bytes(bytes) => (4, ptr::from_ref(bytes).cast()),
            };
            // SAFETY: the arguments have the types that the printer declared, in its order; the call copies them.
            check(unsafe { (self.0.api.clSetKernelArg)(kernel.raw, index, size, start) })?;
        }
        let local = size.map(|n| n as usize);
        // OpenCL counts invocations, not workgroups.
        let global = [0, 1, 2].map(|axis| groups[axis] as usize * local[axis]);
        // SAFETY: all arguments are set, and the sizes are arrays of three.
        check(unsafe {
            let run = self.0.api.clEnqueueNDRangeKernel;
            let (none, event) = (ptr::null(), ptr::null_mut());
            run(self.0.queue, kernel.raw, 3, ptr::null(), global.as_ptr(), local.as_ptr(), 0, none, event)
        })
    }

    fn flush(&self) -> ClResult {
        // SAFETY: the queue is alive.
        check(unsafe { (self.0.api.clFlush)(self.0.queue) })
    }

    fn finish(&self) -> ClResult {
        // SAFETY: the queue is alive.
        check(unsafe { (self.0.api.clFinish)(self.0.queue) })
    }
}
