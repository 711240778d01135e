//! The device: buffers, kernels and lists of CUDA behind the books that refuse wrong calls.
//!
//! Calls are checked by [`HandleTable`] first, so the driver never sees a wrong one. Everything runs on one
//! stream, which gives the order that the trait asks for. A failure of the driver is for good: the context
//! is lost with it.

use crate::adapter::{self, Opened};
use crate::cache::Cache;
use crate::compile::CudaFront;
use crate::driver::{CudaMemory, Driver};
use crate::error::{CudaFailure, CudaResult, call_error, device_lost};
use crate::launch::{self, CompiledKernels, LaunchCall, Memories};
use crate::list::{CudaList, LEAST_CALLS};
use crate::nvrtc::{self, Compiler};
use crate::options::CudaOptions;
use crate::staging::Staging;
use crate::sys;
use std::collections::HashMap;
use std::sync::Arc;
use tapml_device::{
    BufferId, Command, Device, DeviceInfo, HandleTable, KernelDesc, KernelId, ListId, PeerMemory,
};
use tapml_graph::{Error, ErrorKind, Result, Symbols};

/// A CUDA device with one stream that keeps the order of calls.
pub struct CudaDevice {
    /// Refuses wrong calls.
    handles: HandleTable,
    /// As the device was opened.
    options: CudaOptions,
    /// Compiles kernels.
    front: CudaFront,
    // Graphs go before what they use, and all of it before the driver's context.
    /// By handle, with their graphs.
    lists: HashMap<ListId, CudaList>,
    /// By handle.
    kernels: CompiledKernels,
    /// By handle.
    buffers: Memories,
    /// Pinned memory for transfers.
    staging: Staging,
    /// Last of the fields that own objects of the driver.
    driver: Arc<Driver>,
    /// How often something was freed that lists may use.
    frees: u64,
    /// Kernels started since all work was last waited for: how many, and the command and kernel of one of them.
    running: Running,
    /// What went wrong for good.
    lost: Option<String>,
}

/// For errors that come later: the driver reports a fault at the next wait, not at the launch.
#[derive(Default)]
struct Running {
    /// How many.
    count: usize,
    /// Label of the dispatch, name of the kernel.
    last: Option<(String, String)>,
}

impl CudaDevice {
    /// Opens device `index` of [`crate::adapters`]. `options` is a query string of `on` and `off`: `checks` (indices of WGSL
    /// kernels are kept inside their arrays; on), `f16` (on), `graphs` (lists that come again run as CUDA graphs; on),
    /// `sync` (each command is waited for, so that an error names it; off), `tuned` (kernels in CUDA C++ are taken; on), `peers`
    /// (the ranks of a model meet in the devices' memory where these reach each other; on).
    pub fn open(index: usize, options: &str) -> Result<CudaDevice> {
        let options = CudaOptions::parse(options)?;
        let opened = adapter::open(index, options)?;
        // Needed for every kernel, so that a missing one is told at once.
        let compiler = nvrtc::compiler(opened.release)?;
        CudaDevice::from_opened(opened, Some(compiler), options, Cache::of_user())
    }

    /// A device of an opened adapter; tests pass no compiler.
    ///
    /// # Errors
    /// If pinned memory for transfers cannot be had.
    fn from_opened(
        opened: Opened,
        compiler: Option<&'static Compiler>,
        options: CudaOptions,
        cache: Cache,
    ) -> Result<CudaDevice> {
        let Opened { driver, info, capability, .. } = opened;
        let staging = Staging::new(&driver).map_err(|e| call_error("take memory for transfers", e))?;
        Ok(CudaDevice {
            handles: HandleTable::new(info),
            options,
            front: CudaFront { compiler, cache, capability, options },
            lists: HashMap::new(),
            kernels: HashMap::new(),
            buffers: HashMap::new(),
            staging,
            driver,
            frees: 0,
            running: Running::default(),
            lost: None,
        })
    }

