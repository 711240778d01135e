//! A line of a World vocabulary: an id, a Python literal and its length.
//!
//! The literal is read by hand: a vocabulary must not be able to run code, as Python's `eval` of it could.

use tapml_graph::{Error, Result};

/// The id that ends a text. No line has it.
pub const END: u32 = 0;
/// Ids lie below this.
const MAX_ID: u32 = 1 << 24;
/// The longest token, in bytes.
const MAX_TOKEN: usize = 4096;

/// Bytes and id of the line with this number, counted from 1.
pub fn parse(number: usize, line: &str) -> Result<(Box<[u8]>, u32)> {
    token(line).map_err(|expected| {
        Error::invalid(format!("line {number}: expected {expected}, found {}", brief(line)))
    })
}

/// As [`parse`]; fails with what it expected.
fn token(line: &str) -> std::result::Result<(Box<[u8]>, u32), String> {
    let shape = || "an id, a literal and the count of its bytes, as in `33 ' ' 1`".to_string();
    let (id, rest) = line.split_once(' ').ok_or_else(shape)?;
    let (literal, length) = rest.rsplit_once(' ').ok_or_else(shape)?;
    let id: Option<u32> = id.parse().ok().filter(|id| (END + 1..MAX_ID).contains(id));
    let id = id.ok_or_else(|| format!("an id from {} to {}", END + 1, MAX_ID - 1))?;
    let bytes = literal_bytes(literal.trim()).ok_or("a Python literal of text or of bytes")?;
    if length.trim().parse() != Ok(bytes.len()) {
        return Err(format!("the count {} at the end of the line", bytes.len()));
    }
    match bytes.len() {
        1..=MAX_TOKEN => Ok((bytes.into_boxed_slice(), id)),
        _ => Err(format!("1 to {MAX_TOKEN} bytes")),
    }
}

/// The bytes that a Python literal of text (in UTF-8) or of bytes stands for. Of the escapes only those are known that
/// Python's `repr` writes. As in Python, a literal of bytes holds nothing but ASCII.
fn literal_bytes(literal: &str) -> Option<Vec<u8>> {
    let (raw, quoted) = match literal.strip_prefix('b') {
        Some(quoted) => (true, quoted),
        None => (false, literal),
    };
    let quote = quoted.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut bytes = Vec::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let value = match c {
            '\\' => escape(&mut chars, raw)?,
            c if c == quote || raw && !c.is_ascii() => return None,
            c => u32::from(c),
        };
        if raw {
            bytes.push(u8::try_from(value).ok()?)
        } else {
            bytes.extend(char::from_u32(value)?.encode_utf8(&mut [0; 4]).bytes())
        }
    }
    Some(bytes)
}

/// The character or byte of an escape, of which the backslash is taken already.
fn escape(chars: &mut std::str::Chars<'_>, raw: bool) -> Option<u32> {
    let digits = match chars.next()? {
        'n' => return Some(0x0a),
        'r' => return Some(0x0d),
        't' => return Some(0x09),
        c @ ('\\' | '\'' | '"') => return Some(u32::from(c)),
        'x' => 2,
        'u' if !raw => 4,
        'U' if !raw => 8,
        _ => return None,
    };
    let (digits, rest) = chars.as_str().split_at_checked(digits)?;
    *chars = rest.chars();
    if digits.starts_with('+') { None } else { u32::from_str_radix(digits, 16).ok() }
}

/// A text for a message: cut short, because it comes from a file.
pub fn brief(text: &str) -> String {
    const LONGEST: usize = 60;
    let cut: String = text.chars().take(LONGEST).collect();
    let more = if text.chars().nth(LONGEST).is_some() { "…" } else { "" };
    format!("`{}`{more}", cut.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_text_and_bytes() {
        let cases: [(&str, &[u8]); 10] = [
            (r"' '", b" "),
            (r#""it's""#, b"it's"),
            (r"'\n\r\t\\\''", b"\n\r\t\\'"),
            (r"'\x7f\xa0'", "\u{7f}\u{a0}".as_bytes()),
            (r"'\u200b\U0001f600'", "\u{200b}\u{1f600}".as_bytes()),
            (r"b'\xe4\xbd a'", b"\xe4\xbd a"),
            (r#"b"\xff'""#, b"\xff'"),
            (r"b'\xe9'", b"\xe9"),
            ("'çé'", "çé".as_bytes()),
            ("''", b""),
        ];
        for (literal, expected) in cases {
            assert_eq!(literal_bytes(literal).as_deref(), Some(expected), "{literal}");
        }
    }

    #[test]
    fn what_is_no_literal() {
        let quotes =
            ["", "'", "a", "'a", "'a\"", "'a'b'", "bb''", "B'a'", "u'a'", "r'a'", "b", "('a')", "'a' + 'b'"];
        let escapes = [
            r"'\x4'",
            r"'\x+4'",
            r"'\x 4'",
            r"'\u12'",
            r"'\U0011ffff'",
            r"'\ud800'",
            r"'\q'",
            r"'\",
            r"'\'",
            r"'\x\u{e9}9'",
        ];
        let bytes = ["b'é'", "b'\u{80}'", r"b'\u0041'", r"b'\U00000041'"];
        for literal in quotes.iter().chain(&escapes).chain(&bytes) {
            assert_eq!(literal_bytes(literal), None, "{literal}");
        }
    }

    #[test]
    fn broken_lines_are_refused_with_what_was_expected() {
        let long = format!("300 '{}' 5000", "a".repeat(5000));
        let huge = "a".repeat(1 << 20);
        let lines = [
            ("0 'ab' 2", "an id from 1 to 16777215"),
            ("-1 'ab' 2", "an id from 1"),
            ("99999999999 'ab' 2", "an id from 1"),
            ("16777216 'ab' 2", "an id from 1"),
            ("x 'ab' 2", "an id from 1"),
            ("'ab' 2", "an id"),
            ("300 'ab' 3", "the count 2 at the end"),
            ("300 'ab' -2", "the count 2 at the end"),
            ("300 'é' 1", "the count 2 at the end"),
            ("300 'ab'", "as in `33 ' ' 1`"),
            ("300", "as in `33 ' ' 1`"),
            ("300  2", "a Python literal"),
            ("300 ' 1", "a Python literal"),
            ("300 eval() 6", "a Python literal"),
            ("300 b'é' 2", "a Python literal"),
            ("300 '' 0", "1 to 4096 bytes"),
            (&long, "1 to 4096 bytes"),
            (&huge, "as in `33 ' ' 1`"),
        ];
        for (line, expected) in lines {
            let error = parse(7, line).unwrap_err().to_string();
            assert!(error.starts_with("line 7: expected ") && error.contains(expected), "{error}");
            assert!(error.len() < 300, "{error}");
        }
        assert_eq!(parse(1, "33 ' ' 1").unwrap(), (Box::from(*b" "), 33));
        assert_eq!(parse(1, "300   'a b'   3").unwrap(), (Box::from(*b"a b"), 300));
    }
}
