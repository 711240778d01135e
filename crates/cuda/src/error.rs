//! What the driver reports, as errors of TapML.
//!
//! A status is turned into words by the driver itself, so that newer codes have text too.

use crate::sys::{self, CuStatus, OUT_OF_MEMORY};
use std::ffi::CStr;
use std::fmt;
use tapml_cfamily::device::Fault;
pub(crate) use tapml_cfamily::device::{call_error, device_lost};

/// The status of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CudaFailure(pub(crate) CuStatus);

/// The end of a call of the driver.
pub(crate) type CudaResult<T = ()> = Result<T, CudaFailure>;

/// The end of a call of the driver.
pub(crate) fn check(status: CuStatus) -> CudaResult {
    if status == 0 { Ok(()) } else { Err(CudaFailure(status)) }
}

impl fmt::Display for CudaFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match describe(self.0) {
            Some(text) => write!(f, "{text} (CUDA error {})", self.0),
            None => write!(f, "CUDA error {}", self.0),
        }
    }
}

/// The driver's own words for a status.
#[allow(unsafe_code)]
fn describe(status: CuStatus) -> Option<String> {
    let api = sys::api().ok()?;
    let mut text = std::ptr::null();
    // SAFETY: the call gives the address of a text that ends with a zero and is never freed, or none.
    let known = unsafe { (api.cuGetErrorString)(status, &mut text) } == 0 && !text.is_null();
    // SAFETY: as above.
    known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Fault for CudaFailure {
    fn out_of_memory(&self) -> bool {
        self.0 == OUT_OF_MEMORY
    }
}
