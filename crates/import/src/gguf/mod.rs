//! The GGUF format of ggml: a memory-mapped reader that checks every claim of the header, dequantisation, and what turns
//! a file into a checkpoint: metadata into `config.json`, tensor names into those of Hugging Face checkpoints.
//!
//! Layout (little-endian): the letters `GGUF`, version, counts of tensors and of metadata pairs, the pairs, one entry
//! per tensor (name, sizes innermost first, type, offset), padding, the tensors' bytes, each padded.
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod arch;
mod checkpoint;
mod config;
mod cursor;
mod dequantize;
mod facts;
mod header;
mod kind;
mod map;
mod metadata;
mod shards;
mod tensors;

pub(crate) use checkpoint::open;
pub use header::{GgufEntry, Header};
pub use kind::TensorKind;
pub use map::File;
pub use metadata::{Metadata, MetadataArray, MetadataValue};
pub use shards::{Model, is_gguf};
