//! The key/value pairs of a GGUF file: typed, checked, and left in the mapped file where they are long.
//!
//! A file may hold a vocabulary of several hundred thousand texts; arrays are checked when the file is
//! opened and decoded when they are asked for. The getters give `None` for an absent key and an error for
//! one of another type.

use super::cursor::{Cursor, DAMAGED, text};
use std::collections::BTreeMap;
use std::fmt;
use tapml_graph::{Bytes, Error, Result};

/// The longest key, in bytes, as the format prescribes.
const MAX_KEY: usize = 65_535;

/// Type of a value, by its number in the file.
/// Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Unsigned(usize),
    Signed(usize),
    Float(usize),
    Bool,
    Text,
    Array,
}

impl ValueKind {
    /// `gguf_metadata_value_type` of the format.
    fn parse(id: u32) -> Result<ValueKind> {
        Ok(match id {
            0 => ValueKind::Unsigned(1),
            1 => ValueKind::Signed(1),
            2 => ValueKind::Unsigned(2),
            3 => ValueKind::Signed(2),
            4 => ValueKind::Unsigned(4),
            5 => ValueKind::Signed(4),
            6 => ValueKind::Float(4),
            7 => ValueKind::Bool,
            8 => ValueKind::Text,
            9 => ValueKind::Array,
            10 => ValueKind::Unsigned(8),
            11 => ValueKind::Signed(8),
            12 => ValueKind::Float(8),
            _ => {
                let text = format!("expected a value type from 0 to 12, found {id}");
                return Err(Error::invalid(text).with_hint(DAMAGED));
            }
        })
    }

    /// Bytes that a value of this type takes at least.
    fn least_bytes(self) -> usize {
        match self {
            ValueKind::Unsigned(size) | ValueKind::Signed(size) | ValueKind::Float(size) => size,
            ValueKind::Bool => 1,
            ValueKind::Text => 8,
            ValueKind::Array => 12,
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueKind::Unsigned(size) => write!(f, "u{}", size * 8),
            ValueKind::Signed(size) => write!(f, "i{}", size * 8),
            ValueKind::Float(size) => write!(f, "f{}", size * 8),
            ValueKind::Bool => f.write_str("bool"),
            ValueKind::Text => f.write_str("text"),
            ValueKind::Array => f.write_str("array"),
        }
    }
}

/// A value. Text and arrays are views of the mapped file.
#[derive(Clone, Debug)]
pub enum MetadataValue {
    /// u8, u16, u32 or u64.
    Unsigned(u64),
    /// i8, i16, i32 or i64.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text, not yet known to be UTF-8.
    Text(Bytes),
    /// Values of one type.
    Array(MetadataArray),
}

impl fmt::Display for MetadataValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataValue::Unsigned(value) => write!(f, "{value}"),
            MetadataValue::Signed(value) => write!(f, "{value}"),
            MetadataValue::Float(value) => write!(f, "{value:?}"),
            MetadataValue::Bool(value) => write!(f, "{value}"),
            MetadataValue::Text(bytes) => write!(f, "a text of {} bytes", bytes.len()),
            MetadataValue::Array(array) => write!(f, "an array of {} {}", array.len, array.kind),
        }
    }
}

/// An array of scalars or texts; its bounds have been checked.
#[derive(Clone, Debug)]
pub struct MetadataArray {
    /// Of all elements; never an array.
    kind: ValueKind,
    len: usize,
    /// The elements as they lie in the file, texts with their lengths.
    bytes: Bytes,
}

impl MetadataArray {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The texts, if this is an array of texts.
    fn texts(&self) -> Option<Result<Vec<&str>>> {
        let mut cursor = Cursor::new(&self.bytes);
        (self.kind == ValueKind::Text).then(|| {
            // The count was checked against the file's length when it was opened.
            let mut texts = Vec::with_capacity(self.len);
            for _ in 0..self.len {
                texts.push(text(cursor.blob()?)?);
            }
            Ok(texts)
        })
    }

