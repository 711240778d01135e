//! A safetensors file mapped into memory, or uncompressed into it; tensors share the map.

use super::compressed::{MOST_UNCOMPRESSED, is_compressed, uncompress};
use super::{Header, HeaderEntry};
use crate::mapped::map;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tapml_graph::{Bytes, Context, Error, Result, Tensor};

/// An open file: its checked header and its bytes, read from disk only where they are used.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    /// Checked against the length of `bytes`.
    header: Header,
    bytes: Bytes,
    /// Where the tensors' bytes begin in the file.
    begin: usize,
}

impl File {
    /// Maps the file, or uncompresses it if its name ends with `.zst`, and checks its header. Errors name the file; see
    /// [`Header::parse`]. A compressed file may hold up to [`MOST_UNCOMPRESSED`] bytes.
    pub fn open(path: &Path) -> Result<File> {
        let mut bytes = map(path)?;
        if is_compressed(path) {
            let content = uncompress(&bytes, MOST_UNCOMPRESSED).context(|| path.display().to_string())?;
            bytes = Bytes::new(content);
        }
        let (header, begin) = Header::parse(&bytes).context(|| path.display().to_string())?;
        Ok(File { path: path.to_path_buf(), header, bytes, begin })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors in the order of their bytes.
    pub fn entries(&self) -> &[HeaderEntry] {
        &self.header.tensors
    }

    /// Free text that the writer left.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The tensor of this name, sharing the map. Fails if there is none or its element type is not supported.
    /// A linear search: for one tensor of a file. Checkpoints keep an index of their own.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let entry =
            self.entries().iter().find(|e| e.name == name).ok_or_else(|| {
                Error::invalid(format!("{}: there is no tensor `{name}`", self.path.display()))
            })?;
        self.load(entry)
    }

    /// The tensor of an entry of this file; see [`File::tensor`].
    pub fn load(&self, entry: &HeaderEntry) -> Result<Tensor> {
        let context = || format!("{}: tensor `{}`", self.path.display(), entry.name);
        let dtype = entry.stored.dtype().ok_or_else(|| {
            Error::unsupported(format!("{} elements are not supported", entry.stored)).context(context())
        })?;
        let bytes = self.begin.checked_add(entry.start).zip(entry.end.checked_sub(entry.start));
        let bytes = bytes
            .and_then(|(start, len)| self.bytes.slice(start, len))
            .ok_or_else(|| Error::invalid("its bytes lie outside the file").context(context()))?;
        Tensor::new(dtype, entry.shape.clone(), bytes).context(context)
    }
}
