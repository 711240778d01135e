//! What OpenCL reports, as errors of TapML.

use crate::sys::{MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_HOST_MEMORY, OUT_OF_RESOURCES, Status};
use std::fmt;
use tapml_graph::{Error, ErrorKind};

/// The status of a failed call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure(pub(crate) Status);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            -1 => "device not found",
            -2 => "device not available",
            MEM_OBJECT_ALLOCATION_FAILURE => "no device memory",
            OUT_OF_RESOURCES => "out of resources",
            OUT_OF_HOST_MEMORY => "out of host memory",
            -14 => "a command before failed",
            -36 => "invalid queue",
            -52 => "arguments are missing",
            -54 => "invalid workgroup size",
            -1001 => "no platform found",
            _ => "failed",
        };
        write!(f, "{name} (OpenCL status {})", self.0)
    }
}

/// A failed call: `doing` says what was tried. Without memory the device goes on.
pub(crate) fn failed(doing: &str, failure: Failure) -> Error {
    let memory = [MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_RESOURCES, OUT_OF_HOST_MEMORY].contains(&failure.0);
    let kind = if memory { ErrorKind::OutOfMemory } else { ErrorKind::Bug };
    Error::new(kind, format!("could not {doing}: {failure}"))
}

/// A failure of work that was handed over: nothing is known of the device's state any more.
pub(crate) fn lost(doing: &str, failure: Failure) -> Error {
    Error::new(ErrorKind::DeviceLost, format!("could not {doing}: {failure}"))
        .with_hint("open the device again")
}
