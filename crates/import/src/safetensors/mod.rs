//! The safetensors format: a memory-mapped reader that checks every claim of the header, and a writer. Files that are
//! compressed are read into memory.
//!
//! Layout: 8 bytes little-endian header length, a JSON header, the tensors' bytes without gaps.
//! Format: <https://github.com/huggingface/safetensors#format>.

mod compressed;
mod header;
mod map;
mod stored;
mod write;

pub use compressed::{MOST_UNCOMPRESSED, stored_path};
pub use header::{Header, HeaderEntry, MAX_HEADER};
pub use map::File;
pub use stored::StoredType;
pub use write::{write, write_each};
