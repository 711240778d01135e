//! A device over a driver that compiles printed kernels and works in order: what the backends of OpenCL and HIP share.
//! A [`HandleTable`] in front of it refuses wrong calls.
//!
//! So a driver only sees handles that exist and ranges that lie within their buffers. A failure of work that was handed over loses
//! the device for good: its memory may hold anything.

mod compile;
mod driver;
mod options;

pub use driver::{Argument, Driver, Fault, Refusal, call_error, device_lost};
pub use options::{DriverOptions, switches};

use crate::{Arg, Dialect};
use compile::{Compiled, compile};
use std::collections::HashMap;
use tapml_device::{
    Binding, BufferId, Command, Device, DeviceInfo, HandleTable, KernelDesc, KernelId, ListId, RecordedList,
};
use tapml_graph::{Error, ErrorKind, Result, Symbols};

/// A device over a driver that keeps the order of calls.
pub struct Driven<D: Driver> {
    /// What exists, and the checks of every call.
    handles: HandleTable,
    /// What the user chose.
    options: DriverOptions,
    /// Memory of each buffer.
    buffers: HashMap<BufferId, DriverMemory<D>>,
    /// Each compiled kernel.
    kernels: HashMap<KernelId, Compiled<D>>,
    /// The driver's calls.
    driver: D,
    /// What went wrong for good.
    lost: Option<String>,
}

/// Memory of the driver and its bytes: a multiple of 4.
struct DriverMemory<D: Driver> {
    /// The driver's handle.
    raw: D::Memory,
    /// Its size.
    bytes: u64,
}

impl<D: Driver> DriverMemory<D> {
    /// Bytes of a bound range.
    fn length(&self, binding: &Binding) -> u64 {
        if binding.size == 0 { self.bytes.saturating_sub(binding.offset) } else { binding.size }
    }
}

/// What a call of the driver gives.
type DriverResult<D, T = ()> = std::result::Result<T, <D as Driver>::Failure>;

impl<D: Driver> Driven<D> {
    /// Opens device `index` of those that the crate lists. `options` is a query string: `checks=on|off` (indices are kept
    /// inside their arrays), `f16=on|off` and, for OpenCL, `subgroups=emulated|off` (see
    /// [`crate::PrintOptions::emulate_subgroups`]).
    pub fn open(index: usize, options: &str) -> Result<Driven<D>> {
        let options = DriverOptions::parse(options)?;
        if options.subgroups && D::DIALECT != Dialect::OpenCl {
            return Err(Error::invalid("`subgroups=emulated` is for OpenCL")
                .with_hint("leave it out: the device has subgroups of its own"));
        }
        let (driver, info) = D::open(index, options)?;
        Ok(Driven::new(driver, info, options))
    }

    /// A device over an open driver, which tells this about itself.
    pub fn new(driver: D, info: DeviceInfo, options: DriverOptions) -> Driven<D> {
        let mirror = HandleTable::new(info);
        Driven {
            handles: mirror,
            options,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            driver,
            lost: None,
        }
    }

    /// Makes sure that the device works.
    fn alive(&mut self) -> Result<()> {
        if let Some(first) = &self.lost {
            return Err(Error::new(ErrorKind::DeviceLost, format!("the device was lost: {first}"))
                .with_hint("open the device again"));
        }
        let entered = self.driver.enter();
        self.done("use the device", entered)
    }

    /// The end of a call that works on the device; a failure loses it.
    fn done<T>(&mut self, doing: &str, result: DriverResult<D, T>) -> Result<T> {
        result.map_err(|failure| {
            let error = device_lost(doing, failure);
            self.lost = Some(error.message().to_string());
            error
        })
    }

    /// The memory of a buffer that exists.
    fn memory_of(&self, buffer: BufferId) -> Result<&DriverMemory<D>> {
        self.buffers.get(&buffer).ok_or_else(|| Error::bug(format!("buffer {} has no memory", buffer.0)))
    }

    /// The kernel of a handle that exists.
    fn kernel(&self, kernel: KernelId) -> Result<&Compiled<D>> {
        self.kernels.get(&kernel).ok_or_else(|| Error::bug(format!("kernel {} was not compiled", kernel.0)))
    }

