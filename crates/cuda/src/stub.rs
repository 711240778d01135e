//! A table of the driver's functions over host memory. What was launched is noted for each thread; calls can be made to
//! fail.
//!
//! Tests run the whole backend on it without a GPU. Kernels are noted, not computed.
//!
//! Each function stands for the one that the table names at the end. Statuses are those of `CUresult` in
//! `cuda.h`. State belongs to a thread, so that tests that run side by side do not see each other.
#![allow(unsafe_code, non_snake_case)]

use crate::sys::{Api, CuAddress, CuObject, CuStatus, LAUNCH_CLUSTER, LaunchConfig, TensorMap};
use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

/// Buffers above this do not fit.
pub const MEMORY: usize = 1 << 30;

/// What a call does when it runs: at once, or when its graph does.
#[derive(Clone, Debug)]
enum Op {
    /// To, from, bytes.
    Copy(CuAddress, CuAddress, usize),
    /// To, word, count of words.
    Set(CuAddress, u32, usize),
    /// The text that is noted.
    Launch(String),
}

thread_local! {
    // Bytes of each allocation, by its address.
    static SIZES: RefCell<HashMap<CuAddress, usize>> = RefCell::default();
    // The calls of the graph that is being captured.
    static CAPTURED: RefCell<Option<Vec<Op>>> = const { RefCell::new(None) };
    // Texts of what was launched.
    static NOTED: RefCell<Vec<String>> = RefCell::default();
    static SYNC_FAILS: Cell<CuStatus> = const { Cell::new(0) };
    static CAPTURE_FAILS: Cell<bool> = const { Cell::new(false) };
}

/// What was launched since the last call, as `NAME GROUPS`, with `overlaps` behind if so, `graph` in front of a graph.
pub fn take_launches() -> Vec<String> {
    NOTED.with_borrow_mut(std::mem::take)
}

/// Bytes that are allocated on this thread.
pub fn allocated_bytes() -> usize {
    SIZES.with_borrow(|sizes| sizes.values().sum())
}

/// Lets waiting fail with a status from now on; 0 for no failure.
pub fn fail_to_wait(status: CuStatus) {
    SYNC_FAILS.set(status);
}

/// Lets the capture of graphs fail, or not.
pub fn fail_to_capture(fails: bool) {
    CAPTURE_FAILS.set(fails);
}

/// Runs a call, or adds it to the graph that is being captured.
fn act(op: Op) -> CuStatus {
    let op = CAPTURED.with_borrow_mut(|captured| match captured {
        Some(all) => {
            all.push(op);
            None
        }
        None => Some(op),
    });
    if let Some(op) = op {
        perform(&op);
    }
    0
}

/// Does it on host memory.
fn perform(op: &Op) {
    match op {
        // SAFETY: addresses and lengths are of memory that was allocated here, as the device has checked.
        Op::Copy(to, from, len) => unsafe { ptr::copy(*from as *const u8, *to as *mut u8, *len) },
        // SAFETY: as above.
        Op::Set(to, word, count) => {
            // SAFETY: the caller keeps the contract of the function that this stands for.
            (0..*count).for_each(|i| unsafe { (*to as *mut u32).add(i).write(*word) })
        }
        Op::Launch(text) => NOTED.with_borrow_mut(|noted| noted.push(text.clone())),
    }
}

/// Writes a result to its place and succeeds.
unsafe fn put<T>(place: *mut T, value: T) -> CuStatus {
    // SAFETY: the device hands over places for the results.
    unsafe { place.write(value) };
    0
}

/// 256 bytes, as the driver aligns.
fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).expect("a size that was asked for")
}

/// For calls that have no effect here.
extern "system" fn do_nothing() -> CuStatus {
    0
}

