//! `tojson` as Transformers defines it: Python's `json.dumps` without escapes for HTML.
//!
//! What is written is bounded as it is written, so that a large value fails early.

use super::budget;
use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use std::io::Write;

/// The only option is `indent`, of at most 16 spaces.
pub fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let mut text = BoundedText(Vec::new());
    let written = match indent {
        None => {
            serde::Serialize::serialize(value, &mut serde_json::Serializer::with_formatter(&mut text, Spaced))
        }
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let pretty = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            serde::Serialize::serialize(value, &mut serde_json::Serializer::with_formatter(&mut text, pretty))
        }
    };
    let bad = |e: String| Error::new(ErrorKind::InvalidOperation, e);
    written.map_err(|e| bad(e.to_string()))?;
    String::from_utf8(text.0).map_err(|e| bad(e.to_string()))
}

/// A text of at most the size of a value.
struct BoundedText(Vec<u8>);

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        budget::check_size(self.0.len() + bytes.len()).map_err(std::io::Error::other)?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// JSON with a space after `,` and `:`, as Python writes it.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: std::io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: std::io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: std::io::Write + ?Sized>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}
