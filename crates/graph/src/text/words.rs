//! Words and limits of the text form.

/// Words that start a line or a clause; as names they are quoted.
pub const KEYWORDS: [&str; 6] = ["graph", "input", "weight", "state", "output", "as"];

/// Stands in the place of an input or output that is not there; as a name it is quoted.
pub const NOTHING: &str = "_";

/// Longest text that is read, in bytes. Bounds what a hostile text can make the parser allocate.
pub const MAX_TEXT: usize = 16 << 20;

/// Whether a name may hold this character without quotes.
pub fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '@')
}
