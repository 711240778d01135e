//! What an agent remembers of a session, for its post-mortem: the last requests, and the kernels, lists and buffers they
//! name.

use super::worker::End;
use crate::recorder::Doing;
use crate::wire::{self, Reason, Request, Work};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tapml_kernels::{Program, Step};

/// Finished requests remembered.
const RECENT: usize = 32;

/// Requests told in a post-mortem.
const TOLD: usize = 48;

/// Kernels, and commands of a list, told in a post-mortem.
const MEMBERS: usize = 32;

/// Bytes of kernels' texts and lists remembered.
const BYTES: usize = 64 << 20;

/// See the module.
#[derive(Default)]
pub struct Journal {
    recent: VecDeque<Note>,
    done: u64,
    /// Bytes and number of messages under way.
    pub under_way: (u64, usize),
    buffers: HashMap<u32, (String, u64)>,
    kernels: HashMap<u32, wire::CreateKernel>,
    lists: HashMap<u32, Vec<wire::Command>>,
    /// The hashes of each program's pieces.
    programs: HashMap<u32, Vec<bytes::Bytes>>,
    bytes: usize,
    memory: u64,
}

struct Note {
    seq: u64,
    len: usize,
    what: What,
}

enum What {
    Text(String),
    Kernel(u32),
    Record(u32),
    /// A list, and the symbols of each of its turns.
    Replay(u32, Vec<Vec<wire::Symbol>>),
    Program(u32, Vec<wire::Symbol>),
}

/// Finds a program by the hashes of its pieces.
pub type Find<'a> = dyn Fn(&[bytes::Bytes]) -> Option<Program> + 'a;

impl Journal {
    /// Notes a request whose message has `len` bytes.
    pub fn note(&mut self, seq: u64, len: usize, request: &Request) {
        let what = self.enter(request, len);
        self.under_way.0 += len as u64;
        self.under_way.1 += 1;
        self.recent.push_back(Note { seq, len, what });
    }

    /// Notes that everything up to a request is finished.
    pub fn finish(&mut self, seq: u64) {
        for note in self.recent.iter().filter(|n| n.seq > self.done && n.seq <= seq) {
            self.under_way.0 -= note.len as u64;
            self.under_way.1 -= 1;
        }
        self.done = self.done.max(seq);
        while self.recent.len() > RECENT && self.recent.front().is_some_and(|n| n.seq <= self.done) {
            self.recent.pop_front();
        }
    }

    /// The last request that is finished.
    pub fn done(&self) -> u64 {
        self.done
    }

    fn enter(&mut self, request: &Request, len: usize) -> What {
        match request {
            Request::CreateBuffer(r) => {
                self.memory = self.memory.saturating_add(r.size);
                self.buffers.insert(r.buffer, (r.label.clone(), r.size));
                What::Text(format!("create buffer {} `{}` of {} bytes", r.buffer, r.label, r.size))
            }
            Request::DestroyBuffer(r) => {
                let text = format!("destroy {}", self.buffer(r.buffer));
                let size = self.buffers.remove(&r.buffer).map_or(0, |(_, size)| size);
                self.memory = self.memory.saturating_sub(size);
                What::Text(text)
            }
            Request::Write(r) => What::Text(format!(
                "write {} bytes at {} of {}",
                r.data.len(),
                r.offset,
                self.buffer(r.buffer)
            )),
            Request::WriteBlob(r) => {
                What::Text(format!("write a blob at {} of {}", r.offset, self.buffer(r.buffer)))
            }
            Request::Read(r) => {
                What::Text(format!("read {} bytes at {} of {}", r.size, r.offset, self.buffer(r.buffer)))
            }
            Request::CreateKernel(r) => {
                self.bytes += len;
                let mut kept = r.clone();
                if self.bytes > BYTES {
                    (kept.prelude, kept.text) = (String::new(), String::new());
                }
                self.kernels.insert(r.kernel, kept);
                What::Kernel(r.kernel)
            }
            Request::Record(r) => {
                self.bytes += len;
                if self.bytes <= BYTES {
                    self.lists.entry(r.list).or_default().extend(r.commands.iter().cloned());
                }
                What::Record(r.list)
            }
            Request::Replay(r) => What::Replay(r.list, vec![r.symbols.clone()]),
            Request::Step(r) => What::Replay(r.list, vec![r.symbols.clone()]),
            Request::Turns(r) => {
                What::Replay(r.list, r.turns.iter().map(|turn| turn.symbols.clone()).collect())
            }
            Request::DestroyKernel(r) => What::Text(format!("destroy kernel {}", r.kernel)),
            Request::DestroyList(r) => {
                self.lists.remove(&r.list);
                What::Text(format!("destroy list {}", r.list))
            }
            Request::PutBlob(r) => What::Text(format!("keep a blob of {} bytes", r.data.len())),
            Request::LoadProgram(r) => {
                self.programs.insert(r.program, r.pieces.clone());
                What::Text(format!("load program {}", r.program))
            }
            Request::RunProgram(r) => What::Program(r.program, r.symbols.clone()),
            Request::UnloadProgram(r) => {
                self.programs.remove(&r.program);
                What::Text(format!("unload program {}", r.program))
            }
            Request::PutTensor(_) | Request::DropTensor(_) => What::Text("hold or free a tensor".into()),
            Request::CallNode(r) => What::Text(format!("node `{}`", r.node)),
            Request::CallGraph(r) => What::Text(format!("graph `{}`", r.name)),
            Request::Wait(_) => What::Text("wait".into()),
            Request::TakeFindings(_) => What::Text("take findings".into()),
            Request::HasBlobs(_) => What::Text("ask for blobs".into()),
            Request::Hello(_) => What::Text("open the device".into()),
            Request::Ping(_) | Request::Cancel(_) => What::Text("ping or cancel".into()),
        }
    }

