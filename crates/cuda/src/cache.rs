//! Compiled kernels on disk, so that a text is compiled once on a machine: files named by the hash of everything that went
//! in. What is torn or foreign is compiled again.

use std::path::PathBuf;
use tapml_device::user_cache;
use tapml_graph::Error;

/// Larger files are no compiled kernels.
const MAX_BYTES: u64 = 1 << 30;

/// A folder of compiled kernels; none if there is no place for it.
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// The user's, in [`user_cache`].
    pub(crate) fn of_user() -> Cache {
        Cache { folder: user_cache().map(|root| root.join("cuda")) }
    }

    #[cfg(test)]
    pub(crate) fn in_folder(folder: PathBuf) -> Cache {
        Cache { folder: Some(folder) }
    }

    /// Whether there is a place for compiled kernels.
    pub(crate) fn keeps(&self) -> bool {
        self.folder.is_some()
    }

    /// The name of what is compiled from these parts.
    pub(crate) fn key(parts: &[&str]) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// What was kept under a name: whole, or not at all.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let file = self.folder.as_ref()?.join(key);
        let bytes = tapml_files::read(&file, MAX_BYTES, "a compiled kernel").ok()?;
        let (sum, content) = bytes.split_at_checked(32)?;
        (blake3::hash(content).as_bytes() == sum).then(|| content.to_vec())
    }

    /// Keeps something under a name. A folder that cannot be written is no failure: it is only slower.
    pub(crate) fn put(&self, key: &str, content: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let write = || {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
            let bytes = [blake3::hash(content).as_bytes().as_slice(), content].concat();
            tapml_files::write(&folder.join(key), &bytes)
        };
        if let Err(error) = write() {
            log::warn!("{}: compiled kernels are not kept: {error}", folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_comes_back_and_what_is_torn_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().join("cuda"));
        let key = Cache::key(&["sm_90", "text"]);
        assert_ne!(key, Cache::key(&["sm_9", "0text"]));
        assert_eq!(cache.get(&key), None);
        cache.put(&key, b"machine code");
        assert_eq!(cache.get(&key).as_deref(), Some(&b"machine code"[..]));
        let file = folder.path().join("cuda").join(&key);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.pop();
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(cache.get(&key), None);
        std::fs::write(&file, b"short").unwrap();
        assert_eq!(cache.get(&key), None);
        let none = Cache { folder: None };
        none.put(&key, b"x");
        assert_eq!(none.get(&key), None);
    }
}
