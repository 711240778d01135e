//! What can be told about calls without a device: handles, bounds, alignments and limits. [`crate::null::NullDevice`] and
//! devices that are elsewhere keep one, so that a wrong call is refused before anything happens.
//!
//! Numbers of handles are never given twice, not even across kinds. So a stale handle is refused instead of
//! meaning something else.

use crate::{
    Binding, BindingKind, BufferId, Command, DeviceInfo, KernelDesc, KernelId, Limits, ListId, RecordedList,
};
use std::collections::HashMap;
use std::ops::Range;
use tapml_graph::{Error, Extent, Result, Symbols};

/// The books of a device: which buffers, kernels and lists exist, and what they look like. Holds no contents.
#[derive(Debug)]
pub struct HandleTable {
    /// Whose limits are checked.
    info: DeviceInfo,
    /// The last number given.
    next: u64,
    /// Those that exist.
    buffers: HashMap<BufferId, KnownBuffer>,
    kernels: HashMap<KernelId, KnownKernel>,
    lists: HashMap<ListId, RecordedList>,
    /// Bytes of all buffers, each rounded up to whole words.
    used: u64,
    /// The most that `used` has been.
    peak: u64,
}

/// A buffer without its contents.
#[derive(Debug)]
struct KnownBuffer {
    label: String,
    /// The length asked for.
    len: u64,
}

impl KnownBuffer {
    /// The length in whole words.
    fn rounded_len(&self) -> u64 {
        self.len.next_multiple_of(4)
    }
}

/// A kernel without its text.
#[derive(Debug)]
struct KnownKernel {
    /// For messages.
    name: String,
    /// How each is used.
    bindings: Vec<BindingKind>,
}

impl HandleTable {
    /// Empty books of a device that tells this about itself.
    pub fn new(info: DeviceInfo) -> HandleTable {
        HandleTable {
            info,
            next: 0,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            lists: HashMap::new(),
            used: 0,
            peak: 0,
        }
    }

    /// What the device tells about itself.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Strikes everything out: the device holds nothing any more. Handles are not given again.
    pub fn clear(&mut self) {
        self.buffers.clear();
        self.kernels.clear();
        self.lists.clear();
        self.used = 0;
    }

    /// Bytes of buffers, and the most that there were at once.
    pub fn memory(&self) -> (u64, u64) {
        (self.used, self.peak)
    }

    /// The size of a buffer in whole words, if the device allows it.
    ///
    /// # Errors
    /// `Unsupported` with the details `limit`, `asked` and `offered`.
    pub fn check_size(&self, label: &str, size: u64) -> Result<u64> {
        let max = self.info.limits.max_buffer_size;
        size.checked_next_multiple_of(4).filter(|_| size <= max).ok_or_else(|| {
            Error::unsupported(format!("buffer `{label}` needs {size} bytes, the device allows {max}"))
                .with_detail("limit", "max_buffer_size")
                .with_detail("asked", size.to_string())
                .with_detail("offered", max.to_string())
        })
    }

