//! [`WgpuDevice`]: options and memory accounting, and the [`Device`] methods.
//!
//! A device belongs to one thread at a time: its methods take `&mut self`. Those that use it first ask whether it is lost.

use crate::adapter::{self, OpenAdapter};
use crate::compile::{self, Layouts, Prepared};
use crate::gpu::Gpu;
use crate::list::WgpuList;
use crate::options::WgpuOptions;
use crate::parts::{DeviceParts, Stored};
use crate::replay::{PlannedTurn, PlannedWrite};
use crate::transfer::ReadRange;
use std::collections::HashMap;
use tapml_device::{
    BatchedStep, BufferId, Command, Device, DeviceInfo, Get, KernelDesc, KernelId, ListId, Put, one_by_one,
};
use tapml_graph::{Error, ErrorKind, Result, Symbols};

/// Turns of one submission at most, so that the device begins before all of them are encoded.
const MOST_STEPS: usize = 8;

/// A device of one adapter. Dropping it frees everything it holds.
///
/// # Examples
///
/// ```no_run
/// use tapml_device::Device;
/// use tapml_wgpu::WgpuDevice;
///
/// let device = WgpuDevice::open("vulkan", 0, "checks=off").unwrap();
/// println!("{}", device.info().name);
/// ```
pub struct WgpuDevice {
    /// What lists work with, too.
    parts: DeviceParts,
    /// What the user chose.
    options: WgpuOptions,
    /// Whether whoever opened the device vouches for a kernel.
    trusted: fn(&KernelDesc) -> bool,
    /// Layouts that kernels share.
    layouts: Layouts,
    /// Kernels that were compiled ahead and have not been created.
    prepared: Prepared,
    /// Recorded lists, by handle.
    lists: HashMap<ListId, WgpuList>,
    /// The last number given to a handle of any kind; no number is given twice.
    next: u64,
    /// Bytes of all buffers that exist, each rounded up to words.
    used: u64,
    /// The most that `used` has been.
    peak: u64,
}

impl WgpuDevice {
    /// Opens adapter `index` of a platform, in the order of [`crate::adapters`].
    ///
    /// `options` is a query string: `profile=mobile` asks for the default WebGPU limits and no features, `checks=off` trusts
    /// kernels (no clamped indices, bounded loops or checked divisors), `f16=off`, `subgroups=off` and `matrices=off` leave a
    /// feature unused, `timeout=SECONDS` bounds how long submitted work may take (600).
    ///
    /// Fails with [`ErrorKind::Unavailable`] if there is no such adapter; the hint says what to install or what is there.
    pub fn open(platform: &str, index: usize, options: &str) -> Result<WgpuDevice> {
        let options = WgpuOptions::parse(options)?;
        let OpenAdapter { device, queue, info } = adapter::open(platform, index, &options)?;
        Ok(WgpuDevice {
            parts: DeviceParts::new(info, Gpu::new(device, queue, options.timeout)),
            options,
            trusted: |_| false,
            layouts: Layouts::default(),
            prepared: Prepared::default(),
            lists: HashMap::new(),
            next: 0,
            used: 0,
            peak: 0,
        })
    }

    /// Vouches for the kernels of which this holds: no index outside its array, no endless loop, no division by zero. They
    /// are compiled as with `checks=off`, unless the options say `checks=on`.
    pub fn trust_kernels(mut self, trusted: fn(&KernelDesc) -> bool) -> WgpuDevice {
        self.trusted = trusted;
        self
    }

    /// Gives the device back to the driver at once. Every later call fails with [`ErrorKind::DeviceLost`].
    pub fn close(&mut self) {
        self.parts.gpu.destroy();
    }

    /// Whether a kernel is compiled with WebGPU's guarantees. What the user says goes before what whoever opened the device vouches for.
    fn checks(&self) -> impl Fn(&KernelDesc) -> bool + Sync + use<> {
        let (chosen, trusted) = (self.options.checks, self.trusted);
        move |desc| chosen.unwrap_or_else(|| !trusted(desc))
    }

    /// A number that no handle has. The first is 1.
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A list, and the parts that it works with.
    fn list(&mut self, id: ListId) -> Result<(&mut WgpuList, &mut DeviceParts)> {
        self.parts.gpu.alive()?;
        let list = self.lists.get_mut(&id);
        let list = list.ok_or_else(|| Error::invalid(format!("no list {} on this device", id.0)))?;
        Ok((list, &mut self.parts))
    }

    /// The range of a buffer that is to be read.
    fn source_of(&self, get: &Get<'_>) -> Result<ReadRange> {
        let raw = &self.parts.range(get.buffer, get.offset, get.out.len(), "read")?.raw;
        Ok(ReadRange { buffer: raw.clone(), offset: get.offset, len: get.out.len() as u64 })
    }

