//! Forms of texts.

use crate::gbnf;
use serde_json::Value;
use tapml_graph::Result;

/// The form of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// This text. Special tokens that are written in it are those tokens.
    Text(String),
    /// JSON that a schema describes. <https://json-schema.org/draft/2020-12>
    Json(Value),
    /// What a regular expression matches from the beginning to the end, in the syntax of the crate `regex`. `\d` and `\w` are
    /// those of ASCII, as in the patterns of JSON schemas.
    Regex(String),
    /// Any text in which none of these texts occurs.
    Without(Vec<String>),
    /// Any text to the first place where `end` stands, with it. None of the texts of `without` occurs before it. In front of a
    /// part that is to follow, [`Grammar::Without`] would go on into it.
    Until {
        /// What ends it; no special token.
        end: String,
        /// What does not occur.
        without: Vec<String>,
    },
    /// One after the other.
    Sequence(Vec<Grammar>),
    /// One of them.
    Choice(Vec<Grammar>),
    /// At least so many, one after the other, and any number more.
    Repeat(Box<Grammar>, usize),
    /// A grammar in llguidance's dialect of Lark, which begins with the rule `start`. Only as a whole, not as a part.
    /// <https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md>
    Lark(String),
}

impl Grammar {
    /// A grammar of rules in llama.cpp's GBNF, which is known by its `::=`, or else in Lark.
    ///
    /// # Errors
    /// If it is GBNF and damaged. Lark is looked at when it is compiled.
    pub fn of_rules(text: &str) -> Result<Grammar> {
        Ok(Grammar::Lark(if gbnf::is_gbnf(text) { gbnf::to_lark(text)? } else { text.into() }))
    }
}
