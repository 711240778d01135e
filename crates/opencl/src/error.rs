//! What OpenCL reports, as errors of TapML.
//!
//! Statuses are the negative numbers of `cl.h`; those that a user may meet have words.

use crate::sys::{ClStatus, MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_HOST_MEMORY, OUT_OF_RESOURCES};
use std::fmt;
use tapml_cfamily::device::Fault;

/// The status of a failed call.
///
/// It is never 0, which is success.
#[derive(Clone, Copy, Debug)]
pub struct ClFailure(pub(crate) ClStatus);

/// The result of a call; the error is its status.
pub(crate) type ClResult<T = ()> = Result<T, ClFailure>;

/// Turns a status into a result.
pub(crate) fn check(status: ClStatus) -> ClResult {
    if status == 0 { Ok(()) } else { Err(ClFailure(status)) }
}

impl fmt::Display for ClFailure {
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

impl Fault for ClFailure {
    // Drivers answer `CL_OUT_OF_RESOURCES` for memory, too.
    fn out_of_memory(&self) -> bool {
        [MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_RESOURCES, OUT_OF_HOST_MEMORY].contains(&self.0)
    }
}
