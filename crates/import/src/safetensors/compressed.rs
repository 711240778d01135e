//! Safetensors files compressed with Zstandard (RFC 8878), `*.safetensors.zst`: read whole into memory, as a compressed file
//! cannot be mapped. For small models; the writer is the program `zstd`.

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::Read;
use std::path::{Path, PathBuf};
use tapml_graph::{Error, Result};

use crate::present::is_present;

/// The ending of a compressed file, behind that of its content.
const ENDING: &str = "zst";
/// Most bytes that a compressed file may hold: a small file can claim any amount.
pub const MOST_UNCOMPRESSED: usize = 1 << 30;
/// A frame that holds nothing: a decoder bounds the window, which it keeps in memory, of every frame but its first.
const EMPTY_FRAME: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];

/// Whether the name is that of a compressed file.
pub(super) fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

/// The file, if it is there, else its compressed form, if that is.
///
/// # Errors
/// If it cannot be told what is there.
pub fn stored_path(path: PathBuf) -> Result<Option<PathBuf>> {
    let mut compressed = path.clone().into_os_string();
    compressed.push(format!(".{ENDING}"));
    for path in [path, compressed.into()] {
        if is_present(&path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// What the bytes of a compressed file hold, at most `most` bytes of it.
///
/// # Errors
/// If they are no whole Zstandard frames, hold more, or need a window of more than 100 MiB.
pub(super) fn uncompress(mut compressed: &[u8], most: usize) -> Result<Vec<u8>> {
    let damaged = |error: &dyn std::fmt::Display| {
        let text = format!("expected a file that `zstd` wrote, of one or more whole frames: {error}");
        Error::invalid(text).with_hint("the file is damaged or cut off; fetch it again")
    };
    let mut decoder = FrameDecoder::new();
    decoder.init(EMPTY_FRAME).map_err(|error| Error::bug(error.to_string()))?;
    let mut content = Vec::new();
    while !compressed.is_empty() {
        let mut frame = StreamingDecoder::new_with_decoder(&mut compressed, &mut decoder)
            .map_err(|error| damaged(&error))?;
        // One byte more than is allowed tells that there is more.
        let room = (most - content.len()) as u64 + 1;
        let found = frame.by_ref().take(room).read_to_end(&mut content).map_err(|error| damaged(&error))?;
        if content.len() > most {
            let text = format!("expected at most {most} bytes when uncompressed, found more");
            return Err(Error::invalid(text)
                .with_hint("uncompress it with `zstd -d`; what is stored plainly may have any size"));
        }
        // 0 stands for a frame that does not say its size.
        let said = decoder.content_size();
        if said != 0 && said != found as u64 {
            return Err(damaged(&format!("a frame says that it holds {said} bytes, and holds {found}")));
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn compress(content: &[u8]) -> Vec<u8> {
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    #[test]
    fn frames_follow_one_another_and_are_bounded() {
        let two = [compress(b"one "), compress(b"two")].concat();
        assert_eq!(uncompress(&two, 7).unwrap(), b"one two");
        for most in [0, 3, 4, 6] {
            let error = uncompress(&two, most).unwrap_err().to_string();
            assert!(error.contains(&format!("at most {most} bytes")), "{error}");
        }
        let zeros = compress(&vec![0; 1 << 22]);
        assert!(zeros.len() < 1 << 12 && uncompress(&zeros, 1 << 20).is_err());
    }

    /// A frame without a size, of this descriptor of its window, and a block of 128 KiB zeros again and again.
    fn zeros(window: u8, blocks: usize) -> Vec<u8> {
        let block = |last: usize| [&(1 << 20 | 1 << 1 | last as u32).to_le_bytes()[..3], &[0]].concat();
        let blocks = (1..=blocks).flat_map(|number| block(usize::from(number == blocks)));
        [0x28, 0xb5, 0x2f, 0xfd, 0, window].into_iter().chain(blocks).collect()
    }

    #[test]
    fn a_window_of_any_size_is_not_kept() {
        let (small, large) = (zeros(0x38, 64), zeros(0xf0, 64));
        assert_eq!(uncompress(&small, 64 << 17).unwrap(), vec![0; 64 << 17]);
        assert!(uncompress(&small, (64 << 17) - 1).unwrap_err().to_string().contains("found more"));
        let error = uncompress(&large, 64 << 17).unwrap_err().to_string();
        assert!(error.contains("`zstd` wrote") && error.to_lowercase().contains("window"), "{error}");
    }

    #[test]
    fn damage_is_an_error() {
        let content: Vec<u8> = (0..4096u32).flat_map(|i| (i * i).to_le_bytes()).collect();
        let whole = compress(&content);
        assert_eq!(uncompress(&whole, content.len()).unwrap(), content);
        for end in (1..whole.len()).step_by(97) {
            assert!(uncompress(&whole[..end], content.len()).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 0x55;
            // Whatever comes of it, no more than the bound and no panic.
            if let Ok(found) = uncompress(&bent, content.len()) {
                assert!(found.len() <= content.len());
            }
        }
        let error = uncompress(b"not compressed", 100).unwrap_err();
        assert!(error.to_string().contains("expected a file that `zstd` wrote"), "{error}");
    }
}
