//! Devices.

use crate::error;
use pyo3::prelude::*;
use tapml::runtime::Device;

/// An open device.
#[pyclass(frozen, name = "Device")]
pub struct NativeDevice(pub Device);

#[pymethods]
impl NativeDevice {
    #[new]
    fn open(py: Python<'_>, word: &str) -> PyResult<NativeDevice> {
        error::run(py, || Device::open(word)).map(NativeDevice)
    }

    #[getter]
    fn word(&self) -> &str {
        self.0.word()
    }

    /// Name, driver, limits and features as JSON.
    fn info(&self) -> String {
        serde_json::to_string(self.0.info()).unwrap_or_default()
    }

    /// What a checking device has found since the last call, one line each.
    fn findings(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.0.take_findings()).iter().map(ToString::to_string).collect()
    }

    /// Bytes in use, and the most that were.
    fn memory(&self, py: Python<'_>) -> (u64, u64) {
        py.detach(|| self.0.memory())
    }

    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        error::run(py, || self.0.wait())
    }

    fn is_same(&self, other: &NativeDevice) -> bool {
        self.0.is(&other.0)
    }
}

/// The words of the devices in this build.
#[pyfunction]
pub fn words() -> Vec<&'static str> {
    tapml::platform::device_words().collect()
}
