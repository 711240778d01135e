//! A folder that appears at its final name complete or not at all: written beside it, then renamed.
//!
//! The steps are: lock, clear what a killed writer left, write into `.NAME.partial`, sync, rename. An old
//! folder steps aside as `.NAME.old` between the two renames. Whoever is killed in between leaves a state
//! that the next writer repairs.

use crate::leftover::{Leftover, remove};
use crate::lock::Lock;
use crate::{parent, sync_folder};
use std::fs;
use std::path::{Path, PathBuf};
use tapml_graph::{Error, Result};

/// A folder in the making, a hidden sibling of the final one. While it lives, nobody else writes a folder of that name.
/// Dropped without [`NewFolder::publish`], it is removed.
#[derive(Debug)]
pub struct NewFolder {
    /// `.NAME.partial`, removed unless it is published.
    partial: Leftover,
    /// The final name.
    target: PathBuf,
    /// `.NAME.old`: where the old folder waits while the new one takes its name.
    old: PathBuf,
    /// A file that shows what sort of folder it is.
    marker: String,
    /// Whether an existing folder of the sort may be replaced.
    overwrite: bool,
    // The last to go: whoever has it may clear the others.
    lock: Lock,
}

impl NewFolder {
    /// Prepares to write `target`. `marker` is a file that every folder of this sort holds: an existing folder without
    /// it is never replaced, one with it only if `overwrite`. Leftovers of killed writers are removed. Fails if another
    /// process is writing a folder of this name.
    pub fn create(target: &Path, marker: &str, overwrite: bool) -> Result<NewFolder> {
        let name = target.file_name().and_then(|n| n.to_str());
        let name =
            name.ok_or_else(|| Error::invalid(format!("{} is no name for a folder", target.display())))?;
        let parent = parent(target);
        fs::create_dir_all(&parent).map_err(|e| Error::io("create", &parent, &e))?;
        let sibling = |ending: &str| parent.join(format!(".{name}.{ending}"));
        // Before anything is cleared: what looks left over may be another writer's.
        let lock = Lock::writer(target)?;
        let (partial, old) = (sibling("partial"), sibling("old"));
        recover(target, &old, &partial)?;
        refuse_existing(target, marker, overwrite)?;
        fs::create_dir(&partial).map_err(|e| Error::io("create", &partial, &e))?;
        let partial = Leftover::new(partial);
        Ok(NewFolder { partial, target: target.to_path_buf(), old, marker: marker.into(), overwrite, lock })
    }

    /// The folder to write into.
    pub fn folder(&self) -> &Path {
        self.partial.path()
    }

    /// The final name.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the folder its final name. The caller has synced the files. Fails if something else has taken the name
    /// meanwhile.
    ///
    /// # Errors
    /// If the name has been taken or a rename fails; an old folder is then back in its place.
    pub fn publish(self) -> Result<()> {
        let NewFolder { lock: _lock, partial, target, old, marker, overwrite } = self;
        sync_folder(partial.path())?;
        // A second time: the lock keeps other writers of this program away, not people.
        refuse_existing(&target, &marker, overwrite)?;
        partial.publish(|partial| {
            let replaces = overwrite && target.exists();
            if replaces {
                fs::rename(&target, &old).map_err(|e| Error::io("rename", &target, &e))?;
            }
            // Fails where a folder that holds anything has the name.
            fs::rename(partial, &target).map_err(|error| {
                if replaces {
                    let _ = fs::rename(&old, &target);
                }
                Error::io("rename", partial, &error)
            })
        })?;
        sync_folder(&parent(&target))?;
        // Last: a failure here leaves the new folder in place.
        if old.exists() {
            fs::remove_dir_all(&old).map_err(|e| Error::io("remove", &old, &e))?;
        }
        Ok(())
    }
}

/// Fails unless the name is free, or holds an empty folder or one of the sort that may be replaced.
fn refuse_existing(target: &Path, marker: &str, overwrite: bool) -> Result<()> {
    if fs::symlink_metadata(target).is_err() {
        return Ok(());
    }
    // An empty folder holds nothing that could be lost; `rename` replaces it.
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

/// Removes what a killed writer left, and restores the old folder if it was killed between two renames.
fn recover(target: &Path, old: &Path, partial: &Path) -> Result<()> {
    if old.exists() {
        let done = if target.exists() { fs::remove_dir_all(old) } else { fs::rename(old, target) };
        done.map_err(|e| Error::io("clear", old, &e))?;
    }
    remove(partial);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(new: &NewFolder, text: &str) {
        fs::write(new.folder().join("marker"), text).unwrap();
    }

    fn create(target: &Path, overwrite: bool) -> Result<NewFolder> {
        NewFolder::create(target, "marker", overwrite)
    }

    #[test]
    fn appears_complete_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a").join("suite");
        let entries = || fs::read_dir(target.parent().unwrap()).unwrap().count();
        let new = create(&target, false).unwrap();
        write(&new, "1");
        assert!(!target.exists());
        drop(new);
        assert_eq!(entries(), 0);

        let new = create(&target, false).unwrap();
        write(&new, "1");
        new.publish().unwrap();
        assert!(create(&target, false).unwrap_err().to_string().contains("exists already"));
        let new = create(&target, true).unwrap();
        write(&new, "2");
        new.publish().unwrap();
        assert_eq!(fs::read_to_string(target.join("marker")).unwrap(), "2");
        assert_eq!(entries(), 1);
    }

    #[test]
    fn a_foreign_folder_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("home");
        let late = [create(&target, true).unwrap()];
        write(&late[0], "1");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("thesis"), "x").unwrap();
        for new in late {
            assert!(new.publish().unwrap_err().to_string().contains("holds no `marker`"));
        }
        let error = create(&target, true).unwrap_err();
        assert!(error.to_string().contains("holds no `marker`"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(target.join("thesis").exists());
    }

    #[test]
    fn a_name_has_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("suite");
        let first = create(&target, true).unwrap();
        let error = create(&target, true).unwrap_err();
        assert!(error.to_string().contains("another process is writing"), "{error}");
        write(&first, "1");
        first.publish().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn leftovers_of_killed_writers_go() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("suite");
        for (folder, text) in [(".suite.partial", "torn"), (".suite.old", "kept")] {
            fs::create_dir(dir.path().join(folder)).unwrap();
            fs::write(dir.path().join(folder).join("marker"), text).unwrap();
        }
        fs::write(dir.path().join(".suite.lock"), "").unwrap();
        let new = create(&target, true).unwrap();
        assert!(!new.folder().join("marker").exists());
        assert_eq!(fs::read_to_string(target.join("marker")).unwrap(), "kept", "the old suite is back");
        drop(new);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
