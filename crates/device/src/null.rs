//! A device that stores buffers and runs no kernels: the template for a new backend, and a way to test planning without
//! hardware. Everything else holds: handles, bounds, alignments and limits are checked, copies and fills are done.
//! Kernels are accepted if they fit the limits; dispatches leave buffers as they are.

use crate::{
    AdapterKind, Binding, BindingKind, BufferId, Command, Device, DeviceInfo, Features, KernelDesc, KernelId,
    Limits, ListId, Recorded,
};
use std::collections::HashMap;
use std::ops::Range;
use tapml_graph::{Error, ErrorKind, Extent, Result, Symbols};

/// See the module.
pub struct NullDevice {
    info: DeviceInfo,
    next: u64,
    buffers: HashMap<BufferId, Buffer>,
    kernels: HashMap<KernelId, KernelDesc>,
    lists: HashMap<ListId, Recorded>,
    used: u64,
    peak: u64,
}

struct Buffer {
    label: String,
    /// The length asked for; `bytes` is that rounded up to whole words.
    len: u64,
    bytes: Vec<u8>,
}

impl NullDevice {
    /// A null device with these limits and features.
    pub fn new(limits: Limits, features: Features) -> NullDevice {
        let info = DeviceInfo {
            platform: "null".into(),
            name: "null device".into(),
            driver: concat!("tapml ", env!("CARGO_PKG_VERSION")).into(),
            kind: AdapterKind::Other,
            limits,
            features,
        };
        NullDevice {
            info,
            next: 0,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            lists: HashMap::new(),
            used: 0,
            peak: 0,
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn buffer(&self, id: BufferId) -> Result<&Buffer> {
        self.buffers.get(&id).ok_or_else(|| Error::invalid(format!("no buffer {}", id.0)))
    }

    fn kernel(&self, id: KernelId) -> Result<&KernelDesc> {
        self.kernels.get(&id).ok_or_else(|| Error::invalid(format!("no kernel {}", id.0)))
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

    fn check_dispatch(&self, kernel: KernelId, bindings: &[Binding]) -> Result<()> {
        let desc = self.kernel(kernel)?;
        if desc.bindings.len() != bindings.len() {
            return Err(Error::invalid(format!(
                "{} buffers are bound, kernel `{}` has {} bindings",
                bindings.len(),
                desc.name,
                desc.bindings.len()
            )));
        }
        for (i, (binding, kind)) in bindings.iter().zip(&desc.bindings).enumerate() {
            self.check_binding(binding, *kind).map_err(|e| e.context(format!("binding {i}")))?;
        }
        // WebGPU knows usage by buffer, not by range: what is written must not be bound a second time.
        for (i, binding) in bindings.iter().enumerate() {
            let written = |j: usize| desc.bindings[j] == BindingKind::ReadWrite;
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

    fn check_binding(&self, binding: &Binding, kind: BindingKind) -> Result<()> {
        let Limits { max_binding_size, max_uniform_size, min_offset_alignment, .. } = self.info.limits;
        let buffer = self.buffer(binding.buffer)?;
        let len = buffer.bytes.len() as u64;
        let Binding { offset, size, .. } = *binding;
        if offset.checked_add(size).is_none_or(|end| end > len) {
            return Err(Error::invalid(format!(
                "{size} bytes at {offset} of `{}`, which has {len} bytes",
                buffer.label
            )));
        }
        if !offset.is_multiple_of(u64::from(min_offset_alignment.max(1))) {
            return Err(Error::invalid(format!("offset {offset} is no multiple of {min_offset_alignment}")));
        }
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
                Recorded::groups(self, label, groups, symbols).map(drop)
            }
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                self.copied(*src, src_offset, len, symbols)?;
                self.copied(*dst, dst_offset, len, symbols).map(drop)
            }
            Command::Fill { .. } => Ok(()),
        }
    }

    /// The range of one side of a copy.
    fn copied(&self, id: BufferId, offset: &Extent, len: &Extent, symbols: &Symbols) -> Result<Range<usize>> {
        let buffer = self.buffer(id)?;
        let (offset, len) = (offset.eval(symbols)?, len.eval(symbols)?);
        let have = buffer.bytes.len() as u64;
        let end = offset.checked_add(len).filter(|&end| end <= have);
        match end {
            Some(end) if offset % 4 == 0 && len % 4 == 0 => Ok(offset as usize..end as usize),
            _ => Err(Error::invalid(format!(
                "copy of {len} bytes at {offset} of `{}`: expected whole words within its {have} bytes",
                buffer.label
            ))),
        }
    }

    fn run(&mut self, command: &Command, symbols: &Symbols) -> Result<()> {
        match command {
            Command::Dispatch { .. } => {}
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                let from = self.copied(*src, src_offset, len, symbols)?;
                let to = self.copied(*dst, dst_offset, len, symbols)?;
                let bytes = self.buffer(*src)?.bytes[from].to_vec();
                if let Some(buffer) = self.buffers.get_mut(dst) {
                    buffer.bytes[to].copy_from_slice(&bytes);
                }
            }
            Command::Fill { buffer, word } => {
                if let Some(buffer) = self.buffers.get_mut(buffer) {
                    buffer.bytes.as_chunks_mut::<4>().0.fill(word.to_le_bytes());
                }
            }
        }
        Ok(())
    }
}

/// The range of a transfer, if it lies within `have` bytes.
fn within(offset: u64, len: usize, have: usize) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(len)?;
    (end <= have).then_some(start..end)
}