extern "system" fn cuInit(_: c_uint) -> CuStatus {
    do_nothing()
}
/// CUDA 13.0: thousands are the major release, tens the minor one.
unsafe extern "system" fn version(place: *mut c_int) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, 13_000) }
}
unsafe extern "system" fn text(_: CuStatus, place: *mut *const c_char) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, c"a stub's error".as_ptr()) }
}
/// One device.
unsafe extern "system" fn count(place: *mut c_int) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, 1) }
}
unsafe extern "system" fn device(place: *mut c_int, index: c_int) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, index) }
}
/// Fails the test if there is no room for the name.
unsafe extern "system" fn name(place: *mut c_char, room: c_int, _: c_int) -> CuStatus {
    let name = c"Stub".to_bytes_with_nul();
    assert!(name.len() <= room as usize);
    // SAFETY: there is room.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), place, name.len()) };
    0
}
/// What the adapter asks for, by the numbers of `CUdevice_attribute`.
unsafe extern "system" fn attribute(place: *mut c_int, what: c_int, _: c_int) -> CuStatus {
    let value = match what {
        // Threads of a workgroup, and its sizes in x and y.
        1..=3 => 1024,
        // Its size in z.
        4 => 64,
        // Multiprocessors.
        16 => 132,
        // Whether memory is shared with the host.
        18 => 0,
        // The compute capability, major and minor.
        75 => 9,
        76 => 0,
        // Bytes of shared memory that a launch may give: 227 KiB.
        97 => 232_448,
        _ => return 1,
    };
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, value) }
}
/// More than one buffer may have.
unsafe extern "system" fn total(place: *mut usize, _: c_int) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, 2 * MEMORY) }
}
/// A context without a state.
unsafe extern "system" fn context(place: *mut CuObject, _: c_uint, _: c_int) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, ptr::null_mut()) }
}
/// For calls that destroy or choose an object.
extern "system" fn object(_: CuObject) -> CuStatus {
    do_nothing()
}
extern "system" fn reach(_: CuObject, _: c_uint) -> CuStatus {
    do_nothing()
}
/// Free and all, in bytes.
unsafe extern "system" fn free_memory(free: *mut usize, all: *mut usize) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(free, MEMORY) + put(all, 2 * MEMORY) }
}
/// `CUDA_ERROR_OUT_OF_MEMORY` for more than [`MEMORY`].
unsafe extern "system" fn allocate(place: *mut CuAddress, size: usize) -> CuStatus {
    if size > MEMORY {
        return 2;
    }
    // SAFETY: the size is not zero.
    let start = unsafe { alloc(layout(size)) };
    // Dirty, as memory is.
    // SAFETY: the caller keeps the contract of the function that this stands for.
    unsafe { ptr::write_bytes(start, 0xa5, size) };
    SIZES.with_borrow_mut(|sizes| sizes.insert(start as CuAddress, size));
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, start as CuAddress) }
}
/// Fails the test for memory that is not allocated.
unsafe extern "system" fn free(address: CuAddress) -> CuStatus {
    let size = SIZES.with_borrow_mut(|sizes| sizes.remove(&address)).expect("memory that is allocated");
    // SAFETY: allocated with this layout.
    unsafe { dealloc(address as *mut u8, layout(size)) };
    0
}
/// Pinned memory is counted with that of the device.
unsafe extern "system" fn allocate_host(place: *mut *mut c_void, size: usize, _: c_uint) -> CuStatus {
    let mut address = 0;
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { allocate(&mut address, size) + put(place, address as *mut c_void) }
}
unsafe extern "system" fn free_host(start: *mut c_void) -> CuStatus {
    // SAFETY: the caller frees what was allocated here.
    unsafe { free(start as CuAddress) }
}
/// Captured like any other call.
extern "system" fn upload(to: CuAddress, from: *const c_void, len: usize, _: CuObject) -> CuStatus {
    act(Op::Copy(to, from as CuAddress, len))
}
extern "system" fn download(to: *mut c_void, from: CuAddress, len: usize, _: CuObject) -> CuStatus {
    act(Op::Copy(to as CuAddress, from, len))
}
extern "system" fn copy(to: CuAddress, from: CuAddress, len: usize, _: CuObject) -> CuStatus {
    act(Op::Copy(to, from, len))
}
extern "system" fn set(to: CuAddress, word: c_uint, count: usize, _: CuObject) -> CuStatus {
    act(Op::Set(to, word, count))
}
/// A stream or an event: neither has a state.
unsafe extern "system" fn create(place: *mut CuObject, _: c_uint) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, ptr::null_mut()) }
}
/// Of a stream or an event.
extern "system" fn synchronize(_: CuObject) -> CuStatus {
    SYNC_FAILS.get()
}
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if captures shall fail.
extern "system" fn begin(_: CuObject, _: c_int) -> CuStatus {
    if CAPTURE_FAILS.get() {
        return 900;
    }
    CAPTURED.with_borrow_mut(|captured| *captured = Some(Vec::new()));
    0
}
/// Hands the captured calls over as a graph.
unsafe extern "system" fn end(_: CuObject, place: *mut CuObject) -> CuStatus {
    let ops = CAPTURED.with_borrow_mut(Option::take).expect("a capture");
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, Box::into_raw(Box::new(ops)).cast()) }
}
/// A copy of its own: the graph is destroyed before it runs.
unsafe extern "system" fn instantiate(place: *mut CuObject, graph: CuObject, _: u64) -> CuStatus {
    // SAFETY: made by `end`.
    let ops = unsafe { (*graph.cast::<Vec<Op>>()).clone() };
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, Box::into_raw(Box::new(ops)).cast()) }
}
unsafe extern "system" fn destroy_graph(graph: CuObject) -> CuStatus {
    // SAFETY: made by `end` or `instantiate`, destroyed once.
    drop(unsafe { Box::from_raw(graph.cast::<Vec<Op>>()) });
    0
}
/// Runs the captured calls.
extern "system" fn launch_graph(graph: CuObject, _: CuObject) -> CuStatus {
    NOTED.with_borrow_mut(|noted| noted.push("graph".into()));
    // SAFETY: made by `instantiate`.
    unsafe { &*graph.cast::<Vec<Op>>() }.iter().for_each(perform);
    0
}
extern "system" fn record(_: CuObject, _: CuObject) -> CuStatus {
    do_nothing()
}
/// Half a millisecond between any two events.
unsafe extern "system" fn elapsed_time(place: *mut f32, _: CuObject, _: CuObject) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, 0.5) }
}
/// `CUDA_ERROR_INVALID_IMAGE` for what is no ELF file, which a cubin is.
unsafe extern "system" fn load(place: *mut CuObject, image: *const c_void) -> CuStatus {
    // SAFETY: cubins and PTX are longer than four bytes.
    let start = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), 4) };
    if start != b"\x7fELF" {
        return 200;
    }
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, ptr::null_mut()) }
}
/// `CUDA_ERROR_NOT_FOUND` for a kernel that is called `absent`.
unsafe extern "system" fn function(place: *mut CuObject, _: CuObject, name: *const c_char) -> CuStatus {
    // SAFETY: a name that ends with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    if name == c"absent" {
        return 500;
    }
    // Leaked: a few names of a test.
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, Box::into_raw(Box::new(name.to_string_lossy().into_owned())).cast()) }
}
/// 512 threads at most for each kernel, and no static shared memory.
unsafe extern "system" fn function_attribute(place: *mut c_int, what: c_int, _: CuObject) -> CuStatus {
    // SAFETY: the caller gives places that the values may be written to.
    unsafe { put(place, if what == 0 { 512 } else { 0 }) }
}
extern "system" fn set_function(_: CuObject, _: c_int, _: c_int) -> CuStatus {
    do_nothing()
}
/// A map that holds where the array is and what it has.
unsafe extern "system" fn map(
    to: *mut TensorMap,
    dtype: c_int,
    _: c_uint,
    at: CuAddress,
    sizes: *const u64,
    row: *const u64,
    area: *const c_uint,
    _: *const c_uint,
    _: c_int,
    swizzle: c_int,
    _: c_int,
    _: c_int,
) -> CuStatus {
    let mut words = [0; 16];
    // SAFETY: the device hands over two sizes, a stride and a box.
    unsafe {
        let (area, sizes) = (std::slice::from_raw_parts(area, 2), std::slice::from_raw_parts(sizes, 2));
        words[..5].copy_from_slice(&[at, dtype as u64, sizes[0], sizes[1], *row]);
        words[5..8].copy_from_slice(&[area[0].into(), area[1].into(), swizzle as u64]);
        put(to, TensorMap(words))
    }
}
/// Notes name and grid, and what the attributes of the launch mean: that it may overlap, or the blocks of a cluster.
unsafe extern "system" fn launch(
    config: *const LaunchConfig,
    function: CuObject,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CuStatus {
    // SAFETY: the device hands over a configuration and a function that was made here.
    let (config, name) = unsafe { (&*config, &*function.cast::<String>()) };
    let [x, y, z] = config.grid;
    let mut launched = format!("{name} {x}x{y}x{z}");
    for at in 0..config.count as usize {
        // SAFETY: the device hands over as many attributes as it counts.
        let attribute = unsafe { &*config.attributes.add(at) };
        match attribute.id {
            LAUNCH_CLUSTER => launched.push_str(&format!(" clusters of {}", attribute.value[0])),
            _ => launched.push_str(" overlaps"),
        }
    }
    act(Op::Launch(launched))
}

/// The table.
pub static API: Api = Api {
    cuInit,
    cuDriverGetVersion: version,
    cuGetErrorString: text,
    cuDeviceGetCount: count,
    cuDeviceGet: device,
    cuDeviceGetName: name,
    cuDeviceGetAttribute: attribute,
    cuDeviceTotalMem_v2: total,
    cuCtxCreate_v2: context,
    cuCtxDestroy_v2: object,
    cuCtxSetCurrent: object,
    cuCtxEnablePeerAccess: reach,
    cuMemGetInfo_v2: free_memory,
    cuMemAlloc_v2: allocate,
    cuMemFree_v2: free,
    cuMemHostAlloc: allocate_host,
    cuMemFreeHost: free_host,
    cuMemcpyHtoDAsync_v2: upload,
    cuMemcpyDtoHAsync_v2: download,
    cuMemcpyDtoDAsync_v2: copy,
    cuMemsetD32Async: set,
    cuStreamCreate: create,
    cuStreamDestroy_v2: object,
    cuStreamSynchronize: synchronize,
    cuStreamBeginCapture_v2: begin,
    cuStreamEndCapture: end,
    cuEventCreate: create,
    cuEventDestroy_v2: object,
    cuEventRecord: record,
    cuEventSynchronize: synchronize,
    cuEventElapsedTime: elapsed_time,
    cuModuleLoadData: load,
    cuModuleUnload: object,
    cuModuleGetFunction: function,
    cuFuncGetAttribute: function_attribute,
    cuFuncSetAttribute: set_function,
    cuLaunchKernelEx: launch,
    cuTensorMapEncodeTiled: map,
    cuGraphInstantiateWithFlags: instantiate,
    cuGraphDestroy: destroy_graph,
    cuGraphExecDestroy: destroy_graph,
    cuGraphLaunch: launch_graph,
    _library: None,
};
