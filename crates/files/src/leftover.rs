//! What must not stay on disk when its owner ends, whether by returning or because the process is about to end.
//!
//! One list for the process, guarded by one lock. It is held while a path is removed or renamed, so that
//! [`abandon`] never sees a path halfway.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Paths of all owners that live, in the order in which they were made.
static ALL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file or a folder that is removed when this is dropped, and by [`abandon`].
#[derive(Debug)]
pub(crate) struct Leftover(PathBuf);

impl Leftover {
    /// Notes the path, which need not exist yet.
    pub(crate) fn new(path: PathBuf) -> Leftover {
        all().push(path.clone());
        Leftover(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Lets `rename` give the path its final name; [`abandon`] waits meanwhile. If it fails, the path is removed.
    ///
    /// # Errors
    /// The result is that of `rename`.
    pub(crate) fn publish<T>(self, rename: impl FnOnce(&Path) -> T) -> T {
        // The lock must go before `self` is dropped, which takes it again.
        let waiting = all();
        let done = rename(&self.0);
        drop(waiting);
        done
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let mut all = all();
        remove(&self.0);
        all.retain(|path| *path != self.0);
    }
}

/// Removes what unfinished writers of this process have on disk. To be called when the process is about to end in the middle
/// of work: these writers fail if they go on.
pub fn abandon() {
    // The newest first: a folder goes before the lock that says whose it is. Another thread may still write into it.
    for path in all().iter().rev() {
        // A folder that is still written to may fill again while it is removed.
        for _ in 0..20 {
            if remove(path) || !path.exists() {
                break;
            }
        }
    }
}

/// The list; a panic elsewhere leaves it usable.
fn all() -> MutexGuard<'static, Vec<PathBuf>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a file or a folder; gives whether it is gone. A link is removed, not what it points to.
pub(crate) fn remove(path: &Path) -> bool {
    let folder = fs::symlink_metadata(path).is_ok_and(|data| data.is_dir());
    let removed = if folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.is_ok()
}
