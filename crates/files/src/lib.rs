//! Files and folders on disk: what is read is looked at first, what is written appears whole or not at all and has one
//! writer, and what a killed process left behind is cleared by the next one.
//!
//! Everything here holds for one machine: locks are advisory locks of the operating system, renames are
//! within one file system. What must survive a power failure is synced before it is renamed, and its folder
//! after.

mod folder;
mod leftover;
mod lock;
mod new_file;
mod read;
mod temporary;

pub use folder::NewFolder;
pub use leftover::abandon;
pub use lock::Lock;
pub use new_file::{NewFile, expect_writable, write};
pub use read::{expect_regular, open, read, read_text};
pub use temporary::Temporary;

use std::fs::File;
use std::path::{Path, PathBuf};
use tapml_graph::{Error, Result};

/// The folder that holds `path`.
///
/// `.` for a bare name, `/` for the root: a path that can be opened in any case.
pub fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if p.as_os_str().is_empty() => PathBuf::from("."),
        Some(p) => p.to_path_buf(),
        None => PathBuf::from("/"),
    }
}

/// Whether this is what tells names of unfinished things apart: the number of a process and a count.
///
/// Only names of this form are swept, so that a user's file with a similar name is safe.
fn is_unique(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.split_once('-').is_some_and(|(process, count)| number(process) && number(count))
}

/// Makes renames and new names within the folder durable. Does nothing where folders cannot be opened as files.
///
/// # Errors
/// If the folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> Result<()> {
    // Windows does not open folders as files.
    if !cfg!(unix) {
        return Ok(());
    }
    let folder = File::open(path).map_err(|e| Error::io("open", path, &e))?;
    folder.sync_all().map_err(|e| Error::io("sync", path, &e))
}
