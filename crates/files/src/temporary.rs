//! A folder for the time of a process.
//!
//! The folder holds a lock and, beside it, the content. A sweep of later processes removes folders whose
//! lock is free.

use crate::is_unique;
use crate::leftover::{Leftover, remove};
use crate::lock::Lock;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tapml_graph::{Error, Result};

const LOCK: &str = "lock";
const CONTENT: &str = "content";

/// A new folder among the system's temporary files, removed when this is dropped. Those of the same prefix whose processes
/// were killed are removed when one is made.
#[derive(Debug)]
pub struct Temporary {
    /// Apart from the lock file, so that callers may empty it.
    content: PathBuf,
    /// Declared before the lock: fields are dropped in this order, and the lock must go last.
    _folder: Leftover,
    _lock: Lock,
}

impl Temporary {
    /// Makes a folder whose name begins with `prefix`, which no other kind of folder shares.
    pub fn new(prefix: &str) -> Result<Temporary> {
        Temporary::new_in(&std::env::temp_dir(), prefix)
    }

    /// As [`Temporary::new`], in this folder.
    pub fn new_in(parent: &Path, prefix: &str) -> Result<Temporary> {
        sweep(parent, prefix);
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder = parent.join(format!("{prefix}{}-{count}", std::process::id()));
            match private(&folder) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(|e| Error::io("create", &folder, &e))?,
            }
            let lock = Lock::take(&folder.join(LOCK));
            let guard = Leftover::new(folder.clone());
            // Another process may have seen the folder before it was locked, and removed it.
            let Ok(Some(lock)) = lock else {
                if folder.exists() {
                    lock?;
                }
                continue;
            };
            let content = folder.join(CONTENT);
            fs::create_dir(&content).map_err(|e| Error::io("create", &content, &e))?;
            return Ok(Temporary { content, _folder: guard, _lock: lock });
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.content
    }
}

/// Makes a folder that nobody but its owner reads.
fn private(path: &Path) -> std::io::Result<()> {
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Removes folders whose owners are gone. Those of other users cannot be locked.
/// Names alone do not decide: the lock does.
fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name.to_string_lossy().strip_prefix(prefix).is_some_and(is_unique);
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if let Ok(Some(lock)) = Lock::take(&entry.path().join(LOCK)) {
            remove(&entry.path());
            drop(lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_killed_processes_go_and_live_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let live = Temporary::new_in(dir.path(), "blobs-").unwrap();
        fs::write(live.path().join("a"), "1").unwrap();
        let dead = dir.path().join("blobs-1-7");
        fs::create_dir_all(dead.join(CONTENT)).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let foreign = ["other-1-7", "blobs-mine"].map(|name| dir.path().join(name));
        foreign.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let second = Temporary::new_in(dir.path(), "blobs-").unwrap();
        assert!(!dead.exists() && foreign.iter().all(|f| f.exists()) && live.path().join("a").exists());
        drop((live, second));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
