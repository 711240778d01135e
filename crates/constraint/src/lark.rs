//! Grammars as the library reads them.

use crate::grammar::Grammar;
use serde_json::{Map, Value, json};
use tapml_graph::{Error, Result};

/// Longest grammar, bytes.
const MAX_GRAMMAR: usize = 1 << 20;
/// White space where JSON allows some: a blank, or up to two new lines with an indentation. Without a bound a model may
/// write white space to the end of its context.
const WHITE_SPACE: &str = r"[ ]|\n{1,2}[ \t]{0,20}";

/// `\d` and `\w` hold ASCII alone in ECMA-262, which JSON schemas refer to; others mean the same by them.
const ASCII_CLASSES: &str = "dw";

/// Finds the special tokens of a vocabulary in a text, as they are written.
pub struct SpecialTexts {
    /// In the order of their bytes; none is empty, and none is there twice.
    written: Vec<(String, u32)>,
}

impl SpecialTexts {
    /// Of these tokens, written forms and ids.
    pub fn new(mut written: Vec<(String, u32)>) -> SpecialTexts {
        written.retain(|(text, _)| !text.is_empty());
        written.sort();
        written.dedup_by(|next, kept| next.0 == kept.0);
        SpecialTexts { written }
    }

    /// The longest one that a text begins with.
    fn longest(&self, text: &str) -> Option<&(String, u32)> {
        let mut wanted = text.as_bytes();
        loop {
            // Whatever begins the text stands before it, and a longer beginning behind a shorter one.
            let behind = self.written.partition_point(|(written, _)| written.as_bytes() <= wanted);
            let found = self.written.get(behind.checked_sub(1)?)?;
            let same = found.0.bytes().zip(wanted).take_while(|(a, b)| a == *b).count();
            if same == found.0.len() {
                return Some(found);
            }
            wanted = &wanted[..same];
        }
    }
}

/// A grammar that is being written.
struct LarkWriter<'a> {
    special: &'a SpecialTexts,
    rules: String,
    count: usize,
}

/// The text of a grammar.
///
/// # Errors
/// If it is too long, or has a part that cannot be one.
pub fn write(grammar: &Grammar, special: &SpecialTexts) -> Result<String> {
    if let Grammar::Lark(text) = grammar {
        check_length(text.len())?;
        return Ok(text.clone());
    }
    let mut writer = LarkWriter { special, rules: String::new(), count: 0 };
    let start = writer.expression(grammar)?;
    let text = format!("start: {start}\n{}", writer.rules);
    check_length(text.len())?;
    Ok(text)
}

fn check_length(found: usize) -> Result<()> {
    if found > MAX_GRAMMAR {
        let text = format!("expected a grammar of at most {MAX_GRAMMAR} bytes, found {found}");
        return Err(Error::invalid(text).with_hint("make it simpler"));
    }
    Ok(())
}

