//! What the requests of a session have named, and requests in words by these names.
//!
//! An agent remembers them for its journal and for post-mortems. Memory is bounded by [`BYTES`], beyond which texts
//! and lists are left out, and by the bounds of the messages.

use crate::wire::{Command, CreateKernel, Symbol, Work};
use bytes::Bytes;
use std::collections::HashMap;

/// Kernels, and commands of a list, that are told.
pub const MEMBERS: usize = 32;

/// Bytes of kernels' texts and lists remembered.
const BYTES: usize = 64 << 20;

/// The buffers, kernels, lists and programs of a session.
#[derive(Default)]
pub struct Names {
    /// Whether all requests were seen: what is not known does not exist then.
    complete: bool,
    /// By the client's handles, as all the others.
    buffers: HashMap<u32, Buffer>,
    /// Destroyed ones stay.
    kernels: HashMap<u32, CreateKernel>,
    /// The commands of each list.
    lists: HashMap<u32, Vec<Command>>,
    /// The hashes of each program's pieces.
    programs: HashMap<u32, Vec<Bytes>>,
    /// Bytes of messages that kernels and lists came in.
    bytes: usize,
    /// Bytes of the buffers that exist.
    memory: u64,
}

/// What is known of a buffer.
struct Buffer {
    /// As the client named it.
    label: String,
    /// Bytes.
    size: u64,
}

/// A request in words, as far as they need not wait until it is told.
pub enum Note {
    /// All there is to say.
    Text(String),
    /// The creation of a kernel.
    Kernel { kernel: u32, name: String },
    /// Runs of a list, with the symbols of each.
    Replay { list: u32, steps: Vec<Vec<Symbol>> },
    /// A run of a program.
    Program { program: u32, symbols: Vec<Symbol> },
}

impl Names {
    /// Those of a session all of whose requests are remembered. [`Names::default`] is for who remembers none.
    pub fn of_session() -> Names {
        Names { complete: true, ..Names::default() }
    }

    /// Bytes of buffers.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// A buffer in words.
    pub fn buffer(&self, id: u32) -> String {
        match self.buffers.get(&id) {
            Some(Buffer { label, size }) => format!("buffer {id} `{label}` of {size} bytes"),
            None if self.complete => format!("buffer {id}, which does not exist"),
            None => format!("buffer {id}"),
        }
    }

    /// A kernel that was created, without its texts if there were too many.
    pub fn kernel(&self, id: u32) -> Option<&CreateKernel> {
        self.kernels.get(&id)
    }

    /// The commands of a list, as far as they are remembered.
    pub fn commands(&self, list: u32) -> &[Command] {
        self.lists.get(&list).map_or(&[], Vec::as_slice)
    }

    /// The hashes of a program's pieces.
    pub fn program(&self, id: u32) -> Option<&[Bytes]> {
        self.programs.get(&id).map(Vec::as_slice)
    }

    /// Enters a buffer.
    pub fn add_buffer(&mut self, id: u32, label: &str, size: u64) {
        // The size is the client's claim, whether or not the buffer can be made.
        self.memory = self.memory.saturating_add(size);
        self.buffers.insert(id, Buffer { label: label.into(), size });
    }

    /// Strikes a buffer.
    pub fn remove_buffer(&mut self, id: u32) {
        let size = self.buffers.remove(&id).map_or(0, |buffer| buffer.size);
        self.memory = self.memory.saturating_sub(size);
    }

    /// Enters a kernel whose message has `len` bytes.
    pub fn add_kernel(&mut self, kernel: &CreateKernel, len: usize) {
        self.bytes += len;
        let mut kept = kernel.clone();
        if self.bytes > BYTES {
            // Names, constants and bindings are kept: they are short.
            (kept.prelude, kept.text) = (String::new(), String::new());
        }
        self.kernels.insert(kernel.kernel, kept);
    }

    /// Enters commands of a list whose message has `len` bytes.
    pub fn add_commands(&mut self, list: u32, commands: &[Command], len: usize) {
        self.bytes += len;
        if self.bytes <= BYTES {
            // A long list comes in several messages.
            self.lists.entry(list).or_default().extend(commands.iter().cloned());
        }
    }

    /// Strikes a list.
    pub fn remove_list(&mut self, id: u32) {
        self.lists.remove(&id);
    }

    /// Enters a program.
    pub fn add_program(&mut self, id: u32, pieces: &[Bytes]) {
        self.programs.insert(id, pieces.to_vec());
    }

    /// Strikes a program.
    pub fn remove_program(&mut self, id: u32) {
        self.programs.remove(&id);
    }

    /// A command in words, with labels in the place of handles.
    fn command(&self, command: &Command) -> String {
        match &command.work {
            Some(Work::Dispatch(d)) => {
                let kernel = self.kernel(d.kernel).map_or("?", |k| &k.name);
                let label = |id: u32| self.buffers.get(&id).map_or("?", |buffer| buffer.label.as_str());
                let buffers: Vec<&str> = d.bindings.iter().map(|b| label(b.buffer)).collect();
                format!("`{}` by kernel `{kernel}` on [{}]", d.label, buffers.join(", "))
            }
            Some(Work::Copy(c)) => format!("copy from {} to {}", self.buffer(c.src), self.buffer(c.dst)),
            Some(Work::Fill(f)) => format!("fill {}", self.buffer(f.buffer)),
            None => "nothing".into(),
        }
    }

    /// A run of a list in words, with its first commands.
    fn replay(&self, list: u32, turns: &[Vec<Symbol>], turn: u64) -> String {
        let of = match (turns.len(), turn) {
            (0 | 1, _) => String::new(),
            (count, 0) => format!(" ({count} turns)"),
            (count, at) => format!(" (turn {at} of {count})"),
        };
        // Without a known turn, the symbols of the first one are told.
        let values = symbols(turns.get(turn.max(1) as usize - 1).map_or(&[], Vec::as_slice));
        let commands = self.commands(list);
        // What was not remembered must not be told as an empty list.
        if commands.is_empty() && !self.complete {
            return format!("replay list {list}{values}{of}");
        }
        let told: Vec<String> = commands.iter().take(MEMBERS).map(|c| self.command(c)).collect();
        let more = if commands.len() > MEMBERS { ", …" } else { "" };
        let count = commands.len();
        format!("replay list {list}{values}{of} of {count} commands: {}{more}", told.join(", "))
    }
}

impl Note {
    /// The request in words. `turn` is that of several turns which runs, from 1 on; 0 if none does or it is not known.
    pub fn describe(&self, names: &Names, turn: u64) -> String {
        match self {
            Note::Text(text) => text.clone(),
            Note::Kernel { kernel, name } => format!("create kernel {kernel} `{name}`"),
            Note::Program { program, symbols: values } => format!("run program {program}{}", symbols(values)),
            Note::Replay { list, steps: turns } => names.replay(*list, turns, turn),
        }
    }
}

/// Values of symbols, with a word in front if there are any.
fn symbols(symbols: &[Symbol]) -> String {
    let pairs: Vec<String> = symbols.iter().map(|s| format!("{} = {}", s.name, s.value)).collect();
    if pairs.is_empty() { String::new() } else { format!(" with {}", pairs.join(", ")) }
}
