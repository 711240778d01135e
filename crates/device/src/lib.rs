//! What a device is to TapML: buffers, kernels, command lists, findings and errors with a device trace.
//! The trait knows no operators and no GPU API. [`null::NullDevice`] is the template for a new backend.
//!
//! Kernels are data ([`KernelDesc`]), work is lists of [`Command`]s whose sizes may depend on symbols. A
//! list is recorded one time and replayed with other values, so that a decode step costs one call.
//! [`conformance`] states what every backend must do.
#![warn(missing_docs)]

mod command;
pub mod conformance;
mod finding;
mod forward;
mod handles;
mod info;
mod kernel;
mod nesting;
pub mod null;
mod peer;
mod prepare;
mod user_cache;

pub use command::{Binding, Command, Grid, RecordedList};
pub use finding::{Finding, FindingKind};
pub use handles::HandleTable;
pub use info::{AdapterKind, DeviceInfo, Features, Limits};
pub use kernel::{BindingKind, KernelDesc, Language, Source};
pub use peer::PeerMemory;
pub use prepare::compile_side_by_side;
pub use tapml_graph::{Error, ErrorKind, Extent, Result, Symbols};
pub use user_cache::user_cache;

/// Handle of a buffer on one device. Never reused within a device's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u64);

/// Handle of a compiled kernel on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u64);

/// Handle of a recorded command list on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListId(pub u64);

/// Bytes to write, as [`Device::write`] takes them.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// Where to.
    pub buffer: BufferId,
    /// Bytes before it.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
}

/// Bytes to read, as [`Device::read`] takes them.
#[derive(Debug)]
pub struct Get<'a> {
    /// Where from.
    pub buffer: BufferId,
    /// Bytes before it.
    pub offset: u64,
    /// Where to; its length says how many.
    pub out: &'a mut [u8],
}

/// One run of a list among several, as [`Device::run_steps`] takes them.
#[derive(Clone, Debug)]
pub struct BatchedStep<'a> {
    /// What is written before it.
    pub writes: Vec<Put<'a>>,
    /// The values of its symbols.
    pub symbols: Symbols,
}

/// Something that stores buffers and runs kernels.
///
/// Commands and transfers of one device take effect in the order of the calls. A call may return before its effect is
/// complete; [`read`](Device::read) and [`wait`](Device::wait) wait, and report what failed since. After
/// [`ErrorKind::DeviceLost`] every further call fails with that kind. No call panics on bad handles or sizes:
/// they are [`ErrorKind::InvalidInput`].
///
/// A device is used by one thread at a time (`Send`, not `Sync`). Wrappers hand calls on with `forward!`.
pub trait Device: Send {
    /// Name, driver, limits and features.
    fn info(&self) -> &DeviceInfo;

    /// Allocates `size` bytes (rounded up to a multiple of 4), zeroed. `label` names it in errors and traces.
    ///
    /// # Errors
    /// `Unsupported` beyond the limits, `OutOfMemory` if memory does not suffice.
    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId>;

    /// Frees a buffer once the commands that use it have run.
    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()>;

    /// The memory of a buffer, for other devices; it lives until the last of them has destroyed it, too.
    ///
    /// # Errors
    /// `Unsupported` if others cannot use it.
    fn export_buffer(&mut self, buffer: BufferId) -> Result<PeerMemory> {
        let _ = buffer;
        Err(Error::unsupported(format!("other devices cannot use the memory of {}", self.info().name)))
    }

    /// A buffer of another device's memory, which kernels of this one read and write. Nothing orders the work of two devices.
    ///
    /// # Errors
    /// `Unsupported` if there is no way to that device.
    fn import_buffer(&mut self, label: &str, _memory: &PeerMemory) -> Result<BufferId> {
        let name = &self.info().name;
        Err(Error::unsupported(format!("{name} cannot use the memory of other devices, such as `{label}`")))
    }

    /// Writes `data` at `offset`. Both must be multiples of 4 bytes, except that the write may end at the buffer's end.
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()>;

    /// Waits for all work so far, then fills `out` from `offset` on.
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Compiles a kernel. The error names the kernel and the line in its source file.
    ///
    /// # Errors
    /// `Compile` for a faulty text, `Unsupported` beyond limits or features.
    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId>;

