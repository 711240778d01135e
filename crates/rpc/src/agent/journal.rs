//! What an agent remembers of a session, for its post-mortem: the last requests, and the kernels, lists and buffers they
//! name.

use super::worker::End;
use crate::recorder::Doing;
use crate::wire::{self, MEMBERS, Names, Note, Reason, Request, Work};
use std::collections::VecDeque;
use std::time::Duration;
use tapml_kernels::{Program, ProgramStep};

/// Finished requests remembered.
const RECENT: usize = 32;

/// Requests told in a post-mortem.
const MAX_REPORTED: usize = 48;

/// See the module.
pub struct Journal {
    recent: VecDeque<Entry>,
    done: u64,
    /// Bytes and number of messages under way.
    pub under_way: (u64, usize),
    names: Names,
}

struct Entry {
    seq: u64,
    len: usize,
    note: Note,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal { recent: VecDeque::new(), done: 0, under_way: (0, 0), names: Names::of_session() }
    }
}

/// Finds a program by the hashes of its pieces.
pub type Find<'a> = dyn Fn(&[bytes::Bytes]) -> Option<Program> + 'a;

impl Journal {
    /// Notes a request whose message has `len` bytes.
    pub fn note(&mut self, seq: u64, len: usize, request: &Request) {
        // Before the names are changed: a request that frees something still has a name for it.
        let note = request.note(&self.names);
        request.remember(&mut self.names, len);
        self.under_way.0 += len as u64;
        self.under_way.1 += 1;
        self.recent.push_back(Entry { seq, len, note });
    }

    /// Notes that everything up to a request is finished.
    pub fn finish(&mut self, seq: u64) {
        for entry in self.recent.iter().filter(|entry| entry.seq > self.done && entry.seq <= seq) {
            self.under_way.0 -= entry.len as u64;
            self.under_way.1 -= 1;
        }
        self.done = self.done.max(seq);
        while self.recent.len() > RECENT && self.recent.front().is_some_and(|entry| entry.seq <= self.done) {
            self.recent.pop_front();
        }
    }

    /// The last request that is finished.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The kernels of a request: of the command that runs, if that is known.
    fn kernels(&self, note: &Note, doing: Doing, output: &str, find: &Find<'_>) -> Vec<wire::KernelRef> {
        let one = |id: u32, label: &str| {
            let kernel = self.names.kernel(id)?;
            Some(wire::KernelRef {
                name: kernel.name.clone(),
                file: kernel.file.clone(),
                line: line_of(&kernel.file, output),
                label: label.into(),
                text: kernel.text.clone(),
            })
        };
        let list = match note {
            Note::Replay { list, .. } => *list,
            Note::Kernel { kernel, .. } => return one(*kernel, "").into_iter().collect(),
            Note::Program { program, .. } => {
                let program = self.names.program(*program).and_then(find);
                return program.map_or_else(Vec::new, |program| of_program(&program, doing, output));
            }
            Note::Text(_) => return Vec::new(),
        };
        let dispatch = |command: &wire::Command| match &command.work {
            Some(Work::Dispatch(d)) => one(d.kernel, &d.label),
            _ => None,
        };
        running_part(self.names.commands(list), doing).iter().filter_map(dispatch).take(MEMBERS).collect()
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
        let running = self.recent.iter().find(|entry| entry.seq == doing.request && doing.request > 0);
        let kernels = running.map_or_else(Vec::new, |e| self.kernels(&e.note, doing, &end.output, find));
        let running = running.map_or_else(String::new, |e| e.note.describe(&self.names, doing.turn));
        // Requests behind the one that runs had no part in it.
        let until = self.recent.iter().filter(|e| doing.request == 0 || e.seq <= doing.request);
        let entries: Vec<&Entry> = until.collect();
        let told = &entries[entries.len().saturating_sub(MAX_REPORTED)..];
        let told = told.iter().map(|e| format!("{}: {}", e.seq, e.note.describe(&self.names, 0)));
        wire::PostMortem {
            reason: reason.into(),
            summary: summary(reason, &end, busy, &running, &kernels),
            exit_code: end.code,
            signal: end.signal,
            request: doing.request,
            running,
            kernels,
            recent: told.collect(),
            output: end.output,
            memory: self.names.memory(),
            busy_ms: busy.as_millis() as u64,
        }
    }
}

/// Of the parts of a list the one that runs, if that is known; else all.
fn running_part<T>(all: &[T], doing: Doing) -> &[T] {
    let one = doing.command.checked_sub(1).and_then(|at| all.get(at as usize..=at as usize));
    one.unwrap_or(all)
}

/// The kernels of a program: of the step that runs, if that is known.
fn of_program(program: &Program, doing: Doing, output: &str) -> Vec<wire::KernelRef> {
    let dispatch = |step: &ProgramStep| {
        let ProgramStep::Dispatch { node, kernel, .. } = step else { return None };
        let kernel = program.kernels.get(*kernel as usize)?;
        Some(wire::KernelRef {
            name: kernel.name.clone(),
            file: kernel.source.file.clone(),
            line: line_of(&kernel.source.file, output),
            label: node.clone(),
            text: kernel.source.text.clone(),
        })
    };
    running_part(&program.steps, doing).iter().filter_map(dispatch).take(MEMBERS).collect()
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
