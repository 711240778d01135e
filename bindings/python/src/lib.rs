//! The extension module behind the Python package: devices, tensors, modules, functions and jobs, close to the Rust API.
//! What people see is written in Python, in `python/tapml`.
#![cfg(feature = "extension")]

mod array;
mod device;
mod dlpack;
mod error;
mod function;
mod job;
mod module;
mod tensor;

use pyo3::pymodule;

/// The extension module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::device::{NativeDevice, words};
    #[pymodule_export]
    use super::function::{NativeFunction, NativeLibrary, NativeUploaded, compile};
    #[pymodule_export]
    use super::job::job;
    #[pymodule_export]
    use super::module::{NativeModel, NativeModule};
    #[pymodule_export]
    use super::tensor::NativeTensor;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::PyModuleMethods;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
