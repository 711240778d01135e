//! Memory of other libraries' arrays, without copies: NumPy's array interface, and DLPack for everything else.

use crate::dlpack;
use crate::error::invalid;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tapml::graph::{DType, byte_len};

/// The memory of an array on this machine, in row-major order. It is valid as long as `owner` is held.
pub struct HostArray<'py> {
    /// What keeps the memory alive.
    _owner: Bound<'py, PyAny>,
    address: usize,
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    writable: bool,
}

impl<'py> HostArray<'py> {
    /// The memory of any object with `__array_interface__` (NumPy) or `__dlpack__` (PyTorch, JAX, …).
    pub fn from_object(object: &Bound<'py, PyAny>) -> PyResult<HostArray<'py>> {
        let py = object.py();
        let found = if object.hasattr("__array_interface__")? {
            interface(object)?
        } else if object.hasattr("__dlpack__")? {
            let imported = dlpack::import(object)?;
            HostArray {
                _owner: imported.capsule,
                address: imported.address,
                dtype: imported.dtype,
                shape: imported.shape,
                writable: false,
            }
        } else {
            let name = object.get_type().name()?;
            return Err(invalid(
                py,
                format!("a {name} is no array: it has neither an array interface nor DLPack"),
            ));
        };
        if byte_len(found.dtype, &found.shape).is_none() {
            return Err(invalid(py, "the array is larger than memory"));
        }
        Ok(found)
    }

    /// The bytes of the elements. Nobody may write to the array meanwhile.
    #[allow(unsafe_code)]
    pub fn bytes(&self) -> &[u8] {
        match byte_len(self.dtype, &self.shape) {
            None | Some(0) => &[],
            // SAFETY: the exporter promises as many elements in row-major order at this address, and `_owner` keeps them.
            Some(len) => unsafe { std::slice::from_raw_parts(self.address as *const u8, len) },
        }
    }

    /// The bytes of the elements, to be written; `None` if the array is read-only.
    #[allow(unsafe_code)]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match byte_len(self.dtype, &self.shape) {
            _ if !self.writable => None,
            None | Some(0) => Some(&mut []),
            // SAFETY: as in `bytes`, and the exporter says that the memory may be written.
            Some(len) => Some(unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, len) }),
        }
    }
}

/// See <https://numpy.org/doc/stable/reference/arrays.interface.html>, version 3.
fn interface<'py>(object: &Bound<'py, PyAny>) -> PyResult<HostArray<'py>> {
    let py = object.py();
    let interface = object.getattr("__array_interface__")?.cast_into::<PyDict>()?;
    let item = |name: &str| -> PyResult<Bound<'py, PyAny>> {
        interface.get_item(name)?.ok_or_else(|| invalid(py, format!("the array interface has no `{name}`")))
    };
    let shape: Vec<usize> = item("shape")?.extract()?;
    let kind: String = item("typestr")?.extract()?;
    let dtype = match kind.as_str() {
        "<f8" => DType::F64,
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "<i4" => DType::I32,
        "<u4" => DType::U32,
        "|u1" => DType::U8,
        other => return Err(invalid(py, format!("arrays of type `{other}` are not supported"))),
    };
    let strides = interface.get_item("strides")?.filter(|s| !s.is_none());
    if strides.is_some() {
        return Err(invalid(py, "the array is not contiguous in row-major order"));
    }
    let (address, read_only): (usize, bool) = item("data")?.cast_into::<PyTuple>()?.extract()?;
    Ok(HostArray { _owner: object.clone(), address, dtype, shape, writable: !read_only })
}
