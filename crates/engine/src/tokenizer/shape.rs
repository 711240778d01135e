//! A look at a `tokenizer.json` before the library builds anything of it: how many steps it has, what their patterns would
//! take to compile, and what the table of characters claims.
//!
//! The file is walked as JSON without building a value of it: vocabularies are skipped. Names of keys
//! decide what is counted.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The most steps of a tokenizer, sequences counted with their steps.
const STEPS: usize = 256;
/// Bytes of all patterns of a tokenizer. Those of known models have some hundred.
const PATTERNS: usize = 16 << 10;
/// Counted repetitions of all patterns, those within each other multiplied: each copies what it repeats.
const REPEATS: usize = 512;
/// Bytes of one character's replacement in the table of characters.
const REPLACEMENT: usize = 256;

/// Checks the text of a `tokenizer.json`. Fails if it is no JSON, too, which the library takes for granted.
pub fn check(bytes: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<TokenizerShape>(bytes).map(drop)
}

/// What the steps of a tokenizer come to.
#[derive(Default)]
struct TokenizerShape {
    /// Objects with a `type`.
    steps: usize,
    /// Bytes.
    patterns: usize,
    /// See [`repeats`].
    repeats: usize,
}

impl<'de> Deserialize<'de> for TokenizerShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TokenizerShape, D::Error> {
        let mut shape = TokenizerShape::default();
        deserializer.deserialize_any(ShapeWalk { shape: &mut shape, key: KeyKind::Root })?;
        Ok(shape)
    }
}

impl TokenizerShape {
    /// Counts a text by the key that it stands under.
    fn add(&mut self, key: KeyKind, text: &str) -> Result<(), String> {
        match key {
            KeyKind::Type => self.steps += 1,
            KeyKind::Pattern => {
                self.patterns += text.len();
                self.repeats = self.repeats.saturating_add(repeats(text));
            }
            KeyKind::Table => {
                let table = from_base64(text).ok_or("the table of characters is no base64")?;
                return check_table(&table);
            }
            KeyKind::Root | KeyKind::Part | KeyKind::Other => {}
        }
        for (what, found, most) in [
            ("steps", self.steps, STEPS),
            ("bytes of patterns", self.patterns, PATTERNS),
            ("repetitions within patterns", self.repeats, REPEATS),
        ] {
            if found > most {
                return Err(format!("it has {found} {what}, at most {most} are supported"));
            }
        }
        Ok(())
    }
}

/// What stands under a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    /// The outermost object.
    Root,
    /// A part of the tokenizer that has steps, and everything within.
    Part,
    /// Names a step.
    Type,
    /// A pattern, or a plain text in its place.
    Pattern,
    /// See [`check_table`].
    Table,
    /// Skipped, such as vocabularies.
    Other,
}

/// The walk below one key.
struct ShapeWalk<'a> {
    shape: &'a mut TokenizerShape,
    key: KeyKind,
}

impl<'de> serde::de::DeserializeSeed<'de> for ShapeWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.key {
            // Read past without memory.
            KeyKind::Other => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for ShapeWalk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the parts of a tokenizer")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            // Keys of the library's own format. An unknown one below a part is walked as well.
            let key = match (self.key, name.as_str()) {
                (KeyKind::Root, "normalizer" | "pre_tokenizer" | "post_processor" | "decoder") => {
                    KeyKind::Part
                }
                (KeyKind::Root, _) => KeyKind::Other,
                (_, "type") => KeyKind::Type,
                (_, "Regex" | "String") => KeyKind::Pattern,
                (_, "precompiled_charsmap") => KeyKind::Table,
                _ => KeyKind::Part,
            };
            map.next_value_seed(ShapeWalk { shape: &mut *self.shape, key })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        // A list stands for its items: they are under the same key.
        while seq.next_element_seed(ShapeWalk { shape: &mut *self.shape, key: self.key })?.is_some() {}
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.shape.add(self.key, text).map_err(E::custom)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The product of all counts in braces, as if all of them stood within each other.
fn repeats(pattern: &str) -> usize {
    // Braces that are no counts have no numbers and count 1.
    let braces = pattern.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let counts = braces.map(|(counts, _)| {
        counts.split(',').filter_map(|n| n.trim().parse::<usize>().ok()).max().unwrap_or(1).max(1)
    });
    counts.fold(1, usize::saturating_mul)
}

/// `None` on a character that base64 has not.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    // Padding says nothing that the length does not.
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// Checks a table of characters of SentencePiece: the bytes of a trie, the trie, and the replacements with a zero behind each.
/// The library believes the size, and puts a replacement in the place of each character, however long it is.
pub fn check_table(table: &[u8]) -> Result<(), String> {
    let damaged = "the table of characters is damaged: its size contradicts its first bytes";
    let (size, rest) = table.split_first_chunk::<4>().ok_or(damaged)?;
    let size = u32::from_le_bytes(*size) as usize;
    if !size.is_multiple_of(4) || size > rest.len() {
        return Err(damaged.into());
    }
    let longest = rest[size..].split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0);
    if longest > REPLACEMENT {
        return Err(format!(
            "the table of characters replaces one by {longest} bytes, at most {REPLACEMENT}"
        ));
    }
    Ok(())
}
