//! A GGUF file mapped into memory; tensors that are stored as they are computed with share the map.

use super::{GgufEntry, Header, Metadata};
use crate::mapped::map;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tapml_graph::{Bytes, Context, Error, Result, Tensor};

/// An open file: its checked header and its bytes, read from disk only where they are used.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    header: Header,
    bytes: Bytes,
    /// Where the tensors' bytes begin in the file.
    begin: usize,
}

impl File {
    /// Maps the file and checks its header. Errors name the file; see [`Header::parse`].
    pub fn open(path: &Path) -> Result<File> {
        let bytes = map(path)?;
        let (header, begin) = Header::parse(&bytes).context(|| path.display().to_string())?;
        Ok(File { path: path.to_path_buf(), header, bytes, begin })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key/value pairs.
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// The tensors in the order of their bytes.
    pub fn entries(&self) -> &[GgufEntry] {
        &self.header.tensors
    }

    /// The tensor of this name; see [`File::load`]. Fails if there is none.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let entry =
            self.entries().iter().find(|e| e.name == name).ok_or_else(|| {
                Error::invalid(format!("{}: there is no tensor `{name}`", self.path.display()))
            })?;
        self.load(entry)
    }

    /// The tensor of an entry of this file; see [`TensorKind::values`](super::TensorKind::values).
    pub fn load(&self, entry: &GgufEntry) -> Result<Tensor> {
        self.part(entry, 0..1, 1, entry.shape.clone())
    }

    /// Of an entry cut into `count` equal runs of whole rows, those of `parts`, as a tensor of `shape`.
    pub(super) fn part(
        &self,
        entry: &GgufEntry,
        parts: Range<usize>,
        count: usize,
        shape: Vec<usize>,
    ) -> Result<Tensor> {
        let context = || format!("{}: tensor `{}`", self.path.display(), entry.name);
        // Whole rows lie one after another, so equal parts are equal runs of bytes.
        let len = (entry.end - entry.start) / count.max(1);
        let start = self.begin + entry.start + parts.start * len;
        let outside = || Error::bug("a part of a tensor lies outside the file").context(context());
        let bytes = self.bytes.slice(start, len * parts.len()).ok_or_else(outside)?;
        entry.kind.values(&bytes, shape).context(context)
    }
}
