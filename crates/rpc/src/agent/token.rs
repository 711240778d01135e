//! An agent's token.

use std::path::Path;
use tapml_graph::{Error, ErrorKind, Result};

/// Shortest token accepted, bytes.
const SHORTEST: usize = 16;

/// The token of a file. A file that does not exist is made, readable by its owner alone, with a random token; one of this user's
/// own that others may read or change is refused.
pub fn token_file(path: &Path) -> Result<String> {
    if std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return make(path);
    }
    match crate::secret::read(path)? {
        token if token.len() >= SHORTEST => Ok(token),
        _ => Err(Error::invalid(format!("{} holds no token of {SHORTEST} bytes or more", path.display()))
            .with_hint("remove the file: a new one is made")),
    }
}

fn make(path: &Path) -> Result<String> {
    use std::io::Write;
    let mut random = [0u8; 32];
    getrandom::fill(&mut random).map_err(|e| {
        Error::new(ErrorKind::Unavailable, format!("the system gives no random numbers: {e}"))
    })?;
    let token: String = random.iter().map(|b| format!("{b:02x}")).collect();
    // Nobody sees a part of it, and the first of several agents names the token of all.
    let made = tempfile::NamedTempFile::new_in(tapml_files::parent(path)).and_then(|mut file| {
        writeln!(file, "{token}")?;
        file.persist_noclobber(path).map_err(|e| e.error)
    });
    match made {
        Ok(_) => Ok(token),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => token_file(path),
        Err(e) => Err(Error::io("create", path, &e)),
    }
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
        let other = folder.path().join("other");
        let all: Vec<String> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..8).map(|_| scope.spawn(|| token_file(&other).unwrap())).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|token| *token == all[0]), "{all:?}");
        std::fs::write(&path, "short\n").unwrap();
        assert!(token_file(&path).unwrap_err().to_string().contains("no token of 16 bytes"));
    }
}
