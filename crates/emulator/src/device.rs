//! The device: buffers, kernels and command lists.
//!
//! The device runs commands at once, on the thread that calls [`Device::replay`], so [`Device::wait`] has nothing to wait for.
//! Handles are never given twice.

use crate::check::shadow::WrittenHalves;
use crate::front::{self, ReadyKernel};
use crate::lower::LowerChoices;
use crate::options::EmulatorOptions;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tapml_device::{
    AdapterKind, BufferId, Command, Device, DeviceInfo, Error, ErrorKind, Finding, FindingKind, KernelDesc,
    KernelId, ListId, RecordedList, Result, Symbols,
};

const _: () = assert!(cfg!(target_endian = "little"), "buffers hold little-endian words");

/// How long one workgroup may run before its dispatch is stopped, unless set otherwise. Workgroups that end take milliseconds,
/// so that a dispatch of any size has the time it needs.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Invocations of a subgroup, unless set otherwise.
/// It is also the only size at which matrices work.
const SUBGROUP_SIZE: u32 = 32;

/// A buffer.
///
/// `words` is empty while a dispatch uses the buffer: see `run.rs`.
pub struct Stored {
    /// The name that messages give it.
    pub label: String,
    /// The content, zero at first as WebGPU demands.
    pub words: Vec<u32>,
    /// Bytes asked for; the words are rounded up.
    pub size: u64,
    /// What was written, if reads of unwritten memory are looked for.
    pub written: Option<WrittenHalves>,
}

/// Executes WGSL kernels on the CPU. See the crate's documentation.
///
/// Where reads of unwritten memory are looked for, a buffer filled with a word other than 0 counts as unwritten: such a
/// fill poisons memory.
pub struct Emulator {
    /// What the device says about itself; follows `subgroup_size`.
    pub(crate) info: DeviceInfo,
    /// As given when it was made.
    pub(crate) options: EmulatorOptions,
    /// Invocations of a subgroup: a power of two from 4 to 128.
    subgroup_size: u32,
    /// How long one workgroup may run.
    pub(crate) time_limit: Duration,
    /// Texts of kernels that were stopped.
    /// Other kernels of the same text get less time: see `Emulator::limit` in `run.rs`.
    pub(crate) stopped: HashSet<String>,
    /// Threads of its own; `None` for those that the process shares.
    pub(crate) pool: Option<rayon::ThreadPool>,
    /// The last number given to a handle of any kind.
    next: u64,
    pub(crate) buffers: HashMap<BufferId, Stored>,
    kernels: HashMap<KernelId, ReadyKernel>,
    lists: HashMap<ListId, RecordedList>,
    /// Bytes of all buffers that exist.
    used: u64,
    /// The most that `used` has been.
    peak: u64,
    /// What checks found since [`Device::take_findings`] was last called.
    pub(crate) findings: Vec<Finding>,
}

impl Emulator {
    /// An emulator with these options. Fails if its threads cannot be started.
    ///
    /// # Errors
    ///
    /// Threads of its own that the system does not give.
    pub fn new(options: EmulatorOptions) -> Result<Emulator> {
        let pool = options.threads.map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build());
        let pool = pool
            .transpose()
            .map_err(|e| Error::invalid(format!("could not start the emulator's threads: {e}")))?;
        let profile = options.profile;
        let info = DeviceInfo {
            platform: "emulator".into(),
            name: format!("TapML emulator ({})", profile.name()),
            driver: concat!("tapml ", env!("CARGO_PKG_VERSION")).into(),
            kind: if options.gpu { AdapterKind::Other } else { AdapterKind::Cpu },
            limits: options.limits(),
            features: options.features(SUBGROUP_SIZE),
        };
        Ok(Emulator {
            info,
            options,
            subgroup_size: SUBGROUP_SIZE,
            time_limit: options.timeout.unwrap_or(TIME_LIMIT),
            stopped: HashSet::new(),
            pool,
            next: 0,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            lists: HashMap::new(),
            used: 0,
            peak: 0,
            findings: Vec::new(),
        })
    }

    /// Sets the number of invocations of a subgroup for kernels compiled from now on: a power of two from 4 to 128.
    ///
    /// # Errors
    ///
    /// Any other size.
    pub fn with_subgroup_size(mut self, size: u32) -> Result<Emulator> {
        if !size.is_power_of_two() || !(4..=128).contains(&size) {
            return Err(Error::invalid(format!(
                "a subgroup has a power of two from 4 to 128 invocations, not {size}"
            )));
        }
        self.subgroup_size = size;
        self.info.features = self.options.features(size);
        Ok(self)
    }

    /// Sets how long one workgroup may run; a kernel with one that runs longer is stopped with an error of kind
    /// [`ErrorKind::Timeout`] that names the loop, and is not run again. The default is 10 s.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Emulator {
        self.time_limit = limit;
        self
    }

    /// The options.
    pub fn options(&self) -> &EmulatorOptions {
        &self.options
    }

    /// In checking mode a limit exceeded is a finding as well as an error.
    /// Such a finding has no place in the source: its line is 0.
    fn note_limit(&mut self, desc: &KernelDesc, error: &Error) {
        if !self.options.check.is_any() || error.detail("limit").is_none() {
            return;
        }
        self.findings.push(Finding {
            kind: FindingKind::LimitExceeded,
            kernel: desc.name.clone(),
            label: String::new(),
            file: desc.source.file.clone(),
            line: 0,
            column: 0,
            source: String::new(),
            message: error.message().into(),
            workgroup: [0; 3],
            invocation: 0,
            count: 1,
        });
    }

    /// A number that no handle has. The first is 1.
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The buffer of a handle, or an error that names the handle.
    pub(crate) fn stored_buffer(&self, id: BufferId) -> Result<&Stored> {
        self.buffers.get(&id).ok_or_else(|| Error::invalid(format!("no buffer {}", id.0)))
    }

    /// The kernel of a handle, or an error that names the dispatch.
    pub(crate) fn kernel(&self, label: &str, id: KernelId) -> Result<&ReadyKernel> {
        self.kernels.get(&id).ok_or_else(|| Error::invalid(format!("dispatch `{label}`: no kernel {}", id.0)))
    }
}

