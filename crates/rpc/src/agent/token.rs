//! An agent's token.

use std::path::Path;
use tapml_graph::{Error, ErrorKind, Result};

/// Shortest token accepted, bytes.
const SHORTEST: usize = 16;

/// The token of a file. A file that does not exist is made, readable by its owner alone, with a random token; one that others
/// can read is told in a warning.
pub fn token_file(path: &Path) -> Result<String> {
    match crate::secret::read(path) {
        Ok(token) if token.len() >= SHORTEST => Ok(token),
        Ok(_) => {
            Err(Error::invalid(format!("{} holds no token of {SHORTEST} bytes or more", path.display()))
                .with_hint("remove the file: a new one is made"))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => make(path),
        Err(e) => Err(Error::io("read", path, &e)),
    }
}

fn make(path: &Path) -> Result<String> {
    use std::io::Write;
    let mut random = [0u8; 32];
    getrandom::fill(&mut random).map_err(|e| {
        Error::new(ErrorKind::Unavailable, format!("the system gives no random numbers: {e}"))
    })?;
    let token: String = random.iter().map(|b| format!("{b:02x}")).collect();
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(|e| Error::io("create", path, &e))?;
    writeln!(file, "{token}").map_err(|e| Error::io("write", path, &e))?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_short_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = token_file(&path).unwrap();
        assert_eq!((token.len(), token_file(&path).unwrap()), (64, token));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&path, "short\n").unwrap();
        assert!(token_file(&path).is_err());
    }
}
