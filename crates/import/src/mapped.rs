//! Files mapped into memory: read from disk only where they are used.
//!
//! Each map remembers the state of its file (`FileState`): length, times and inode. Whoever reads the bytes
//! later can tell from it whether the file was replaced meanwhile.

use std::fs::Metadata;
use std::path::Path;
use std::time::UNIX_EPOCH;
use tapml_graph::{Bytes, Error, FileState, Result};

/// Keeps the map alive for the tensors that share it.
struct Map(memmap2::Mmap);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The bytes of a regular file.
///
/// An empty file gives no bytes: an empty range cannot be mapped on every system.
///
/// # Errors
/// If the path is no regular file, cannot be opened or cannot be mapped.
#[allow(unsafe_code)]
pub fn map(path: &Path) -> Result<Bytes> {
    let fail = |doing: &str, e: &std::io::Error| Error::io(doing, path, e);
    let file = tapml_files::open(path)?;
    let metadata = file.metadata().map_err(|e| fail("read", &e))?;
    if metadata.len() == 0 {
        return Ok(Bytes::new(Vec::new()));
    }
    // SAFETY: the map is private and read-only. As for every memory map, the file must not be cut short while it is
    // in use; checkpoints are replaced by renaming, and nothing here writes to one that is open.
    let map =
        unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) }.map_err(|e| fail("map", &e))?;
    let state = FileState {
        path: path.to_path_buf(),
        len: metadata.len(),
        modified: modified_time(&metadata),
        inode: inode(&metadata),
    };
    Ok(Bytes::from_mapped(Map(map), state))
}

/// When the file was last written, or its time of writing set, whichever is later.
///
/// In nanoseconds since 1970; 0 if the system does not tell. A tool may set the time of writing back, but
/// not the time of that change.
fn modified_time(metadata: &Metadata) -> u128 {
    let time = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    time.map_or(0, |time| time.as_nanos()).max(changed_time(metadata))
}

/// When the inode last changed, in nanoseconds since 1970 (`st_ctime`).
#[cfg(unix)]
fn changed_time(metadata: &Metadata) -> u128 {
    use std::os::unix::fs::MetadataExt;
    let part = |value: i64| u128::try_from(value).unwrap_or(0);
    part(metadata.ctime()) * 1_000_000_000 + part(metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn changed_time(_: &Metadata) -> u128 {
    0
}

/// The number that tells a replaced file from one that was written again. 0 where there is none.
#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn a_file_whose_time_was_set_back_is_another() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let state = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            let time = super::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
            file.as_file().set_modified(time).unwrap();
            super::map(file.path()).unwrap().file().unwrap().0.modified
        };
        let first = state("one");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_ne!(first, state("two"));
    }
}
