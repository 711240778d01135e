//! Tensors in a device's memory.

use crate::array::HostArray;
use crate::device::NativeDevice;
use crate::{dlpack, error};
use pyo3::prelude::*;
use tapml::graph::DType;
use tapml::runtime::DeviceTensor;

/// A tensor on a device.
#[pyclass(frozen, name = "Tensor")]
pub struct NativeTensor(pub DeviceTensor);

/// The dtype of a name such as `f32`.
pub fn dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::parse(name).ok_or_else(|| {
        let known: Vec<_> = DType::ALL.iter().map(|d| d.name()).collect();
        error::invalid(py, format!("unknown dtype `{name}`; known: {}", known.join(", ")))
    })
}

#[pymethods]
impl NativeTensor {
    /// A tensor of zeros.
    #[staticmethod]
    fn allocate(
        py: Python<'_>,
        device: &NativeDevice,
        shape: Vec<usize>,
        name: &str,
    ) -> PyResult<NativeTensor> {
        let dtype = dtype(py, name)?;
        error::run(py, || DeviceTensor::allocate(&device.0, shape, dtype)).map(NativeTensor)
    }

    /// A copy of an array; the array's memory is read once, in place.
    #[staticmethod]
    fn upload(device: &NativeDevice, array: &Bound<'_, PyAny>) -> PyResult<NativeTensor> {
        let py = array.py();
        let array = HostArray::from_object(array)?;
        let (bytes, dtype, shape) = (array.bytes(), array.dtype, array.shape.clone());
        error::run(py, || DeviceTensor::from_bytes(&device.0, shape, dtype, bytes)).map(NativeTensor)
    }

    /// Replaces the contents.
    fn write(&self, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = array.py();
        let array = HostArray::from_object(array)?;
        self.expect(py, &array)?;
        let bytes = array.bytes();
        error::run(py, || self.0.write(bytes))
    }

    /// Waits for all work so far, and fills a writable NumPy array of the same dtype and shape.
    fn read_into(&self, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = array.py();
        let mut array = HostArray::from_object(array)?;
        self.expect(py, &array)?;
        let bytes = array.bytes_mut().ok_or_else(|| error::invalid(py, "the array is read-only"))?;
        error::run(py, || self.0.read_into(bytes))
    }

    /// Waits for all work so far; the contents as bytes in row-major order.
    fn read(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        error::run(py, || self.0.read()).map(|tensor| tensor.bytes().to_vec())
    }

    /// A copy on the host as a DLPack capsule.
    fn dlpack<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut data = vec![0u64; self.0.bytes().div_ceil(8)];
        let bytes = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut data)[..self.0.bytes()];
        error::run(py, || self.0.read_into(bytes))?;
        dlpack::export(py, self.0.dtype(), self.0.shape(), data)
    }

    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.0.shape().to_vec()
    }

    #[getter]
    fn dtype(&self) -> String {
        self.0.dtype().to_string()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.0.bytes()
    }
}

impl NativeTensor {
    fn expect(&self, py: Python<'_>, array: &HostArray<'_>) -> PyResult<()> {
        let (dtype, shape) = (self.0.dtype(), self.0.shape());
        if array.dtype == dtype && array.shape == shape {
            return Ok(());
        }
        let text = format!("the tensor is {dtype}{shape:?}, the array {}{:?}", array.dtype, array.shape);
        Err(error::invalid(py, text))
    }
}
