//! A folder that appears at its final name complete or not at all: written beside it, then renamed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tapml_graph::{Error, Result};

const LOCK: &str = "writing.lock";

/// A hidden sibling of the final folder. Dropped without [`Staging::publish`], it is removed.
#[derive(Debug)]
pub struct Staging {
    folder: PathBuf,
    target: PathBuf,
    lock: Option<File>,
}

impl Staging {
    /// Prepares to write `target`. `marker` is a file that every folder of this sort holds: an existing folder without
    /// it is never replaced, one with it only if `overwrite`. Leftovers of killed writers are removed.
    pub fn new(target: &Path, marker: &str, overwrite: bool) -> Result<Staging> {
        let name = target.file_name().and_then(|n| n.to_str());
        let name =
            name.ok_or_else(|| Error::invalid(format!("{} is no name for a folder", target.display())))?;
        let parent = parent(target);
        fs::create_dir_all(&parent).map_err(|e| Error::io("create", &parent, &e))?;
        sweep(&parent, name, target);
        refuse_existing(target, marker, overwrite)?;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = parent.join(format!(".{name}.partial-{unique}"));
        fs::create_dir(&folder).map_err(|e| Error::io("create", &folder, &e))?;
        let mut staging = Staging { folder, target: target.to_path_buf(), lock: None };
        let path = staging.folder.join(LOCK);
        let lock = File::create(&path).map_err(|e| Error::io("create", &path, &e))?;
        lock.lock().map_err(|e| Error::io("lock", &path, &e))?;
        staging.lock = Some(lock);
        Ok(staging)
    }

    /// The folder to write into.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The final name.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the folder its final name. The caller has synced the files.
    pub fn publish(mut self) -> Result<()> {
        let lock = self.folder.join(LOCK);
        fs::remove_file(&lock).map_err(|e| Error::io("remove", &lock, &e))?;
        self.lock = None;
        sync_folder(&self.folder)?;
        let old = self.folder.with_extension("old");
        let replaces = self.target.exists();
        if replaces {
            fs::rename(&self.target, &old).map_err(|e| Error::io("rename", &self.target, &e))?;
        }
        if let Err(error) = fs::rename(&self.folder, &self.target) {
            if replaces {
                let _ = fs::rename(&old, &self.target);
            }
            return Err(Error::io("rename", &self.folder, &error));
        }
        sync_folder(&parent(&self.target))?;
        if replaces {
            fs::remove_dir_all(&old).map_err(|e| Error::io("remove", &old, &e))?;
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.lock = None;
        if self.folder.exists() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The folder that holds `path`.
pub fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if p.as_os_str().is_empty() => PathBuf::from("."),
        Some(p) => p.to_path_buf(),
        None => PathBuf::from("/"),
    }
}

/// Makes renames and new names within the folder durable. Does nothing where folders cannot be opened as files.
pub fn sync_folder(path: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let folder = File::open(path).map_err(|e| Error::io("open", path, &e))?;
    folder.sync_all().map_err(|e| Error::io("sync", path, &e))
}

fn refuse_existing(target: &Path, marker: &str, overwrite: bool) -> Result<()> {
    if !target.exists() {
        return Ok(());
    }
    let empty = fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
    let ours = target.join(marker).is_file();
    match (overwrite, ours || empty) {
        (true, true) => Ok(()),
        (false, true) if empty => Ok(()),
        (false, _) => Err(Error::invalid(format!("{} exists already", target.display()))
            .with_hint("choose another name, or ask to overwrite it")),
        (true, false) => Err(Error::invalid(format!(
            "{} exists and holds no `{marker}`, so it is not replaced",
            target.display()
        ))
        .with_hint("choose another name")),
    }
}

/// Removes what killed writers of `name` left, and restores the old folder if one was killed between two renames.
fn sweep(parent: &Path, name: &str, target: &Path) {
    let prefix = format!(".{name}.partial-");
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|e| e.file_name().to_string_lossy().starts_with(&prefix)) {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "old") {
            let _ = if target.exists() { fs::remove_dir_all(&path) } else { fs::rename(&path, target) };
        } else if unlocked(&path.join(LOCK)) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether the writer that made this lock is gone.
fn unlocked(lock: &Path) -> bool {
    File::open(lock).is_ok_and(|f| f.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(staging: &Staging, text: &str) {
        fs::write(staging.folder().join("marker"), text).unwrap();
    }

    #[test]
    fn appears_complete_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a").join("suite");
        let staging = Staging::new(&target, "marker", false).unwrap();
        write(&staging, "1");
        assert!(!target.exists());
        drop(staging);
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 0);

        let staging = Staging::new(&target, "marker", false).unwrap();
        write(&staging, "1");
        staging.publish().unwrap();
        assert!(Staging::new(&target, "marker", false).unwrap_err().to_string().contains("exists already"));
        let staging = Staging::new(&target, "marker", true).unwrap();
        write(&staging, "2");
        staging.publish().unwrap();
        assert_eq!(fs::read_to_string(target.join("marker")).unwrap(), "2");
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_foreign_folder_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("home");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("thesis"), "x").unwrap();
        let error = Staging::new(&target, "marker", true).unwrap_err();
        assert!(error.to_string().contains("holds no `marker`"), "{error}");
        assert!(target.join("thesis").exists());
    }

    #[test]
    fn leftovers_of_killed_writers_go_and_live_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("suite");
        let dead = dir.path().join(".suite.partial-1-0");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let old = dir.path().join(".suite.partial-1-1.old");
        fs::create_dir(&old).unwrap();
        fs::write(old.join("marker"), "kept").unwrap();
        let live = Staging::new(&target, "marker", true).unwrap();
        assert!(!dead.exists());
        assert_eq!(fs::read_to_string(target.join("marker")).unwrap(), "kept", "the old suite is back");
        let second = Staging::new(&target, "marker", true).unwrap();
        assert!(live.folder().exists() && second.folder().exists());
    }
}
