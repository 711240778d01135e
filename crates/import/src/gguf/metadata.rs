//! The key/value pairs of a GGUF file: typed, checked, and left in the mapped file where they are long.

use super::cursor::{Cursor, DAMAGED, text};
use std::collections::BTreeMap;
use std::fmt;
use tapml_graph::{Bytes, Error, Result};

/// The longest key, in bytes, as the format prescribes.
const MAX_KEY: usize = 65_535;

/// Type of a value, by its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unsigned(usize),
    Signed(usize),
    Float(usize),
    Bool,
    Text,
    Array,
}

impl Kind {
    fn parse(id: u32) -> Result<Kind> {
        Ok(match id {
            0 => Kind::Unsigned(1),
            1 => Kind::Signed(1),
            2 => Kind::Unsigned(2),
            3 => Kind::Signed(2),
            4 => Kind::Unsigned(4),
            5 => Kind::Signed(4),
            6 => Kind::Float(4),
            7 => Kind::Bool,
            8 => Kind::Text,
            9 => Kind::Array,
            10 => Kind::Unsigned(8),
            11 => Kind::Signed(8),
            12 => Kind::Float(8),
            _ => {
                let text = format!("expected a value type from 0 to 12, found {id}");
                return Err(Error::invalid(text).with_hint(DAMAGED));
            }
        })
    }

    /// Bytes that a value of this type takes at least.
    fn least(self) -> usize {
        match self {
            Kind::Unsigned(size) | Kind::Signed(size) | Kind::Float(size) => size,
            Kind::Bool => 1,
            Kind::Text => 8,
            Kind::Array => 12,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Unsigned(size) => write!(f, "u{}", size * 8),
            Kind::Signed(size) => write!(f, "i{}", size * 8),
            Kind::Float(size) => write!(f, "f{}", size * 8),
            Kind::Bool => f.write_str("bool"),
            Kind::Text => f.write_str("text"),
            Kind::Array => f.write_str("array"),
        }
    }
}

/// A value. Text and arrays are views of the mapped file.
#[derive(Clone, Debug)]
pub enum Value {
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
    Array(Array),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Text(bytes) => write!(f, "a text of {} bytes", bytes.len()),
            Value::Array(array) => write!(f, "an array of {} {}", array.len, array.kind),
        }
    }
}

/// An array of scalars or texts; its bounds have been checked.
#[derive(Clone, Debug)]
pub struct Array {
    kind: Kind,
    len: usize,
    bytes: Bytes,
}

impl Array {
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
        (self.kind == Kind::Text).then(|| {
            let mut texts = Vec::with_capacity(self.len);
            for _ in 0..self.len {
                texts.push(text(cursor.blob()?)?);
            }
            Ok(texts)
        })
    }

    /// The scalars as `convert` makes them; nothing if this is no array of scalars, or one cannot be converted.
    fn scalars<T>(&self, convert: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
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
    pairs: BTreeMap<String, Value>,
}

impl Metadata {
    /// Reads `count` pairs. `bytes` are those of `cursor`.
    pub(super) fn read(cursor: &mut Cursor, count: usize, bytes: &Bytes) -> Result<Metadata> {
        let mut pairs = BTreeMap::new();
        for index in 0..count {
            let key = key(cursor).map_err(|e| e.context(format!("metadata pair {index}")))?;
            let value = value(cursor, bytes).map_err(|e| e.context(format!("metadata `{key}`")))?;
            if pairs.contains_key(&key) {
                return Err(Error::invalid(format!("metadata `{key}` is there twice")).with_hint(DAMAGED));
            }
            pairs.insert(key, value);
        }
        Ok(Metadata { pairs })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
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
            Some(Value::Text(bytes)) => text(bytes).map(Some).map_err(|e| at(key, e)),
            Some(_) => Err(self.expected(key, "a text")),
        }
    }

    /// A whole number that is not negative.
    pub fn whole(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        whole(value).map(Some).ok_or_else(|| self.expected(key, "a whole number that is not negative"))
    }

    /// A number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        number(value).map(Some).ok_or_else(|| self.expected(key, "a number"))
    }

    /// A truth value.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.expected(key, "a truth value")),
        }
    }

    /// An array of texts.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        let texts = match self.get(key) {
            None => return Ok(None),
            Some(Value::Array(array)) => array.texts(),
            Some(_) => None,
        };
        let texts = texts.ok_or_else(|| self.expected(key, "an array of texts"))?;
        texts.map(Some).map_err(|e| at(key, e))
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
        let flag = |value: &Value| if let Value::Bool(flag) = value { Some(*flag) } else { None };
        self.scalars(key, "an array of truth values", flag)
    }

    /// An array of bytes, such as a compiled table.
    pub fn bytes(&self, key: &str) -> Result<Option<&[u8]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array { kind: Kind::Unsigned(1) | Kind::Signed(1), bytes, .. })) => {
                Ok(Some(bytes))
            }
            Some(_) => Err(self.expected(key, "an array of bytes")),
        }
    }

    /// An error about a key: what it must be, and what it is.
    pub fn expected(&self, key: &str, expected: &str) -> Error {
        let found = self.get(key).map_or("nothing".to_string(), Value::to_string);
        Error::invalid(format!("metadata `{key}`: expected {expected}, found {found}"))
    }

    fn scalars<T>(
        &self,
        key: &str,
        what: &str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let scalars = match self.get(key) {
            None => return Ok(None),
            Some(Value::Array(array)) => array.scalars(convert),
            Some(_) => None,
        };
        scalars.map(Some).ok_or_else(|| self.expected(key, what))
    }
}

