//! The device: buffers, kernels and lists of HIP behind the books that refuse wrong calls.

use crate::adapter::{self, Opened};
use crate::compile::{Compiled, compile};
use crate::error::{Done, failed, lost};
use crate::options::Options;
use crate::runtime::{Argument, Memory, Stream};
use crate::sys::Rtc;
use std::collections::HashMap;
use std::sync::Arc;
use tapml_cfamily::Arg;
use tapml_device::{
    Binding, BufferId, Command, Device, DeviceInfo, KernelDesc, KernelId, ListId, Mirror, Recorded,
};
use tapml_graph::{Error, ErrorKind, Result, Symbols};

/// A HIP device with one stream that keeps the order of calls.
pub struct HipDevice {
    mirror: Mirror,
    options: Options,
    buffers: HashMap<BufferId, Memory>,
    kernels: HashMap<KernelId, Compiled>,
    stream: Arc<Stream>,
    rtc: &'static Rtc,
    /// What went wrong for good.
    lost: Option<String>,
}

impl HipDevice {
    /// Opens device `index` of [`crate::adapters`]. `options` is a query string: `checks=on|off` (indices are kept inside
    /// their arrays) and `f16=on|off`.
    pub fn open(index: usize, options: &str) -> Result<HipDevice> {
        let options = Options::parse(options)?;
        Ok(HipDevice::with(adapter::open(index, options)?, options))
    }

    fn with(Opened { stream, rtc, info }: Opened, options: Options) -> HipDevice {
        HipDevice {
            mirror: Mirror::new(info),
            options,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            stream,
            rtc,
            lost: None,
        }
    }

    /// Makes sure that the device works, and makes it that of this thread.
    fn alive(&mut self) -> Result<()> {
        if let Some(first) = &self.lost {
            return Err(Error::new(ErrorKind::DeviceLost, format!("the device was lost: {first}"))
                .with_hint("open the device again"));
        }
        let entered = self.stream.enter();
        self.done("use the device", entered)
    }

    /// The end of a call that works on the device; a failure loses it.
    fn done<T>(&mut self, doing: &str, result: Done<T>) -> Result<T> {
        result.map_err(|e| {
            let error = lost(doing, e);
            self.lost = Some(error.message().to_string());
            error
        })
    }

    fn memory_of(&self, buffer: BufferId) -> Result<&Memory> {
        self.buffers.get(&buffer).ok_or_else(|| Error::bug(format!("buffer {} has no memory", buffer.0)))
    }

    fn kernel(&self, kernel: KernelId) -> Result<&Compiled> {
        self.kernels.get(&kernel).ok_or_else(|| Error::bug(format!("kernel {} was not compiled", kernel.0)))
    }

