//! Hashes of weights, kept beside the checkpoint, so that gigabytes are read once: by file, as it was when it was hashed, and
//! place in it.
//!
//! A hash is believed if the file has the length, time of modification and inode that it had.
//! It is no protection against someone who forges these.

use crate::hash::Hash;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tapml_graph::{Tensor, TensorType};

/// The file in a checkpoint's folder.
const NAME: &str = ".tapml-hashes.json";
/// The form of the file.
const SCHEMA: u32 = 1;
/// Hashes of fewer bytes in all are computed again: that takes no time, and leaves the folder as it is.
const WORTH: u64 = 256 << 20;
/// Larger files are none of these.
const MAX_BYTES: u64 = 64 << 20;

/// The hashes of one folder.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FolderHashes {
    /// See [`SCHEMA`].
    schema: u32,
    /// By file, its state and the tensor's place and type.
    hashes: BTreeMap<String, Hash>,
}

/// Hashes by folder, read when the first tensor of a folder is asked for.
#[derive(Default)]
pub(crate) struct KeptHashes {
    folders: Mutex<HashMap<PathBuf, Folder>>,
}

/// What is known of one folder.
#[derive(Default)]
struct Folder {
    /// From its file.
    kept: BTreeMap<String, Hash>,
    /// Computed in this run.
    new: BTreeMap<String, Hash>,
    /// Bytes that were hashed for `new`.
    new_bytes: u64,
}

impl KeptHashes {
    /// The hash of a tensor: kept, or computed now.
    pub(crate) fn hash_tensor(&self, ty: &TensorType, tensor: &Tensor) -> Hash {
        let Some((folder, key)) = place(ty, tensor) else { return Hash::of_tensor(tensor) };
        if let Some(hash) = self.folder(&folder, |f| f.kept.get(&key).copied()) {
            return hash;
        }
        // Two threads may hash the same tensor; the result is the same.
        let hash = Hash::of_tensor(tensor);
        self.folder(&folder, |f| {
            f.new_bytes += tensor.bytes().len() as u64;
            f.new.insert(key, hash);
        });
        hash
    }

    /// Holds the lock; hashing happens outside of it.
    fn folder<T>(&self, path: &Path, with: impl FnOnce(&mut Folder) -> T) -> T {
        let mut folders = self.folders.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let read = || Folder { kept: read(&path.join(NAME)), ..Folder::default() };
        with(folders.entry(path.to_path_buf()).or_insert_with(read))
    }

    /// Keeps what was computed, where that was worth it. A folder that cannot be written is no failure: it is only slower.
    pub(crate) fn keep(self) {
        let folders = self.folders.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (path, folder) in folders.into_iter().filter(|(_, folder)| folder.new_bytes >= WORTH) {
            // Other states of the same files are gone for good.
            let mut hashes = folder.kept;
            let state = |key: &str| key.rsplitn(3, ' ').last().unwrap_or_default().to_string();
            let name = |key: &str| key.split(' ').next().unwrap_or_default().to_string();
            let states: HashMap<String, String> =
                folder.new.keys().map(|key| (name(key), state(key))).collect();
            // Files that this run did not read keep their hashes.
            hashes.retain(|key, _| states.get(&name(key)).is_none_or(|new| *new == state(key)));
            hashes.extend(folder.new);
            if let Ok(text) = serde_json::to_vec_pretty(&FolderHashes { schema: SCHEMA, hashes }) {
                drop(tapml_files::write(&path.join(NAME), &text));
            }
        }
    }
}

/// The folder of the file that holds a tensor, and the tensor's key there: file, length, time, inode, place, type.
fn place(ty: &TensorType, tensor: &Tensor) -> Option<(PathBuf, String)> {
    let (file, start) = tensor.bytes().file()?;
    // A key's parts are divided by spaces.
    let name = file.path.file_name()?.to_str()?.replace(' ', "%20");
    let ty = ty.to_string().replace(' ', "");
    let key = format!("{name} {} {} {} {start} {ty}", file.len, file.modified, file.inode);
    Some((file.path.parent()?.to_path_buf(), key))
}

/// Nothing if the file is missing, damaged or of another form: then everything is hashed.
fn read(path: &Path) -> BTreeMap<String, Hash> {
    let kept = tapml_files::read(path, MAX_BYTES, "hashes").ok();
    let kept = kept.and_then(|bytes| serde_json::from_slice::<FolderHashes>(&bytes).ok());
    kept.filter(|kept| kept.schema == SCHEMA).map(|kept| kept.hashes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::{Bytes, DType, FileState};

    fn tensor(path: &Path, bytes: Vec<u8>, modified: u128) -> Tensor {
        let len = bytes.len();
        let file = FileState { path: path.to_path_buf(), len: len as u64, modified, inode: 7 };
        Tensor::new(DType::U8, vec![len], Bytes::from_mapped(bytes, file)).unwrap()
    }

    fn compute_hash(tensor: &Tensor) -> Hash {
        let kept = KeptHashes::default();
        let hash = kept.hash_tensor(&crate::tensor_type(tensor), tensor);
        kept.keep();
        hash
    }

    #[test]
    fn a_hash_is_kept_until_its_file_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (file, kept) = (folder.path().join("model.safetensors"), folder.path().join(NAME));
        let first = compute_hash(&tensor(&file, vec![1; WORTH as usize], 5));
        assert_eq!(first, Hash::of_tensor(&tensor(&file, vec![1; WORTH as usize], 5)));
        // The same file is not read again, which other values under its name and time show.
        let other = tensor(&file, vec![2; WORTH as usize], 5);
        assert_eq!(compute_hash(&other), first);
        let written = tensor(&file, vec![2; WORTH as usize], 6);
        assert_eq!(compute_hash(&written), Hash::of_tensor(&written));
        let hashes = read(&kept);
        assert_eq!(hashes.len(), 1, "{hashes:?}");
        // What is torn counts for nothing.
        std::fs::write(&kept, "{\"schema\": 1, \"hashes\": {").unwrap();
        assert_eq!(compute_hash(&other), Hash::of_tensor(&other));
    }

    #[test]
    fn small_weights_leave_the_folder_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        compute_hash(&tensor(&folder.path().join("model.safetensors"), vec![1; 1000], 5));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
