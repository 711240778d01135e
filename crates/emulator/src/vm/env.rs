//! What a dispatch binds and asks for.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

/// A bound range of a buffer, in words.
#[derive(Clone, Copy)]
pub enum BufferView<'a> {
    /// Nothing writes to it during the dispatch.
    Read(&'a [u32]),
    /// Any workgroup may write to it.
    Write(&'a [AtomicU32]),
}

/// What one dispatch binds and asks for.
///
/// It is shared by all threads of the dispatch.
pub struct Env<'a> {
    /// One view per binding, of the range that is bound.
    pub buffers: Vec<BufferView<'a>>,
    /// Lengths of runtime-sized arrays, as [`Code::lengths`] lists them.
    pub lengths: Vec<u32>,
    /// Workgroups along x, y, z.
    pub groups: [u32; 3],
    /// How long one workgroup may run.
    pub limit: Duration,
    /// Set by the first thread that fails; the others stop.
    pub stop: &'a AtomicBool,
}