    fn run(&mut self, command: &Command, symbols: &Symbols) -> Result<()> {
        match command {
            Command::Dispatch { label, kernel, bindings, groups } => {
                let limit = self.mirror.info().limits.max_groups_per_dim;
                let groups = Recorded::groups_within(limit, label, groups, symbols)?;
                if groups.contains(&0) {
                    return Ok(());
                }
                let done = self.dispatch(*kernel, bindings, groups)?;
                self.done(&format!("run `{label}`"), done)
            }
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                let from = self.mirror.copied(*src, src_offset, len, symbols)?;
                let to = self.mirror.copied(*dst, dst_offset, len, symbols)?;
                if from.is_empty() {
                    return Ok(());
                }
                let done = self.stream.copy(self.memory_of(*src)?, self.memory_of(*dst)?, from, to.start);
                self.done("copy a buffer", done)
            }
            Command::Fill { buffer, word } => {
                let done = self.stream.fill(self.memory_of(*buffer)?, *word);
                self.done("fill a buffer", done)
            }
        }
    }

    fn dispatch(&self, kernel: KernelId, bindings: &[Binding], groups: [u32; 3]) -> Result<Done> {
        let compiled = self.kernel(kernel)?;
        let argument = |arg: &Arg| {
            let (Arg::Pointer(at) | Arg::Offset(at) | Arg::Bytes(at)) = *arg;
            let binding =
                bindings.get(at as usize).ok_or_else(|| Error::bug("an argument without a binding"))?;
            let memory = self.memory_of(binding.buffer)?;
            match arg {
                Arg::Pointer(_) => Ok(Argument::Memory(memory, binding.offset)),
                Arg::Bytes(_) => Ok(Argument::Bytes(length(binding, memory) as u32)),
                Arg::Offset(_) => Err(Error::bug("an offset beside an address of HIP")),
            }
        };
        let arguments = compiled.printed.args.iter().map(argument).collect::<Result<Vec<_>>>()?;
        Ok(self.stream.run(&compiled.kernel, &arguments, groups, compiled.workgroup))
    }

    /// Refuses ranges that are shorter than what the kernel binds there.
    fn check_lengths(&self, command: &Command) -> Result<()> {
        let Command::Dispatch { label, kernel, bindings, .. } = command else { return Ok(()) };
        let compiled = self.kernel(*kernel)?;
        for (index, (binding, &least)) in bindings.iter().zip(&compiled.printed.min_sizes).enumerate() {
            let bytes = length(binding, self.memory_of(binding.buffer)?);
            if bytes < u64::from(least) {
                let name = &compiled.name;
                return Err(Error::invalid(format!(
                    "dispatch `{label}`: binding {index} of kernel `{name}` has {bytes} bytes, it needs at least {least}"
                ))
                .with_detail("kernel", name));
            }
        }
        Ok(())
    }
}

/// Bytes of a bound range.
fn length(binding: &Binding, memory: &Memory) -> u64 {
    if binding.size == 0 { memory.size().saturating_sub(binding.offset) } else { binding.size }
}

impl Device for HipDevice {
    fn info(&self) -> &DeviceInfo {
        self.mirror.info()
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        self.alive()?;
        let bytes = self.mirror.rounded(label, size)?;
        let doing = format!("create buffer `{label}` of {size} bytes");
        let made = self.stream.memory(bytes as usize);
        let made = made.and_then(|memory| self.stream.fill(&memory, 0).map(|()| memory));
        let memory = made.map_err(|e| failed(&doing, e))?;
        let id = self.mirror.create_buffer(label, size)?;
        self.buffers.insert(id, memory);
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.mirror.destroy_buffer(buffer)?;
        // The runtime waits until the commands that use the memory have run.
        self.buffers.remove(&buffer);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.alive()?;
        let range = self.mirror.write(buffer, offset, data.len())?;
        if range.is_empty() {
            return Ok(());
        }
        let done = self.stream.write(self.memory_of(buffer)?, range.start, data);
        self.done("write a buffer", done)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        self.alive()?;
        let range = self.mirror.read(buffer, offset, out.len())?;
        if range.is_empty() {
            return self.wait();
        }
        let done = self.stream.read(self.memory_of(buffer)?, range.start, out);
        self.done("read a buffer", done)
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        self.alive()?;
        let compiled = compile((&self.stream, self.rtc), desc, self.mirror.info(), self.options)?;
        let id = self.mirror.create_kernel(desc)?;
        self.kernels.insert(id, compiled);
        Ok(id)
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.mirror.destroy_kernel(kernel)?;
        self.kernels.remove(&kernel);
        Ok(())
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        self.alive()?;
        let list = self.mirror.record(commands)?;
        let checked = commands.iter().try_for_each(|command| self.check_lengths(command));
        match checked {
            Ok(()) => Ok(list),
            Err(error) => self.mirror.destroy_list(list).and(Err(error)),
        }
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        self.alive()?;
        // All or nothing: a refused replay leaves every buffer as it was.
        let commands = self.mirror.replay(list, symbols)?.to_vec();
        commands.iter().try_for_each(|command| self.run(command, symbols))
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.mirror.destroy_list(list)
    }

    fn wait(&mut self) -> Result<()> {
        self.alive()?;
        let done = self.stream.finish();
        self.done("finish all work", done)
    }

    fn memory(&self) -> (u64, u64) {
        self.mirror.memory()
    }
}

#[cfg(test)]
mod tests;
