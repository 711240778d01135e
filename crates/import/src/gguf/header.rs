//! Parses the header of a GGUF file and checks it against the file's length.
//!
//! Errors that name the file are the caller's. Positions in messages are bytes of the file.

use super::cursor::{Cursor, DAMAGED, TRUNCATED, text};
use super::kind::TensorKind;
use super::metadata::Metadata;
use std::collections::HashSet;
use tapml_graph::{Bytes, Error, Result};

/// The first bytes of every file.
const MAGIC: [u8; 4] = *b"GGUF";
/// Versions whose layout is read; they differ in the byte orders that they allow.
///
/// Version 1, whose counts have 32 bits, is not read.
const VERSIONS: [u32; 2] = [2, 3];
/// Where the file does not say, tensors begin at multiples of so many bytes.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Key of the alignment.
const ALIGNMENT: &str = "general.alignment";
/// Bytes of the shortest metadata pair: an empty key, a type, a value of one byte.
const LEAST_PAIR: usize = 13;
/// Bytes of the shortest tensor entry: an empty name, no sizes, type and offset.
const LEAST_ENTRY: usize = 24;
/// Sizes that a tensor has at most.
/// `GGML_MAX_DIMS` of ggml.
const MOST_SIZES: u32 = 4;

/// What a header says, checked.
#[derive(Clone, Debug)]
pub struct Header {
    /// The key/value pairs.
    pub metadata: Metadata,
    /// The tensors in the order of their bytes.
    pub tensors: Vec<GgufEntry>,
}

/// One tensor of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufEntry {
    /// Its name.
    pub name: String,
    /// How its elements are stored.
    pub kind: TensorKind,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the tensors' bytes.
    pub start: usize,
    /// One past the last byte, counted likewise.
    pub end: usize,
}

impl Header {
    /// Parses the whole file's bytes; returns the header and where the tensors' bytes begin.
    ///
    /// Fails on another format, version or byte order, counts and lengths beyond the file, text that is no UTF-8,
    /// duplicate names, unknown types, sizes that make no whole blocks, and tensors that overlap, leave gaps beyond
    /// their padding or lie outside the file.
    pub fn parse(file: &Bytes) -> Result<(Header, usize)> {
        let mut cursor = Cursor::new(file);
        version(&mut cursor)?;
        let tensors = cursor.count("tensors", LEAST_ENTRY)?;
        let pairs = cursor.count("metadata pairs", LEAST_PAIR)?;
        let metadata = Metadata::read(&mut cursor, pairs, file)?;
        let alignment = alignment(&metadata)?;
        // What the metadata took is not there for tensors any more.
        let tensors = cursor.check_count(tensors as u64, "tensors", LEAST_ENTRY)?;
        let mut entries = Vec::with_capacity(tensors);
        for index in 0..tensors {
            entries.push(entry(&mut cursor).map_err(|e| e.context(format!("tensor entry {index}")))?);
        }
        // Two tensors of one name would make the one that is read a matter of order.
        let mut seen = HashSet::new();
        if let Some(twice) = entries.iter().find(|e| !seen.insert(e.name.as_str())) {
            return Err(Error::invalid(format!("tensor `{}` is listed twice", twice.name)).with_hint(DAMAGED));
        }
        entries.sort_by_key(|e| (e.start, e.end));
        // A file without tensors may end with its header.
        let begin =
            if entries.is_empty() { file.len() } else { cursor.position().next_multiple_of(alignment) };
        check_layout(&entries, alignment, file.len().saturating_sub(begin))?;
        Ok((Header { metadata, tensors: entries }, begin))
    }
}

