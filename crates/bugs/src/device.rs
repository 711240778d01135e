//! A device with faults: it wraps any other, changes kernels when they are compiled and commands when they run.
//!
//! Errors, limits and everything else are those of the device that is wrapped.

use crate::catalogue::apply_mutants;
use crate::commands::{self, Known};
use crate::mutant::{Cast, Edit, Mutant};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tapml_device::{
    BufferId, Command, Device, DeviceInfo, Error, ErrorKind, Finding, KernelDesc, KernelId, ListId, Result,
    Symbols,
};

/// Label of the buffer that holds the uniform block of a program.
/// It is written before each run: `n`, then `p`, as little-endian words.
const SYMBOLS: &str = "symbols";
/// Handles of lists that are re-recorded at every replay begin here.
/// No device has given so many handles.
const EDITED: u64 = 1 << 63;

/// A device on which many faulty ones run, one after the other. Kernels without a fault are compiled once.
pub struct Workbench {
    /// Shared by all faulty devices that were made of it.
    base: Arc<Mutex<Base>>,
    /// As the device told when it was wrapped.
    info: DeviceInfo,
}

/// The device and the kernels that are compiled on it.
struct Base {
    /// The device that does the work.
    device: Box<dyn Device>,
    /// Unchanged kernels by the hash of their description. They stay until the workbench is dropped.
    kernels: HashMap<[u8; 32], KernelId>,
}

/// A test that panicked leaves the device usable, so poisoning is ignored.
fn lock(base: &Mutex<Base>) -> MutexGuard<'_, Base> {
    base.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workbench {
    /// A workbench around a device.
    pub fn new(device: Box<dyn Device>) -> Workbench {
        let info = device.info().clone();
        Workbench { base: Arc::new(Mutex::new(Base { device, kernels: HashMap::new() })), info }
    }

    /// What the device tells about itself.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The device with these faults; with none it behaves as the device itself. What it allocates is freed when it is
    /// dropped.
    pub fn device(&self, mutants: &[Mutant]) -> FaultyDevice {
        FaultyDevice {
            base: self.base.clone(),
            info: self.info.clone(),
            mutants: mutants.to_vec(),
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            lists: HashMap::new(),
            own_kernels: Vec::new(),
            plain_lists: HashSet::new(),
            next: EDITED,
            turned: HashSet::new(),
            symbols: None,
            uploads: HashMap::new(),
        }
    }
}

/// See [`Workbench::device`].
pub struct FaultyDevice {
    /// The device behind, shared with the workbench.
    base: Arc<Mutex<Base>>,
    /// What it tells about itself.
    info: DeviceInfo,
    /// The faults that it has.
    mutants: Vec<Mutant>,
    /// Label and size.
    buffers: HashMap<BufferId, (String, u64)>,
    /// Descriptions as they were asked for, without faults.
    kernels: HashMap<KernelId, KernelDesc>,
    /// Lists that are changed at every replay.
    lists: HashMap<ListId, Vec<Command>>,
    /// Kernels with a fault, which nobody shares.
    own_kernels: Vec<KernelId>,
    /// Lists that run as they were recorded.
    plain_lists: HashSet<ListId>,
    /// The last handle of an edited list.
    next: u64,
    /// Tables whose frequencies were changed already.
    turned: HashSet<BufferId>,
    /// `n` and `p` of the last run of a program.
    symbols: Option<(u32, u32)>,
    /// How often each input of a program was written.
    uploads: HashMap<BufferId, u64>,
}

impl FaultyDevice {
    /// The faults with what each changes.
    fn edits(&self) -> impl Iterator<Item = (&Mutant, &Edit)> {
        self.mutants.iter().map(|m| (m, &m.edit))
    }

    /// Whether a fault makes this edit.
    fn has(&self, edit: &Edit) -> bool {
        self.edits().any(|(_, e)| e == edit)
    }

    /// The label of a buffer; empty if it is not of this device.
    fn label(&self, buffer: BufferId) -> &str {
        self.buffers.get(&buffer).map_or("", |(label, _)| label)
    }

    /// Whether the buffer belongs to a program rather than to a replay of single calls.
    fn of_program(&self, buffer: BufferId) -> bool {
        !self.label(buffer).starts_with("replay ")
    }

    /// Whether every buffer of a list belongs to a program.
    fn is_program(&self, commands: &[Command]) -> bool {
        commands.iter().all(|command| match command {
            Command::Dispatch { bindings, .. } => bindings.iter().all(|b| self.of_program(b.buffer)),
            Command::Fill { buffer, .. } => self.of_program(*buffer),
            Command::Copy { src, dst, .. } => self.of_program(*src) && self.of_program(*dst),
        })
    }

