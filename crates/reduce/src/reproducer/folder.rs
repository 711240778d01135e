//! Writing a reproducer's folder.
//!
//! The folder is made beside its place and moved there when it is whole.

use super::{Reproducer, page};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tapml_files::NewFolder;
use tapml_graph::{Error, Result};

/// The file by which a folder is known to be a reproducer.
pub const MARKER: &str = "case.json";

/// The program that runs it natively.
const RUNNER: &str = include_str!("runner/main.rs");
/// The manifest of that program.
const MANIFEST: &str = include_str!("runner/manifest.toml");

///
/// # Errors
///
/// A folder that is there and is no reproducer or may not be overwritten, and what the file system says.
pub fn write(reproducer: &Reproducer, folder: &Path, overwrite: bool) -> Result<()> {
    let own = [
        (MARKER.to_string(), reproducer.json()?.into_bytes()),
        ("README.md".into(), reproducer.readme.clone().into_bytes()),
        ("index.html".into(), page::page(reproducer)?.into_bytes()),
        ("Cargo.toml".into(), MANIFEST.into()),
        ("src/main.rs".into(), RUNNER.into()),
    ];
    let data = reproducer.files.iter().map(|(name, bytes)| (name.clone(), bytes.clone()));
    write_files(&own.into_iter().chain(data).collect(), folder, overwrite)
}

/// Writes files by their path in the folder, one of which is the marker.
///
/// # Errors
///
/// As `write`.
pub fn write_files(files: &BTreeMap<String, Vec<u8>>, folder: &Path, overwrite: bool) -> Result<()> {
    let new = NewFolder::create(folder, MARKER, overwrite)?;
    for (name, bytes) in files {
        let path = new.folder().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, &e))?;
        }
        fs::write(&path, bytes).map_err(|e| Error::io("write", &path, &e))?;
    }
    new.publish()
}