    /// Enters a buffer.
    pub fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        let rounded = self.check_size(label, size)?;
        let id = BufferId(self.fresh());
        self.buffers.insert(id, KnownBuffer { label: label.into(), len: size });
        self.used += rounded;
        // Never reset, not even by `clear`.
        self.peak = self.peak.max(self.used);
        Ok(id)
    }

    /// Strikes out a buffer.
    pub fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        let old = self.buffers.remove(&buffer).ok_or_else(|| no_buffer(buffer))?;
        self.used -= old.rounded_len();
        Ok(())
    }

    /// The label of a buffer.
    pub fn label(&self, buffer: BufferId) -> Result<&str> {
        Ok(&self.buffer(buffer)?.label)
    }

    /// The range of bytes that a write touches.
    ///
    /// # Errors
    /// If there is no such buffer, the range lies outside, or it is no whole words.
    pub fn write(&self, buffer: BufferId, offset: u64, len: usize) -> Result<Range<usize>> {
        let stored = self.buffer(buffer)?;
        let have = stored.rounded_len();
        let range = transfer_range(offset, len, have).ok_or_else(|| {
            Error::invalid(format!(
                "write of {len} bytes at {offset} of `{}`, which has {have}",
                stored.label
            ))
        })?;
        // A tensor of an odd number of bytes ends where its buffer ends.
        let to_the_end = range.end as u64 == stored.len;
        if offset.is_multiple_of(4) && (len.is_multiple_of(4) || to_the_end) {
            Ok(range)
        } else {
            Err(Error::invalid(format!(
                "write of {len} bytes at {offset} of `{}`: expected whole words",
                stored.label
            )))
        }
    }

    /// The range of bytes that a read touches.
    pub fn read(&self, buffer: BufferId, offset: u64, len: usize) -> Result<Range<usize>> {
        let stored = self.buffer(buffer)?;
        let have = stored.rounded_len();
        transfer_range(offset, len, have).ok_or_else(|| {
            Error::invalid(format!("read of {len} bytes at {offset} of `{}`, which has {have}", stored.label))
        })
    }

    /// Enters a kernel that fits the limits.
    pub fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        desc.check_limits(&self.info)?;
        let id = KernelId(self.fresh());
        self.kernels.insert(id, KnownKernel { name: desc.name.clone(), bindings: desc.bindings.clone() });
        Ok(id)
    }

    /// Strikes out a kernel.
    pub fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.kernels.remove(&kernel).map(drop).ok_or_else(|| no_kernel(kernel))
    }

    /// Enters a command list after checking what needs no symbols.
    pub fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        commands.iter().try_for_each(|command| self.check(command))?;
        let id = ListId(self.fresh());
        self.lists.insert(id, RecordedList { commands: commands.to_vec() });
        Ok(id)
    }

    /// The commands of a list that may run with these symbols: all its parts exist, all sizes fit.
    pub fn replay(&self, list: ListId, symbols: &Symbols) -> Result<&[Command]> {
        let commands = self.lists.get(&list).map(|l| l.commands.as_slice()).ok_or_else(|| no_list(list))?;
        for command in commands {
            // Again at each replay: a part may have been destroyed since.
            self.check(command)?;
            self.check_sizes(command, symbols)?;
        }
        Ok(commands)
    }

    /// Strikes out a list.
    pub fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.lists.remove(&list).map(drop).ok_or_else(|| no_list(list))
    }

    /// The range of one side of a copy.
    pub fn copy_range(
        &self,
        id: BufferId,
        offset: &Extent,
        len: &Extent,
        symbols: &Symbols,
    ) -> Result<Range<usize>> {
        let buffer = self.buffer(id)?;
        let (offset, len) = (offset.eval(symbols)?, len.eval(symbols)?);
        let have = buffer.rounded_len();
        let range = usize::try_from(len).ok().and_then(|len| transfer_range(offset, len, have));
        range.filter(|_| offset % 4 == 0 && len % 4 == 0).ok_or_else(|| {
            Error::invalid(format!(
                "copy of {len} bytes at {offset} of `{}`: expected whole words within its {have} bytes",
                buffer.label
            ))
        })
    }

    /// A number that no handle has.
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// What is known of a buffer.
    fn buffer(&self, id: BufferId) -> Result<&KnownBuffer> {
        self.buffers.get(&id).ok_or_else(|| no_buffer(id))
    }

    /// What can be told of a command before symbols are known.
    fn check(&self, command: &Command) -> Result<()> {
        match command {
            Command::Dispatch { label, kernel, bindings, .. } => {
                self.check_dispatch(*kernel, bindings).map_err(|e| e.context(format!("dispatch `{label}`")))
            }
            Command::Copy { src, dst, .. } if src == dst => {
                let label = &self.buffer(*src)?.label;
                Err(Error::invalid(format!(
                    "copy within the buffer `{label}`: source and destination must differ"
                )))
            }
            Command::Copy { src, dst, .. } => self.buffer(*src).and(self.buffer(*dst)).map(drop),
            Command::Fill { buffer, .. } => self.buffer(*buffer).map(drop),
        }
    }

    /// Existence, number, ranges and aliasing of bindings.
    fn check_dispatch(&self, kernel: KernelId, bindings: &[Binding]) -> Result<()> {
        let kernel = self.kernels.get(&kernel).ok_or_else(|| no_kernel(kernel))?;
        if kernel.bindings.len() != bindings.len() {
            return Err(Error::invalid(format!(
                "{} buffers are bound, kernel `{}` has {} bindings",
                bindings.len(),
                kernel.name,
                kernel.bindings.len()
            )));
        }
        for (i, (binding, kind)) in bindings.iter().zip(&kernel.bindings).enumerate() {
            self.check_binding(binding, *kind).map_err(|e| e.context(format!("binding {i}")))?;
        }
        // WebGPU knows usage by buffer, not by range: what is written must not be bound a second time.
        for (i, binding) in bindings.iter().enumerate() {
            let written = |j: usize| kernel.bindings[j] == BindingKind::ReadWrite;
            let twin = (0..i).find(|&j| bindings[j].buffer == binding.buffer && (written(i) || written(j)));
            if let Some(j) = twin {
                let label = &self.buffer(binding.buffer)?.label;
                return Err(Error::invalid(format!(
                    "bindings {j} and {i} share the buffer `{label}`, which is written"
                )));
            }
        }
        Ok(())
    }

    /// Range, alignment and size of one binding.
    fn check_binding(&self, binding: &Binding, kind: BindingKind) -> Result<()> {
        let Limits { max_binding_size, max_uniform_size, min_offset_alignment, .. } = self.info.limits;
        let buffer = self.buffer(binding.buffer)?;
        let len = buffer.rounded_len();
        let Binding { offset, size, .. } = *binding;
        // Both may be any number.
        if offset.checked_add(size).is_none_or(|end| end > len) {
            return Err(Error::invalid(format!(
                "{size} bytes at {offset} of `{}`, which has {len} bytes",
                buffer.label
            )));
        }
        if !offset.is_multiple_of(u64::from(min_offset_alignment.max(1))) {
            return Err(Error::invalid(format!("offset {offset} is no multiple of {min_offset_alignment}")));
        }
        // 0 stands for the rest of the buffer.
        let size = if size == 0 { len - offset } else { size };
        let (limit, max) = match kind {
            BindingKind::Uniform => ("max_uniform_size", max_uniform_size),
            BindingKind::Read | BindingKind::ReadWrite => ("max_binding_size", max_binding_size),
        };
        if size > max {
            return Err(Error::unsupported(format!(
                "{size} bytes of `{}` are bound, the device allows {max}",
                buffer.label
            ))
            .with_detail("limit", limit)
            .with_detail("asked", size.to_string())
            .with_detail("offered", max.to_string()));
        }
        Ok(())
    }

    /// What only symbols tell: the size of grids and the ranges of copies.
    fn check_sizes(&self, command: &Command, symbols: &Symbols) -> Result<()> {
        match command {
            Command::Dispatch { label, groups, .. } => {
                RecordedList::groups_within(self.info.limits.max_groups_per_dim, label, groups, symbols)
                    .map(drop)
            }
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                self.copy_range(*src, src_offset, len, symbols)?;
                self.copy_range(*dst, dst_offset, len, symbols).map(drop)
            }
            Command::Fill { .. } => Ok(()),
        }
    }
}

/// The same message for all calls.
fn no_buffer(id: BufferId) -> Error {
    Error::invalid(format!("no buffer {}", id.0))
}

/// The same message for all calls.
fn no_kernel(id: KernelId) -> Error {
    Error::invalid(format!("no kernel {}", id.0))
}

/// The same message for all calls.
fn no_list(id: ListId) -> Error {
    Error::invalid(format!("no list {}", id.0))
}

/// The range of a transfer, if it lies within `have` bytes.
fn transfer_range(offset: u64, len: usize, have: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(len)?;
    (end as u64 <= have).then_some(start..end)
}