    /// Whether anything about this list changes when it runs.
    fn edits_list(&self, commands: &[Command]) -> bool {
        let program = self.is_program(commands);
        let runs = |name: &str| {
            commands.iter().any(|c| match c {
                Command::Dispatch { kernel, .. } => self.kernels.get(kernel).is_some_and(|d| d.name == name),
                _ => false,
            })
        };
        self.edits().any(|(mutant, edit)| match edit {
            Edit::Bindings { .. } | Edit::Grid { .. } => runs(&mutant.target),
            Edit::Late | Edit::Missing | Edit::Alias | Edit::Borrow { .. } => program,
            _ => false,
        })
    }

    /// Changes the tables of frequencies that the commands read.
    fn turn(&mut self, commands: &[Command]) -> Result<()> {
        let ratios: Vec<(String, f64)> = self
            .edits()
            .filter_map(|(m, e)| match e {
                Edit::Frequencies { ratio } => Some((m.target.clone(), *ratio)),
                _ => None,
            })
            .collect();
        for command in commands {
            let Command::Dispatch { kernel, bindings, .. } = command else { continue };
            let Some(desc) = self.kernels.get(kernel) else { continue };
            let Some((_, ratio)) = ratios.iter().find(|(name, _)| *name == desc.name) else { continue };
            // The kernel's constant D is the number of pairs.
            let pairs = desc.constants.iter().find(|(n, _)| n == "D").map_or(0, |(_, d)| *d as usize);
            // Its third binding is the table.
            let Some(table) = bindings.get(2).map(|b| b.buffer) else { continue };
            // A table is shared by several lists, and must change once.
            if !self.turned.insert(table) {
                continue;
            }
            let mut base = lock(&self.base);
            let mut bytes = vec![0; 8 * pairs];
            base.device.read(table, 0, &mut bytes)?;
            for (j, turn) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let (upper, lower) = (&turn[..4], &turn[4..]);
                let word = |b: &[u8]| u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                // A fraction of a turn in 64 bits, the upper word first.
                let value = (word(upper) << 32 | word(lower)) as f64;
                let new = (value * ratio.powf(j as f64 / pairs as f64)) as u64;
                *turn = (new.rotate_left(32)).to_le_bytes();
            }
            base.device.write(table, 0, &bytes)?;
        }
        Ok(())
    }

    /// Handles as edits of lists need them.
    fn known_handles(&self) -> Known<'_> {
        Known { kernels: &self.kernels, buffers: &self.buffers }
    }

    /// The uniform block as it reaches the device; `None` if it does not.
    fn uniform(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let word = |at: usize| data.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let now = (word(0)?, word(4)?);
        // Kept also if the write is lost: what was meant is the last run's.
        let before = self.symbols.replace(now);
        // The first write always arrives, or the program could not run at all.
        if before.is_some() && self.has(&Edit::StaleSymbols) {
            return None;
        }
        let mut data = data.to_vec();
        if let (Some((n, p)), 0, true) = (before, now.1, self.has(&Edit::KeptPosition)) {
            data[4..8].copy_from_slice(&n.saturating_add(p).to_le_bytes());
        }
        Some(data)
    }

    /// The bytes of a program's input as they reach the device; `None` if they do not.
    fn input(&mut self, buffer: BufferId, data: &[u8]) -> Option<Vec<u8>> {
        let count = self.uploads.entry(buffer).or_default();
        *count += 1;
        // Every second upload is lost.
        if count.is_multiple_of(2) && self.has(&Edit::StaleInput) {
            return None;
        }
        let cast = self.edits().find_map(|(_, e)| match e {
            Edit::CastInput(cast) => Some(*cast),
            _ => None,
        });
        Some(cast.map_or(data.to_vec(), |cast| each_word(data, |w| cast_value(w as f32, cast) as u32)))
    }
}

/// A kernel that did not end leaves nothing to go on with, even where the device itself stopped it.
fn check_ended<T>(result: Result<T>) -> Result<T> {
    result.map_err(|e| match e.detail("deadline") {
        Some(limit) if e.kind() != ErrorKind::DeviceLost => {
            Error::new(ErrorKind::DeviceLost, e.to_string()).with_detail("deadline", limit)
        }
        _ => e,
    })
}

/// Changes every word; bytes behind the last whole one stay.
fn each_word(data: &[u8], change: impl Fn(u32) -> u32) -> Vec<u8> {
    let (words, rest) = data.as_chunks::<4>();
    let words = words.iter().flat_map(|w| change(u32::from_le_bytes(*w)).to_le_bytes());
    words.chain(rest.iter().copied()).collect()
}

