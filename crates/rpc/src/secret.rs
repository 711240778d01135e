//! Tokens in files.

use std::path::Path;
use tapml_graph::Result;

/// Larger files hold no token, bytes.
const LONGEST: u64 = 4096;

/// The text of a token's file, without white space around it. If other users can read the file, a warning says so.
pub fn read(path: &Path) -> Result<String> {
    let text = tapml_files::read_text(path, LONGEST, "a token")?;
    if is_open(path) {
        let file = path.display();
        log::warn!("{file}: other users of this machine can read the token; `chmod 600 {file}` keeps it");
    }
    Ok(text.trim().into())
}

#[cfg(unix)]
fn is_open(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o044 != 0)
}

/// Elsewhere permissions are no bits of a file.
#[cfg(not(unix))]
fn is_open(_: &Path) -> bool {
    false
}
