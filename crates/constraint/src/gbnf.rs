//! The grammars of llama.cpp, GBNF, as grammars of the library.
//! <https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md>
//!
//! Every character becomes a lexeme of its own, as GBNF has no lexer: longer lexemes would hide texts that begin alike.

use serde_json::Value;
use std::collections::BTreeMap;
use tapml_graph::{Error, Result};

/// Deepest nesting of groups.
const MAX_DEPTH: usize = 64;
/// Most repetitions that are written with a number.
const MAX_REPEAT: usize = 100_000;

/// Whether a grammar is written in GBNF.
pub fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

/// The grammar in the library's dialect of Lark.
///
/// # Errors
/// If it is damaged, or names a rule that it does not have.
pub fn to_lark(text: &str) -> Result<String> {
    let mut parser = Parser { text, at: 0, names: BTreeMap::new() };
    let mut rules = Vec::new();
    let mut defined = Vec::new();
    parser.skip_blank(true);
    while !parser.rest().is_empty() {
        let name = parser.name().ok_or_else(|| parser.error("expected the name of a rule"))?;
        parser.skip_blank(false);
        if !parser.take("::=") {
            return Err(parser.error("expected `::=`"));
        }
        parser.skip_blank(true);
        let body = parser.alternatives(0)?;
        let index = parser.index(name);
        // Names of GBNF may have hyphens and capitals. Lark forbids the ones in names of rules and takes the
        // others for terminals, so rules are numbered.
        rules.push(format!("rule_{index}: {body}\n"));
        defined.push(name);
        parser.skip_blank(true);
    }
    if let Some(name) = parser.names.keys().find(|name| !defined.contains(name)) {
        return Err(wrong(&format!("the rule `{name}` is used and not defined")));
    }
    match parser.names.get("root") {
        Some(root) => Ok(format!("start: rule_{root}\n{}", rules.concat())),
        None => Err(wrong("it has no rule `root`, with which a text begins")),
    }
}

