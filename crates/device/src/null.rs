//! A device that stores buffers and runs no kernels: the template for a new backend, and a way to test planning without
//! hardware. Everything else holds: handles, bounds, alignments and limits are checked, copies and fills are done.
//! Kernels are accepted if they fit the limits; dispatches leave buffers as they are.
//!
//! A new backend starts as a copy of this file: what `handles` checks stays, `bytes` and `run` become calls
//! of the driver.

use crate::{
    AdapterKind, BufferId, Command, Device, DeviceInfo, Features, HandleTable, KernelDesc, KernelId, Limits,
    ListId,
};
use std::collections::HashMap;
use tapml_graph::{Error, ErrorKind, Result, Symbols};

/// See the module.
pub struct NullDevice {
    /// Checks every call.
    handles: HandleTable,
    /// Contents, rounded up to whole words.
    bytes: HashMap<BufferId, Vec<u8>>,
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
        NullDevice { handles: HandleTable::new(info), bytes: HashMap::new() }
    }

    /// One command whose ranges have been checked.
    fn run(&mut self, command: &Command, symbols: &Symbols) -> Result<()> {
        match command {
            Command::Dispatch { .. } => {}
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                let from = self.handles.copy_range(*src, src_offset, len, symbols)?;
                let to = self.handles.copy_range(*dst, dst_offset, len, symbols)?;
                // A copy: two buffers of one map cannot be borrowed at a time.
                let bytes = self.bytes.get(src).map(|bytes| bytes[from].to_vec()).unwrap_or_default();
                if let Some(stored) = self.bytes.get_mut(dst) {
                    stored[to].copy_from_slice(&bytes);
                }
            }
            Command::Fill { buffer, word } => {
                if let Some(stored) = self.bytes.get_mut(buffer) {
                    stored.as_chunks_mut::<4>().0.fill(word.to_le_bytes());
                }
            }
        }
        Ok(())
    }
}

/// `None` if memory does not suffice, instead of ending the process.
fn allocate_zeroed(size: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(size).ok()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).ok()?;
    bytes.resize(size, 0);
    Some(bytes)
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        self.handles.info()
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        // Memory first: a handle must not exist without contents.
        let bytes = allocate_zeroed(self.handles.check_size(label, size)?).ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, format!("no memory for buffer `{label}` of {size} bytes"))
        })?;
        let id = self.handles.create_buffer(label, size)?;
        self.bytes.insert(id, bytes);
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.handles.destroy_buffer(buffer)?;
        self.bytes.remove(&buffer);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        let range = self.handles.write(buffer, offset, data.len())?;
        if let Some(stored) = self.bytes.get_mut(&buffer) {
            stored[range].copy_from_slice(data);
        }
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        let range = self.handles.read(buffer, offset, out.len())?;
        if let Some(stored) = self.bytes.get(&buffer) {
            out.copy_from_slice(&stored[range]);
        }
        Ok(())
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        self.handles.create_kernel(desc)
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.handles.destroy_kernel(kernel)
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        self.handles.record(commands)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        // All or nothing: a refused replay leaves every buffer as it was.
        let commands = self.handles.replay(list, symbols)?.to_vec();
        commands.iter().try_for_each(|command| self.run(command, symbols))
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.handles.destroy_list(list)
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> (u64, u64) {
        self.handles.memory()
    }
}