    fn buffer(&self, id: u32) -> String {
        match self.buffers.get(&id) {
            Some((label, size)) => format!("buffer {id} `{label}` of {size} bytes"),
            None => format!("buffer {id}, which does not exist"),
        }
    }

    fn tell(&self, what: &What, turn: u64) -> String {
        match what {
            What::Text(text) => text.clone(),
            What::Kernel(id) => {
                format!("create kernel {id} `{}`", self.kernels.get(id).map_or("", |k| &k.name))
            }
            What::Record(id) => format!("record list {id}"),
            What::Program(id, values) => format!("run program {id}{}", symbols(values)),
            What::Replay(id, turns) => {
                let (at, count) = (turn.max(1), turns.len());
                let of = if count < 2 { String::new() } else { format!(" (turn {at} of {count})") };
                let values = turns.get(at as usize - 1).map_or(&[][..], Vec::as_slice);
                let commands = self.lists.get(id).map_or(&[][..], Vec::as_slice);
                let told: Vec<String> = commands.iter().take(MEMBERS).map(|c| self.command(c)).collect();
                let more = if commands.len() > MEMBERS { ", …" } else { "" };
                format!(
                    "replay list {id}{}{of} of {} commands: {}{more}",
                    symbols(values),
                    commands.len(),
                    told.join(", ")
                )
            }
        }
    }

    fn command(&self, command: &wire::Command) -> String {
        match &command.work {
            Some(Work::Dispatch(d)) => {
                let kernel = self.kernels.get(&d.kernel).map_or("?", |k| &k.name);
                let label = |b: &wire::Binding| self.buffers.get(&b.buffer).map_or("?", |(l, _)| l.as_str());
                let buffers: Vec<&str> = d.bindings.iter().map(label).collect();
                format!("`{}` by kernel `{kernel}` on [{}]", d.label, buffers.join(", "))
            }
            Some(Work::Copy(c)) => format!("copy from {} to {}", self.buffer(c.src), self.buffer(c.dst)),
            Some(Work::Fill(f)) => format!("fill {}", self.buffer(f.buffer)),
            None => "nothing".into(),
        }
    }

    /// The kernels of a request: of the command that runs, if that is known.
    fn kernels(&self, what: &What, doing: Doing, output: &str, find: &Find<'_>) -> Vec<wire::KernelRef> {
        let one = |id: u32, label: &str| {
            let kernel = self.kernels.get(&id)?;
            Some(wire::KernelRef {
                name: kernel.name.clone(),
                file: kernel.file.clone(),
                line: line_of(&kernel.file, output),
                label: label.into(),
                text: kernel.text.clone(),
            })
        };
        let list = match what {
            What::Replay(list, _) => list,
            What::Kernel(id) => return one(*id, "").into_iter().collect(),
            What::Program(id, _) => {
                let program = self.programs.get(id).and_then(|pieces| find(pieces));
                return program.map_or_else(Vec::new, |program| of_program(&program, doing, output));
            }
            What::Text(_) | What::Record(_) => return Vec::new(),
        };
        let commands = self.lists.get(list).map_or(&[][..], Vec::as_slice);
        let dispatch = |command: &wire::Command| match &command.work {
            Some(Work::Dispatch(d)) => one(d.kernel, &d.label),
            _ => None,
        };
        running(commands, doing).iter().filter_map(dispatch).take(MEMBERS).collect()
    }

    /// How the session ended.
    pub fn post_mortem(
        &self,
        reason: Reason,
        doing: Doing,
        end: End,
        busy: Duration,
        find: &Find<'_>,
    ) -> wire::PostMortem {
        let running = self.recent.iter().find(|n| n.seq == doing.request && doing.request > 0);
        let kernels = running.map_or_else(Vec::new, |n| self.kernels(&n.what, doing, &end.output, find));
        let running = running.map_or_else(String::new, |n| self.tell(&n.what, doing.turn));
        let until = self.recent.iter().filter(|n| doing.request == 0 || n.seq <= doing.request);
        let notes: Vec<&Note> = until.collect();
        let told = &notes[notes.len().saturating_sub(TOLD)..];
        wire::PostMortem {
            reason: reason.into(),
            summary: summary(reason, &end, busy, &running, &kernels),
            exit_code: end.code,
            signal: end.signal,
            request: doing.request,
            running,
            kernels,
            recent: told.iter().map(|n| format!("{}: {}", n.seq, self.tell(&n.what, 1))).collect(),
            output: end.output,
            memory: self.memory,
            busy_ms: busy.as_millis() as u64,
        }
    }
}