fn at(key: &str, error: Error) -> Error {
    error.context(format!("metadata `{key}`"))
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Unsigned(value) => Some(*value),
        Value::Signed(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Unsigned(value) => Some(*value as f64),
        Value::Signed(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn key(cursor: &mut Cursor) -> Result<String> {
    let bytes = cursor.blob()?;
    if bytes.len() > MAX_KEY {
        let found = bytes.len();
        return Err(Error::invalid(format!("the key has {found} bytes, at most {MAX_KEY} are allowed"))
            .with_hint(DAMAGED));
    }
    Ok(text(bytes)?.to_string())
}

fn value(cursor: &mut Cursor, bytes: &Bytes) -> Result<Value> {
    match Kind::parse(cursor.u32()?)? {
        Kind::Text => {
            let len = cursor.blob()?.len();
            view(bytes, cursor.position() - len, len).map(Value::Text)
        }
        Kind::Array => array(cursor, bytes).map(Value::Array),
        kind => scalar(kind, cursor),
    }
}

fn array(cursor: &mut Cursor, bytes: &Bytes) -> Result<Array> {
    let kind = Kind::parse(cursor.u32()?)?;
    if kind == Kind::Array {
        return Err(Error::unsupported("arrays within arrays are not read")
            .with_hint("no published model has them; convert it again with current tools"));
    }
    let len = cursor.count(&format!("values of type {kind}"), kind.least())?;
    let start = cursor.position();
    match kind {
        Kind::Text => {
            for _ in 0..len {
                cursor.blob()?;
            }
        }
        // Does not overflow: the rest of the file holds as many.
        kind => {
            cursor.take(len * kind.least())?;
        }
    }
    Ok(Array { kind, len, bytes: view(bytes, start, cursor.position() - start)? })
}

fn scalar(kind: Kind, cursor: &mut Cursor) -> Result<Value> {
    Ok(match kind {
        Kind::Unsigned(size) => Value::Unsigned(unsigned(cursor, size)?),
        Kind::Signed(size) => {
            let unused = 64 - 8 * size;
            Value::Signed((unsigned(cursor, size)? << unused) as i64 >> unused)
        }
        Kind::Float(4) => Value::Float(f64::from(f32::from_le_bytes(cursor.array()?))),
        Kind::Float(_) => Value::Float(f64::from_le_bytes(cursor.array()?)),
        Kind::Bool => match cursor.array()? {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            [other] => {
                let text = format!("expected a truth value, 0 or 1, found {other}");
                return Err(Error::invalid(text).with_hint(DAMAGED));
            }
        },
        Kind::Text | Kind::Array => return Err(Error::bug("a text or array was read as a scalar")),
    })
}

/// A number of `size` ≤ 8 bytes.
fn unsigned(cursor: &mut Cursor, size: usize) -> Result<u64> {
    Ok(cursor.take(size)?.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

fn view(bytes: &Bytes, start: usize, len: usize) -> Result<Bytes> {
    bytes.slice(start, len).ok_or_else(|| Error::bug("a value lies outside the file that it was read from"))
}