fn zeroed(size: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(size).ok()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).ok()?;
    bytes.resize(size, 0);
    Some(bytes)
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        let max = self.info.limits.max_buffer_size;
        let rounded = size.checked_next_multiple_of(4).filter(|_| size <= max).ok_or_else(|| {
            Error::unsupported(format!("buffer `{label}` needs {size} bytes, the device allows {max}"))
                .with_detail("limit", "max_buffer_size")
                .with_detail("asked", size.to_string())
                .with_detail("offered", max.to_string())
        })?;
        let bytes = zeroed(rounded).ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, format!("no memory for buffer `{label}` of {size} bytes"))
        })?;
        let id = BufferId(self.fresh());
        self.buffers.insert(id, Buffer { label: label.into(), len: size, bytes });
        self.used += rounded;
        self.peak = self.peak.max(self.used);
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        let len = self.buffer(buffer)?.bytes.len() as u64;
        self.buffers.remove(&buffer);
        self.used -= len;
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        let stored = self.buffer(buffer)?;
        let have = stored.bytes.len();
        let range = within(offset, data.len(), have).ok_or_else(|| {
            let len = data.len();
            Error::invalid(format!(
                "write of {len} bytes at {offset} of `{}`, which has {have}",
                stored.label
            ))
        })?;
        let to_the_end = range.end as u64 == stored.len;
        if !offset.is_multiple_of(4) || !(data.len().is_multiple_of(4) || to_the_end) {
            return Err(Error::invalid(format!(
                "write of {} bytes at {offset} of `{}`: expected whole words",
                data.len(),
                stored.label
            )));
        }
        if let Some(stored) = self.buffers.get_mut(&buffer) {
            stored.bytes[range].copy_from_slice(data);
        }
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        let stored = self.buffer(buffer)?;
        let have = stored.bytes.len();
        let range = within(offset, out.len(), have).ok_or_else(|| {
            let len = out.len();
            Error::invalid(format!("read of {len} bytes at {offset} of `{}`, which has {have}", stored.label))
        })?;
        out.copy_from_slice(&stored.bytes[range]);
        Ok(())
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        desc.check_limits(&self.info)?;
        let id = KernelId(self.fresh());
        self.kernels.insert(id, desc.clone());
        Ok(id)
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.kernel(kernel)?;
        self.kernels.remove(&kernel);
        Ok(())
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        commands.iter().try_for_each(|command| self.check(command))?;
        let id = ListId(self.fresh());
        self.lists.insert(id, Recorded { commands: commands.to_vec() });
        Ok(id)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let recorded = self.lists.get(&list).ok_or_else(|| Error::invalid(format!("no list {}", list.0)))?;
        let commands = recorded.commands.clone();
        // All or nothing: a refused replay leaves every buffer as it was.
        for command in &commands {
            self.check(command)?;
            self.check_sizes(command, symbols)?;
        }
        commands.iter().try_for_each(|command| self.run(command, symbols))
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.lists.remove(&list).map(drop).ok_or_else(|| Error::invalid(format!("no list {}", list.0)))
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> (u64, u64) {
        (self.used, self.peak)
    }
}