impl Device for Emulator {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        let max = self.info.limits.max_buffer_size;
        if size > max {
            let text = format!("buffer `{label}` needs {size} bytes, {} allows {max}", self.info.name);
            return Err(Error::unsupported(text)
                .with_detail("limit", "max_buffer_size")
                .with_detail("asked", size.to_string())
                .with_detail("offered", max.to_string()));
        }
        let count = size.div_ceil(4) as usize;
        // `vec![0; count]` would end the process where memory is short.
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| {
            Error::new(ErrorKind::OutOfMemory, format!("no memory for buffer `{label}` of {size} bytes"))
        })?;
        // The memory is there already, so this does not allocate.
        words.resize(count, 0);
        let id = BufferId(self.fresh());
        self.used += count as u64 * 4;
        self.peak = self.peak.max(self.used);
        let written = self.options.check.uninit.then(|| WrittenHalves::new(count));
        self.buffers.insert(id, Stored { label: label.into(), words, size, written });
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        let old =
            self.buffers.remove(&buffer).ok_or_else(|| Error::invalid(format!("no buffer {}", buffer.0)))?;
        self.used -= old.words.len() as u64 * 4;
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        let stored = self.buffers.get_mut(&buffer);
        let stored = stored.ok_or_else(|| Error::invalid(format!("no buffer {}", buffer.0)))?;
        let len = data.len() as u64;
        let end = offset.checked_add(len).filter(|&e| e <= stored.words.len() as u64 * 4);
        // WebGPU writes whole words. The last bytes of a buffer whose size is no multiple of 4 are the exception.
        let aligned = |end: u64| offset.is_multiple_of(4) && (len.is_multiple_of(4) || end == stored.size);
        let Some(end) = end.filter(|&e| aligned(e)) else {
            let text = format!(
                "write of {len} bytes at {offset} into buffer `{}` of {} bytes",
                stored.label, stored.size
            );
            return Err(
                Error::invalid(text).with_hint("offset and length are multiples of 4 within the buffer")
            );
        };
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut stored.words);
        bytes[offset as usize..end as usize].copy_from_slice(data);
        if let Some(written) = &mut stored.written {
            written.write_bytes(offset..end);
        }
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        let stored = self.stored_buffer(buffer)?;
        let bytes: &[u8] = bytemuck::cast_slice(&stored.words);
        let range = usize::try_from(offset).ok().and_then(|o| Some(o..o.checked_add(out.len())?));
        let found = range.and_then(|r| bytes.get(r)).ok_or_else(|| {
            let text = format!(
                "read of {} bytes at {offset} of buffer `{}` of {} bytes",
                out.len(),
                stored.label,
                stored.size
            );
            Error::invalid(text)
        })?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        let arithmetic = self.options.profile.arithmetic();
        // The check of values looks at the operands after the instruction has run.
        let keep_operands = self.options.check.nonfinite;
        let choices = LowerChoices { arithmetic, subgroup_size: self.subgroup_size, keep_operands };
        let kernel = front::compile(desc, &self.info, choices).inspect_err(|e| self.note_limit(desc, e))?;
        let id = KernelId(self.fresh());
        self.kernels.insert(id, kernel);
        Ok(id)
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.kernels
            .remove(&kernel)
            .map(|_| ())
            .ok_or_else(|| Error::invalid(format!("no kernel {}", kernel.0)))
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        commands.iter().try_for_each(|command| self.check(command))?;
        let id = ListId(self.fresh());
        self.lists.insert(id, RecordedList { commands: commands.to_vec() });
        Ok(id)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let missing = || Error::invalid(format!("no list {}", list.0));
        let recorded = self.lists.get(&list).ok_or_else(missing)?;
        // All of them are prepared before the first runs: a refused replay changes nothing.
        let steps = recorded.commands.iter().map(|command| self.prepare(command, symbols));
        let steps = steps.collect::<Result<Vec<_>>>()?;
        steps.into_iter().try_for_each(|step| self.execute(step))
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.lists.remove(&list).map(|_| ()).ok_or_else(|| Error::invalid(format!("no list {}", list.0)))
    }

    // Replays have ended when they return.
    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    fn memory(&self) -> (u64, u64) {
        (self.used, self.peak)
    }
}