/// Of the parts of a list the one that runs, if that is known; else all.
fn running<T>(all: &[T], doing: Doing) -> &[T] {
    let one = doing.command.checked_sub(1).and_then(|at| all.get(at as usize..=at as usize));
    one.unwrap_or(all)
}

/// The kernels of a program: of the step that runs, if that is known.
fn of_program(program: &Program, doing: Doing, output: &str) -> Vec<wire::KernelRef> {
    let dispatch = |step: &Step| {
        let Step::Dispatch { node, kernel, .. } = step else { return None };
        let kernel = program.kernels.get(*kernel as usize)?;
        Some(wire::KernelRef {
            name: kernel.name.clone(),
            file: kernel.source.file.clone(),
            line: line_of(&kernel.source.file, output),
            label: node.clone(),
            text: kernel.source.text.clone(),
        })
    };
    running(&program.steps, doing).iter().filter_map(dispatch).take(MEMBERS).collect()
}

fn symbols(symbols: &[wire::Symbol]) -> String {
    let pairs: Vec<String> = symbols.iter().map(|s| format!("{} = {}", s.name, s.value)).collect();
    if pairs.is_empty() { String::new() } else { format!(" with {}", pairs.join(", ")) }
}

/// The last line of this file that the process named.
fn line_of(file: &str, output: &str) -> u32 {
    let digits = |at: usize| {
        let rest = output[at + file.len()..].strip_prefix(':')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    if file.is_empty() {
        return 0;
    }
    output.match_indices(file).filter_map(|(at, _)| digits(at)).last().unwrap_or(0)
}

fn summary(reason: Reason, end: &End, busy: Duration, running: &str, kernels: &[wire::KernelRef]) -> String {
    let how = match (reason, end.signal, end.code) {
        (Reason::Deadline, ..) => format!("did not finish within {:.1} s and was ended", busy.as_secs_f64()),
        (Reason::Cancelled, ..) => "was ended at the client's wish".into(),
        (Reason::Idle, ..) => "was ended because the client had sent nothing for long".into(),
        (Reason::Shutdown, ..) => "was ended because the agent stops".into(),
        (Reason::Protocol, ..) => "was ended because the client broke the protocol".into(),
        // What Rust and C++ print when an allocation fails.
        (_, 6, _) if ["memory allocation of", "std::bad_alloc"].iter().any(|w| end.output.contains(w)) => {
            "ran out of memory (signal 6, SIGABRT)".into()
        }
        (_, 9, _) => "was killed (signal 9): by hand, or because memory ran out".into(),
        (_, 0, Some(code)) => format!("ended with exit code {code}"),
        (_, 0, None) => "ended".into(),
        (_, signal, _) => format!("crashed (signal {signal}{})", name_of(signal)),
    };
    let what = match (running, kernels) {
        ("", _) => String::new(),
        (_, [kernel]) if !kernel.label.is_empty() => {
            format!(" while running `{}` with kernel `{}`", kernel.label, kernel.name)
        }
        (_, [kernel]) => format!(" while compiling kernel `{}`", kernel.name),
        (_, [first, .., last]) => {
            format!(" while running something from `{}` to `{}`", first.label, last.label)
        }
        (text, []) => format!(" while it was to {text}"),
    };
    format!("the device's process {how}{what}")
}

fn name_of(signal: u32) -> &'static str {
    match signal {
        4 => ", SIGILL",
        6 => ", SIGABRT",
        7 => ", SIGBUS",
        8 => ", SIGFPE",
        11 => ", SIGSEGV",
        15 => ", SIGTERM",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_what_a_process_printed() {
        assert_eq!(line_of("a.wgsl", "thread panicked at a.wgsl:7:3: x\nsee a.wgsl:12"), 12);
        assert_eq!(line_of("a.wgsl", "a.wgsl: no line"), 0);
        assert_eq!(line_of("", "anything:5"), 0);
    }

    #[test]
    fn what_is_under_way_is_counted_until_it_is_finished() {
        let mut journal = Journal::default();
        for seq in 1..=100 {
            journal.note(seq, 10, &Request::Wait(wire::Wait {}));
        }
        assert_eq!(journal.under_way, (1000, 100));
        journal.finish(90);
        journal.finish(90);
        journal.finish(40);
        assert_eq!((journal.under_way, journal.done(), journal.recent.len()), ((100, 10), 90, RECENT));
        journal.finish(200);
        assert_eq!((journal.under_way, journal.recent.len()), ((0, 0), RECENT));
    }
}
