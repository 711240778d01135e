//! The device: buffers, kernels, command lists, and what WebGPU checks of them.

use crate::dispatch;
use crate::front::{self, Kernel};
use crate::lower::Choices;
use crate::options::Options;
use crate::vm::memory::Buffer;
use crate::vm::{Env, Stop, Unwatched};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};
use tapml_device::{
    AdapterKind, Binding, BindingKind, BufferId, Command, Device, DeviceInfo, Error, ErrorKind, Finding,
    KernelDesc, KernelId, ListId, Recorded, Result, Symbols,
};

const _: () = assert!(cfg!(target_endian = "little"), "buffers hold little-endian words");

/// How long one dispatch may take before it is stopped, unless set otherwise.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Invocations of a subgroup, unless set otherwise.
const SUBGROUP_SIZE: u32 = 32;

struct Stored {
    label: String,
    words: Vec<u32>,
    /// Bytes asked for; the words are rounded up.
    size: u64,
}

/// A binding resolved against its buffer: words from `first` to `first + len`.
#[derive(Clone, Copy)]
struct Range {
    buffer: BufferId,
    first: usize,
    len: usize,
    writes: bool,
}

/// Executes WGSL kernels on the CPU. See the crate's documentation.
pub struct Emulator {
    info: DeviceInfo,
    options: Options,
    subgroup_size: u32,
    time_limit: Duration,
    pool: Option<rayon::ThreadPool>,
    next: u64,
    buffers: HashMap<BufferId, Stored>,
    kernels: HashMap<KernelId, Kernel>,
    lists: HashMap<ListId, Recorded>,
    used: u64,
    peak: u64,
}

