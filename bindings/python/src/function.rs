//! Compiling, libraries, and calls.

use crate::device::NativeDevice;
use crate::error::{self, result};
use crate::module::NativeModule;
use crate::tensor::NativeTensor;
use pyo3::prelude::*;
use tapml::jobs::overrides;
use tapml::runtime::{CompileOptions, DeviceTensor, Function, FunctionArgument, Library, Module, Uploaded};

/// Compiled modules on the host.
#[pyclass(frozen, name = "Library")]
pub struct NativeLibrary(Library);

/// Compiles modules for a device; `kernels` are the user's, as `OP=FILE`.
#[pyfunction]
#[pyo3(signature = (modules, device, step=None, context=None, kernels=Vec::new()))]
pub fn compile(
    py: Python<'_>,
    modules: Vec<PyRef<'_, NativeModule>>,
    device: &NativeDevice,
    step: Option<usize>,
    context: Option<usize>,
    kernels: Vec<String>,
) -> PyResult<NativeLibrary> {
    let modules: Vec<Module> = modules.iter().map(|m| m.0.clone()).collect();
    let compiled = || {
        let options = CompileOptions { step, context, overrides: overrides(&kernels)? };
        tapml::runtime::compile(&modules, &device.0, &options)
    };
    error::run(py, compiled).map(NativeLibrary)
}

/// Name, type, and whether it is an output.
type Row = (String, String, bool);

fn rows(arguments: &[FunctionArgument]) -> Vec<Row> {
    arguments.iter().map(|a| (a.name.clone(), a.ty.to_string(), a.output)).collect()
}

#[pymethods]
impl NativeLibrary {
    #[getter]
    fn functions(&self) -> Vec<String> {
        self.0.functions().map(String::from).collect()
    }

    #[getter]
    fn target(&self) -> &str {
        self.0.target()
    }

    fn arguments(&self, py: Python<'_>, function: &str) -> PyResult<Vec<Row>> {
        result(py, self.0.arguments(function).map(rows))
    }

    /// Bytes of device memory by use: weights, states, activations, constants.
    fn memory(&self) -> [u64; 4] {
        self.0.programs().map(|p| p.memory()).fold([0; 4], |sum, m| {
            [sum[0] + m.weights, sum[1] + m.states, sum[2] + m.activations, sum[3] + m.constants]
        })
    }

    /// Names of the kernels with their WGSL.
    fn kernels(&self) -> Vec<(String, String)> {
        let kernels = self.0.programs().flat_map(|p| &p.kernels);
        kernels.map(|k| (k.name.clone(), k.source.full())).collect()
    }

    fn upload(&self, py: Python<'_>, device: &NativeDevice) -> PyResult<NativeUploaded> {
        error::run(py, || self.0.upload(&device.0)).map(NativeUploaded)
    }
}

/// A library on a device.
#[pyclass(frozen, name = "Uploaded")]
pub struct NativeUploaded(Uploaded);

#[pymethods]
impl NativeUploaded {
    #[getter]
    fn functions(&self) -> Vec<String> {
        self.0.functions().map(String::from).collect()
    }

    fn function(&self, py: Python<'_>, name: &str) -> PyResult<NativeFunction> {
        result(py, self.0.function(name)).map(NativeFunction)
    }
}

/// A function on a device.
#[pyclass(frozen, name = "Function")]
pub struct NativeFunction(Function);

#[pymethods]
impl NativeFunction {
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn arguments(&self) -> Vec<Row> {
        rows(self.0.arguments())
    }

    #[getter]
    fn position(&self) -> Option<u64> {
        self.0.position()
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        error::run(py, || self.0.reset())
    }

    /// Runs with all arguments.
    fn call(&self, py: Python<'_>, arguments: Vec<PyRef<'_, NativeTensor>>) -> PyResult<()> {
        let tensors: Vec<&DeviceTensor> = arguments.iter().map(|t| &t.0).collect();
        error::run(py, || self.0.call(&tensors))
    }

    /// Runs with the inputs and makes the outputs.
    fn call_new(&self, py: Python<'_>, inputs: Vec<PyRef<'_, NativeTensor>>) -> PyResult<Vec<NativeTensor>> {
        let tensors: Vec<&DeviceTensor> = inputs.iter().map(|t| &t.0).collect();
        let outputs = error::run(py, || self.0.call_new(&tensors))?;
        Ok(outputs.into_iter().map(NativeTensor).collect())
    }
}