fn wrong(found: &str) -> Error {
    Error::invalid(format!("the grammar is no GBNF: {found}"))
        .with_hint("an example: root ::= \"yes\" | \"no\" [.!]*")
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Numbers of the rules.
    names: BTreeMap<&'a str, usize>,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, expected: &str) -> Error {
        let line = self.text[..self.at].matches('\n').count() + 1;
        let found: String = self.rest().chars().take(20).take_while(|c| *c != '\n').collect();
        wrong(&format!("{expected}, found `{found}` in line {line}"))
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Blanks and comments; new lines too where they end no rule.
    fn skip_blank(&mut self, lines: bool) {
        loop {
            let rest = self.rest();
            let line_end = |c: char| matches!(c, '\n' | '\r');
            match rest.chars().next() {
                Some(' ' | '\t') => self.at += 1,
                Some(c) if lines && line_end(c) => self.at += 1,
                Some('#') => self.at += rest.find(line_end).unwrap_or(rest.len()),
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let length =
            rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')).count();
        self.at += length;
        (length > 0).then(|| &rest[..length])
    }

    fn index(&mut self, name: &'a str) -> usize {
        let next = self.names.len();
        *self.names.entry(name).or_insert(next)
    }

    fn alternatives(&mut self, depth: usize) -> Result<String> {
        if depth > MAX_DEPTH {
            return Err(self.error(&format!("expected at most {MAX_DEPTH} groups within one another")));
        }
        let mut all = vec![self.sequence(depth)?];
        while self.take("|") {
            self.skip_blank(true);
            all.push(self.sequence(depth)?);
        }
        Ok(all.join(" | "))
    }

    fn sequence(&mut self, depth: usize) -> Result<String> {
        let mut parts = Vec::new();
        loop {
            // Outside of brackets a new line ends the rule, within them it is a blank.
            self.skip_blank(depth > 0);
            match self.rest().chars().next() {
                None | Some('|' | ')' | '\n' | '\r') => break,
                _ => {
                    let part = self.element(depth)?;
                    parts.push(part + &self.repetition()?);
                }
            }
        }
        Ok(if parts.is_empty() { "\"\"".into() } else { parts.join(" ") })
    }

    fn element(&mut self, depth: usize) -> Result<String> {
        if self.take("\"") {
            return self.literal();
        }
        if self.take("[") {
            return self.class();
        }
        if self.take("(") {
            let inner = self.alternatives(depth + 1)?;
            return if self.take(")") { Ok(format!("({inner})")) } else { Err(self.error("expected `)`")) };
        }
        if self.take(".") {
            // The dot of GBNF is any character, a new line too.
            return Ok(r"/(?s:.)/".into());
        }
        match self.name() {
            Some(name) => Ok(format!("rule_{}", self.index(name))),
            None => Err(self.error("expected a text, a class of characters, a group or the name of a rule")),
        }
    }

    fn repetition(&mut self) -> Result<String> {
        for mark in ["*", "+", "?"] {
            if self.take(mark) {
                return Ok(mark.into());
            }
        }
        if !self.take("{") {
            return Ok(String::new());
        }
        let inner = self.rest().split('}').next().unwrap_or_default();
        let (least, most) = inner.split_once(',').unwrap_or((inner, inner));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number <= MAX_REPEAT);
        let range = match (number(least), most.trim()) {
            (Some(least), "") => Some(format!("{{{least},}}")),
            (Some(least), most) => {
                number(most).filter(|most| *most >= least).map(|most| format!("{{{least},{most}}}"))
            }
            _ => None,
        };
        let range = range.ok_or_else(|| self.error("expected numbers of repetitions, as in `{2,5}`"))?;
        self.at += inner.len();
        if self.take("}") { Ok(range) } else { Err(self.error("expected `}`")) }
    }

    fn literal(&mut self) -> Result<String> {
        let mut parts = Vec::new();
        while !self.take("\"") {
            let c = self.character()?;
            parts.push(Value::from(c.to_string()).to_string());
        }
        // In brackets, so that a repetition behind it takes the whole text and not its last character.
        Ok(if parts.is_empty() { "\"\"".into() } else { format!("({})", parts.join(" ")) })
    }

    fn class(&mut self) -> Result<String> {
        let mut class = String::from(if self.take("^") { "/[^" } else { "/[" });
        while !self.take("]") {
            let c = self.character()?;
            class.push_str(&code_point(c));
            // A hyphen at the end of a class stands for itself.
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                class.push('-');
                class.push_str(&code_point(self.character()?));
            }
        }
        Ok(class + "]/")
    }

    /// A character, which may be written as an escape.
    fn character(&mut self) -> Result<char> {
        let broken = |parser: &Self| parser.error("expected a character");
        match self.next().ok_or_else(|| broken(self))? {
            '\\' => {}
            '\n' | '\r' => return Err(self.error("expected the end of the text before the end of the line")),
            c => return Ok(c),
        }
        let digits = match self.next().ok_or_else(|| broken(self))? {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c @ ('"' | '\\' | '[' | ']' | '-' | '^') => return Ok(c),
            _ => return Err(self.error("expected an escape of GBNF")),
        };
        let number = self.rest().get(..digits).and_then(|text| u32::from_str_radix(text, 16).ok());
        let c = number
            .and_then(char::from_u32)
            .ok_or_else(|| self.error("expected the number of a character"))?;
        self.at += digits;
        Ok(c)
    }
}

/// A character of a class, with nothing that a class gives a meaning.
fn code_point(c: char) -> String {
    format!("\\x{{{:X}}}", u32::from(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_become_rules() {
        let lark = to_lark("# answers\nroot ::= word (\",\" ws\n word)* end?\nword ::= [a-z\\]]{2,3} # some\nws ::= | \" \"\nend ::=\n [^\\n] .").unwrap();
        assert_eq!(
            lark,
            "start: rule_3\nrule_3: rule_0 ((\",\") rule_1 rule_0)* rule_2?\n\
             rule_0: /[\\x{61}-\\x{7A}\\x{5D}]/{2,3}\nrule_1: \"\" | (\" \")\nrule_2: /[^\\x{A}]/ /(?s:.)/\n"
        );
    }

    #[test]
    fn damaged_grammars_are_refused_with_the_place() {
        for (text, expected) in [
            ("a ::= \"x\"", "no rule `root`"),
            ("root ::= b", "the rule `b` is used and not defined"),
            ("root ::= \"x", "expected a character"),
            ("root ::= [a", "expected a character"),
            ("root ::= (\"x\"", "expected `)`"),
            ("root ::= \"x\"\nroot = 5", "in line 2"),
            ("root ::= \"\\q\"", "expected an escape"),
            ("root ::= \"x\"{3,2}", "expected numbers"),
            ("root ::= <think>", "expected a text"),
        ] {
            let error = to_lark(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(to_lark(&format!("root ::= {}", "(".repeat(100_000))).is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]
        #[test]
        fn any_text_is_read_or_refused(text in "(root ::= |\"|a|\\[|\\]|\\(|\\)|\\||\\{1,2\\}|\\\\|\n|é|-|\\^){0,30}") {
            let _ = to_lark(&text);
        }
    }
}
