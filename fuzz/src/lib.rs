//! What fuzz targets share: folders that hold an input as a file, and panics of libraries.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

/// A folder of this process.
pub fn folder() -> &'static Path {
    FOLDER.path()
}

/// Writes a file of the process's folder.
pub fn put(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("a temporary file");
    path
}

/// Lets panics within other crates unwind, where the code under test catches them; one that nobody catches is a finding, as is
/// every panic of our own.
pub fn allow_panics_of_libraries() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|place| place.file().contains("/registry/src/")) {
            report(info);
        }
    }));
}

/// A text with changes: for each a place, what it takes away and what it puts in.
pub fn edit_text(base: &[u8], mut edits: &[u8]) -> Vec<u8> {
    let mut text = base.to_vec();
    while let [low, high, away, len, rest @ ..] = edits {
        let (new, after) = rest.split_at(rest.len().min(usize::from(*len)));
        let at = usize::from(u16::from_le_bytes([*low, *high])) % (text.len() + 1);
        let end = (at + usize::from(*away)).min(text.len());
        text.splice(at..end, new.iter().copied());
        edits = after;
    }
    text
}
