//! What the runtime reports, as errors of TapML.

use crate::sys::{self, OUT_OF_MEMORY, Status};
use std::ffi::CStr;
use std::fmt;
use tapml_graph::{Error, ErrorKind};

/// The status of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Status);

pub(crate) type Done<T = ()> = Result<T, Failure>;

/// The end of a call of the runtime.
pub(crate) fn check(status: Status) -> Done {
    if status == 0 { Ok(()) } else { Err(Failure(status)) }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match describe(self.0) {
            Some(text) => write!(f, "{text} (HIP error {})", self.0),
            None => write!(f, "HIP error {}", self.0),
        }
    }
}

/// The runtime's own words for a status.
#[allow(unsafe_code)]
fn describe(status: Status) -> Option<String> {
    let api = sys::api().ok()?;
    // SAFETY: the call gives the address of a text that ends with a zero and is never freed, or none.
    let text = unsafe { (api.hipGetErrorString)(status) };
    // SAFETY: as above.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// A failed call: `doing` says what was tried. Without memory the device goes on.
pub(crate) fn failed(doing: &str, failure: Failure) -> Error {
    let kind = if failure.0 == OUT_OF_MEMORY { ErrorKind::OutOfMemory } else { ErrorKind::Bug };
    Error::new(kind, format!("could not {doing}: {failure}"))
}

/// A failure of work that was handed over: nothing is known of the device's state any more.
pub(crate) fn lost(doing: &str, failure: Failure) -> Error {
    Error::new(ErrorKind::DeviceLost, format!("could not {doing}: {failure}"))
        .with_hint("open the device again")
}
