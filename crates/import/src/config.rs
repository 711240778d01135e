//! Typed, bounded access to a model's JSON files; errors name the file and the key. A key is found under any of its spellings.
//!
//! Every number is read within bounds that the caller gives. So sizes that multiply later cannot overflow,
//! and a hostile file cannot ask for memory without end.

use crate::present::is_present;
use crate::spelling::spellings;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use tapml_graph::{Error, Result};

// The bound is on the file. Values within it are bounded by the methods of `Section`.
/// The largest JSON file that is read, in bytes: the index of a model with many shards is the longest of them.
const MAX_JSON: u64 = 64 << 20;

/// A JSON object read from a file.
#[derive(Clone, Debug)]
pub struct Config {
    /// For messages; nothing is read from it again.
    path: PathBuf,
    /// Where in the file the object stands.
    prefix: String,
    root: Map<String, Value>,
}

impl Config {
    /// Reads and parses the file. Fails if it cannot be read, is too large or is no JSON object.
    pub fn read(path: &Path) -> Result<Config> {
        Config::parse(path, &tapml_files::read(path, MAX_JSON, "JSON")?)
    }

    /// Parses JSON text at hand; `path` is for messages. Fails if it is no JSON object.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Config> {
        let parsed: Value = serde_json::from_slice(&without_python_numbers(text))
            .map_err(|e| Error::invalid(format!("{} is no valid JSON: {e}", path.display())))?;
        match parsed {
            Value::Object(root) => Ok(Config { path: path.to_path_buf(), prefix: String::new(), root }),
            other => {
                let text = format!("{}: expected a JSON object, found {}", path.display(), brief(&other));
                Err(Error::invalid(text))
            }
        }
    }

    /// A configuration that follows from another file.
    ///
    /// Such as `config.json` made from the metadata of a GGUF file, at `path`.
    pub(crate) fn new(path: &Path, root: Map<String, Value>) -> Config {
        Config { path: path.to_path_buf(), prefix: String::new(), root }
    }

    /// Reads the file if it exists; see [`Config::read`].
    pub fn read_if_present(path: &Path) -> Result<Option<Config>> {
        is_present(path)?.then(|| Config::read(path)).transpose()
    }

    /// The file, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The whole object.
    pub fn root(&self) -> Section<'_> {
        Section { path: &self.path, prefix: self.prefix.clone(), map: &self.root }
    }

    /// The object as JSON.
    pub fn json(&self) -> &Map<String, Value> {
        &self.root
    }
}

/// An object within a JSON file. A key whose value is `null` counts as absent. A key that is absent is looked for under its
/// other spellings.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// The file, for messages.
    path: &'a Path,
    /// The keys around this object, each with a dot behind it.
    prefix: String,
    map: &'a Map<String, Value>,
}