    /// The scalars as `convert` makes them; nothing if this is no array of scalars, or one cannot be converted.
    fn scalars<T>(&self, convert: impl Fn(&MetadataValue) -> Option<T>) -> Option<Vec<T>> {
        let mut cursor = Cursor::new(&self.bytes);
        let mut scalars = Vec::with_capacity(self.len);
        for _ in 0..self.len {
            scalars.push(convert(&scalar(self.kind, &mut cursor).ok()?)?);
        }
        Some(scalars)
    }
}

/// The pairs by key.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Sorted, so that listings do not depend on the file's order.
    pairs: BTreeMap<String, MetadataValue>,
}

impl Metadata {
    /// Reads `count` pairs. `bytes` are those of `cursor`.
    pub(super) fn read(cursor: &mut Cursor, count: usize, bytes: &Bytes) -> Result<Metadata> {
        let mut pairs = BTreeMap::new();
        for index in 0..count {
            let key = key(cursor).map_err(|e| e.context(format!("metadata pair {index}")))?;
            let value = value(cursor, bytes).map_err(|e| e.context(format!("metadata `{key}`")))?;
            // Nothing says which of two would count.
            if pairs.contains_key(&key) {
                return Err(Error::invalid(format!("metadata `{key}` is there twice")).with_hint(DAMAGED));
            }
            pairs.insert(key, value);
        }
        Ok(Metadata { pairs })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.pairs.get(key)
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.pairs.keys().map(String::as_str)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(MetadataValue::Text(bytes)) => text(bytes).map(Some).map_err(|e| with_key(key, e)),
            Some(_) => Err(self.expected_error(key, "a text")),
        }
    }

    /// A whole number that is not negative.
    pub fn whole(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        whole(value).map(Some).ok_or_else(|| self.expected_error(key, "a whole number that is not negative"))
    }

    /// A number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        number(value).map(Some).ok_or_else(|| self.expected_error(key, "a number"))
    }

    /// A truth value.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(MetadataValue::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.expected_error(key, "a truth value")),
        }
    }

    /// An array of texts.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        let texts = match self.get(key) {
            None => return Ok(None),
            Some(MetadataValue::Array(array)) => array.texts(),
            Some(_) => None,
        };
        let texts = texts.ok_or_else(|| self.expected_error(key, "an array of texts"))?;
        texts.map(Some).map_err(|e| with_key(key, e))
    }

    /// An array of numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        self.scalars(key, "an array of numbers", number)
    }

    /// An array of whole numbers that are not negative.
    pub fn wholes(&self, key: &str) -> Result<Option<Vec<u64>>> {
        self.scalars(key, "an array of whole numbers that are not negative", whole)
    }

    /// An array of truth values.
    pub fn flags(&self, key: &str) -> Result<Option<Vec<bool>>> {
        let flag =
            |value: &MetadataValue| if let MetadataValue::Bool(flag) = value { Some(*flag) } else { None };
        self.scalars(key, "an array of truth values", flag)
    }

    /// An array of bytes, such as a compiled table.
    pub fn bytes(&self, key: &str) -> Result<Option<&[u8]>> {
        match self.get(key) {
            None => Ok(None),
            Some(MetadataValue::Array(MetadataArray {
                // Converters write bytes with or without a sign.
                kind: ValueKind::Unsigned(1) | ValueKind::Signed(1),
                bytes,
                ..
            })) => Ok(Some(bytes)),
            Some(_) => Err(self.expected_error(key, "an array of bytes")),
        }
    }

    /// An error about a key: what it must be, and what it is.
    pub fn expected_error(&self, key: &str, expected: &str) -> Error {
        let found = self.get(key).map_or("nothing".to_string(), MetadataValue::to_string);
        Error::invalid(format!("metadata `{key}`: expected {expected}, found {found}"))
    }

    /// The elements of an array as `convert` makes them, with an error that says `what` was expected.
    fn scalars<T>(
        &self,
        key: &str,
        what: &str,
        convert: impl Fn(&MetadataValue) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let scalars = match self.get(key) {
            None => return Ok(None),
            Some(MetadataValue::Array(array)) => array.scalars(convert),
            Some(_) => None,
        };
        scalars.map(Some).ok_or_else(|| self.expected_error(key, what))
    }
}