impl Emulator {
    /// An emulator with these options. Fails if its threads cannot be started.
    pub fn new(options: Options) -> Result<Emulator> {
        let pool = options.threads.map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build());
        let pool = pool
            .transpose()
            .map_err(|e| Error::invalid(format!("could not start the emulator's threads: {e}")))?;
        let profile = options.profile;
        let info = DeviceInfo {
            platform: "emulator".into(),
            name: format!("TapML emulator ({})", profile.name()),
            driver: concat!("tapml ", env!("CARGO_PKG_VERSION")).into(),
            kind: AdapterKind::Cpu,
            limits: profile.limits(),
            features: profile.features(SUBGROUP_SIZE),
        };
        Ok(Emulator {
            info,
            options,
            subgroup_size: SUBGROUP_SIZE,
            time_limit: TIME_LIMIT,
            pool,
            next: 0,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            lists: HashMap::new(),
            used: 0,
            peak: 0,
        })
    }

    /// Sets the number of invocations of a subgroup for kernels compiled from now on: a power of two from 4 to 128.
    pub fn with_subgroup_size(mut self, size: u32) -> Result<Emulator> {
        if !size.is_power_of_two() || !(4..=128).contains(&size) {
            return Err(Error::invalid(format!(
                "a subgroup has a power of two from 4 to 128 invocations, not {size}"
            )));
        }
        self.subgroup_size = size;
        self.info.features = self.options.profile.features(size);
        Ok(self)
    }

    /// Sets how long one dispatch may take; a kernel that takes longer is stopped with an error. The default is 60 s.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Duration) -> Emulator {
        self.time_limit = limit;
        self
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn stored(&self, id: BufferId) -> Result<&Stored> {
        self.buffers.get(&id).ok_or_else(|| Error::invalid(format!("no buffer {}", id.0)))
    }

    fn kernel(&self, label: &str, id: KernelId) -> Result<&Kernel> {
        self.kernels.get(&id).ok_or_else(|| Error::invalid(format!("dispatch `{label}`: no kernel {}", id.0)))
    }

    /// Checks the bindings of a dispatch as WebGPU does.
    fn resolve(&self, label: &str, kernel: &Kernel, bindings: &[Binding]) -> Result<Vec<Range>> {
        let desc = &kernel.desc;
        if desc.bindings.len() != bindings.len() {
            let (given, wanted) = (bindings.len(), desc.bindings.len());
            return Err(Error::invalid(format!(
                "dispatch `{label}` binds {given} buffers, kernel `{}` has {wanted}",
                desc.name
            )));
        }
        let mut ranges = Vec::with_capacity(bindings.len());
        for (index, binding) in bindings.iter().enumerate() {
            let range = self.resolve_one(desc.bindings[index], kernel.min_sizes[index], binding);
            ranges.push(
                range.map_err(|e| {
                    e.context(format!("dispatch `{label}`, binding {index} of `{}`", desc.name))
                })?,
            );
        }
        check_aliasing(label, &desc.name, &ranges)?;
        Ok(ranges)
    }

    fn resolve_one(&self, kind: BindingKind, min_size: u32, binding: &Binding) -> Result<Range> {
        let stored = self.stored(binding.buffer)?;
        let limits = &self.info.limits;
        let total = stored.words.len() as u64 * 4;
        let size = if binding.size == 0 { total.saturating_sub(binding.offset) } else { binding.size };
        if binding.offset.checked_add(size).is_none_or(|end| end > total) {
            let text = format!(
                "{size} bytes at {} do not fit buffer `{}` of {total} bytes",
                binding.offset, stored.label
            );
            return Err(Error::invalid(text));
        }
        let align = u64::from(limits.min_offset_alignment.max(4));
        if binding.offset % align != 0 || size % 4 != 0 {
            return Err(Error::invalid(format!(
                "offset {} must be a multiple of {align} and size {size} of 4",
                binding.offset
            )));
        }
        let max =
            if kind == BindingKind::Uniform { limits.max_uniform_size } else { limits.max_binding_size };
        if size > max {
            let text = format!(
                "{size} bytes of buffer `{}` are bound, {} allows {max}",
                stored.label, self.info.name
            );
            let limit = if kind == BindingKind::Uniform { "max_uniform_size" } else { "max_binding_size" };
            return Err(Error::unsupported(text)
                .with_detail("limit", limit)
                .with_detail("asked", size.to_string())
                .with_detail("offered", max.to_string()));
        }
        if size < u64::from(min_size) || size == 0 {
            return Err(Error::invalid(format!(
                "{size} bytes of buffer `{}` are bound, the kernel's type needs at least {}",
                stored.label,
                min_size.max(4)
            )));
        }
        let (first, len) = (binding.offset as usize / 4, size as usize / 4);
        Ok(Range { buffer: binding.buffer, first, len, writes: kind == BindingKind::ReadWrite })
    }

    fn dispatch(
        &mut self,
        label: &str,
        kernel: KernelId,
        bindings: &[Binding],
        groups: [u32; 3],
    ) -> Result<()> {
        let ranges = self.resolve(label, self.kernel(label, kernel)?, bindings)?;
        if groups.contains(&0) {
            return Ok(());
        }
        let mut taken: Vec<(BufferId, Vec<u32>)> = Vec::new();
        for range in &ranges {
            if taken.iter().all(|(id, _)| *id != range.buffer)
                && let Some(stored) = self.buffers.get_mut(&range.buffer)
            {
                taken.push((range.buffer, std::mem::take(&mut stored.words)));
            }
        }
        let result = self.run(label, kernel, &ranges, &mut taken, groups);
        for (id, words) in taken {
            if let Some(stored) = self.buffers.get_mut(&id) {
                stored.words = words;
            }
        }
        result
    }

    fn run(
        &self,
        label: &str,
        kernel: KernelId,
        ranges: &[Range],
        taken: &mut [(BufferId, Vec<u32>)],
        groups: [u32; 3],
    ) -> Result<()> {
        let kernel = self.kernel(label, kernel)?;
        let views: Vec<_> = taken
            .iter_mut()
            .map(|(id, words)| {
                let writes = ranges.iter().any(|r| r.buffer == *id && r.writes);
                (*id, if writes { Buffer::Write(as_atomic(words)) } else { Buffer::Read(words) })
            })
            .collect();
        let bind = |range: &Range| {
            let (_, view) = views.iter().find(|(id, _)| *id == range.buffer)?;
            Some(match *view {
                Buffer::Read(words) => Buffer::Read(words.get(range.first..range.first + range.len)?),
                Buffer::Write(words) => Buffer::Write(words.get(range.first..range.first + range.len)?),
            })
        };
        let buffers = ranges.iter().map(bind).collect::<Option<Vec<_>>>();
        let buffers =
            buffers.ok_or_else(|| Error::bug(format!("dispatch `{label}`: a checked range does not fit")))?;
        let lengths = kernel.code.lengths.iter().map(|l| {
            let bytes = ranges[l.binding as usize].len as u64 * 4;
            (bytes.saturating_sub(u64::from(l.offset)) / u64::from(l.stride.max(1))) as u32
        });
        let stop = AtomicBool::new(false);
        let deadline = Instant::now() + self.time_limit;
        let env = Env { buffers, lengths: lengths.collect(), groups, deadline, stop: &stop };
        let result = dispatch::run(&kernel.code, &env, self.pool.as_ref(), || Unwatched, |_| {});
        result.map_err(|stop| self.stopped(label, kernel, stop))
    }

    fn stopped(&self, label: &str, kernel: &Kernel, stop: Stop) -> Error {
        let pc = match stop {
            Stop::Deadline { pc } => pc,
            Stop::Elsewhere => 0,
        };
        let span = kernel.code.spans.get(pc).copied().unwrap_or_default();
        let message = format!("still running after {:?}, stopped in this loop", self.time_limit);
        kernel
            .source
            .error(ErrorKind::Interrupted, &kernel.desc.name, span, &message)
            .context(format!("dispatch `{label}`"))
            .with_hint("a loop may never end; otherwise give the dispatch fewer workgroups or more time")
    }

    fn execute(&mut self, command: &Command, symbols: &Symbols) -> Result<()> {
        match command {
            Command::Dispatch { label, kernel, bindings, groups } => {
                let groups = Recorded::groups(self, label, groups, symbols)?;
                self.dispatch(label, *kernel, bindings, groups)
            }
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                let [from, to, len] = [src_offset, dst_offset, len].map(|e| e.eval(symbols));
                self.copy((*src, from?), (*dst, to?), len?)
            }
            Command::Fill { buffer, word } => {
                let stored = self.buffers.get_mut(buffer);
                let stored = stored.ok_or_else(|| Error::invalid(format!("no buffer {}", buffer.0)))?;
                stored.words.fill(*word);
                Ok(())
            }
        }
    }

    fn copy(&mut self, src: (BufferId, u64), dst: (BufferId, u64), len: u64) -> Result<()> {
        if src.0 == dst.0 {
            return Err(Error::invalid(format!("copy within buffer `{}`", self.stored(src.0)?.label)));
        }
        let range = |stored: &Stored, offset: u64| {
            let end = offset.checked_add(len).filter(|&e| e <= stored.words.len() as u64 * 4);
            let aligned = offset % 4 == 0 && len % 4 == 0;
            end.filter(|_| aligned).map(|e| offset as usize / 4..e as usize / 4).ok_or_else(|| {
                let total = stored.words.len() * 4;
                let text =
                    format!("copy of {len} bytes at {offset} of buffer `{}` of {total} bytes", stored.label);
                Error::invalid(text).with_hint("offsets and length are multiples of 4 within the buffer")
            })
        };
        let from = range(self.stored(src.0)?, src.1)?;
        let to = range(self.stored(dst.0)?, dst.1)?;
        let pair = self.buffers.get_disjoint_mut([&src.0, &dst.0]);
        if let [Some(source), Some(target)] = pair {
            target.words[to].copy_from_slice(&source.words[from]);
        }
        Ok(())
    }
}