impl<'a> Section<'a> {
    /// The value of a key, under the first of its spellings that is present.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        spellings(key).find_map(|key| self.exact_value(key))
    }

    /// The value of exactly this key.
    fn exact_value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// The spelling of a key that is present, else the key, for messages.
    pub fn spelling<'k>(&self, key: &'k str) -> &'k str {
        spellings(key).find(|key| self.exact_value(key).is_some()).unwrap_or(key)
    }

    /// Whether a key is present and its value `null`, where that means something else than its absence.
    pub fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// The object as a configuration of its own, with `defaults` for keys that are absent.
    pub fn with_defaults(&self, defaults: &[(&str, u32)]) -> Config {
        let mut root = self.map.clone();
        for &(key, value) in defaults.iter().filter(|(key, _)| self.get(key).is_none()) {
            root.insert(key.into(), value.into());
        }
        Config { path: self.path.to_path_buf(), prefix: self.prefix.clone(), root }
    }

    /// The object under a key.
    pub fn section(&self, key: &str) -> Result<Option<Section<'a>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let map = value.as_object().ok_or_else(|| self.expected_error(key, "an object"))?;
        Ok(Some(Section { path: self.path, prefix: format!("{}{key}.", self.prefix), map }))
    }

    /// A whole number within bounds.
    ///
    /// # Errors
    /// If the key is absent, no whole number, or out of bounds.
    pub fn size(&self, key: &str, bounds: RangeInclusive<u32>) -> Result<u32> {
        self.require(key)?;
        self.size_or(key, 0, bounds)
    }

    /// A whole number within bounds, or `default` if the key is absent.
    pub fn size_or(&self, key: &str, default: u32, bounds: RangeInclusive<u32>) -> Result<u32> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let number = value.as_u64().and_then(|v| u32::try_from(v).ok()).filter(|v| bounds.contains(v));
        number.ok_or_else(|| {
            self.expected_error(key, &format!("a whole number from {} to {}", bounds.start(), bounds.end()))
        })
    }

    /// A whole number within bounds, if the key is present.
    pub fn optional_size(&self, key: &str, bounds: RangeInclusive<u32>) -> Result<Option<u32>> {
        self.get(key).map(|_| self.size(key, bounds)).transpose()
    }

    /// A number within bounds.
    ///
    /// # Errors
    /// If the key is absent, no number, or out of bounds.
    pub fn number(&self, key: &str, bounds: RangeInclusive<f64>) -> Result<f64> {
        self.require(key)?;
        self.number_or(key, 0.0, bounds)
    }

    /// A number within bounds, or `default` if the key is absent.
    pub fn number_or(&self, key: &str, default: f64, bounds: RangeInclusive<f64>) -> Result<f64> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let number = value.as_f64().filter(|v| bounds.contains(v));
        number.ok_or_else(|| {
            self.expected_error(key, &format!("a number from {:e} to {:e}", bounds.start(), bounds.end()))
        })
    }

    /// A positive number, none if the value is `null`, or `default` if the key is absent.
    pub fn positive_or(&self, key: &str, default: Option<f32>) -> Result<Option<f32>> {
        match self.map.get(key) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(_) => Ok(Some(self.number(key, 1e-9..=1e9)? as f32)),
        }
    }

    /// A list of `len` numbers within bounds.
    ///
    /// # Errors
    /// If the key is absent, the list has another length, or a number is out of bounds.
    pub fn numbers(&self, key: &str, len: usize, bounds: RangeInclusive<f64>) -> Result<Vec<f64>> {
        let items = self.require(key)?.as_array().filter(|items| items.len() == len);
        let number = |value: &Value| value.as_f64().filter(|v| bounds.contains(v));
        let numbers = items.and_then(|items| items.iter().map(number).collect());
        numbers.ok_or_else(|| {
            let (low, high) = (bounds.start(), bounds.end());
            self.expected_error(key, &format!("a list of {len} numbers from {low:e} to {high:e}"))
        })
    }

    /// A truth value, or `default` if the key is absent.
    pub fn flag_or(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.expected_error(key, "true or false"))
    }

    /// A text.
    ///
    /// # Errors
    /// If the key is absent or no text.
    pub fn text(&self, key: &str) -> Result<&'a str> {
        let value = self.require(key)?;
        value.as_str().ok_or_else(|| self.expected_error(key, "a text"))
    }

    /// A text, or `default` if the key is absent.
    pub fn text_or(&self, key: &str, default: &'a str) -> Result<&'a str> {
        if self.get(key).is_none() { Ok(default) } else { self.text(key) }
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Result<Vec<&'a str>> {
        let items = self.require(key)?.as_array();
        let texts = items.and_then(|items| items.iter().map(Value::as_str).collect());
        texts.ok_or_else(|| self.expected_error(key, "a list of texts"))
    }

    /// Token ids: one number or a list of numbers below `vocab`; empty if the key is absent.
    ///
    /// # Errors
    /// If a value is no whole number or not below `vocab`.
    pub fn ids(&self, key: &str, vocab: usize) -> Result<Vec<u32>> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let id = |v: &Value| v.as_u64().filter(|&id| id < vocab as u64).map(|id| id as u32);
        items
            .iter()
            .map(id)
            .collect::<Option<Vec<u32>>>()
            .ok_or_else(|| self.expected_error(key, &format!("a token id below {vocab}, or a list of them")))
    }

    /// An error about a key: what it must be, and what it is.
    pub fn expected_error(&self, key: &str, expected: &str) -> Error {
        let found = self.map.get(self.spelling(key)).map_or("nothing".to_string(), brief);
        Error::invalid(format!("{}: expected {expected}, found {found}", self.name(key)))
    }

    /// An error about a key whose value is legal but not served.
    pub fn unsupported(&self, key: &str, text: &str) -> Error {
        Error::unsupported(format!("{}: {text}", self.name(key)))
    }

    /// File and key, for messages.
    fn name(&self, key: &str) -> String {
        format!("{}: `{}{}`", self.path.display(), self.prefix, self.spelling(key))
    }

    /// The value of a key that must be there. The error names all spellings that were looked for.
    fn require(&self, key: &str) -> Result<&'a Value> {
        self.get(key).ok_or_else(|| {
            let others: Vec<String> = spellings(key).skip(1).map(|other| format!("`{other}`")).collect();
            let others =
                if others.is_empty() { others.concat() } else { format!(" (or {})", others.join(", ")) };
            Error::invalid(format!("{}{others} is missing", self.name(key))).with_hint(
                "take the file that came with the weights; a configuration without this key cannot be used",
            )
        })
    }
}

/// The text with `NaN`, `Infinity` and `-Infinity` outside of strings, which Python writes and JSON does not know, replaced
/// by `null`.
fn without_python_numbers(text: &[u8]) -> Vec<u8> {
    // `-Infinity` is a word of its own: a `-` before `null` is no JSON.
    const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut kept = Vec::with_capacity(text.len());
    let (mut rest, mut quoted) = (text, false);
    while let Some(&byte) = rest.first() {
        let word = WORDS.iter().find(|word| !quoted && rest.starts_with(word));
        let (piece, length): (&[u8], usize) = match (word, byte) {
            (Some(word), _) => (b"null", word.len()),
            // An escaped quote does not end a string.
            (None, b'\\') => (&rest[..rest.len().min(2)], 2),
            (None, _) => (&rest[..1], 1),
        };
        quoted ^= byte == b'"';
        kept.extend_from_slice(piece);
        rest = rest.get(length..).unwrap_or_default();
    }
    kept
}

/// A JSON value for a message: cut short, because it comes from a file.
fn brief(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_only_python_knows_become_null_outside_of_strings() {
        let cases = [
            (r#"{"a": [0.0, Infinity, -Infinity, NaN]}"#, r#"{"a": [0.0, null, null, null]}"#),
            (r#"{"NaN": "Infinity \" -Infinity"}"#, r#"{"NaN": "Infinity \" -Infinity"}"#),
            (r#"{"a\\": NaN}"#, r#"{"a\\": null}"#),
            (r#"{"a": "\"#, r#"{"a": "\"#),
        ];
        for (text, expected) in cases {
            let found = without_python_numbers(text.as_bytes());
            assert_eq!(String::from_utf8(found).unwrap(), expected);
        }
    }
}
