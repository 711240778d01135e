//! Reading the pieces of one line: names, types, attributes; errors with line and column.

use super::words::{KEYWORDS, NOTHING, is_bare};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use crate::verify::{MAX_NAME, MAX_RANK};
use serde::de::IgnoredAny;

/// A place in one line of the text.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    /// The whole line.
    line: &'a str,
    /// Its number, from 1.
    number: usize,
    /// The byte that is next.
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The start of a line; lines count from 1.
    pub fn new(line: &'a str, number: usize) -> Cursor<'a> {
        Cursor { line, number, at: 0 }.past_spaces()
    }

    /// The same place behind spaces and tabs.
    fn past_spaces(mut self) -> Cursor<'a> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
        self
    }

    /// What is left of the line.
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    /// Whether only a comment or nothing follows.
    pub fn at_end(&self) -> bool {
        self.rest().is_empty() || self.rest().starts_with('#')
    }

    /// Adds line and column to an error.
    pub fn place(&self, error: Error) -> Error {
        // Columns count characters, as editors do.
        let column = self.line[..self.at].chars().count() + 1;
        error
            .context(format!("line {}, column {column}", self.number))
            .with_detail("line", self.number.to_string())
            .with_detail("column", column.to_string())
    }

    /// The error that something else was expected here.
    pub fn expected_error(&self, what: &str) -> Error {
        let found = if self.at_end() {
            "the end of the line".to_string()
        } else {
            // At most 32 characters, escaped: the line may hold anything.
            let word: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(32).collect();
            format!("`{}`", word.escape_debug())
        };
        self.place(Error::invalid(format!("expected {what}, found {found}")))
    }

    /// Steps over `token` if it is next.
    pub fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
            *self = self.past_spaces();
        }
        found
    }

    /// Steps over `token`, or fails.
    pub fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.expected_error(&format!("`{token}`"))) }
    }

    /// Steps over the keyword if it is the next bare word.
    pub fn keyword(&mut self) -> Option<&'static str> {
        let word = self.bare_word();
        let found = KEYWORDS.into_iter().find(|k| *k == word)?;
        self.at += word.len();
        *self = self.past_spaces();
        Some(found)
    }

    /// Fails unless the line ends here.
    pub fn end(&self, expected: &str) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.expected_error(expected)) }
    }

    /// Steps over the sign that nothing stands here, if it is next.
    pub fn take_nothing(&mut self) -> bool {
        self.bare_word() == NOTHING && self.eat(NOTHING)
    }

    /// The characters from here on that need no quotes; perhaps none.
    fn bare_word(&self) -> &'a str {
        let rest = self.rest();
        &rest[..rest.find(|c| !is_bare(c)).unwrap_or(rest.len())]
    }

    /// A name, bare or quoted; `what` says whose.
    pub fn name(&mut self, what: &str) -> Result<String> {
        let start = *self;
        let name = if self.rest().starts_with('"') {
            let mut json = serde_json::Deserializer::from_str(self.rest()).into_iter::<String>();
            match json.next() {
                Some(Ok(name)) => {
                    self.at += json.byte_offset();
                    name
                }
                _ => return Err(start.expected_error(&format!("{what} as a JSON string"))),
            }
        } else {
            let word = self.bare_word();
            if word.is_empty() || KEYWORDS.contains(&word) {
                return Err(start.expected_error(what));
            }
            self.at += word.len();
            word.to_string()
        };
        if name.len() > MAX_NAME {
            let text = format!("expected {what} of at most {MAX_NAME} bytes, found {} bytes", name.len());
            return Err(start.place(Error::invalid(text)));
        }
        *self = self.past_spaces();
        Ok(name)
    }

    /// A type such as `f32[n,320]`.
    pub fn ty(&mut self) -> Result<TensorType> {
        let start = *self;
        let word = self.bare_word();
        let dtype = DType::parse(word).ok_or_else(|| {
            let known: Vec<_> = DType::ALL.into_iter().map(DType::name).collect();
            let hint = format!("dtypes: {}, and packed ones such as int4g32", known.join(", "));
            start.expected_error("a type such as `f32[n,320]`").with_hint(hint)
        })?;
        self.at += word.len();
        self.expect("[")?;
        let mut shape = Vec::new();
        while !self.eat("]") {
            if !shape.is_empty() && !self.eat(",") {
                return Err(self.expected_error("`,` or `]`"));
            }
            let rest = self.rest();
            let size = &rest[..rest.find([',', ']', '#']).unwrap_or(rest.len())];
            if shape.len() == MAX_RANK {
                return Err(self.expected_error(&format!("`]` after at most {MAX_RANK} sizes")));
            }
            // Bounds what parsing one size costs.
            if size.len() > 256 {
                return Err(self.expected_error("a size of at most 256 bytes"));
            }
            let dim = size
                .trim_end()
                .parse()
                .map_err(|_| self.expected_error("a size such as `n`, `320*n+1` or `40`"))?;
            shape.push(dim);
            self.at += size.len();
        }
        Ok(TensorType { dtype, shape })
    }

    /// The JSON object that is next, as text; `{}` if none is.
    pub fn attributes(&mut self) -> Result<&'a str> {
        if !self.rest().starts_with('{') {
            return Ok("{}");
        }
        let rest = self.rest();
        // Only the extent is needed here: the operator reads the attributes itself.
        let mut json = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        match json.next() {
            Some(Ok(_)) => {
                let text = &rest[..json.byte_offset()];
                self.at += text.len();
                *self = self.past_spaces();
                Ok(text)
            }
            _ => Err(self.expected_error("attributes as a JSON object")),
        }
    }
}
