//! What the runtime reports, as errors of TapML.
//!
//! A status is turned into words by the runtime itself.

use crate::sys::{self, HipStatus, OUT_OF_MEMORY};
use std::ffi::CStr;
use std::fmt;
use tapml_cfamily::device::Fault;

/// The status of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HipFailure(pub(crate) HipStatus);

/// The end of a call of the runtime.
pub(crate) type HipResult<T = ()> = Result<T, HipFailure>;

/// The end of a call of the runtime.
pub(crate) fn check(status: HipStatus) -> HipResult {
    if status == 0 { Ok(()) } else { Err(HipFailure(status)) }
}

impl fmt::Display for HipFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match describe(self.0) {
            Some(text) => write!(f, "{text} (HIP error {})", self.0),
            None => write!(f, "HIP error {}", self.0),
        }
    }
}

/// The runtime's own words for a status.
#[allow(unsafe_code)]
fn describe(status: HipStatus) -> Option<String> {
    let api = sys::api().ok()?;
    // SAFETY: the call gives the address of a text that ends with a zero and is never freed, or none.
    let text = unsafe { (api.hipGetErrorString)(status) };
    // SAFETY: as above.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Fault for HipFailure {
    fn out_of_memory(&self) -> bool {
        self.0 == OUT_OF_MEMORY
    }
}
