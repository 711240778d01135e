//! What command lists and the device work with: the buffers and kernels behind its handles, and the queue.

use crate::compile::WgpuKernel;
use crate::fill::FillPipeline;
use crate::gpu::Gpu;
use crate::transfer::Transfers;
use std::collections::HashMap;
use tapml_device::{BufferId, DeviceInfo, KernelId};
use tapml_graph::{Error, Result};

/// The parts of a device that its lists use too.
pub(crate) struct DeviceParts {
    /// What the device offers, fixed when it was opened.
    pub(crate) info: DeviceInfo,
    /// The way into wgpu.
    pub(crate) gpu: Gpu,
    /// Buffers that exist, by handle.
    pub(crate) buffers: HashMap<BufferId, Stored>,
    /// Kernels that exist, by handle.
    pub(crate) kernels: HashMap<KernelId, WgpuKernel>,
    /// Made when a buffer is first filled with another word than 0.
    pub(crate) fill: Option<FillPipeline>,
    /// How many buffers and kernels were destroyed; a list checked at this count has all its parts.
    pub(crate) destroyed: u64,
    /// Uploads and reads under way.
    pub(crate) transfers: Transfers,
}

/// A buffer.
pub(crate) struct Stored {
    /// For messages.
    pub(crate) label: String,
    /// The buffer itself; clones share it.
    pub(crate) raw: wgpu::Buffer,
    /// Bytes, a multiple of 4. The raw buffer has at least one word.
    pub(crate) size: u64,
    /// Bytes asked for: a write may end here.
    pub(crate) asked: u64,
}

impl DeviceParts {
    /// Those of a device that holds nothing so far.
    pub(crate) fn new(info: DeviceInfo, gpu: Gpu) -> DeviceParts {
        DeviceParts {
            info,
            gpu,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            fill: None,
            destroyed: 0,
            transfers: Transfers::default(),
        }
    }

    /// The buffer of a handle.
    pub(crate) fn buffer(&self, id: BufferId) -> Result<&Stored> {
        self.buffers.get(&id).ok_or_else(|| Error::invalid(format!("no buffer {} on this device", id.0)))
    }

    /// The buffer of a handle if it has `len` bytes from `offset` on; `doing` begins the message if not.
    pub(crate) fn range(&self, id: BufferId, offset: u64, len: usize, doing: &str) -> Result<&Stored> {
        let stored = self.buffer(id)?;
        match offset.checked_add(len as u64) {
            Some(end) if end <= stored.size => Ok(stored),
            _ => Err(Error::invalid(format!(
                "{doing} of {len} bytes at offset {offset} passes the end of buffer `{}` of {} bytes",
                stored.label, stored.size
            ))),
        }
    }
}