impl LarkWriter<'_> {
    /// What stands for a part in a rule.
    fn expression(&mut self, grammar: &Grammar) -> Result<String> {
        check_length(self.rules.len())?;
        Ok(match grammar {
            Grammar::Text(text) => self.text(text),
            Grammar::Json(schema) => {
                let schema = with_options(schema)?;
                self.define("rule", "", &format!("%json {schema}"))
            }
            Grammar::Regex(regex) => {
                let literal = format!("/{}/", llguidance::regex_to_lark(regex, ASCII_CLASSES));
                self.define("TERMINAL", "", &literal)
            }
            Grammar::Without(texts) => self.define("TERMINAL", "", &any_without(texts)),
            Grammar::Until { end, without } => {
                let text = self.define("TERMINAL", "", &any_without(without));
                self.define("rule", &format!("[suffix={}]", Value::from(end.as_str())), &text)
            }
            Grammar::Sequence(parts) => self.join(parts, " ")?,
            Grammar::Choice(parts) => self.join(parts, " | ")?,
            Grammar::Repeat(part, least) => {
                let part = self.expression(part)?;
                format!("({part}){{{least},}}")
            }
            Grammar::Lark(_) => {
                let text = "a grammar of rules cannot be a part of another one";
                return Err(Error::invalid(text).with_hint("give it alone"));
            }
        })
    }

    fn join(&mut self, parts: &[Grammar], between: &str) -> Result<String> {
        let parts = parts.iter().map(|part| self.expression(part)).collect::<Result<Vec<_>>>()?;
        if parts.is_empty() {
            return Err(Error::invalid("a grammar has a sequence or a choice of no parts")
                .with_hint("give at least one"));
        }
        Ok(format!("({})", parts.join(between)))
    }

    /// Adds a rule, or a terminal, whose names are in upper case; gives its name.
    fn define(&mut self, kind: &str, attributes: &str, body: &str) -> String {
        self.count += 1;
        let name = format!("{kind}_{}", self.count);
        self.rules.push_str(&format!("{name}{attributes}: {body}\n"));
        name
    }

    /// Literals, with the special tokens between them by their numbers.
    fn text(&self, text: &str) -> String {
        let literal = |text: &str| (!text.is_empty()).then(|| Value::from(text).to_string());
        let (mut parts, mut end) = (Vec::new(), 0);
        for (at, _) in text.char_indices() {
            let Some((written, id)) = (at >= end).then(|| self.special.longest(&text[at..])).flatten() else {
                continue;
            };
            parts.extend(literal(&text[end..at]));
            parts.push(format!("<[{id}]>"));
            end = at + written.len();
        }
        parts.extend(literal(&text[end..]));
        if parts.is_empty() { "\"\"".into() } else { format!("({})", parts.join(" ")) }
    }
}

/// A schema with how its JSON is written. What the client says of that is put aside: among it is how to weaken the schema.
fn with_options(schema: &Value) -> Result<Value> {
    let mut schema = match schema {
        Value::Object(map) => map.clone(),
        Value::Bool(true) => Map::new(),
        other => {
            let text = format!("a JSON schema must be an object, found {}", brief(other));
            return Err(Error::invalid(text).with_hint("an example: {\"type\": \"object\"}"));
        }
    };
    schema.insert("x-guidance".into(), json!({ "whitespace_pattern": WHITE_SPACE }));
    Ok(schema.into())
}

fn brief(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}

/// What matches any text without these. One complement of all costs the lexer far less than one for each.
fn any_without(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| escape(text)).collect();
    let any = regex_literal("(?s:.*)");
    if texts.is_empty() {
        return any;
    }
    let with = regex_literal(&format!("(?s:.*)({})(?s:.*)", texts.join("|")));
    format!("{any} & ~{with}")
}

/// A regular expression as the library writes one.
fn regex_literal(regex: &str) -> String {
    format!("/{}/", llguidance::regex_to_lark(regex, ""))
}

/// A regular expression that matches this text alone.
fn escape(text: &str) -> String {
    let escape = |c: char| match c {
        '\n' => "\\n".to_string(),
        _ if r"\.+*?()|[]{}^$#&-~/".contains(c) => format!("\\{c}"),
        _ => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_special_text_is_found() {
        let special = ["<", "<a", "<a>b", "<a>b", "", "x"].map(String::from).into_iter().zip(7..).collect();
        let special = SpecialTexts::new(special);
        for (text, expected) in
            [("<a>b", Some(9)), ("<a>c", Some(8)), ("<b", Some(7)), ("x", Some(12)), ("a<", None), ("", None)]
        {
            assert_eq!(special.longest(text).map(|(_, id)| *id), expected, "{text}");
        }
        let grammar = Grammar::Text("é<a>by<<".into());
        let text = write(&grammar, &special).unwrap();
        assert_eq!(text, "start: (\"é\" <[9]> \"y\" <[7]> <[7]>)\n");
    }
}