/// Adds the key to an error.
fn with_key(key: &str, error: Error) -> Error {
    error.context(format!("metadata `{key}`"))
}

/// Signed numbers that are not negative count, too: converters differ in the types that they choose.
fn whole(value: &MetadataValue) -> Option<u64> {
    match value {
        MetadataValue::Unsigned(value) => Some(*value),
        MetadataValue::Signed(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// Integers as well.
fn number(value: &MetadataValue) -> Option<f64> {
    match value {
        MetadataValue::Unsigned(value) => Some(*value as f64),
        MetadataValue::Signed(value) => Some(*value as f64),
        MetadataValue::Float(value) => Some(*value),
        _ => None,
    }
}

/// A key of bounded length, in UTF-8.
fn key(cursor: &mut Cursor) -> Result<String> {
    let bytes = cursor.blob()?;
    if bytes.len() > MAX_KEY {
        let found = bytes.len();
        return Err(Error::invalid(format!("the key has {found} bytes, at most {MAX_KEY} are allowed"))
            .with_hint(DAMAGED));
    }
    Ok(text(bytes)?.to_string())
}

/// A type and a value of it.
fn value(cursor: &mut Cursor, bytes: &Bytes) -> Result<MetadataValue> {
    match ValueKind::parse(cursor.u32()?)? {
        ValueKind::Text => {
            let len = cursor.blob()?.len();
            view(bytes, cursor.position() - len, len).map(MetadataValue::Text)
        }
        ValueKind::Array => array(cursor, bytes).map(MetadataValue::Array),
        kind => scalar(kind, cursor),
    }
}

/// The element type, the count, and a view of the elements.
fn array(cursor: &mut Cursor, bytes: &Bytes) -> Result<MetadataArray> {
    let kind = ValueKind::parse(cursor.u32()?)?;
    if kind == ValueKind::Array {
        return Err(Error::unsupported("arrays within arrays are not read")
            .with_hint("no published model has them; convert it again with current tools"));
    }
    // The count is checked before the loop, so that a short file cannot claim a long array.
    let len = cursor.count(&format!("values of type {kind}"), kind.least_bytes())?;
    let start = cursor.position();
    match kind {
        ValueKind::Text => {
            for _ in 0..len {
                cursor.blob()?;
            }
        }
        // Does not overflow: the rest of the file holds as many.
        kind => {
            cursor.take(len * kind.least_bytes())?;
        }
    }
    Ok(MetadataArray { kind, len, bytes: view(bytes, start, cursor.position() - start)? })
}

/// Widened to 64 bits.
fn scalar(kind: ValueKind, cursor: &mut Cursor) -> Result<MetadataValue> {
    Ok(match kind {
        ValueKind::Unsigned(size) => MetadataValue::Unsigned(read_unsigned(cursor, size)?),
        ValueKind::Signed(size) => {
            // Shifting up and back down extends the sign.
            let unused = 64 - 8 * size;
            MetadataValue::Signed((read_unsigned(cursor, size)? << unused) as i64 >> unused)
        }
        ValueKind::Float(4) => MetadataValue::Float(f64::from(f32::from_le_bytes(cursor.array()?))),
        ValueKind::Float(_) => MetadataValue::Float(f64::from_le_bytes(cursor.array()?)),
        ValueKind::Bool => match cursor.array()? {
            [0] => MetadataValue::Bool(false),
            [1] => MetadataValue::Bool(true),
            [other] => {
                let text = format!("expected a truth value, 0 or 1, found {other}");
                return Err(Error::invalid(text).with_hint(DAMAGED));
            }
        },
        ValueKind::Text | ValueKind::Array => return Err(Error::bug("a text or array was read as a scalar")),
    })
}

/// A number of `size` ≤ 8 bytes.
fn read_unsigned(cursor: &mut Cursor, size: usize) -> Result<u64> {
    Ok(cursor.take(size)?.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// A part of the file that stays mapped.
fn view(bytes: &Bytes, start: usize, len: usize) -> Result<Bytes> {
    bytes.slice(start, len).ok_or_else(|| Error::bug("a value lies outside the file that it was read from"))
}
