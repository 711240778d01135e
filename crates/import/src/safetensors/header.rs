//! Parses the header of a safetensors file and checks it against the file's length.
//!
//! The first 8 bytes are the header's length, little-endian; the JSON text follows; offsets count from its
//! end. The rules are those of the format's own library: no gaps, no overlap, no duplicate names.

use super::StoredType;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use tapml_graph::{Error, Result};

/// The longest header that is read, in bytes; the same bound as in the format's own library.
pub const MAX_HEADER: usize = 100_000_000;

/// The advice for a file that contradicts itself.
const DAMAGED: &str = "the file is damaged or was made by a faulty writer; download or save it again";
/// The advice for a file that ends too early.
const TRUNCATED: &str = "the copy or download was cut off; fetch the file again";

/// What a header says, checked.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// The tensors in the order of their bytes.
    pub tensors: Vec<HeaderEntry>,
    /// Free text under `__metadata__`.
    pub metadata: BTreeMap<String, String>,
}

/// One tensor of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderEntry {
    /// Its name.
    pub name: String,
    /// Element type.
    pub stored: StoredType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// First byte, counted from the end of the header.
    pub start: usize,
    /// One past the last byte, counted from the end of the header.
    pub end: usize,
}

impl Header {
    /// Parses the whole file's bytes; returns the header and where the tensors' bytes begin.
    ///
    /// Fails on a length beyond the file or [`MAX_HEADER`], text that is no UTF-8 or no header, a duplicate name, an
    /// unknown type, a size that contradicts shape and type, offsets that overlap, leave gaps or end elsewhere than
    /// the file.
    pub fn parse(file: &[u8]) -> Result<(Header, usize)> {
        let text = header_text(file)?;
        let begin = 8 + text.len();
        let raw: Raw = serde_json::from_str(text).map_err(|e| {
            Error::invalid(format!("the header is not what safetensors prescribes: {e}")).with_hint(DAMAGED)
        })?;
        // A JSON library keeps the last of two equal keys, so duplicates are looked for in the list.
        let mut seen = HashSet::new();
        if let Some((name, _)) = raw.tensors.iter().find(|(name, _)| !seen.insert(name.as_str())) {
            return Err(Error::invalid(format!("tensor `{name}` is listed twice")).with_hint(DAMAGED));
        }
        let mut tensors = raw.tensors.into_iter().map(entry).collect::<Result<Vec<HeaderEntry>>>()?;
        tensors.sort_by_key(|e| (e.start, e.end));
        check_layout(&tensors, file.len() - begin)?;
        Ok((Header { tensors, metadata: raw.metadata }, begin))
    }
}

/// The JSON text behind the length.
///
/// # Errors
/// If the file ends too early, the length is too large, or the text is no UTF-8.
fn header_text(file: &[u8]) -> Result<&str> {
    let have = file.len();
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        let text = format!("the file has {have} bytes, a safetensors file at least 8");
        return Err(Error::invalid(text).with_hint(TRUNCATED));
    };
    let length = u64::from_le_bytes(*length);
    let usable = usize::try_from(length).ok().filter(|&l| l <= MAX_HEADER).ok_or_else(|| {
        Error::invalid(format!("the header claims {length} bytes, at most {MAX_HEADER} are allowed"))
            .with_hint("this is no safetensors file, or its first 8 bytes are damaged")
    })?;
    let bytes = rest.get(..usable).ok_or_else(|| {
        let text = format!("the header claims {length} bytes, the file has {} after its length", rest.len());
        Error::invalid(text).with_hint(TRUNCATED)
    })?;
    std::str::from_utf8(bytes).map_err(|e| {
        let at = e.valid_up_to();
        Error::invalid(format!("the header is not UTF-8 from its byte {at} on")).with_hint(DAMAGED)
    })
}

/// Checks one entry by itself: known type, ordered offsets, and as many bytes as type and shape need.
fn entry((name, raw): (String, RawEntry)) -> Result<HeaderEntry> {
    let bad = |text: String| Error::invalid(format!("tensor `{name}`: {text}")).with_hint(DAMAGED);
    let RawEntry { dtype, shape, data_offsets: (start, end) } = raw;
    let stored = StoredType::parse(&dtype)
        .ok_or_else(|| Error::unsupported(format!("tensor `{name}`: unknown element type `{dtype}`")))?;
    if end < start {
        return Err(bad(format!("its bytes end at {end}, before their start {start}")));
    }
    let need = stored
        .byte_len(&shape)
        .ok_or_else(|| bad(format!("{stored}{shape:?} has no size in whole bytes that fits this machine")))?;
    match end - start {
        have if have == need => Ok(HeaderEntry { name, stored, shape, start, end }),
        have => Err(bad(format!("{stored}{shape:?} needs {need} bytes, the header gives it {have}"))),
    }
}

/// The tensors, sorted by start, must fill `data` bytes without overlap or gap.
fn check_layout(tensors: &[HeaderEntry], data: usize) -> Result<()> {
    // One pass over sorted entries finds overlaps and gaps alike.
    let mut end = 0;
    let mut before: Option<&HeaderEntry> = None;
    for entry in tensors {
        let name = &entry.name;
        if entry.start < end {
            let other = before.map_or("", |b| b.name.as_str());
            let text = format!(
                "tensor `{name}` starts at byte {}, inside `{other}` that ends at {end}",
                entry.start
            );
            return Err(Error::invalid(text).with_hint(DAMAGED));
        }
        if entry.start > end {
            let text = format!("bytes {end} to {} before tensor `{name}` belong to no tensor", entry.start);
            return Err(Error::invalid(text).with_hint(DAMAGED));
        }
        if entry.end > data {
            let text = format!("tensor `{name}` ends at data byte {}, the file has only {data}", entry.end);
            return Err(Error::invalid(text).with_hint(TRUNCATED));
        }
        end = entry.end;
        before = Some(entry);
    }
    // Does not underflow: no entry ends behind `data`.
    match data - end {
        0 => Ok(()),
        extra => {
            let text = format!("{extra} bytes after the last tensor belong to no tensor");
            Err(Error::invalid(text).with_hint(DAMAGED))
        }
    }
}

/// The header as JSON has it, with duplicate names still there.
struct Raw {
    tensors: Vec<(String, RawEntry)>,
    metadata: BTreeMap<String, String>,
}

/// As the JSON text has it, not yet checked.
#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    /// First byte and one past the last, behind the header.
    data_offsets: (usize, usize),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Raw, D::Error> {
        d.deserialize_map(RawVisitor)
    }
}

/// Visits the map entry by entry, because a map type would drop duplicates without a word.
struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Raw, A::Error> {
        let mut tensors = Vec::new();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if metadata.replace(map.next_value()?).is_some() {
                    return Err(A::Error::duplicate_field("__metadata__"));
                }
            } else {
                let named = |e: A::Error| A::Error::custom(format!("tensor `{name}`: {e}"));
                let entry = map.next_value().map_err(named)?;
                tensors.push((name, entry));
            }
        }
        Ok(Raw { tensors, metadata: metadata.unwrap_or_default() })
    }
}