    /// Makes sure that the device works, and makes its context that of this thread.
    fn alive(&mut self) -> Result<()> {
        if let Some(first) = &self.lost {
            return Err(Error::new(ErrorKind::DeviceLost, format!("the device was lost: {first}"))
                .with_hint("open the device again"));
        }
        let entered = self.driver.enter();
        self.done("use the device", entered)
    }

    /// The end of a call that works on the device; a failure loses it.
    fn done<T>(&mut self, doing: &str, result: CudaResult<T>) -> Result<T> {
        result.map_err(|failure| self.lose(doing, failure))
    }

    /// Makes the error of a lost device, and keeps it for all further calls.
    fn lose(&mut self, doing: &str, failure: CudaFailure) -> Error {
        let error = device_lost(doing, failure);
        // Taken: the next error is not of these.
        let Running { count, last } = std::mem::take(&mut self.running);
        let error = match (count, last) {
            (1, Some((label, kernel))) => error
                .context(format!("dispatch `{label}` of kernel `{kernel}`"))
                .with_detail("kernel", kernel),
            (0, _) | (_, None) => error,
            (count, Some((label, kernel))) => error
                .context(format!("one of {count} dispatches, the last one `{label}` of kernel `{kernel}`"))
                .with_hint("with the option `sync=on` (`cuda?sync=on`) the error names the kernel"),
        };
        // Later calls tell the first cause, and not what follows from it.
        self.lost = Some(error.to_string());
        error
    }

    /// All work so far has succeeded; a later error is not its.
    fn all_done(&mut self) {
        self.running = Running::default();
    }

    /// Something that lists may use is gone: no graph may run before its list was found whole again.
    fn forget_graphs(&mut self) {
        self.frees += 1;
    }

    /// Zeroed memory, as the trait promises.
    fn allocate(&self, size: u64) -> CudaResult<CudaMemory> {
        let memory = self.driver.memory(size)?;
        self.driver.clear(&memory)?;
        Ok(memory)
    }

    /// An error of allocation, with what is free.
    fn no_memory(&self, doing: &str, size: u64, failure: CudaFailure) -> Error {
        let error = call_error(doing, failure);
        match self.driver.free_memory() {
            // Other failures have nothing to do with what is free.
            Ok((free, total)) if failure.0 == sys::OUT_OF_MEMORY => error
                .with_detail("asked", size.to_string())
                .with_detail("free", free.to_string())
                .with_hint(format!(
                    "{} of {} MiB of the device are free; a smaller context, a quantised model or f16 activations take less",
                    free >> 20,
                    total >> 20
                )),
            _ => error,
        }
    }

    /// The calls of a list, after all its parts and sizes were checked.
    fn calls(&mut self, list: ListId, symbols: &Symbols) -> Result<Vec<LaunchCall>> {
        let commands = self.handles.replay(list, symbols)?;
        let calls =
            launch::calls(commands, symbols, &self.handles, &self.buffers, &self.kernels, &self.driver)?;
        if let Some(entry) = self.lists.get_mut(&list) {
            // Until something is freed, its graphs may run without a check.
            entry.whole_at = Some(self.frees);
        }
        Ok(calls)
    }

    /// Notes what is being run, for an error that comes later: a whole list, or the command at one place of it.
    fn note(&mut self, list: ListId, at: Option<usize>) {
        let Some(list) = self.lists.get(&list) else { return };
        let (count, last) = match at {
            None => list.kernels(),
            Some(at) => (usize::from(list.name(at).is_some()), list.name(at)),
        };
        self.running.count += count;
        if let Some(last) = last {
            self.running.last = Some(last.clone());
        }
    }

    /// Makes the calls; with `sync` it waits after each.
    fn run_calls(&mut self, list: ListId, calls: &[LaunchCall]) -> Result<()> {
        if !self.options.sync {
            self.note(list, None);
            // Errors of the kernels themselves come at the next wait.
            let made = calls.iter().try_for_each(|call| call.make(&self.driver, &self.buffers));
            return self.done("run commands", made);
        }
        for call in calls {
            self.note(list, Some(call.command_index()));
            let made = call.make(&self.driver, &self.buffers).and_then(|()| self.driver.finish());
            self.done("run a command", made)?;
            self.all_done();
        }
        Ok(())
    }

