//! A flight recorder: a small file in which a session's process notes what it is doing, so that the agent knows when the
//! process cannot tell any more.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The process's end, held by all who do something.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    file: Option<File>,
    /// What the file says.
    doing: Doing,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doing {
    /// The request that runs; 0 if none does.
    pub request: u64,
    /// The command of the list that runs, from 1; 0 if that is not known.
    pub command: u64,
    /// The turn that the request is at, from 1; 0 if it has none.
    pub turn: u64,
}

impl Recorder {
    /// Opens the file; notes go nowhere if that fails.
    pub fn open(path: &Path) -> Recorder {
        let file = File::options().write(true).open(path).ok();
        Recorder(Arc::new(Mutex::new(Said { file, doing: Doing::default() })))
    }

    /// Notes which request runs from here on; 0 for none.
    pub fn request(&self, request: u64) {
        self.recorded_words().note(Doing { request, ..Doing::default() });
    }

    /// Notes which turn of the request is set going.
    pub fn turn(&self, turn: u64) {
        let mut said = self.recorded_words();
        let doing = Doing { turn, ..said.doing };
        said.note(doing);
    }

    /// Notes which command of the request's list runs from here on.
    pub fn command(&self, command: u64) {
        let mut said = self.recorded_words();
        let doing = Doing { command, ..said.doing };
        said.note(doing);
    }

    fn recorded_words(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    fn note(&mut self, doing: Doing) {
        let Some(file) = self.file.as_mut().filter(|_| self.doing != doing) else { return };
        self.doing = doing;
        let bytes = [doing.request, doing.command, doing.turn].map(u64::to_le_bytes).concat();
        // A lost note costs detail in a post-mortem, nothing else.
        let _ = put(file, &bytes);
    }
}

/// Writes at the file's start, by one call to the system.
#[cfg(unix)]
fn put(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, 0)
}

/// Writes at the file's start.
#[cfg(not(unix))]
fn put(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(bytes))
}

/// Reads what the process noted last.
pub fn last(path: &Path) -> io::Result<Doing> {
    let bytes = std::fs::read(path)?;
    let word =
        |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    Ok(Doing { request: word(0), command: word(8), turn: word(16) })
}
