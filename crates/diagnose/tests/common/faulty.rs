//! An emulator whose kernels are right and whose handling of programs is not.

use std::collections::HashMap;
use tapml_device::{BufferId, Command, Device, Extent, ListId, Result, Symbols};
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
    /// The same, but only in lists that keep no values of single nodes.
    Unwatched(String),
    /// Every second replay of a list that runs a whole model skips the dispatches of this label.
    Now(String),
    /// After so many replays of lists that run a whole model every second one skips the dispatches of this label.
    Tired(String, u32),
    /// Writes into buffers of this label take place once in the life of the device.
    Once(String),
    /// A text that begins at position 0 is told to begin where the last one ended.
    Position,
    /// Activations that a program is given pass through bf16.
    Activations,
    /// Words that are written to buffers of this label pass through bf16, as integers.
    Input(String),
    /// Floats that are read from programs pass through bf16.
    Results,
    /// In programs the dispatch of this label comes behind the first that reads its result, with the copies right behind it.
    Late(String),
    /// In programs the dispatch of the first label has in this binding what that of the second has there.
    Borrow(String, String, usize),
}

pub struct Faulty {
    device: Box<dyn Device>,
    wrong: Wrong,
    labels: HashMap<BufferId, String>,
    written: HashMap<BufferId, u32>,
    last: Symbols,
    other: HashMap<ListId, ListId>,
    turn: bool,
    /// How often [`Wrong::Once`] was written, or lists of [`Wrong::Tired`] replayed.
    once: u32,
    /// `n` and `p` of the last run.
    symbols: (u32, u32),
    /// Whether a NaN loses its bits on its way from the device.
    quiet: bool,
}

impl Faulty {
    pub fn new(device: Box<dyn Device>, wrong: Wrong) -> Faulty {
        Faulty {
            device,
            wrong,
            once: 0,
            symbols: (0, 0),
            quiet: false,
            labels: HashMap::new(),
            written: HashMap::new(),
            last: Symbols::new(),
            other: HashMap::new(),
            turn: false,
        }
    }

    /// The same; every NaN that is read from it is the one that arithmetic gives.
    pub fn quiet(device: Box<dyn Device>, wrong: Wrong) -> Faulty {
        Faulty { quiet: true, ..Faulty::new(device, wrong) }
    }

    /// The dispatch that writes a node's result, and the buffer of the result: it stands before the symbols.
    fn result(commands: &[Command], node: &str) -> Option<(usize, BufferId)> {
        let at =
            commands.iter().rposition(|c| matches!(c, Command::Dispatch { label, .. } if label == node))?;
        let Command::Dispatch { bindings, .. } = &commands[at] else { return None };
        Some((at, bindings[bindings.len() - 2].buffer))
    }

    fn reorder(&self, mut commands: Vec<Command>) -> Vec<Command> {
        match &self.wrong {
            Wrong::Late(node) => {
                let Some((at, buffer)) = Self::result(&commands, node) else { return commands };
                let reads = |c: &Command| match c {
                    Command::Dispatch { bindings, .. } => bindings.iter().any(|b| b.buffer == buffer),
                    _ => false,
                };
                let reader = at + 1 + commands[at + 1..].iter().position(reads).unwrap();
                let own = |c: &&Command| matches!(c, Command::Copy { src, .. } if *src == buffer);
                let copies = commands[at + 1..reader].iter().take_while(own).count();
                commands[at..=reader].rotate_left(1 + copies);
            }
            Wrong::Borrow(node, from, binding) => {
                let of = |node: &str| Self::result(&commands, node).map(|(at, _)| at);
                if let (Some(at), Some(from)) = (of(node), of(from))
                    && let Command::Dispatch { bindings, .. } = commands[from].clone()
                    && let Command::Dispatch { bindings: own, .. } = &mut commands[at]
                {
                    own[*binding] = bindings[*binding];
                }
            }
            _ => {}
        }
        commands
    }

    /// The block of sizes and positions as it reaches the device.
    fn block(&mut self, data: &[u8]) -> Vec<u8> {
        let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
        let (last, now) = (self.symbols, (word(0), word(4)));
        self.symbols = now;
        let mut data = data.to_vec();
        if now.1 == 0 {
            data[4..8].copy_from_slice(&(last.0 + last.1).to_le_bytes());
        }
        data
    }

    fn label(&self, buffer: BufferId) -> &str {
        self.labels.get(&buffer).map_or("", String::as_str)
    }

