//! A lock that shows whether its owner lives: the operating system releases it with the process.
//!
//! The lock is on an open file (`flock` on Unix), not on its existence. So a killed process leaves a file,
//! but no lock. The file is removed with the lock to leave nothing behind, which is why a taken lock is
//! checked against the file's name.

use crate::leftover::Leftover;
use crate::parent;
use std::fs::{File, TryLockError};
use std::path::Path;
use tapml_graph::{Error, Result};

/// A locked file, removed when this is dropped.
#[derive(Debug)]
pub struct Lock {
    // Removed before it is unlocked: whoever gets the lock of a file without a name sees that it has none.
    _path: Leftover,
    /// Closing it releases the lock.
    _file: File,
}

impl Lock {
    /// Makes this process the only writer of the file or folder `target`, by a hidden file beside it. Fails if another process
    /// is its writer.
    pub fn writer(target: &Path) -> Result<Lock> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let lock = Lock::take(&parent(target).join(format!(".{name}.lock")));
        // Nobody asked for the hidden file.
        let lock = lock.map_err(|e| e.context(format!("to write {}", target.display())))?;
        lock.ok_or_else(|| {
            Error::invalid(format!("another process is writing {}", target.display()))
                .with_hint("wait for it, or choose another name")
        })
    }

    /// Takes the lock at `path`, made if there is none; `None` if somebody else holds it.
    ///
    /// # Errors
    /// If the file cannot be made or the file system has no locks.
    pub fn take(path: &Path) -> Result<Option<Lock>> {
        // Each turn opens the file anew: the one before had lost its name.
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(path);
            let file = file.map_err(|e| Error::io("create", path, &e))?;
            match try_lock(&file, path)? {
                Taken::Held => return Ok(None),
                // Its last owner removed it while this one waited for it.
                Taken::Removed => {}
                Taken::Ours => {
                    return Ok(Some(Lock { _path: Leftover::new(path.to_path_buf()), _file: file }));
                }
            }
        }
    }
}

/// Whose a lock is.
pub(crate) enum Taken {
    Ours,
    Held,
    /// The file has lost its name, or another file has it.
    Removed,
}

/// Locks an open file, which `path` named when it was opened.
pub(crate) fn try_lock(file: &File, path: &Path) -> Result<Taken> {
    match file.try_lock() {
        Ok(()) if is_named(file, path) => Ok(Taken::Ours),
        Ok(()) => Ok(Taken::Removed),
        Err(TryLockError::WouldBlock) => Ok(Taken::Held),
        Err(TryLockError::Error(e)) => {
            Err(Error::io("lock", path, &e).with_hint("choose a folder on a file system that has locks"))
        }
    }
}

/// Whether `path` names this very file: the same device and inode.
#[cfg(unix)]
fn is_named(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(own), Ok(named)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    (own.dev(), own.ino()) == (named.dev(), named.ino())
}

/// A file that is open keeps its name there.
#[cfg(not(unix))]
fn is_named(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let owners = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (owners, path) = (&owners, &path);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let Some(lock) = Lock::take(path).unwrap() else { continue };
                        assert_eq!(owners.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        owners.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(!path.exists());
        let held = Lock::take(&path).unwrap().unwrap();
        assert!(Lock::take(&path).unwrap().is_none());
        drop(held);
        // What a killed owner leaves is nobody's.
        std::fs::write(&path, "").unwrap();
        assert!(Lock::take(&path).unwrap().is_some());
    }
}
