//! A file that appears under its name whole or not at all: written beside it under a name of its own, then renamed.
//!
//! The unfinished file is `.NAME.PROCESS-COUNT.partial` beside the final one, locked by its writer. A sweep
//! removes those that nobody has locked.

use crate::leftover::{Leftover, remove};
use crate::lock::{Taken, try_lock};
use crate::{is_unique, parent, sync_folder};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tapml_graph::{Error, Result};

const ENDING: &str = ".partial";
/// Bytes of the final name that the name of the unfinished file begins with, so that both are short enough.
///
/// File systems allow 255 bytes for a name.
const NAME_BYTES: usize = 180;

/// A file in the making. Dropped before [`NewFile::finish`], it leaves nothing behind. What writers that were killed left of a
/// file of the same name is removed.
#[derive(Debug)]
pub struct NewFile {
    /// The final name, links resolved.
    path: PathBuf,
    file: File,
    /// Absent where something else than a regular file has the name, such as a pipe: that is written through.
    partial: Option<Leftover>,
}

impl NewFile {
    /// Begins the file `path`, whose folder must exist. A file of that name stays as it is until the new one is finished.
    ///
    /// # Errors
    /// If the folder is missing, cannot be written, or `path` names a folder.
    pub fn create(path: &Path) -> Result<NewFile> {
        // A link stays, and what it points to is replaced.
        let linked = fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink());
        let real = if linked { fs::canonicalize(path).ok() } else { None };
        let path = real.as_deref().unwrap_or(path);
        if fs::metadata(path).is_ok_and(|data| !data.is_file()) {
            let file = File::options().write(true).open(path).map_err(|e| Error::io("write", path, &e))?;
            return Ok(NewFile { path: path.to_path_buf(), file, partial: None });
        }
        let name = path
            .file_name()
            .ok_or_else(|| Error::invalid(format!("{} is no name for a file", path.display())))?;
        let name = name.to_string_lossy();
        let end = (0..=NAME_BYTES.min(name.len())).rev().find(|&at| name.is_char_boundary(at));
        let stem = format!(".{}.", &name[..end.unwrap_or(0)]);
        let folder = parent(path);
        sweep(&folder, &stem);
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // A process number may have been used before, so a name may be taken.
        loop {
            let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let partial = folder.join(format!("{stem}{unique}{ENDING}"));
            let file = match File::create_new(&partial) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file.map_err(|e| Error::io("write", path, &e))?,
            };
            let partial = Leftover::new(partial);
            // A sweep may have come between. Where there are no locks there are no sweeps.
            if matches!(try_lock(&file, partial.path()), Ok(Taken::Ours) | Err(_)) {
                return Ok(NewFile { path: path.to_path_buf(), file, partial: Some(partial) });
            }
        }
    }

    /// Makes the file durable and gives it its name, in place of a file that has it.
    ///
    /// # Errors
    /// If syncing or renaming fails; the old file is then untouched.
    pub fn finish(self) -> Result<()> {
        let NewFile { path, file, partial } = self;
        let Some(partial) = partial else { return Ok(()) };
        let failed = |e: io::Error| Error::io("write", &path, &e);
        // Before the rename: else a power failure may leave the new name with no content.
        file.sync_all().map_err(failed)?;
        partial.publish(|partial| fs::rename(partial, &path)).map_err(failed)?;
        sync_folder(&parent(&path))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file whole or not at all. What is no regular file, such as a pipe or a device, is written through.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(path)?;
    file.write_all(bytes).map_err(|e| {
        Error::io("write", path, &e).with_hint("free some space; what was written before is intact")
    })?;
    file.finish()
}

/// Fails early if a file that is written after long work could not be written.
///
/// Nothing is left behind by the check.
pub fn expect_writable(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(data) if data.is_dir() => {
            Err(Error::invalid(format!("{}: expected a file, found a folder", path.display()))
                .with_hint("name a file"))
        }
        Ok(data) if !data.is_file() => Ok(()),
        _ => NewFile::create(path).map(drop),
    }
}

/// Removes what killed writers left. A file that its writer holds is locked.
fn sweep(folder: &Path, stem: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let unique = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(ENDING));
        if !unique.is_some_and(is_unique) || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        // Someone else's file: it cannot be told whether its writer lives.
        let Ok(file) = File::open(&path) else { continue };
        if matches!(try_lock(&file, &path), Ok(Taken::Ours)) {
            remove(&path);
        }
        // Held until here: a writer that has just made the file sees that it is not its own.
        drop(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn writers_of_one_name_do_not_meet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        std::thread::scope(|scope| {
            for i in 0..4u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut file = NewFile::create(path).unwrap();
                        (0..16).for_each(|_| file.write_all(&[i; 1 << 12]).unwrap());
                        file.finish().unwrap();
                        let found = fs::read(path).unwrap();
                        assert_eq!(found.len(), 16 << 12);
                        assert!(found.iter().all(|b| *b == found[0]));
                    }
                });
            }
        });
        assert_eq!(names(folder.path()), ["report.json"]);
    }

    #[test]
    fn leftovers_of_killed_writers_go_and_live_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        for other in [".report.json.7-0.partial", ".report.json.mine.partial", ".other.7-0.partial"] {
            fs::write(folder.path().join(other), "x").unwrap();
        }
        let mut live = NewFile::create(&path).unwrap();
        live.write_all(b"live").unwrap();
        expect_writable(&path).unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        live.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"live");
        let mut left = names(folder.path());
        left.sort();
        assert_eq!(left, [".other.7-0.partial", ".report.json.mine.partial", "report.json"]);
    }

    #[test]
    fn a_folder_is_no_file_and_a_missing_folder_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(expect_writable(folder.path()).unwrap_err().to_string().contains("found a folder"));
        let error = expect_writable(&folder.path().join("a/b.json")).unwrap_err().to_string();
        assert!(error.contains("b.json: No such file"), "{error}");
        #[cfg(unix)]
        {
            let (link, file) = (folder.path().join("link"), folder.path().join("file"));
            write(&file, b"1").unwrap();
            std::os::unix::fs::symlink("file", &link).unwrap();
            write(&link, b"2").unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"2");
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
        let long = folder.path().join("ä".repeat(120));
        write(&long, b"1").unwrap();
        assert_eq!(fs::read(&long).unwrap(), b"1");
    }
}