    /// After the second dispatch of [`Wrong::Overlap`], its output stands in the place of the first's too.
    fn overlap(&self, commands: Vec<Command>) -> Vec<Command> {
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
                let zero = || Extent::from_dim(0u64);
                let len = Extent::from_dim(Dim::symbol(Symbol::N).checked_mul(80).unwrap_or(Dim::from(0u64)));
                changed.push(Command::Copy { src, src_offset: zero(), dst, dst_offset: zero(), len });
            }
        }
        changed
    }

    /// Whether a list runs single calls, each on buffers of its own.
    fn replays(&self, commands: &[Command]) -> bool {
        commands.iter().any(|c| match c {
            Command::Dispatch { bindings, .. } => {
                bindings.iter().any(|b| self.label(b.buffer).starts_with("replay "))
            }
            _ => false,
        })
    }

    fn keeps(&self, whole: bool, command: &Command) -> bool {
        match (command, &self.wrong) {
            (Command::Copy { dst, .. }, Wrong::Copies(label)) => self.label(*dst) != label,
            (Command::Fill { .. }, Wrong::Fills) => false,
            (Command::Dispatch { label, .. }, Wrong::Dispatch(bad) | Wrong::Unwatched(bad)) => {
                !whole || label != bad
            }
            _ => true,
        }
    }
}

/// Every 32-bit word changed.
fn words(data: &[u8], change: impl Fn(u32) -> u32) -> Vec<u8> {
    let (words, rest) = data.as_chunks::<4>();
    let changed = words.iter().flat_map(|w| change(u32::from_le_bytes(*w)).to_le_bytes());
    changed.chain(rest.iter().copied()).collect()
}

/// The nearest number of bf16.
fn narrow(value: f32) -> f32 {
    let (bits, up) = (value.to_bits(), 0x7fff + (value.to_bits() >> 16 & 1));
    if value.is_nan() { value } else { f32::from_bits(bits.wrapping_add(up) & 0xffff_0000) }
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
    tapml_device::forward!(device: info, create_kernel, destroy_kernel, wait, take_findings, memory);

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
        let label = self.label(buffer).to_string();
        match self.wrong.clone() {
            Wrong::Writes(wanted) if again && label == wanted => Ok(()),
            Wrong::Once(wanted) if label == wanted => {
                self.once += 1;
                if self.once == 1 { self.device.write(buffer, offset, data) } else { Ok(()) }
            }
            Wrong::Position if label == "symbols" => {
                let data = self.block(data);
                self.device.write(buffer, offset, &data)
            }
            Wrong::Activations if label.starts_with("model.") && !is_weight(&label) => {
                let data = words(data, |w| narrow(f32::from_bits(w)).to_bits());
                self.device.write(buffer, offset, &data)
            }
            Wrong::Input(wanted) if label == wanted => {
                let data = words(data, |w| narrow(w as f32) as u32);
                self.device.write(buffer, offset, &data)
            }
            _ => self.device.write(buffer, offset, data),
        }
    }
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        self.device.read(buffer, offset, out)?;
        if self.wrong == Wrong::Results && !self.label(buffer).starts_with("replay ") {
            out.copy_from_slice(&words(out, |w| narrow(f32::from_bits(w)).to_bits()));
        }
        if self.quiet {
            let quiet = |w| if f32::from_bits(w).is_nan() { 0x7fff_ffff } else { w };
            out.copy_from_slice(&words(out, quiet));
        }
        Ok(())
    }
    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        let whole = whole(commands) && !self.replays(commands);
        let copies = commands.iter().filter(|c| matches!(c, Command::Copy { .. })).count();
        let skips = whole && !(matches!(self.wrong, Wrong::Unwatched(_)) && 2 * copies > commands.len());
        let kept: Vec<Command> = commands.iter().filter(|c| self.keeps(skips, c)).cloned().collect();
        let kept = if whole { self.reorder(self.overlap(kept)) } else { kept };
        let list = self.device.record(&kept)?;
        if let (Wrong::Now(bad) | Wrong::Tired(bad, _), true) = (&self.wrong, whole) {
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
            self.once += 1;
            if matches!(&self.wrong, Wrong::Tired(_, after) if self.once <= *after) {
                return self.device.replay(list, symbols);
            }
            self.turn = !self.turn;
            let tired = matches!(self.wrong, Wrong::Tired(..));
            return self.device.replay(if self.turn != tired { list } else { other }, symbols);
        }
        self.device.replay(list, symbols)
    }
    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        if let Some(other) = self.other.remove(&list) {
            self.device.destroy_list(other)?;
        }
        self.device.destroy_list(list)
    }
}

fn is_weight(label: &str) -> bool {
    label.ends_with(".weight") || label.ends_with(".bias")
}
