//! Bundled data that is kept in Zstandard's format (RFC 8878), so that the tree stays small.

use ruzstd::decoding::StreamingDecoder;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The content of a `.zst` file below the root of the project, such as `tests/x.json.zst`. Panics if it cannot be read.
pub fn read_packed(file: &str) -> Vec<u8> {
    let path = crate::root().join(file);
    let mut content = Vec::new();
    let read = open_packed(&path).and_then(|mut packed| packed.read_to_end(&mut content));
    match read {
        Ok(_) => content,
        Err(e) => panic!("{}: {e}", path.display()),
    }
}

/// What is packed in these bytes.
pub fn unpack(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    StreamingDecoder::new(packed).map_err(std::io::Error::other)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Bytes in the packed form.
pub fn pack(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Puts the files of a `.tar.zst` file below the root of the project into a folder. Panics if that fails.
pub fn unpack_archive(file: &str, folder: &Path) {
    let path = crate::root().join(file);
    let unpacked = open_packed(&path).and_then(|packed| tar::Archive::new(packed).unpack(folder));
    if let Err(e) = unpacked {
        panic!("{} into {}: {e}", path.display(), folder.display());
    }
}

/// Reads what is packed in a file.
fn open_packed(path: &Path) -> std::io::Result<impl Read + use<>> {
    let file = BufReader::new(File::open(path)?);
    StreamingDecoder::new(file).map_err(std::io::Error::other)
}
