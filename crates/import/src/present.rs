//! Whether a file is there, and nothing else that may be wrong with it.

use std::io::ErrorKind;
use std::path::Path;
use tapml_graph::{Error, Result};

/// Whether there is such a file or folder. Fails if that cannot be told, such as without permission to look. Below a file,
/// such as a `.gguf`, there is nothing.
pub fn is_present(path: &Path) -> Result<bool> {
    match path.try_exists() {
        Err(e) if e.kind() == ErrorKind::NotADirectory => Ok(false),
        found => found.map_err(|e| Error::io("look for", path, &e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_a_file_there_is_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(is_present(file.path()).unwrap());
        assert!(!is_present(&file.path().join("config.json")).unwrap());
    }
}