/// Magic and version.
///
/// # Errors
/// If this is no GGUF file, a big-endian one, or one of another version.
fn version(cursor: &mut Cursor) -> Result<()> {
    let magic = cursor.array::<4>()?;
    if magic != MAGIC {
        return Err(Error::invalid(format!(
            "expected the letters `GGUF` first, found the bytes {magic:02x?}"
        ))
        .with_hint("this is no GGUF file; older formats of ggml must be converted again"));
    }
    match cursor.u32()? {
        version if VERSIONS.contains(&version) => Ok(()),
        // Versions are small: a large number that is small the other way round tells the byte order.
        version if version.swap_bytes() <= u32::from(u16::MAX) => {
            let text =
                format!("the file is big-endian (version {} in that byte order)", version.swap_bytes());
            Err(Error::unsupported(text).with_hint("take or convert to the little-endian file"))
        }
        version => {
            Err(Error::unsupported(format!("version {version} of the format is not read, only 2 and 3"))
                .with_hint("convert the model again with current tools"))
        }
    }
}

/// A power of two.
/// `general.alignment`, else the default.
fn alignment(metadata: &Metadata) -> Result<usize> {
    let found = metadata.whole(ALIGNMENT)?.unwrap_or(DEFAULT_ALIGNMENT);
    let usable = u32::try_from(found).ok().filter(|a| a.is_power_of_two()).map(|a| a as usize);
    usable.ok_or_else(|| metadata.expected_error(ALIGNMENT, "a power of two below 2^32").with_hint(DAMAGED))
}

/// One tensor entry: name, count of sizes, sizes, type, offset.
fn entry(cursor: &mut Cursor) -> Result<GgufEntry> {
    let name = text(cursor.blob()?)?.to_string();
    read_entry(cursor, name.clone()).map_err(|e| e.context(format!("tensor `{name}`")))
}

/// What follows a tensor's name.
fn read_entry(cursor: &mut Cursor, name: String) -> Result<GgufEntry> {
    let bad = |text: String| Error::invalid(text).with_hint(DAMAGED);
    let count = cursor.u32()?;
    if count > MOST_SIZES {
        return Err(bad(format!("{count} sizes are claimed, at most {MOST_SIZES} are allowed")));
    }
    let mut shape = Vec::new();
    for _ in 0..count {
        let size = cursor.u64()?;
        let usable = usize::try_from(size);
        shape.push(usable.map_err(|_| bad(format!("a size of {size} does not fit this machine")))?);
    }
    // The file has the innermost size first.
    shape.reverse();
    let id = cursor.u32()?;
    let kind = TensorKind::parse(id).ok_or_else(|| {
        Error::unsupported(format!("element type {id} is not known"))
            .with_hint(format!("take a file with weights of the types {}", TensorKind::served_names()))
    })?;
    let offset = cursor.u64()?;
    let start = usize::try_from(offset).map_err(|_| bad(format!("it starts at byte {offset}")))?;
    let block = kind.block();
    let len = kind.byte_len(&shape).ok_or_else(|| {
        bad(format!("{kind}{shape:?} has no size that fits this machine in rows of whole blocks of {block}"))
    })?;
    let end = start.checked_add(len).ok_or_else(|| bad(format!("it starts at byte {start}")))?;
    Ok(GgufEntry { name, kind, shape, start, end })
}

/// The tensors, sorted by start, must follow one another in `data` bytes, each padded to the alignment.
fn check_layout(entries: &[GgufEntry], alignment: usize, data: usize) -> Result<()> {
    let bad = |text: String, hint| Err(Error::invalid(text).with_hint(hint));
    let mut end = 0;
    let mut before = "";
    for entry in entries {
        let (name, start) = (&entry.name, entry.start);
        if !start.is_multiple_of(alignment) {
            let text =
                format!("tensor `{name}` starts at byte {start}, no multiple of the alignment {alignment}");
            return bad(text, DAMAGED);
        }
        if start < end {
            let text =
                format!("tensor `{name}` starts at byte {start}, inside `{before}` that ends at {end}");
            return bad(text, DAMAGED);
        }
        if entry.end > data {
            let last = entry.end;
            return bad(
                format!("tensor `{name}` ends at data byte {last}, the file has only {data}"),
                TRUNCATED,
            );
        }
        if start > end.next_multiple_of(alignment) {
            let text = format!("bytes {end} to {start} before tensor `{name}` belong to no tensor");
            return bad(text, DAMAGED);
        }
        end = entry.end;
        before = name;
    }
    Ok(())
}