    /// Runs the graph of a list's geometry, if there is one and the list is known to be whole.
    fn run_graph(&mut self, list: ListId, symbols: &Symbols) -> Option<Result<()>> {
        let frees = self.frees;
        // A graph holds addresses: after a free they may be somebody else's.
        let entry = self.lists.get_mut(&list).filter(|entry| entry.whole_at == Some(frees))?;
        let geometry = entry.geometry(symbols).ok()?;
        let done = self.driver.run(entry.graph(&geometry)?);
        self.note(list, None);
        Some(self.done("run a list", done))
    }

    /// Makes a graph of a list's calls when their geometry comes for the second time. Where the driver makes none, which
    /// only costs time, the calls run one by one.
    fn make_graph(&mut self, list: ListId, symbols: &Symbols, calls: &[LaunchCall]) -> Result<()> {
        // With few calls the launch of a graph costs as much as they do.
        let worthwhile = self.options.graphs && !self.options.sync && calls.len() >= LEAST_CALLS;
        let Some(entry) = self.lists.get_mut(&list).filter(|_| worthwhile) else { return Ok(()) };
        let geometry = entry.geometry(symbols)?;
        // Making a graph costs more than one run of the calls.
        if entry.note_geometry(&geometry) {
            let (driver, buffers) = (&self.driver, &self.buffers);
            match driver.capture(|| calls.iter().try_for_each(|call| call.make(driver, buffers))) {
                Ok(graph) => entry.keep(&geometry, graph),
                Err(failure) => log::warn!("a list runs without a CUDA graph: {failure}"),
            }
        }
        Ok(())
    }

    /// Seconds of each of `count` commands, by events between their calls.
    fn time_calls(&mut self, list: ListId, calls: &[LaunchCall], count: usize) -> Result<Vec<f64>> {
        self.note(list, None);
        let (driver, buffers) = (&self.driver, &self.buffers);
        let time = || -> CudaResult<Vec<f64>> {
            // One more than there are calls: each lies between two.
            let events = (0..=calls.len()).map(|_| driver.event()).collect::<CudaResult<Vec<_>>>()?;
            events[0].record()?;
            for (call, event) in calls.iter().zip(&events[1..]) {
                call.make(driver, buffers)?;
                event.record()?;
            }
            driver.finish()?;
            let mut seconds = vec![0.0; count];
            for (call, pair) in calls.iter().zip(events.windows(2)) {
                seconds[call.command_index()] = pair[1].seconds_since(&pair[0])?;
            }
            Ok(seconds)
        };
        let timed = time();
        let seconds = self.done("time commands", timed)?;
        self.all_done();
        Ok(seconds)
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        self.handles.info()
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        self.alive()?;
        let bytes = self.handles.check_size(label, size)?;
        let doing = format!("create buffer `{label}` of {size} bytes");
        let memory = self.allocate(bytes).map_err(|e| self.no_memory(&doing, bytes, e))?;
        // Memory first: a handle must not exist without it.
        let id = self.handles.create_buffer(label, size)?;
        self.buffers.insert(id, memory);
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.handles.destroy_buffer(buffer)?;
        self.forget_graphs();
        // The driver waits until the commands of the memory's own device have run.
        match self.buffers.remove(&buffer) {
            Some(memory) if !memory.belongs_to(&self.driver) && self.lost.is_none() => self.wait(),
            _ => Ok(()),
        }
    }

    /// Of a device that was not opened with `peers=off`.
    fn export_buffer(&mut self, buffer: BufferId) -> Result<PeerMemory> {
        if !self.options.peers {
            return Err(Error::unsupported("the memory of `cuda` is its own")
                .with_hint("open it without `peers=off`"));
        }
        self.alive()?;
        // Whoever works there next finds what was written here.
        self.wait()?;
        let memory = launch::memory(&self.buffers, buffer)?.share();
        Ok(PeerMemory::new(memory.size(), Arc::new(memory)))
    }

