//! The page that runs a reproducer in a browser, with all data in it.
//!
//! Data is in the page as base64, because a page that is opened from a disk may not read files beside it.

use super::case::Case;
use super::contents::Files;
use std::fmt::Write;
use tapml_graph::{Error, Result};

/// The page with places for its data.
const PAGE: &str = include_str!("page.html");
/// The place of the case; valid JavaScript as it stands, as the next one is.
const CASE: &str = "/*CASE*/null";
/// The place of the files, an object of names and base64.
const FILES: &str = "/*FILES*/null";
/// The place of the title.
const TITLE: &str = "<!--TITLE-->";

/// The page of a case: its data and files are in it, so that it needs nothing else.
///
/// # Errors
///
/// A case that is not JSON.
pub fn page(case: &Case, files: &Files) -> Result<String> {
    let mut data = String::from("{");
    for (i, (name, bytes)) in files.iter().enumerate() {
        let separator = if i > 0 { ",\n" } else { "\n" };
        write!(data, "{separator}{name:?}: \"{}\"", base64(bytes)).map_err(|e| Error::bug(e.to_string()))?;
    }
    data += "}";
    // No text of the case can end the script.
    let json = case.json()?.replace('<', "\\u003c");
    let title = format!("{} fails: {}", case.op, case.case);
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    // The case comes last, so that its text is not searched for places.
    Ok(PAGE.replacen(TITLE, &title, 1).replacen(FILES, &data, 1).replacen(CASE, &json, 1))
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (word >> (18 - 6 * digit)) as usize & 63;
            // A chunk of n bytes has n + 1 digits.
            text.push(if digit <= chunk.len() { DIGITS[value] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_as_in_the_standard() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (text, expected) in pairs {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