    /// Hands one command to the driver. Sizes and numbers of workgroups follow from the symbols.
    fn run(&mut self, command: &Command, symbols: &Symbols) -> Result<()> {
        match command {
            Command::Dispatch { label, kernel, bindings, groups } => {
                let limit = self.handles.info().limits.max_groups_per_dim;
                let groups = RecordedList::groups_within(limit, label, groups, symbols)?;
                // Drivers refuse an empty grid; nothing is to be done.
                if groups.contains(&0) {
                    return Ok(());
                }
                let done = self.dispatch(*kernel, bindings, groups)?;
                self.done(&format!("run `{label}`"), done)
            }
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                let from = self.handles.copy_range(*src, src_offset, len, symbols)?;
                let to = self.handles.copy_range(*dst, dst_offset, len, symbols)?;
                if from.is_empty() {
                    return Ok(());
                }
                let (src, dst) = (self.memory_of(*src)?, self.memory_of(*dst)?);
                let done = self.driver.copy(&src.raw, &dst.raw, from, to.start);
                self.done("copy a buffer", done)
            }
            Command::Fill { buffer, word } => {
                let memory = self.memory_of(*buffer)?;
                let done = self.driver.fill(&memory.raw, memory.bytes as usize, *word);
                self.done("fill a buffer", done)
            }
        }
    }

    /// Starts a kernel. The outer error is a wrong call, the inner one a failure of the driver.
    fn dispatch(&self, kernel: KernelId, bindings: &[Binding], groups: [u32; 3]) -> Result<DriverResult<D>> {
        let compiled = self.kernel(kernel)?;
        let argument = |arg: &Arg| {
            let (Arg::Pointer(at) | Arg::Offset(at) | Arg::Bytes(at)) = *arg;
            let binding =
                bindings.get(at as usize).ok_or_else(|| Error::bug("an argument without a binding"))?;
            let memory = self.memory_of(binding.buffer)?;
            Ok(match arg {
                Arg::Pointer(_) => Argument::Memory(&memory.raw, binding.offset),
                Arg::Offset(_) => Argument::Offset(binding.offset),
                Arg::Bytes(_) => Argument::Bytes(memory.length(binding) as u32),
            })
        };
        let arguments = compiled.printed.args.iter().map(argument).collect::<Result<Vec<_>>>()?;
        Ok(self.driver.run(&compiled.kernel, &arguments, groups, compiled.workgroup))
    }

    /// Refuses ranges that are shorter than what the kernel binds there.
    fn check_lengths(&self, command: &Command) -> Result<()> {
        let Command::Dispatch { label, kernel, bindings, .. } = command else { return Ok(()) };
        let compiled = self.kernel(*kernel)?;
        for (index, (binding, &least)) in bindings.iter().zip(&compiled.printed.min_sizes).enumerate() {
            let bytes = self.memory_of(binding.buffer)?.length(binding);
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

impl<D: Driver> Device for Driven<D> {
    fn info(&self) -> &DeviceInfo {
        self.handles.info()
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        self.alive()?;
        // No driver gives memory of 0 bytes.
        let bytes = self.handles.check_size(label, size)?.max(4);
        let doing = format!("create buffer `{label}` of {size} bytes");
        let made = self.driver.memory(bytes as usize);
        // Some drivers take the memory only when it is first used.
        let made = made.and_then(|raw| self.driver.fill(&raw, bytes as usize, 0).map(|()| raw));
        let raw = made.map_err(|failure| call_error(&doing, failure))?;
        let id = self.handles.create_buffer(label, size)?;
        self.buffers.insert(id, DriverMemory { raw, bytes });
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.handles.destroy_buffer(buffer)?;
        // The driver keeps the memory until the commands that use it have run.
        self.buffers.remove(&buffer);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.alive()?;
        let range = self.handles.write(buffer, offset, data.len())?;
        if range.is_empty() {
            return Ok(());
        }
        let done = self.driver.write(&self.memory_of(buffer)?.raw, range.start, data);
        self.done("write a buffer", done)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        self.alive()?;
        let range = self.handles.read(buffer, offset, out.len())?;
        if range.is_empty() {
            // A read of nothing still waits, as any read does.
            return self.wait();
        }
        let done = self.driver.read(&self.memory_of(buffer)?.raw, range.start, out);
        self.done("read a buffer", done)
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        self.alive()?;
        let compiled = compile(&self.driver, desc, self.handles.info(), self.options)?;
        let id = self.handles.create_kernel(desc)?;
        self.kernels.insert(id, compiled);
        Ok(id)
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.handles.destroy_kernel(kernel)?;
        self.kernels.remove(&kernel);
        Ok(())
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        self.alive()?;
        let list = self.handles.record(commands)?;
        let checked = commands.iter().try_for_each(|command| self.check_lengths(command));
        match checked {
            Ok(()) => Ok(list),
            // A list that cannot run does not stay.
            Err(error) => self.handles.destroy_list(list).and(Err(error)),
        }
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        self.alive()?;
        // All or nothing: a refused replay leaves every buffer as it was.
        let commands = self.handles.replay(list, symbols)?.to_vec();
        commands.iter().try_for_each(|command| self.run(command, symbols))?;
        let done = self.driver.flush();
        self.done("hand over commands", done)
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.handles.destroy_list(list)
    }

    fn wait(&mut self) -> Result<()> {
        self.alive()?;
        let done = self.driver.finish();
        self.done("finish all work", done)
    }

    fn memory(&self) -> (u64, u64) {
        self.handles.memory()
    }
}
