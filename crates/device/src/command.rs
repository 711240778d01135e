//! Commands of a list: dispatches, copies and fills, with sizes that may depend on symbols.
//!
//! Commands of a list take effect in their order; a backend adds what barriers it needs. Sizes are
//! `Extent`s: expressions in symbols, evaluated at replay.

use crate::{BufferId, Device, KernelId};
use tapml_graph::{Error, Extent, Result, Symbols};

/// A range of a buffer bound to one binding of a kernel.
///
/// A binding of size 0 at the end of a buffer covers nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte; a multiple of [`crate::Limits::min_offset_alignment`].
    pub offset: u64,
    /// Length in bytes; 0 means to the end of the buffer.
    pub size: u64,
}

impl Binding {
    /// The whole buffer.
    pub fn whole(buffer: BufferId) -> Binding {
        Binding { buffer, offset: 0, size: 0 }
    }
}

/// Numbers of workgroups in x, y and z.
pub type Grid = [Extent; 3];

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Runs a kernel. A grid with a zero runs nothing.
    Dispatch {
        /// What this dispatch computes, such as a node's name; shown in errors, findings and timings.
        label: String,
        /// The kernel.
        kernel: KernelId,
        /// One range per binding of the kernel, in order.
        bindings: Vec<Binding>,
        /// The number of workgroups.
        groups: Grid,
    },
    /// Copies bytes between two buffers. Offsets and length are multiples of 4.
    Copy {
        /// Source buffer.
        src: BufferId,
        /// First byte read.
        src_offset: Extent,
        /// Destination buffer; not the source.
        dst: BufferId,
        /// First byte written.
        dst_offset: Extent,
        /// Number of bytes.
        len: Extent,
    },
    /// Fills a whole buffer with a 32-bit word; poisons memory in debugging.
    Fill {
        /// The buffer.
        buffer: BufferId,
        /// The word.
        word: u32,
    },
}

/// Owns a recorded list's parameters on behalf of backends that re-encode at every replay:
/// evaluates the symbolic sizes of `commands` once per replay.
#[derive(Clone, Debug)]
pub struct RecordedList {
    /// The commands as recorded.
    pub commands: Vec<Command>,
}

impl RecordedList {
    /// The workgroup counts of a dispatch under `symbols`, checked against the device's limit.
    ///
    /// # Errors
    /// If a symbol is unbound or a count is beyond the limit, with the name of the dispatch.
    pub fn groups(device: &dyn Device, label: &str, grid: &Grid, symbols: &Symbols) -> Result<[u32; 3]> {
        RecordedList::groups_within(device.info().limits.max_groups_per_dim, label, grid, symbols)
    }

    /// As [`RecordedList::groups`] for a limit of one's own.
    pub fn groups_within(limit: u32, label: &str, grid: &Grid, symbols: &Symbols) -> Result<[u32; 3]> {
        let mut groups = [0; 3];
        for (axis, extent) in grid.iter().enumerate() {
            let value = extent.eval(symbols).map_err(|e| e.context(format!("dispatch `{label}`")))?;
            groups[axis] = u32::try_from(value).ok().filter(|&g| g <= limit).ok_or_else(|| {
                Error::unsupported(format!(
                    "dispatch `{label}` needs {value} workgroups in {}, the device allows {limit}",
                    ["x", "y", "z"][axis]
                ))
                .with_detail("limit", "max_groups_per_dim")
            })?;
        }
        Ok(groups)
    }
}