/// A number rounded to a narrower format and back.
fn cast_value(value: f32, cast: Cast) -> f32 {
    match cast {
        Cast::F16 => half::f16::from_f32(value).to_f32(),
        Cast::Bf16 => half::bf16::from_f32(value).to_f32(),
    }
}

impl Device for FaultyDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        let id = lock(&self.base).device.create_buffer(label, size)?;
        self.buffers.insert(id, (label.into(), size));
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.buffers.remove(&buffer);
        // The handle's next owner has a table of its own.
        self.turned.remove(&buffer);
        lock(&self.base).device.destroy_buffer(buffer)
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        let label = self.label(buffer);
        let changed = if label == SYMBOLS {
            self.uniform(data)
        // Only inputs of programs are in the map: see `record`.
        } else if self.uploads.contains_key(&buffer) {
            self.input(buffer, data)
        } else {
            return lock(&self.base).device.write(buffer, offset, data);
        };
        match changed {
            Some(data) => lock(&self.base).device.write(buffer, offset, &data),
            None => Ok(()),
        }
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        check_ended(lock(&self.base).device.read(buffer, offset, out))?;
        let cast = self.edits().find_map(|(_, e)| match e {
            Edit::CastOutput(cast) => Some(*cast),
            _ => None,
        });
        if let Some(cast) = cast.filter(|_| self.of_program(buffer)) {
            let words = each_word(out, |w| cast_value(f32::from_bits(w), cast).to_bits());
            out.copy_from_slice(&words);
        }
        Ok(())
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        let changed = apply_mutants(desc, &self.mutants);
        let mut base = lock(&self.base);
        let id = if changed == *desc {
            let key = serde_json::to_vec(desc)
                .map_err(|e| Error::bug(format!("kernel `{}` does not serialise: {e}", desc.name)))?;
            let key = *blake3::hash(&key).as_bytes();
            match base.kernels.get(&key) {
                Some(&known) => known,
                None => {
                    let id = base.device.create_kernel(desc)?;
                    base.kernels.insert(key, id);
                    id
                }
            }
        } else {
            let id = base.device.create_kernel(&changed)?;
            self.own_kernels.push(id);
            id
        };
        self.kernels.insert(id, desc.clone());
        Ok(id)
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        // Shared kernels stay for the next faulty device.
        let Some(at) = self.own_kernels.iter().position(|&k| k == kernel) else { return Ok(()) };
        self.own_kernels.swap_remove(at);
        lock(&self.base).device.destroy_kernel(kernel)
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        self.turn(commands)?;
        if self.is_program(commands) {
            for buffer in commands::only_read(commands, &self.known_handles()) {
                self.uploads.entry(buffer).or_default();
            }
        }
        // Checked as it is, so that errors are those of the device itself.
        let list = lock(&self.base).device.record(commands)?;
        if !self.edits_list(commands) {
            self.plain_lists.insert(list);
            return Ok(list);
        }
        // It was recorded for its checks only; each replay records an edited one.
        lock(&self.base).device.destroy_list(list)?;
        self.next += 1;
        self.lists.insert(ListId(self.next), commands.to_vec());
        Ok(ListId(self.next))
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let Some(commands) = self.lists.get(&list) else {
            return check_ended(lock(&self.base).device.replay(list, symbols));
        };
        let mut now = commands::evaluate_sizes(commands, symbols)?;
        let program = self.is_program(commands);
        // Replays of single calls have no faults between kernels.
        for (mutant, edit) in self.edits().filter(|(_, e)| program || !e.is_between()) {
            commands::edit(&mut now, mutant, edit, &self.known_handles());
        }
        let mut base = lock(&self.base);
        let list = base.device.record(&now)?;
        let done = base.device.replay(list, &Symbols::new());
        check_ended(done.and(base.device.destroy_list(list)))
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        if self.lists.remove(&list).is_some() {
            return Ok(());
        }
        self.plain_lists.remove(&list);
        lock(&self.base).device.destroy_list(list)
    }

    fn wait(&mut self) -> Result<()> {
        check_ended(lock(&self.base).device.wait())
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        lock(&self.base).device.take_findings()
    }

    fn memory(&self) -> (u64, u64) {
        lock(&self.base).device.memory()
    }
}

impl Drop for FaultyDevice {
    fn drop(&mut self) {
        let mut base = lock(&self.base);
        // Of a lost device nothing is left to free; there is nobody to tell.
        self.plain_lists.iter().for_each(|&list| drop(base.device.destroy_list(list)));
        self.buffers.keys().for_each(|&buffer| drop(base.device.destroy_buffer(buffer)));
        self.own_kernels.iter().for_each(|&kernel| drop(base.device.destroy_kernel(kernel)));
        // Findings of this fault must not be taken for those of the next.
        base.device.take_findings();
    }
}
