//! The weights of a site: the ranges that its programs bind, one behind the other, cut into shards.

use super::file::{SiteFile, write};
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;
use tapml_graph::{Error, Model, Result, TensorType};
use tapml_kernels::{Content, Program};

/// Bytes of a shard, but for the last one. What is under way when a download ends is fetched again, and a browser holds one
/// shard in memory.
const SHARD: usize = 64 << 20;
/// The folder of the shards.
const FOLDER: &str = "weights";

/// `weights` of the manifest.
#[derive(Serialize)]
pub(super) struct Weights {
    /// Of all shards.
    pub(super) bytes: u64,
    pub(super) shards: Vec<SiteFile>,
    tensors: Vec<PlacedRange>,
}

/// Bytes `offset..offset + len` of a weight.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct WeightRange {
    name: String,
    offset: u64,
    len: u64,
}

/// A range that stands `at` this byte of all shards together.
#[derive(Serialize)]
struct PlacedRange {
    #[serde(flatten)]
    range: WeightRange,
    at: u64,
}

/// The ranges of several programs, each one time.
#[derive(Default)]
pub(super) struct WeightTable {
    ranges: Vec<PlacedRange>,
    known: HashMap<WeightRange, TensorType>,
    bytes: u64,
}

impl WeightTable {
    /// Adds the weights that a program binds.
    ///
    /// # Errors
    /// If a range is known already, and is another weight there.
    pub(super) fn add(&mut self, program: &Program, model: &Model) -> Result<()> {
        for buffer in &program.buffers {
            let Content::Weight { name, offset, len } = &buffer.content else { continue };
            let ty = model.weight_type(name).ok_or_else(|| Error::bug(format!("no weight `{name}`")))?;
            let range = WeightRange { name: name.clone(), offset: *offset, len: *len };
            match self.known.get(&range) {
                Some(other) if *other == ty => continue,
                Some(other) => {
                    return Err(Error::bug(format!(
                        "weight `{name}` is {other} in one program and {ty} in another"
                    )));
                }
                None => {}
            }
            self.known.insert(range.clone(), ty.clone());
            self.ranges.push(PlacedRange { range, at: self.bytes });
            // Whole words are written to buffers.
            self.bytes += len.next_multiple_of(4);
        }
        Ok(())
    }

    /// Writes the shards.
    pub(super) fn write(self, folder: &Path, model: &Model) -> Result<Weights> {
        let path = folder.join(FOLDER);
        std::fs::create_dir(&path).map_err(|e| Error::io("create", &path, &e))?;
        let mut shards: Vec<SiteFile> = Vec::new();
        let mut shard: Vec<u8> = Vec::new();
        let mut flush = |shard: &mut Vec<u8>| -> Result<()> {
            if !shard.is_empty() {
                let file = format!("{FOLDER}/{:03}.bin", shards.len());
                shards.push(write(folder, &file, shard)?);
                shard.clear();
            }
            Ok(())
        };
        for PlacedRange { range: WeightRange { name, offset, len }, .. } in &self.ranges {
            let tensor = model.weight(name)?;
            let range = usize::try_from(*offset).ok().zip(usize::try_from(*len).ok());
            let bytes = range.and_then(|(offset, len)| tensor.bytes().get(offset..offset.checked_add(len)?));
            let mut rest =
                bytes.ok_or_else(|| Error::bug(format!("weight `{name}` has no {len} bytes at {offset}")))?;
            while !rest.is_empty() {
                let (part, more) = rest.split_at(rest.len().min(SHARD - shard.len()));
                shard.extend_from_slice(part);
                rest = more;
                if rest.is_empty() {
                    shard.resize(shard.len().next_multiple_of(4), 0);
                }
                if shard.len() == SHARD {
                    flush(&mut shard)?;
                }
            }
        }
        flush(&mut shard)?;
        tapml_files::sync_folder(&path)?;
        Ok(Weights { bytes: self.bytes, shards, tensors: self.ranges })
    }
}
