//! Tables of the functions of the runtime and of hipRTC over host memory. What was launched is noted for each thread, with
//! its arguments; nothing is computed. Calls can be made to fail.
//!
//! Tests run the whole backend on it without a GPU.
//!
//! Each function stands for the one that the tables name. Statuses are those of `hipError_t`. State belongs
//! to a thread, so that tests that run side by side do not see each other.
#![allow(unsafe_code, non_snake_case)]

use crate::sys::{Api, HipAddress, HipObject, HipStatus, Rtc, attribute};
use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

/// Buffers above this do not fit.
pub const MEMORY: usize = 1 << 30;

thread_local! {
    // Bytes of each allocation, by its address.
    static SIZES: RefCell<HashMap<usize, usize>> = RefCell::default();
    // In the order of the calls.
    static NOTED: RefCell<Vec<NotedLaunch>> = RefCell::default();
    static SYNC_FAILS: Cell<HipStatus> = const { Cell::new(0) };
}

/// A launch: the kernel's name, groups, workgroup and the first arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct NotedLaunch {
    /// The entry point.
    pub name: String,
    /// Workgroups in x, y and z.
    pub groups: [u32; 3],
    /// Threads in x, y and z.
    pub workgroup: [u32; 3],
    /// An address and a number of bytes.
    pub arguments: [u64; 2],
}

/// What was launched since the last call.
pub fn take_launches() -> Vec<NotedLaunch> {
    NOTED.with_borrow_mut(std::mem::take)
}

/// Bytes that are allocated on this thread.
pub fn allocated_bytes() -> usize {
    SIZES.with_borrow(|sizes| sizes.values().sum())
}

/// Where the only allocation of this thread begins.
pub fn start() -> u64 {
    SIZES.with_borrow(|sizes| match sizes.keys().collect::<Vec<_>>()[..] {
        [&start] => start as u64,
        _ => panic!("{} allocations", sizes.len()),
    })
}

/// Lets waiting fail with a status from now on; 0 for no failure.
pub fn fail_to_wait(status: HipStatus) {
    SYNC_FAILS.set(status);
}

/// Writes a result to its place and succeeds.
unsafe fn put<T>(place: *mut T, value: T) -> HipStatus {
    // SAFETY: the device hands over places for the results.
    unsafe { place.write(value) };
    0
}

/// 256 bytes, as the runtime aligns.
fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).unwrap()
}

/// Whether memory that was allocated here holds the range.
fn holds(address: HipAddress, len: usize) -> bool {
    let at = address as usize;
    SIZES.with_borrow(|sizes| sizes.iter().any(|(&start, &size)| start <= at && at + len <= start + size))
}