    fn import_buffer(&mut self, label: &str, memory: &PeerMemory) -> Result<BufferId> {
        self.alive()?;
        let shared = memory.owner::<CudaMemory>();
        let shared = shared.ok_or_else(|| Error::unsupported(format!("`{label}` is no memory of CUDA")))?;
        self.driver.reach(shared).map_err(|failure| {
            Error::unsupported(format!("the device cannot use `{label}` of another one: {failure}"))
                .with_hint("`nvidia-smi topo -p2p r` shows which devices reach each other")
        })?;
        let id = self.handles.create_buffer(label, memory.size())?;
        self.buffers.insert(id, shared.share());
        Ok(id)
    }

    /// The caller's bytes are free when it returns, also where the copy has not run yet.
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.alive()?;
        let range = self.handles.write(buffer, offset, data.len())?;
        // A read of nothing still waits.
        if range.is_empty() {
            return Ok(());
        }
        let memory = launch::memory(&self.buffers, buffer)?;
        let done = self.staging.write(memory, offset, data);
        self.done("write a buffer", done)
    }

    /// Waits for all work before it.
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        self.alive()?;
        let range = self.handles.read(buffer, offset, out.len())?;
        if range.is_empty() {
            return self.wait();
        }
        let memory = launch::memory(&self.buffers, buffer)?;
        let done = self.staging.read(memory, offset, out);
        self.done("read a buffer", done)?;
        self.all_done();
        Ok(())
    }

    /// Compiled, or taken as machine code from the cache.
    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        self.alive()?;
        // Compiled before it gets a handle, as buffers are.
        let compiled = self.front.compile(&self.driver, desc, self.handles.info())?;
        let id = self.handles.create_kernel(desc)?;
        self.kernels.insert(id, compiled);
        Ok(id)
    }

    fn prepare_kernels(&mut self, descs: &[KernelDesc]) {
        self.front.prepare(descs, self.handles.info());
    }

    /// Graphs that may use it do not run again before their lists were checked.
    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.handles.destroy_kernel(kernel)?;
        self.forget_graphs();
        self.kernels.remove(&kernel);
        Ok(())
    }

    /// Makes no graph: sizes are known at replays only.
    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        self.alive()?;
        let list = self.handles.record(commands)?;
        let mut each = commands.iter();
        // Lengths do not depend on symbols, so they are checked when a list is recorded.
        match each.try_for_each(|command| launch::check_lengths(command, &self.buffers, &self.kernels)) {
            Ok(()) => {
                let name = |id| self.kernels.get(&id).map_or("", |kernel| kernel.name.as_str());
                self.lists.insert(list, CudaList::new(commands, name));
                Ok(list)
            }
            // A refused list must not stay in the books.
            Err(error) => self.handles.destroy_list(list).and(Err(error)),
        }
    }

    /// Starts the work. What fails in a kernel shows at a later wait.
    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        self.alive()?;
        // A geometry that has a graph was checked when it was made: only what was freed since could make it wrong.
        if let Some(done) = self.run_graph(list, symbols) {
            return done;
        }
        // All or nothing: a refused replay leaves every buffer as it was.
        let calls = self.calls(list, symbols)?;
        self.make_graph(list, symbols, &calls)?;
        match self.run_graph(list, symbols) {
            Some(done) => done,
            None => self.run_calls(list, &calls),
        }
    }

    /// Events between the calls: waiting for each would add the time of the wait.
    fn time_commands(&mut self, commands: &[Command], symbols: &Symbols) -> Result<Vec<f64>> {
        let list = self.record(commands)?;
        let timed = self.calls(list, symbols).and_then(|calls| self.time_calls(list, &calls, commands.len()));
        self.destroy_list(list).and(timed)
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.handles.destroy_list(list)?;
        self.lists.remove(&list);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        self.alive()?;
        let done = self.driver.finish();
        self.done("finish all work", done)?;
        self.all_done();
        Ok(())
    }

    /// Of buffers; what the driver takes for itself is not counted.
    fn memory(&self) -> (u64, u64) {
        self.handles.memory()
    }
}

#[cfg(test)]
mod tests;
