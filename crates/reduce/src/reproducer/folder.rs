//! Writing a reproducer's folder.

use super::{Reproducer, page};
use std::fs;
use std::path::Path;
use tapml_files::NewFolder;
use tapml_graph::{Error, Result};

/// The file by which a folder is known to be a reproducer.
pub const MARKER: &str = "case.json";

const RUNNER: &str = include_str!("runner/main.rs");
const MANIFEST: &str = include_str!("runner/manifest.toml");

pub fn write(reproducer: &Reproducer, folder: &Path, overwrite: bool) -> Result<()> {
    let new = NewFolder::create(folder, MARKER, overwrite)?;
    let own = [
        (MARKER.to_string(), reproducer.json()?.into_bytes()),
        ("README.md".into(), reproducer.readme.clone().into_bytes()),
        ("index.html".into(), page::page(reproducer)?.into_bytes()),
        ("Cargo.toml".into(), MANIFEST.into()),
        ("src/main.rs".into(), RUNNER.into()),
    ];
    let data = reproducer.files.iter().map(|(name, bytes)| (name.clone(), bytes.clone()));
    for (name, bytes) in own.into_iter().chain(data) {
        let path = new.folder().join(&name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, &e))?;
        }
        fs::write(&path, bytes).map_err(|e| Error::io("write", &path, &e))?;
    }
    new.publish()
}