unsafe extern "C" fn init(_: c_uint) -> HipStatus {
    0
}
/// HIP 6.3.0: ten millions are the major release, hundred thousands the minor one.
unsafe extern "C" fn version(place: *mut c_int) -> HipStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, 60_300_000) }
}
unsafe extern "C" fn text(_: HipStatus) -> *const c_char {
    c"a stub's error".as_ptr()
}
/// One device.
unsafe extern "C" fn count(place: *mut c_int) -> HipStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, 1) }
}
/// `hipErrorInvalidValue` for another device than the first.
unsafe extern "C" fn set_device(index: c_int) -> HipStatus {
    c_int::from(index != 0)
}
/// Fails the test if there is no room for the name.
unsafe extern "C" fn name(place: *mut c_char, room: c_int, _: c_int) -> HipStatus {
    let name = c"Stub".to_bytes_with_nul();
    assert!(name.len() <= room as usize);
    // SAFETY: there is room.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), place, name.len()) };
    0
}
/// What the adapter asks for; `hipErrorInvalidValue` for anything else.
unsafe extern "C" fn number(place: *mut c_int, what: c_int, _: c_int) -> HipStatus {
    let value = match what {
        attribute::INTEGRATED => 0,
        26..=28 | attribute::MAX_THREADS_PER_BLOCK => 1024,
        attribute::MAX_SHARED_MEMORY_PER_BLOCK => 64 << 10,
        attribute::WARP_SIZE => 64,
        _ => return 1,
    };
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, value) }
}
unsafe extern "C" fn total(place: *mut usize, _: c_int) -> HipStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, MEMORY) }
}
/// Fails for more than [`MEMORY`].
unsafe extern "C" fn malloc(place: *mut HipAddress, size: usize) -> HipStatus {
    if size > MEMORY {
        return crate::sys::OUT_OF_MEMORY;
    }
    // SAFETY: a size above 0.
    let start = unsafe { alloc(layout(size)) };
    SIZES.with_borrow_mut(|sizes| sizes.insert(start as usize, size));
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, start.cast()) }
}
/// `hipErrorInvalidValue` for what is not allocated.
unsafe extern "C" fn free(address: HipAddress) -> HipStatus {
    let Some(size) = SIZES.with_borrow_mut(|sizes| sizes.remove(&(address as usize))) else { return 1 };
    // SAFETY: allocated above with this size.
    unsafe { dealloc(address.cast(), layout(size)) };
    0
}
/// Copies at once: there is no work to wait for. Fails the test outside of allocated memory.
unsafe extern "C" fn upload(to: HipAddress, from: *mut c_void, len: usize, _: HipObject) -> HipStatus {
    assert!(holds(to, len));
    // SAFETY: the range was checked, and the source is the caller's.
    unsafe { ptr::copy(from.cast::<u8>(), to.cast(), len) };
    0
}
unsafe extern "C" fn download(to: *mut c_void, from: HipAddress, len: usize, _: HipObject) -> HipStatus {
    assert!(holds(from, len));
    // SAFETY: as above.
    unsafe { ptr::copy(from.cast::<u8>(), to.cast(), len) };
    0
}
unsafe extern "C" fn copy(to: HipAddress, from: HipAddress, len: usize, _: HipObject) -> HipStatus {
    assert!(holds(to, len) && holds(from, len));
    // SAFETY: as above.
    unsafe { ptr::copy(from.cast::<u8>(), to.cast(), len) };
    0
}
unsafe extern "C" fn set(to: HipAddress, word: c_int, count: usize, _: HipObject) -> HipStatus {
    assert!(holds(to, 4 * count));
    // SAFETY: as above; memory is aligned to 256 bytes.
    (0..count).for_each(|i| unsafe { to.cast::<c_int>().add(i).write(word) });
    0
}
/// Any address but null.
unsafe extern "C" fn stream(place: *mut HipObject) -> HipStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, ptr::dangling_mut()) }
}
/// For calls that have no effect here.
unsafe extern "C" fn done(_: HipObject) -> HipStatus {
    0
}
unsafe extern "C" fn synchronize(_: HipObject) -> HipStatus {
    SYNC_FAILS.get()
}
/// A module is the text of its kernels.
unsafe extern "C" fn load(place: *mut HipObject, code: *const c_void) -> HipStatus {
    // SAFETY: the code is that of `code` below, which ends with a zero.
    let text = unsafe { CStr::from_ptr(code.cast()) };
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, Box::into_raw(Box::new(text.to_owned())).cast()) }
}
unsafe extern "C" fn unload(module: HipObject) -> HipStatus {
    // SAFETY: made by `load` and unloaded once.
    drop(unsafe { Box::from_raw(module.cast::<CString>()) });
    0
}
/// `hipErrorNotFound` unless the text has a function of this name.
unsafe extern "C" fn function(place: *mut HipObject, module: HipObject, name: *const c_char) -> HipStatus {
    // SAFETY: made by `load`; the name ends with a zero.
    let (code, name) = unsafe { (&*module.cast::<CString>(), CStr::from_ptr(name)) };
    let entry = format!(" {}(", name.to_string_lossy());
    if !code.to_string_lossy().contains(&entry) {
        return 500;
    }
    // A few bytes for each kernel of a test.
    let name = Box::leak(Box::new(name.to_string_lossy().into_owned()));
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, ptr::from_mut(name).cast()) }
}
/// Notes the launch. Shared memory is declared in the text, so that a launch gives none.
unsafe extern "C" fn launch(
    function: HipObject,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    shared: c_uint,
    _: HipObject,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> HipStatus {
    assert!(shared == 0 && extra.is_null());
    // SAFETY: made by `function`; the test's kernels have an address and a length at least.
    let (name, arguments) = unsafe {
        let words = [(*arguments).cast::<u64>().read(), u64::from((*arguments.add(1)).cast::<u32>().read())];
        ((*function.cast::<String>()).clone(), words)
    };
    let launch = NotedLaunch { name, groups: [gx, gy, gz], workgroup: [x, y, z], arguments };
    NOTED.with_borrow_mut(|noted| noted.push(launch));
    0
}

/// The runtime.
pub static API: Api = Api {
    hipInit: init,
    hipRuntimeGetVersion: version,
    hipGetErrorString: text,
    hipGetDeviceCount: count,
    hipSetDevice: set_device,
    hipDeviceGetName: name,
    hipDeviceGetAttribute: number,
    hipDeviceTotalMem: total,
    hipMalloc: malloc,
    hipFree: free,
    hipMemcpyHtoDAsync: upload,
    hipMemcpyDtoHAsync: download,
    hipMemcpyDtoDAsync: copy,
    hipMemsetD32Async: set,
    hipStreamCreate: stream,
    hipStreamDestroy: done,
    hipStreamSynchronize: synchronize,
    hipModuleLoadData: load,
    hipModuleUnload: unload,
    hipModuleGetFunction: function,
    hipModuleLaunchKernel: launch,
    _library: None,
};

/// A program: its text, and what the compiler says.
struct StubProgram {
    /// As it was handed over.
    text: CString,
    /// Empty until it is refused.
    log: CString,
}

/// The program behind a handle.
unsafe fn program<'a>(raw: HipObject) -> &'a mut StubProgram {
    // SAFETY: made by `create` and not yet destroyed.
    unsafe { &mut *raw.cast() }
}

/// Takes the text, and no headers.
unsafe extern "C" fn create(
    place: *mut HipObject,
    text: *const c_char,
    _: *const c_char,
    _: c_int,
    _: *mut *const c_char,
    _: *mut *const c_char,
) -> HipStatus {
    // SAFETY: the text ends with a zero.
    let text = unsafe { CStr::from_ptr(text) }.to_owned();
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, Box::into_raw(Box::new(StubProgram { text, log: CString::default() })).cast()) }
}
unsafe extern "C" fn destroy(place: *mut HipObject) -> HipStatus {
    // SAFETY: made by `create` and destroyed once.
    drop(unsafe { Box::from_raw((*place).cast::<StubProgram>()) });
    0
}
/// `HIPRTC_ERROR_COMPILATION` with a message in clang's form, at the line that declares `refused_`.
unsafe extern "C" fn compile(raw: HipObject, _: c_int, _: *mut *const c_char) -> HipStatus {
    // SAFETY: the caller keeps the contract of the function that this stands for.
    let program = unsafe { program(raw) };
    let text = program.text.to_string_lossy();
    let Some(at) = text.lines().position(|line| line.contains("refused_ =")) else { return 0 };
    let log = format!("kernel.hip:{}:9: error: the stub refuses this\n1 error generated.", at + 1);
    program.log = CString::new(log).unwrap();
    6
}
/// With the zero at its end.
unsafe extern "C" fn log_size(raw: HipObject, place: *mut usize) -> HipStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, program(raw).log.to_bytes_with_nul().len()) }
}
unsafe extern "C" fn log(raw: HipObject, place: *mut c_char) -> HipStatus {
    // SAFETY: the caller keeps the contract of the function that this stands for.
    let text = unsafe { program(raw) }.log.to_bytes_with_nul();
    // SAFETY: there is as much room as was said.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len()) };
    0
}
/// With the zero at its end.
unsafe extern "C" fn code_size(raw: HipObject, place: *mut usize) -> HipStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, program(raw).text.as_bytes_with_nul().len()) }
}
unsafe extern "C" fn code(raw: HipObject, place: *mut c_char) -> HipStatus {
    // SAFETY: the caller keeps the contract of the function that this stands for.
    let text = unsafe { program(raw) }.text.as_bytes_with_nul();
    // SAFETY: there is as much room as was said.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len()) };
    0
}

/// The compiler: the text itself is the code object; one that declares `refused_` is not taken.
pub static RTC: Rtc = Rtc {
    hiprtcCreateProgram: create,
    hiprtcDestroyProgram: destroy,
    hiprtcCompileProgram: compile,
    hiprtcGetProgramLogSize: log_size,
    hiprtcGetProgramLog: log,
    hiprtcGetCodeSize: code_size,
    hiprtcGetCode: code,
    _library: None,
};
