//! DLPack: arrays of other libraries in, copies of tensors out, as `DLManagedTensor` in a capsule.
//! See <https://dmlc.github.io/dlpack/latest/c_api.html>.

use crate::error::invalid;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_void};
use tapml::graph::DType;

const NAME: &CStr = c"dltensor";
/// `kDLCPU`.
const CPU: i32 = 1;
/// `kDLCUDAHost`: memory that the CPU can read, too.
const CUDA_HOST: i32 = 3;

#[repr(C)]
struct DLDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DLManagedTensor {
    tensor: DLTensor,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// Codes of `DLDataTypeCode` with bits.
const TYPES: &[(u8, u8, DType)] = &[
    (2, 64, DType::F64),
    (2, 32, DType::F32),
    (2, 16, DType::F16),
    (4, 16, DType::BF16),
    (0, 32, DType::I32),
    (1, 32, DType::U32),
    (1, 8, DType::U8),
];

/// An array of another library. Its capsule stays unconsumed and frees the array with itself.
pub struct Imported<'py> {
    pub capsule: Bound<'py, PyAny>,
    pub address: usize,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

/// The memory behind an object's `__dlpack__`, which must be the CPU's.
#[allow(unsafe_code)]
pub fn import<'py>(object: &Bound<'py, PyAny>) -> PyResult<Imported<'py>> {
    let py = object.py();
    let capsule = object.call_method0("__dlpack__")?;
    // SAFETY: the pointer is checked; a capsule of this name holds a DLManagedTensor.
    let managed = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) };
    if managed.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: the exporter keeps it valid as long as the capsule lives, which is held.
    let tensor = unsafe { &(*managed.cast::<DLManagedTensor>()).tensor };
    if !matches!(tensor.device.device_type, CPU | CUDA_HOST) {
        return Err(invalid(py, "the array is in a device's memory: move it to the CPU first (`.cpu()`)"));
    }
    let DLDataType { code, bits, lanes } = tensor.dtype;
    let known = TYPES.iter().find(|(c, b, _)| (*c, *b, 1) == (code, bits, lanes));
    let Some(&(.., dtype)) = known else {
        return Err(invalid(py, format!("arrays of DLPack type {code} with {bits} bits are not supported")));
    };
    let rank = usize::try_from(tensor.ndim).unwrap_or(0);
    let shape = sizes(tensor.shape, rank);
    let strides = if tensor.strides.is_null() { None } else { Some(sizes(tensor.strides, rank)) };
    let sizes: Option<Vec<usize>> = shape.iter().map(|&s| usize::try_from(s).ok()).collect();
    let sizes = sizes.ok_or_else(|| invalid(py, "the array has a negative size"))?;
    if strides.is_some_and(|strides| !contiguous(&sizes, &strides)) {
        return Err(invalid(
            py,
            "the array is not contiguous in row-major order (`.contiguous()` makes it so)",
        ));
    }
    let offset = usize::try_from(tensor.byte_offset).unwrap_or(0);
    let address = (tensor.data as usize).saturating_add(offset);
    Ok(Imported { capsule, address, dtype, shape: sizes })
}

#[allow(unsafe_code)]
fn sizes(pointer: *const i64, rank: usize) -> Vec<i64> {
    match rank {
        0 => Vec::new(),
        // SAFETY: shape and strides hold `ndim` numbers.
        _ => unsafe { std::slice::from_raw_parts(pointer, rank) }.to_vec(),
    }
}

/// Whether strides in elements are those of row-major order. Those of sizes of 1 do not matter.
fn contiguous(shape: &[usize], strides: &[i64]) -> bool {
    let mut expected = 1i64;
    let elements = shape.iter().product::<usize>();
    let mut pairs = shape.iter().zip(strides).rev();
    let good = |(size, stride): (&usize, &i64)| {
        let good = *size == 1 || *stride == expected;
        expected = expected.saturating_mul(*size as i64);
        good
    };
    elements == 0 || pairs.all(good)
}

/// What a capsule of ours holds.
struct Owner {
    managed: DLManagedTensor,
    _shape: Vec<i64>,
    _data: Vec<u64>,
}

/// A capsule with a tensor of the CPU. `data` is the elements' memory, rounded up to words.
#[allow(unsafe_code)]
pub fn export<'py>(
    py: Python<'py>,
    dtype: DType,
    shape: &[usize],
    mut data: Vec<u64>,
) -> PyResult<Bound<'py, PyAny>> {
    let found = TYPES.iter().find(|(.., d)| *d == dtype);
    let &(code, bits, _) = found.ok_or_else(|| invalid(py, format!("DLPack has no type for {dtype}")))?;
    let mut shape: Vec<i64> = shape.iter().map(|&s| s as i64).collect();
    let tensor = DLTensor {
        data: data.as_mut_ptr().cast(),
        device: DLDevice { device_type: CPU, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: DLDataType { code, bits, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = DLManagedTensor { tensor, manager: std::ptr::null_mut(), deleter: Some(delete) };
    let owner = Box::into_raw(Box::new(Owner { managed, _shape: shape, _data: data }));
    // SAFETY: `manager` names the box itself, which `delete` frees, called once by the consumer or by `dispose`.
    unsafe {
        (*owner).managed.manager = owner.cast();
        let managed: *mut DLManagedTensor = &raw mut (*owner).managed;
        let capsule = ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(dispose));
        if capsule.is_null() {
            delete(managed);
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr(py, capsule))
    }
}

#[allow(unsafe_code)]
unsafe extern "C" fn delete(managed: *mut DLManagedTensor) {
    // SAFETY: `manager` is the box that `export` made, and this is called once.
    unsafe { drop(Box::from_raw((*managed).manager.cast::<Owner>())) }
}

/// Frees a capsule that nobody consumed: a consumer renames it.
#[allow(unsafe_code)]
unsafe extern "C" fn dispose(capsule: *mut ffi::PyObject) {
    let name: *const c_char = NAME.as_ptr();
    // SAFETY: Python calls this with the capsule that `export` made.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, name).cast());
        }
    }
}
