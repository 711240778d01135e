//! A device that stores buffers and runs nothing: the template for a new backend, and a way to test planning without
//! hardware. Kernels are accepted if they fit the limits; dispatches leave buffers as they are.

use crate::{
    AdapterKind, Binding, BufferId, Command, Device, DeviceInfo, Features, KernelDesc, KernelId, Limits, ListId,
    Recorded,
};
use std::collections::HashMap;
use tapml_graph::{Error, Result, Symbols};

/// See the module.
pub struct NullDevice {
    info: DeviceInfo,
    next: u64,
    buffers: HashMap<BufferId, Vec<u8>>,
    kernels: HashMap<KernelId, KernelDesc>,
    lists: HashMap<ListId, Recorded>,
    used: u64,
    peak: u64,
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

    fn check_binding(&self, label: &str, binding: &Binding) -> Result<()> {
        let len = self.buffer(binding.buffer)?.len() as u64;
        let end = binding.offset.checked_add(binding.size);
        if end.is_none_or(|e| e > len) {
            return Err(Error::invalid(format!(
                "dispatch `{label}` binds {} bytes at {} of a buffer of {len} bytes",
                binding.size, binding.offset
            )));
        }
        Ok(())
    }

    fn buffer(&self, id: BufferId) -> Result<&Vec<u8>> {
        self.buffers.get(&id).ok_or_else(|| Error::invalid(format!("no buffer {}", id.0)))
    }
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        if size > self.info.limits.max_buffer_size {
            let max = self.info.limits.max_buffer_size;
            return Err(Error::unsupported(format!("buffer `{label}` needs {size} bytes, the device allows {max}")));
        }
        let id = BufferId(self.fresh());
        let size = size.next_multiple_of(4);
        self.buffers.insert(id, vec![0; size as usize]);
        self.used += size;
        self.peak = self.peak.max(self.used);
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        let old = self.buffers.remove(&buffer).ok_or_else(|| Error::invalid(format!("no buffer {}", buffer.0)))?;
        self.used -= old.len() as u64;
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        let len = self.buffer(buffer)?.len();
        let range = usize::try_from(offset).ok().and_then(|o| Some(o..o.checked_add(data.len())?));
        let range = range.filter(|r| r.end <= len);
        let range = range.ok_or_else(|| Error::invalid(format!("write of {} bytes at {offset} into {len}", data.len())))?;
        if let Some(stored) = self.buffers.get_mut(&buffer) {
            stored[range].copy_from_slice(data);
        }
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        let stored = self.buffer(buffer)?;
        let range = usize::try_from(offset).ok().and_then(|o| Some(o..o.checked_add(out.len())?));
        let bytes = range.and_then(|r| stored.get(r));
        let bytes = bytes.ok_or_else(|| Error::invalid(format!("read of {} bytes at {offset}", out.len())))?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        desc.check_limits(&self.info)?;
        let id = KernelId(self.fresh());
        self.kernels.insert(id, desc.clone());
        Ok(id)
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.kernels.remove(&kernel).map(|_| ()).ok_or_else(|| Error::invalid(format!("no kernel {}", kernel.0)))
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        for command in commands {
            if let Command::Dispatch { label, kernel, bindings, .. } = command {
                let desc = self.kernels.get(kernel);
                let desc = desc.ok_or_else(|| Error::invalid(format!("dispatch `{label}`: no kernel {}", kernel.0)))?;
                if desc.bindings.len() != bindings.len() {
                    return Err(Error::invalid(format!(
                        "dispatch `{label}` binds {} buffers, kernel `{}` has {}",
                        bindings.len(),
                        desc.name,
                        desc.bindings.len()
                    )));
                }
                for binding in bindings {
                    self.check_binding(label, binding)?;
                }
            }
        }
        let id = ListId(self.fresh());
        self.lists.insert(id, Recorded { commands: commands.to_vec() });
        Ok(id)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let recorded = self.lists.get(&list).ok_or_else(|| Error::invalid(format!("no list {}", list.0)))?;
        for command in &recorded.commands {
            if let Command::Dispatch { label, groups, .. } = command {
                Recorded::groups(self, label, groups, symbols)?;
            }
        }
        Ok(())
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.lists.remove(&list).map(|_| ()).ok_or_else(|| Error::invalid(format!("no list {}", list.0)))
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> (u64, u64) {
        (self.used, self.peak)
    }
}