    /// The writes of these turns, each of whole words, and the buffer in which they wait for their turn.
    fn plan_steps<'a>(
        &mut self,
        turns: &'a [BatchedStep<'a>],
    ) -> Result<(wgpu::Buffer, Vec<PlannedTurn<'a>>)> {
        let (mut bytes, mut planned) = (Vec::new(), Vec::with_capacity(turns.len()));
        for turn in turns {
            let mut writes = Vec::with_capacity(turn.writes.len());
            for put in turn.writes.iter().filter(|put| !put.data.is_empty()) {
                let target = self.parts.range(put.buffer, put.offset, put.data.len(), "write")?.raw.clone();
                let (from, len) = (bytes.len() as u64, put.data.len() as u64);
                writes.push(PlannedWrite { from, target, to: put.offset, len });
                bytes.extend_from_slice(put.data);
            }
            planned.push(PlannedTurn { writes, symbols: &turn.symbols });
        }
        // One buffer holds the writes of all turns. It may be written anew: the queue keeps the order of writes and submissions.
        let source = self.parts.transfers.source(&self.parts.gpu, bytes.len() as u64)?;
        self.parts.transfers.write(&self.parts.gpu, &source, 0, &bytes)?;
        Ok((source, planned))
    }
}

impl Device for WgpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.parts.info
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        self.parts.gpu.alive()?;
        let max = self.parts.info.limits.max_buffer_size;
        if size > max {
            let text = format!("buffer `{label}` needs {size} bytes, {} allows {max}", self.parts.info.name);
            return Err(Error::unsupported(text)
                .with_detail("limit", "max_buffer_size")
                .with_detail("asked", size.to_string())
                .with_detail("offered", max.to_string()));
        }
        let rounded = size.next_multiple_of(4);
        let desc = wgpu::BufferDescriptor {
            label: Some(label),
            // WebGPU has no bindings of 0 bytes.
            size: rounded.max(4),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::UNIFORM
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        let doing = || format!("create buffer `{label}` of {rounded} bytes");
        let raw = self.parts.gpu.call(doing, |device, _| device.create_buffer(&desc)).map_err(|e| match e
            .kind()
        {
            ErrorKind::OutOfMemory => {
                e.with_detail("asked", rounded.to_string()).with_detail("in use", self.used.to_string())
            }
            _ => e,
        })?;
        let id = BufferId(self.fresh());
        self.parts.buffers.insert(id, Stored { label: label.into(), raw, size: rounded, asked: size });
        self.used += rounded;
        self.peak = self.peak.max(self.used);
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.parts.gpu.alive()?;
        self.parts.buffer(buffer)?;
        if let Some(stored) = self.parts.buffers.remove(&buffer) {
            self.used -= stored.size;
            self.parts.destroyed += 1;
            // Destroyed at once: dropping it would keep the memory until the lists that bind it are gone.
            self.parts.gpu.call(|| format!("free buffer `{}`", stored.label), |_, _| stored.raw.destroy())?;
        }
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.parts.gpu.alive()?;
        let stored = self.parts.range(buffer, offset, data.len(), "write")?;
        // The last word may be written in part; the transfer pads it.
        let to_end = offset + data.len() as u64 == stored.asked;
        if !offset.is_multiple_of(4) || !(data.len().is_multiple_of(4) || to_end) {
            return Err(Error::invalid(format!(
                "write of {} bytes at offset {offset} of buffer `{}`: both must be multiples of 4",
                data.len(),
                stored.label
            )));
        }
        let raw = stored.raw.clone();
        self.parts.transfers.write(&self.parts.gpu, &raw, offset, data)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        self.parts.gpu.alive()?;
        let raw = self.parts.range(buffer, offset, out.len(), "read")?.raw.clone();
        self.parts.transfers.read(&self.parts.gpu, &raw, offset, out)
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        self.parts.gpu.alive()?;
        desc.check_limits(&self.parts.info)?;
        // wgpu's parser recurses, and would overflow the stack on text that is nested too deeply.
        desc.source.check_nesting()?;
        let kernel = match self.prepared.take(desc) {
            Some(kernel) => kernel,
            None => {
                let checks = self.checks()(desc);
                compile::compile(&self.parts.gpu, &mut self.layouts, desc, checks)?
            }
        };
        let id = KernelId(self.fresh());
        self.parts.kernels.insert(id, kernel);
        Ok(id)
    }

    /// What an earlier call prepared and nobody created is freed.
    fn prepare_kernels(&mut self, descs: &[KernelDesc]) {
        let info = &self.parts.info;
        let fits =
            |desc: &&KernelDesc| desc.check_limits(info).is_ok() && desc.source.check_nesting().is_ok();
        let descs: Vec<KernelDesc> = descs.iter().filter(fits).cloned().collect();
        let checks = self.checks();
        self.prepared = Prepared::compile(&self.parts.gpu, &mut self.layouts, &descs, checks);
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.parts.gpu.alive()?;
        let gone = self.parts.kernels.remove(&kernel);
        gone.ok_or_else(|| Error::invalid(format!("no kernel {} on this device", kernel.0)))?;
        self.parts.destroyed += 1;
        Ok(())
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        self.parts.gpu.alive()?;
        let list = WgpuList::record(&mut self.parts, commands)?;
        let id = ListId(self.fresh());
        self.lists.insert(id, list);
        Ok(id)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let (list, parts) = self.list(list)?;
        list.replay(parts, symbols, &[]).map(drop)
    }

    /// Everything in one submission, unless much is read.
    fn step(
        &mut self,
        list: ListId,
        symbols: &Symbols,
        writes: &[Put<'_>],
        reads: &mut [Get<'_>],
    ) -> Result<()> {
        writes.iter().try_for_each(|put| self.write(put.buffer, put.offset, put.data))?;
        let ranges = reads.iter().map(|get| self.source_of(get)).collect::<Result<Vec<_>>>()?;
        // Much is read: piece by piece, each with a submission of its own.
        let Some(pieces) = self.parts.transfers.pieces(&self.parts.gpu, &ranges)? else {
            self.replay(list, symbols)?;
            return reads.iter_mut().try_for_each(|get| self.read(get.buffer, get.offset, get.out));
        };
        let (list, parts) = self.list(list)?;
        let submission = list.replay(parts, symbols, &pieces)?;
        // Without a read nobody waits, and the next run comes soon enough.
        if !pieces.is_empty() {
            list.prepare(parts)?;
        }
        let places = reads.iter_mut().map(|get| (get.offset, &mut *get.out));
        self.parts.transfers.collect(&self.parts.gpu, pieces, &submission, places)
    }

    /// Several turns in a submission: the first alone, so that the device begins early, then more and more.
    fn run_steps(&mut self, list: ListId, turns: &[BatchedStep<'_>], reads: &mut [Get<'_>]) -> Result<()> {
        let ranges = reads.iter().map(|get| self.source_of(get)).collect::<Result<Vec<_>>>()?;
        let whole = |put: &Put<'_>| put.offset.is_multiple_of(4) && put.data.len().is_multiple_of(4);
        // Partial words cannot be copied between buffers.
        let plain = turns.iter().flat_map(|turn| &turn.writes).all(whole) && !turns.is_empty();
        let pieces = if plain { self.parts.transfers.pieces(&self.parts.gpu, &ranges)? } else { None };
        let Some(pieces) = pieces else { return one_by_one(self, list, turns, reads) };
        let (source, planned) = self.plan_steps(turns)?;
        let (list, parts) = self.list(list)?;
        let (mut rest, mut many) = (&planned[..], 1);
        let submission = loop {
            let (now, later) = rest.split_at(many.min(rest.len()));
            let pieces = if later.is_empty() { &pieces[..] } else { &[] };
            let submission = list.replay_steps(parts, &source, now, pieces)?;
            if later.is_empty() {
                list.prepare(parts)?;
                break submission;
            }
            // 1, 2, 4, 8: the device is never idle for long, and submissions stay few.
            (rest, many) = (later, (many * 2).min(MOST_STEPS));
        };
        let places = reads.iter_mut().map(|get| (get.offset, &mut *get.out));
        self.parts.transfers.collect(&self.parts.gpu, pieces, &submission, places)
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.parts.gpu.alive()?;
        let gone = self.lists.remove(&list);
        gone.map(|_| ()).ok_or_else(|| Error::invalid(format!("no list {} on this device", list.0)))
    }

    fn wait(&mut self) -> Result<()> {
        self.parts.transfers.flush(&self.parts.gpu)?;
        self.parts.gpu.finish(None)
    }

    fn memory(&self) -> (u64, u64) {
        (self.used, self.peak)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tapml_device::{Language, Source};

    fn desc(text: &str) -> KernelDesc {
        let (file, prelude, text) = ("kernel.wgsl".into(), String::new(), text.into());
        KernelDesc {
            name: "test/kernel".into(),
            source: Source { language: Language::Wgsl, file, prelude, text },
            entry: "main".into(),
            constants: Vec::new(),
            bindings: Vec::new(),
            workgroup: [1, 1, 1],
            workgroup_memory: 0,
            needs_f16: false,
            needs_subgroups: false,
            dependent_launch: false,
        }
    }

    #[test]
    fn a_prepared_kernel_is_compiled_one_time() {
        let mut device = match WgpuDevice::open("vulkan", 0, "") {
            Ok(device) => device,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                return tapml_testing::skip("vulkan", &error.to_string());
            }
        };
        let good = desc("@compute @workgroup_size(1) fn main() {}");
        let faulty = desc("@compute @workgroup_size(1) fn main() { let x = ; }");
        device.prepare_kernels(&[faulty.clone(), good.clone()]);
        assert_eq!(device.prepared.len(), 1);
        assert!(device.create_kernel(&faulty).is_err());
        device.create_kernel(&good).unwrap();
        assert_eq!(device.prepared.len(), 0, "it was handed over");
        // Another one is compiled as if nothing had been prepared.
        device.create_kernel(&good).unwrap();
    }
}
