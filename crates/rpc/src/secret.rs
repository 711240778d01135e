//! Tokens, keys and credentials in files.

use std::path::Path;
use tapml_graph::{Error, Result};

/// Larger files hold no token, bytes.
const LONGEST: u64 = 4096;

/// The text of a token's file, see [`read_secret`].
pub fn read(path: &Path) -> Result<String> {
    read_secret(path, LONGEST, "a token")
}

/// The text of a file that holds a secret, without white space around it. A file of this user's own that others may read or write
/// is refused, as ssh does with keys: who may see it is not the user's to decide where the file is somebody else's.
pub fn read_secret(path: &Path, longest: u64, what: &str) -> Result<String> {
    let text = tapml_files::read_text(path, longest, what)?;
    if let Some(mode) = open_to_others(path) {
        let file = path.display();
        return Err(Error::invalid(format!(
            "{file}: other users of this machine may read or change {what} (mode {mode:04o}); expected a file of its owner alone"
        ))
        .with_hint(format!("`chmod 600 {file}`; take a new one if others may have seen it")));
    }
    Ok(text.trim().into())
}

/// The permissions of a file of this user's own, if they let others in.
#[cfg(unix)]
fn open_to_others(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let about = std::fs::metadata(path).ok()?;
    let mode = about.mode() & 0o777;
    // What this process makes is this user's.
    let own =
        || tempfile::tempfile().and_then(|file| file.metadata()).is_ok_and(|own| own.uid() == about.uid());
    (mode & 0o077 != 0 && own()).then_some(mode)
}

/// Elsewhere permissions are no bits of a file.
#[cfg(not(unix))]
fn open_to_others(_: &Path) -> Option<u32> {
    None
}
