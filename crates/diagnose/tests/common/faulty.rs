//! An emulator whose kernels are right and whose handling of programs is not.

use std::collections::HashMap;
use tapml_device::{
    BufferId, Command, Device, DeviceInfo, Extent, Finding, KernelDesc, KernelId, ListId, Result, Symbols,
};
use tapml_graph::{Dim, Symbol};

/// What the device does wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// Copies into buffers of this label do not take place.
    Copies(String),
    /// Fills do not take place.
    Fills,
    /// Lists are replayed with the symbols of the replay before.
    Symbols,
    /// In lists that run a whole model the memory of what the second of these dispatches writes is that of what the first
    /// wrote, too.
    Overlap(String, String),
    /// Writes into buffers of these labels do not take place, except the first.
    Writes(String),
    /// Dispatches of this label do not take place in lists that run a whole model.
    Dispatch(String),
    /// Every second replay of a list that runs a whole model skips the dispatches of this label.
    Now(String),
}

pub struct Faulty {
    device: Box<dyn Device>,
    wrong: Wrong,
    labels: HashMap<BufferId, String>,
    written: HashMap<BufferId, u32>,
    last: Symbols,
    other: HashMap<ListId, ListId>,
    turn: bool,
}

impl Faulty {
    pub fn new(device: Box<dyn Device>, wrong: Wrong) -> Faulty {
        Faulty {
            device,
            wrong,
            labels: HashMap::new(),
            written: HashMap::new(),
            last: Symbols::new(),
            other: HashMap::new(),
            turn: false,
        }
    }

    fn label(&self, buffer: BufferId) -> &str {
        self.labels.get(&buffer).map_or("", String::as_str)
    }

    /// After the second dispatch of [`Wrong::Overlap`], its output stands in the place of the first's too.
    fn overlapping(&self, commands: Vec<Command>) -> Vec<Command> {
        let Wrong::Overlap(first, second) = &self.wrong else { return commands };
        // The output stands before the symbols, which come last.
        let output = |wanted: &str| {
            commands.iter().find_map(|c| match c {
                Command::Dispatch { label, bindings, .. } if label == wanted => {
                    Some(bindings[bindings.len() - 2].buffer)
                }
                _ => None,
            })
        };
        let (Some(dst), Some(src)) = (output(first), output(second)) else { return commands };
        let mut changed = Vec::new();
        for command in commands {
            let here = matches!(&command, Command::Dispatch { label, .. } if label == second);
            changed.push(command);
            if here {
                let zero = || Extent::of(0u64);
                let len = Extent::of(Dim::symbol(Symbol::N).checked_mul(80).unwrap_or(Dim::from(0u64)));
                changed.push(Command::Copy { src, src_offset: zero(), dst, dst_offset: zero(), len });
            }
        }
        changed
    }

    fn keeps(&self, whole: bool, command: &Command) -> bool {
        match (command, &self.wrong) {
            (Command::Copy { dst, .. }, Wrong::Copies(label)) => self.label(*dst) != label,
            (Command::Fill { .. }, Wrong::Fills) => false,
            (Command::Dispatch { label, .. }, Wrong::Dispatch(bad)) => !whole || label != bad,
            _ => true,
        }
    }
}

/// Whether a list runs a whole model: it begins with the embedding, and does not end with it.
fn whole(commands: &[Command]) -> bool {
    let embeds = commands
        .iter()
        .filter_map(|c| match c {
            Command::Dispatch { label, .. } => Some(label.contains("embed")),
            _ => None,
        })
        .collect::<Vec<bool>>();
    embeds.contains(&true) && embeds.contains(&false)
}

impl Device for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }
    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        let buffer = self.device.create_buffer(label, size)?;
        self.labels.insert(buffer, label.into());
        Ok(buffer)
    }
    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.labels.remove(&buffer);
        self.device.destroy_buffer(buffer)
    }
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        let times = self.written.entry(buffer).or_default();
        *times += 1;
        let again = *times > 1;
        match &self.wrong {
            Wrong::Writes(label) if again && self.label(buffer) == label => Ok(()),
            _ => self.device.write(buffer, offset, data),
        }
    }
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        self.device.read(buffer, offset, out)
    }
    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        self.device.create_kernel(desc)
    }
    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.device.destroy_kernel(kernel)
    }
    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        let whole = whole(commands);
        let kept: Vec<Command> = commands.iter().filter(|c| self.keeps(whole, c)).cloned().collect();
        let kept = if whole { self.overlapping(kept) } else { kept };
        let list = self.device.record(&kept)?;
        if let (Wrong::Now(bad), true) = (&self.wrong, whole) {
            let keeps = |c: &&Command| !matches!(c, Command::Dispatch { label, .. } if label == bad);
            let fewer: Vec<Command> = kept.iter().filter(keeps).cloned().collect();
            let other = self.device.record(&fewer)?;
            self.other.insert(list, other);
        }
        Ok(list)
    }
    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        let last = std::mem::replace(&mut self.last, symbols.clone());
        if self.wrong == Wrong::Symbols && last.iter().count() > 0 && symbols.iter().count() > 0 {
            return self.device.replay(list, &last);
        }
        if let Some(&other) = self.other.get(&list) {
            self.turn = !self.turn;
            return self.device.replay(if self.turn { list } else { other }, symbols);
        }
        self.device.replay(list, symbols)
    }
    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        if let Some(other) = self.other.remove(&list) {
            self.device.destroy_list(other)?;
        }
        self.device.destroy_list(list)
    }
    fn wait(&mut self) -> Result<()> {
        self.device.wait()
    }
    fn take_findings(&mut self) -> Vec<Finding> {
        self.device.take_findings()
    }
    fn memory(&self) -> (u64, u64) {
        self.device.memory()
    }
}
