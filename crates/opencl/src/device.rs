//! The device: buffers, kernels and lists of OpenCL behind the books that refuse wrong calls.

use crate::adapter;
use crate::compile::{Compiled, compile};
use crate::error::{Failure, failed, lost};
use crate::options::Options;
use crate::queue::{Argument, Done, Memory, Queue};
use std::collections::HashMap;
use std::sync::Arc;
use tapml_cfamily::Arg;
use tapml_device::{
    Binding, BufferId, Command, Device, DeviceInfo, KernelDesc, KernelId, ListId, Mirror, Recorded,
};
use tapml_graph::{Error, ErrorKind, Result, Symbols};

/// An OpenCL device with one queue that keeps the order of calls.
pub struct OpenClDevice {
    mirror: Mirror,
    options: Options,
    buffers: HashMap<BufferId, Memory>,
    kernels: HashMap<KernelId, Compiled>,
    queue: Arc<Queue>,
    /// What went wrong for good.
    lost: Option<String>,
}

impl OpenClDevice {
    /// Opens device `index` of [`crate::adapters`]. `options` is a query string: `checks=on|off` (indices are kept inside
    /// their arrays) and `f16=on|off`.
    pub fn open(index: usize, options: &str) -> Result<OpenClDevice> {
        let options = Options::parse(options)?;
        let (device, info) = adapter::open(index, options)?;
        let opened = |failure: Failure| {
            let text = format!("OpenCL device {index} ({}) cannot be opened: {failure}", info.name);
            Error::new(ErrorKind::Unavailable, text).with_hint("is the driver in working order?")
        };
        let queue = device.open().map_err(opened)?;
        Ok(OpenClDevice {
            mirror: Mirror::new(info),
            options,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            queue,
            lost: None,
        })
    }

    fn alive(&self) -> Result<()> {
        match &self.lost {
            None => Ok(()),
            Some(first) => Err(Error::new(ErrorKind::DeviceLost, format!("the device was lost: {first}"))
                .with_hint("open the device again")),
        }
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
                let done = self.queue.copy(self.memory_of(*src)?, self.memory_of(*dst)?, from, to.start);
                self.done("copy a buffer", done)
            }
            Command::Fill { buffer, word } => {
                let done = self.queue.fill(self.memory_of(*buffer)?, *word);
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
            Ok(match arg {
                Arg::Pointer(_) => Argument::Memory(memory),
                Arg::Offset(_) => Argument::Offset(binding.offset),
                Arg::Bytes(_) => Argument::Bytes(length(binding, memory) as u32),
            })
        };
        let arguments = compiled.printed.args.iter().map(argument).collect::<Result<Vec<_>>>()?;
        Ok(self.queue.run(&compiled.kernel, &arguments, groups, compiled.workgroup))
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

impl Device for OpenClDevice {
    fn info(&self) -> &DeviceInfo {
        self.mirror.info()
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        self.alive()?;
        let bytes = self.mirror.rounded(label, size)?;
        let doing = format!("create buffer `{label}` of {size} bytes");
        // Some drivers take the memory only when it is first used.
        let made = self.queue.memory(bytes as usize);
        let made = made.and_then(|memory| self.queue.fill(&memory, 0).map(|()| memory));
        let memory = made.map_err(|e| failed(&doing, e))?;
        let id = self.mirror.create_buffer(label, size)?;
        self.buffers.insert(id, memory);
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.mirror.destroy_buffer(buffer)?;
        // OpenCL keeps the memory until the commands that use it have run.
        self.buffers.remove(&buffer);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.alive()?;
        let range = self.mirror.write(buffer, offset, data.len())?;
        if range.is_empty() {
            return Ok(());
        }
        let done = self.queue.write(self.memory_of(buffer)?, range.start, data);
        self.done("write a buffer", done)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        self.alive()?;
        let range = self.mirror.read(buffer, offset, out.len())?;
        if range.is_empty() {
            return self.wait();
        }
        let done = self.queue.read(self.memory_of(buffer)?, range.start, out);
        self.done("read a buffer", done)
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        self.alive()?;
        let compiled = compile(&self.queue, desc, self.mirror.info(), self.options)?;
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
        commands.iter().try_for_each(|command| self.run(command, symbols))?;
        let done = self.queue.flush();
        self.done("hand over commands", done)
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.mirror.destroy_list(list)
    }

    fn wait(&mut self) -> Result<()> {
        self.alive()?;
        let done = self.queue.finish();
        self.done("finish all work", done)
    }

    fn memory(&self) -> (u64, u64) {
        self.mirror.memory()
    }
}
