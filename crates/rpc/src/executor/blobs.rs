//! Content-addressed bytes that an agent keeps: the last ones in memory, all of them in a folder that its sessions share.
//!
//! Files are named by their hashes. Several processes use the folder at a time: files appear whole, and may vanish at
//! any time. Failures of the folder are not errors of a session, because blobs in memory serve it too.

use crate::wire::limits::{MAX_HASHES, PIECE};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tapml_graph::{Error, ErrorKind, Result};

/// Blobs held in memory: those of one question and as many that were put since.
const RECENT: usize = 2 * MAX_HASHES;

/// See the module.
///
/// It belongs to one session.
pub struct Blobs {
    /// `None` if blobs are kept in memory only.
    folder: Option<PathBuf>,
    /// Bytes that the folder may hold, and bytes put since that was last looked after.
    limit: u64,
    // It begins at the largest number, so that the first blob makes room.
    added: u64,
    /// The last ones with their hashes, the oldest in front.
    recent: VecDeque<([u8; 32], Bytes)>,
}

impl Blobs {
    /// Blobs in this folder, up to this many bytes; in memory only if the folder is empty text or cannot be made.
    pub fn new(folder: &str, limit: u64) -> Blobs {
        let folder = Some(PathBuf::from(folder)).filter(|f| !folder.is_empty() && make(f));
        Blobs { folder, limit, added: u64::MAX, recent: VecDeque::new() }
    }

    /// The bytes of a blob. What the folder holds is believed only if it has this hash.
    pub fn get(&mut self, hash: &[u8; 32]) -> Option<Bytes> {
        if let Some((_, bytes)) = self.recent.iter().find(|(h, _)| h == hash) {
            return Some(bytes.clone());
        }
        let path = self.folder.as_ref()?.join(name(hash));
        // Whoever can write to the folder could leave a large file, or no file at all.
        let small = std::fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= PIECE as u64);
        let bytes = small.then(|| std::fs::read(&path).ok()).flatten()?;
        // A file that was cut or changed is of no use to anybody.
        if blake3::hash(&bytes).as_bytes() != hash {
            let _ = std::fs::remove_file(&path);
            return None;
        }
        let _ =
            // The time of the last use decides what is removed; failing to note it is no harm.
            std::fs::File::options().append(true).open(&path).and_then(|f| f.set_modified(SystemTime::now()));
        self.remember(*hash, bytes.into())
    }

    /// As [`Blobs::get`]; the error names the hash in the detail `missing`.
    ///
    /// # Errors
    /// `Unavailable` if it is held nowhere. The client sends the blob and asks again.
    pub fn need(&mut self, hash: &[u8]) -> Result<Bytes> {
        let found = <&[u8; 32]>::try_from(hash).ok().and_then(|hash| self.get(hash));
        found.ok_or_else(|| {
            let hex: String = hash.iter().map(|b| format!("{b:02x}")).collect();
            Error::new(ErrorKind::Unavailable, format!("the agent does not hold the blob {hex}"))
                .with_detail("missing", hex)
        })
    }

    /// Keeps a blob under the hash that the client claims, which is enough for its own session: others take it from the
    /// folder, where no name is believed. Without a claim the hash is computed.
    pub fn put(&mut self, bytes: Bytes, claimed: &[u8]) {
        let hash = claimed.try_into().unwrap_or_else(|_| *blake3::hash(&bytes).as_bytes());
        if self.get(&hash).is_some() {
            return;
        }
        if let Some(folder) = &self.folder {
            self.added = self.added.saturating_add(bytes.len() as u64);
            // Looking through the folder takes long: it is done for every sixteenth of the limit.
            if self.added > self.limit / 16 {
                make_room(folder, self.limit);
                self.added = 0;
            }
            if let Err(error) = store(folder, &hash, &bytes) {
                log::debug!("a blob is kept in memory only: {error}");
            }
        }
        self.remember(hash, bytes);
    }

    /// Keeps a blob in memory, in the place of the oldest; gives it back.
    fn remember(&mut self, hash: [u8; 32], bytes: Bytes) -> Option<Bytes> {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((hash, bytes.clone()));
        Some(bytes)
    }
}

/// The name of a blob's file.
fn name(hash: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

/// Makes the folder; whether there is one.
fn make(folder: &Path) -> bool {
    let made = std::fs::create_dir_all(folder);
    if let Err(error) = &made {
        log::warn!("could not create {}: {error}; blobs are kept in memory only", folder.display());
    }
    made.is_ok()
}

/// A file is written whole or not at all.
/// A temporary file in the same folder can take the name in one step.
fn store(folder: &Path, hash: &[u8; 32], bytes: &[u8]) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(folder.join(name(hash)))?;
    Ok(())
}

/// Removes the longest unused blobs until an eighth of the limit is free.
/// Other processes may remove files meanwhile, which is no error.
fn make_room(folder: &Path, limit: u64) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let meta = entry.metadata().ok().filter(|m| m.is_file())?;
        Some((meta.modified().ok()?, meta.len(), entry.path()))
    };
    let mut files: Vec<_> = entries.filter_map(file).collect();
    files.sort();
    let mut held: u64 = files.iter().map(|(_, len, _)| len).sum();
    for (_, len, path) in files {
        if held <= limit / 8 * 7 {
            break;
        }
        if std::fs::remove_file(path).is_ok() {
            held -= len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_outlive_their_session_and_spoiled_ones_are_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blobs").display().to_string();
        let data = Bytes::from(vec![7u8; 1000]);
        let hash = *blake3::hash(&data).as_bytes();
        Blobs::new(&path, 1 << 20).put(data.clone(), &[]);
        assert_eq!(Blobs::new(&path, 1 << 20).get(&hash), Some(data));
        std::fs::write(Path::new(&path).join(name(&hash)), b"something else").unwrap();
        let mut spoiled = Blobs::new(&path, 1 << 20);
        assert_eq!(spoiled.get(&hash), None);
        let error = spoiled.need(&hash).unwrap_err();
        assert_eq!(error.detail("missing"), Some(name(&hash).as_str()));
    }

    #[test]
    fn a_claimed_hash_is_believed_in_its_own_session_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let (truth, lie) = (Bytes::from_static(b"truth"), Bytes::from_static(b"lie"));
        let hash = *blake3::hash(&truth).as_bytes();
        let open = || Blobs::new(&path, 1 << 20);
        let mut liar = open();
        liar.put(lie.clone(), &hash);
        assert_eq!(liar.get(&hash), Some(lie.clone()));
        assert_eq!(open().get(&hash), None);
        open().put(truth.clone(), &hash);
        // What is there and true is not replaced.
        open().put(lie, &hash);
        assert_eq!(open().get(&hash), Some(truth));
    }

    #[test]
    fn the_folder_stays_within_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut blobs = Blobs::new(&folder.path().display().to_string(), 100_000);
        for i in 0..100u8 {
            blobs.put(Bytes::from(vec![i; 5000]), &[]);
        }
        let files = std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().metadata().unwrap().len());
        let held: u64 = files.sum();
        assert!((20_000..=110_000).contains(&held), "{held}");
        assert_eq!(blobs.recent.len(), RECENT);
    }
}