    /// Compiles kernels that are about to be created, several at a time, so that [`create_kernel`](Device::create_kernel) finds them
    /// ready. It saves time and does nothing else: what is wrong with a kernel is told when it is created.
    fn prepare_kernels(&mut self, _descs: &[KernelDesc]) {}

    /// Frees a kernel. Lists that use it can no longer be replayed.
    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()>;

    /// Checks a command list against the buffers and kernels and prepares it. Sizes may depend on symbols.
    fn record(&mut self, commands: &[Command]) -> Result<ListId>;

    /// Runs a recorded list with these symbol values, as one submission.
    ///
    /// # Errors
    /// `InvalidInput` if a symbol is missing, a size does not fit, or a part was destroyed. `Unsupported`
    /// if a grid is beyond the limit. Nothing runs then.
    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()>;

    /// Writes, runs a recorded list with these symbol values, and reads: a step of something that was prepared once. The
    /// same as the single calls; a device behind a wire does it in one round trip.
    fn step(
        &mut self,
        list: ListId,
        symbols: &Symbols,
        writes: &[Put<'_>],
        reads: &mut [Get<'_>],
    ) -> Result<()> {
        // A failed write runs nothing; what was written before it stays.
        writes.iter().try_for_each(|put| self.write(put.buffer, put.offset, put.data))?;
        self.replay(list, symbols)?;
        reads.iter_mut().try_for_each(|get| self.read(get.buffer, get.offset, get.out))
    }

    /// Runs a recorded list several times, each time after the turn's own writes, and reads behind the last: steps that
    /// need no answer of the one before. The same as single steps; a device behind a wire does it in one round trip.
    fn run_steps(&mut self, list: ListId, turns: &[BatchedStep<'_>], reads: &mut [Get<'_>]) -> Result<()> {
        one_by_one(self, list, turns, reads)
    }

    /// Frees a recorded list.
    fn destroy_list(&mut self, list: ListId) -> Result<()>;

    /// Waits for all work so far.
    fn wait(&mut self) -> Result<()>;

    /// Runs commands one by one and tells how many seconds each took, for finding out what a list spends its time on. Unless
    /// a device measures by itself, each command is waited for, which is part of its time.
    fn time_commands(&mut self, commands: &[Command], symbols: &Symbols) -> Result<Vec<f64>> {
        let mut seconds = Vec::with_capacity(commands.len());
        for command in commands {
            let list = self.record(std::slice::from_ref(command))?;
            let run = self.wait().and_then(|()| {
                let start = std::time::Instant::now();
                self.replay(list, symbols)?;
                self.wait()?;
                Ok(start.elapsed().as_secs_f64())
            });
            seconds.push(self.destroy_list(list).and(run)?);
        }
        Ok(seconds)
    }

    /// What a checking device has found since the last call. Devices that check nothing return none.
    fn take_findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }

    /// Bytes of device memory in use by buffers, and the most that were in use at once.
    fn memory(&self) -> (u64, u64);

    /// Whether [`Device::reopen`] can do anything: the device is elsewhere, and a connection to it may be lost.
    fn reopens(&self) -> bool {
        false
    }

    /// After `lost`, an error of kind [`ErrorKind::DeviceLost`]: opens the same device again if only the way to it was lost.
    /// Nothing is on it then, and handles from before are those of nothing. Fails with `lost` if the device itself is what
    /// failed, or if it does not come back as it was.
    fn reopen(&mut self, lost: Error) -> Result<()> {
        Err(lost)
    }
}

/// What [`Device::run_steps`] does where a device does nothing of its own: single steps.
pub fn one_by_one<D: Device + ?Sized>(
    device: &mut D,
    list: ListId,
    turns: &[BatchedStep<'_>],
    reads: &mut [Get<'_>],
) -> Result<()> {
    // Without steps the reads still happen.
    let Some((last, before)) = turns.split_last() else {
        return reads.iter_mut().try_for_each(|get| device.read(get.buffer, get.offset, get.out));
    };
    before.iter().try_for_each(|turn| device.step(list, &turn.symbols, &turn.writes, &mut []))?;
    device.step(list, &last.symbols, &last.writes, reads)
}
