//! `tojson` as Transformers defines it: Python's `json.dumps` with its options, without escapes for HTML.
//!
//! What is written is bounded as it is written, so that a large value fails early.

use super::budget;
use minijinja::value::{Kwargs, Rest, Value, ValueOrKwargs};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::Formatter;
use std::io::{Result as IoResult, Write};

/// Characters that an indentation and a separator may have.
const MAX_WHITE: usize = 16;

/// Names of the options, in the order in which Python takes them without a name.
const OPTIONS: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];

/// The value as JSON, with the options of [`OPTIONS`], named or not.
///
/// `indent` is a number of spaces or a text. Without it everything stands in one line.
pub fn to_json(value: &Value, options: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let mut unnamed = options.into_values();
    let named = match unnamed.pop() {
        Some(last) if last.is_kwargs() => Kwargs::try_from(last)?,
        last => {
            unnamed.extend(last);
            std::iter::empty::<(String, Value)>().collect()
        }
    };
    if unnamed.len() > OPTIONS.len() {
        return Err(Error::new(
            ErrorKind::TooManyArguments,
            format!("`tojson` takes {}", OPTIONS.join(", ")),
        ));
    }
    let option = |at: usize| -> Result<Option<Value>, Error> {
        let found = unnamed.get(at).cloned();
        let found = found.map_or_else(|| named.get::<Option<Value>>(OPTIONS[at]), |given| Ok(Some(given)))?;
        Ok(found.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let options = [option(0)?, option(1)?, option(2)?, option(3)?];
    named.assert_all_used()?;
    let [ensure_ascii, indent, separators, sort_keys] = options;
    let is_set = |found: Option<Value>| found.is_some_and(|value| value.is_true());
    let ascii = is_set(ensure_ascii);
    let indent = indent.map(|indent| indentation(&indent)).transpose()?;
    // Python writes no blank at the end of a line.
    let default = if indent.is_some() { [",", ": "] } else { [", ", ": "] };
    let [item, key] = match separators {
        Some(given) => both_separators(&given)?,
        None => default.map(str::to_string),
    };
    let sorted = is_set(sort_keys);
    let form = PythonForm { ascii, indent, item, key, depth: 0, is_empty: true };
    let mut text = BoundedText(Vec::new());
    let mut writer = serde_json::Serializer::with_formatter(&mut text, form);
    // Only a whole value can be sorted; else it is written as it is gone through.
    let written = if sorted {
        serde_json::to_value(value).and_then(|mut value| {
            value.sort_all_objects();
            value.serialize(&mut writer)
        })
    } else {
        value.serialize(&mut writer)
    };
    written.map_err(|e| invalid(e.to_string()))?;
    String::from_utf8(text.0).map_err(|e| invalid(e.to_string()))
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, text)
}

/// What one level is indented by.
fn indentation(indent: &Value) -> Result<String, Error> {
    match (indent.as_str(), indent.as_i64()) {
        (Some(text), _) => short(text),
        // Python takes a negative number for none.
        (None, Some(spaces)) => Ok(" ".repeat(spaces.clamp(0, MAX_WHITE as i64) as usize)),
        (None, None) => Err(invalid("`indent` is a number of spaces or a text".into())),
    }
}

/// The texts between two items, and between a key and its value.
fn both_separators(given: &Value) -> Result<[String; 2], Error> {
    let two = || invalid("`separators` are two texts".into());
    let all: Vec<Value> = given.try_iter()?.take(3).collect();
    let [item, key] = all.as_slice() else { return Err(two()) };
    let text = |value: &Value| short(value.as_str().ok_or_else(two)?);
    Ok([text(item)?, text(key)?])
}

/// A text that may stand at each item.
fn short(text: &str) -> Result<String, Error> {
    if text.len() > MAX_WHITE {
        let why =
            format!("an indentation or separator has {} bytes, at most {MAX_WHITE} are taken", text.len());
        return Err(invalid(why));
    }
    Ok(text.into())
}

/// A text of at most the size of a value.
struct BoundedText(Vec<u8>);

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        budget::check_size(self.0.len() + bytes.len()).map_err(std::io::Error::other)?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

/// JSON in the form of Python's `json` module.
struct PythonForm {
    /// Whether other characters than those of ASCII are escaped.
    ascii: bool,
    /// What one level is indented by; `None` for one line.
    indent: Option<String>,
    item: String,
    key: String,
    /// Lists and objects that are open.
    depth: usize,
    /// Whether nothing was written in the innermost of these.
    is_empty: bool,
}

impl PythonForm {
    fn open<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> IoResult<()> {
        self.depth += 1;
        self.is_empty = true;
        out.write_all(bracket)
    }

    fn close<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> IoResult<()> {
        self.depth -= 1;
        // Python writes `[]` and `{}` in one line.
        if !self.is_empty {
            self.break_line(out)?;
        }
        self.is_empty = false;
        out.write_all(bracket)
    }

    fn begin_item<W: Write + ?Sized>(&mut self, out: &mut W, is_first: bool) -> IoResult<()> {
        self.is_empty = false;
        if !is_first {
            out.write_all(self.item.as_bytes())?;
        }
        self.break_line(out)
    }

    fn break_line<W: Write + ?Sized>(&self, out: &mut W) -> IoResult<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        out.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| out.write_all(indent.as_bytes()))
    }
}

impl Formatter for PythonForm {
    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> IoResult<()> {
        self.open(out, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> IoResult<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> IoResult<()> {
        self.begin_item(out, first)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> IoResult<()> {
        self.open(out, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> IoResult<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> IoResult<()> {
        self.begin_item(out, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> IoResult<()> {
        out.write_all(self.key.as_bytes())
    }

    fn write_f64<W: Write + ?Sized>(&mut self, out: &mut W, value: f64) -> IoResult<()> {
        out.write_all(python_float(value).as_bytes())
    }

    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, fragment: &str) -> IoResult<()> {
        if !self.ascii {
            return out.write_all(fragment.as_bytes());
        }
        for character in fragment.chars() {
            if matches!(character, ' '..='~') {
                out.write_all(&[character as u8])?;
            } else {
                // Characters beyond 16 bits are two halves of UTF-16, as in JSON's grammar (RFC 8259, section 7).
                let mut halves = [0; 2];
                for half in character.encode_utf16(&mut halves) {
                    write!(out, "\\u{half:04x}")?;
                }
            }
        }
        Ok(())
    }
}

/// A finite number as Python's `repr` writes it: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
fn python_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let text = value.to_string();
        return if text.contains('.') { text } else { text + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_are_pythons() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (21.5, "21.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }
}
