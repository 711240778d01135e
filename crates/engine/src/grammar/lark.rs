//! Grammars as the library reads them.

use super::Grammar;
use serde_json::{Map, Value, json};
use tapml_graph::{Error, Result};

/// Longest grammar, bytes.
const MAX_GRAMMAR: usize = 1 << 20;
/// White space where JSON allows some: a blank, or up to two new lines with an indentation. Without a bound a model may
/// write white space to the end of its context.
const WHITE_SPACE: &str = r"[ ]|\n{1,2}[ \t]{0,20}";

/// A grammar that is being written.
pub struct LarkWriter<'a> {
    special: &'a [(String, u32)],
    rules: String,
    count: usize,
}

/// The text of a grammar; `special` are the special tokens of the vocabulary as they are written.
pub fn write(grammar: &Grammar, special: &[(String, u32)]) -> Result<String> {
    if let Grammar::Lark(text) = grammar {
        check_length(text.len())?;
        return Ok(text.clone());
    }
    let mut writer = LarkWriter { special, rules: String::new(), count: 0 };
    let start = writer.expression(grammar)?;
    check_length(writer.rules.len())?;
    Ok(format!("start: {start}\n{}", writer.rules))
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
                self.rule(&format!("%json {schema}"))
            }
            Grammar::Regex(regex) => self.terminal(&regex_literal(regex)),
            Grammar::Without(texts) => self.terminal(&any_without(texts)),
            Grammar::Until { end, without } => {
                let text = self.terminal(&any_without(without));
                self.count += 1;
                let name = format!("rule_{}", self.count);
                self.rules.push_str(&format!("{name}[suffix={}]: {text}\n", Value::from(end.as_str())));
                name
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

    fn rule(&mut self, body: &str) -> String {
        self.count += 1;
        let name = format!("rule_{}", self.count);
        self.rules.push_str(&format!("{name}: {body}\n"));
        name
    }

    fn terminal(&mut self, body: &str) -> String {
        self.count += 1;
        let name = format!("TERMINAL_{}", self.count);
        self.rules.push_str(&format!("{name}: {body}\n"));
        name
    }

    /// Literals, with the special tokens between them by their numbers.
    fn text(&self, mut text: &str) -> String {
        let mut parts = Vec::new();
        while !text.is_empty() {
            // Of those that begin at the same place the longest.
            let found = self.special.iter().filter_map(|(written, id)| {
                Some((text.find(written.as_str())?, std::cmp::Reverse(written.len()), *id))
            });
            let (at, length, id) = match found.min() {
                Some((at, std::cmp::Reverse(length), id)) => (at, length, Some(id)),
                None => (text.len(), 0, None),
            };
            if at > 0 {
                parts.push(Value::from(&text[..at]).to_string());
            }
            parts.extend(id.map(|id| format!("<[{id}]>")));
            text = &text[at + length..];
        }
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