/// WebGPU's usage rules: a buffer that a dispatch writes may not be bound read-only as well, and ranges written may not
/// overlap.
fn check_aliasing(label: &str, kernel: &str, ranges: &[Range]) -> Result<()> {
    for (i, a) in ranges.iter().enumerate() {
        for (j, b) in ranges.iter().enumerate().skip(i + 1) {
            let overlap = a.first < b.first + b.len && b.first < a.first + a.len;
            if a.buffer == b.buffer && (a.writes != b.writes || (a.writes && overlap)) {
                let text = format!(
                    "dispatch `{label}` binds buffer {} both as binding {i} and as binding {j} of `{kernel}` and writes to it",
                    a.buffer.0
                );
                return Err(Error::invalid(text).with_hint("give the output a buffer of its own"));
            }
        }
    }
    Ok(())
}

/// Words that several threads may write.
#[allow(unsafe_code)]
fn as_atomic(words: &mut [u32]) -> &[AtomicU32] {
    // SAFETY: AtomicU32 has the size, alignment and bit validity of u32, and the exclusive borrow is given up for as
    // long as the shared one lives.
    unsafe { &*(std::ptr::from_mut(words) as *const [AtomicU32]) }
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
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| {
            Error::new(ErrorKind::OutOfMemory, format!("no memory for buffer `{label}` of {size} bytes"))
        })?;
        words.resize(count, 0);
        let id = BufferId(self.fresh());
        self.used += count as u64 * 4;
        self.peak = self.peak.max(self.used);
        self.buffers.insert(id, Stored { label: label.into(), words, size });
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
        let aligned = |end: u64| offset % 4 == 0 && (len % 4 == 0 || end == stored.size);
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
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        let stored = self.stored(buffer)?;
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
        let choices = Choices { arithmetic, subgroup_size: self.subgroup_size };
        let kernel = front::compile(desc, &self.info, choices)?;
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
        for command in commands {
            match command {
                Command::Dispatch { label, kernel, bindings, .. } => {
                    self.resolve(label, self.kernel(label, *kernel)?, bindings)?;
                }
                Command::Copy { src, dst, .. } => {
                    self.stored(*src)?;
                    self.stored(*dst)?;
                }
                Command::Fill { buffer, .. } => {
                    self.stored(*buffer)?;
                }
            }
        }
        let id = ListId(self.fresh());
        self.lists.insert(id, Recorded { commands: commands.to_vec() });
        Ok(id)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let missing = || Error::invalid(format!("no list {}", list.0));
        let recorded = self.lists.remove(&list).ok_or_else(missing)?;
        let result = recorded.commands.iter().try_for_each(|command| self.execute(command, symbols));
        self.lists.insert(list, recorded);
        result
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.lists.remove(&list).map(|_| ()).ok_or_else(|| Error::invalid(format!("no list {}", list.0)))
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }

    fn memory(&self) -> (u64, u64) {
        (self.used, self.peak)
    }
}
