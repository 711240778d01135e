//! GGUF files of the random checkpoints. What they share with the weight files is not stored: `tools/goldens/delta.py` says
//! which form the rest has.

use crate::{golden, unpack_archive};
use std::path::{Path, PathBuf};

/// Writes a GGUF file of each golden that has one into a folder, which holds nothing else; their paths.
///
/// # Panics
/// If a golden or the archive cannot be read, or the folder cannot be written.
pub fn write_golden_gguf(folder: &Path) -> Vec<PathBuf> {
    unpack_archive("tests/goldens/gguf/converted.tar.zst", folder);
    let failed = |path: &Path, what: &str| -> ! { panic!("{}: {what}", path.display()) };
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|e| failed(path, &e.to_string()));
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| failed(folder, &e.to_string()));
    let deltas: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let write = |delta: PathBuf| {
        let name = delta.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let base: Vec<u8> = weight_files(&golden(&name)).iter().flat_map(|path| read(path)).collect();
        let content = apply_delta(&base, &read(&delta));
        let content =
            content.unwrap_or_else(|| failed(&delta, "no delta over the weight files of its golden"));
        let path = delta.with_extension("gguf");
        let written = std::fs::write(&path, content).and_then(|()| std::fs::remove_file(&delta));
        if let Err(e) = written {
            failed(&path, &e.to_string());
        }
        path
    };
    deltas.into_iter().map(write).collect()
}

/// The weight files of a golden's folder, in the order of their names.
fn weight_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_weights = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "safetensors") && !path.ends_with("golden.safetensors")
    };
    let mut files: Vec<PathBuf> = entries.filter(is_weights).collect();
    files.sort();
    files
}

/// What a delta stands for. `None` if it is cut off or copies what the base does not have.
fn apply_delta(base: &[u8], mut delta: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    while !delta.is_empty() {
        let length = number(&mut delta)?;
        let (new, rest) = delta.split_at_checked(length)?;
        content.extend(new);
        delta = rest;
        let start = number(&mut delta)?;
        let end = start.checked_add(number(&mut delta)?)?;
        content.extend(base.get(start..end)?);
    }
    Some(content)
}

/// Takes a number of 32 bits, little-endian, from the front.
fn number(bytes: &mut &[u8]) -> Option<usize> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_copy_and_add_and_are_refused_where_they_are_damaged() {
        let delta =
            [&[2, 0, 0, 0][..], b"ab", &[1, 0, 0, 0, 3, 0, 0, 0], &[1, 0, 0, 0], b"c", &[0; 8]].concat();
        assert_eq!(apply_delta(b"01234", &delta).as_deref(), Some(&b"ab123c"[..]));
        assert_eq!(apply_delta(b"0123", &delta).as_deref(), Some(&b"ab123c"[..]));
        assert_eq!(apply_delta(b"012", &delta), None);
        // A part ends after 14 and after 27 bytes; at all other lengths the delta is cut off.
        for length in (1..delta.len()).filter(|length| *length != 14) {
            assert_eq!(apply_delta(b"01234", &delta[..length]), None, "{length} bytes");
        }
    }
}
