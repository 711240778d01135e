//! Writing a reproducer's folder.
//!
//! The folder is made beside its place and moved there when it is whole.

use super::contents::Files;
use std::fs;
use std::path::Path;
use tapml_files::NewFolder;
use tapml_graph::{Error, Result};

/// The file by which a folder is known to be a reproducer.
pub const MARKER: &str = "case.json";

/// Writes files by their path in the folder, one of which is the marker.
///
/// # Errors
///
/// As `write`.
pub fn write_files(files: &Files, folder: &Path, overwrite: bool) -> Result<()> {
    let new = NewFolder::create(folder, MARKER, overwrite)?;
    // Files are written into a hidden folder that nobody asked for.
    let named = |e: Error| e.context(format!("to write {}", folder.display()));
    for (name, bytes) in files {
        let path = new.folder().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| named(Error::io("create", parent, &e)))?;
        }
        fs::write(&path, bytes).map_err(|e| named(Error::io("write", &path, &e)))?;
    }
    new.publish()
}
