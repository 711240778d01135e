//! Calls of functions in the text of an answer, as families of models write them.
//!
//! Nothing makes a model write calls well. What only looks like a call, or calls a function that it was not given, is text.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// What begins a call, wherever it stands.
pub const MARKS: &[&str] = &[HERMES.0, XML.0, MISTRAL, PYTHON, GRANITE, DEEPSEEK];
/// Hermes, Qwen: an object between two tags.
pub const HERMES: (&str, &str) = ("<tool_call>", "</tool_call>");
/// Qwen3-Coder: a tag for the function, and one for each argument.
const XML: (&str, &str) = ("<function=", "</function>");
const XML_ARGUMENT: (&str, &str) = ("<parameter=", "</parameter>");
/// Mistral: a list of objects, or a name with an object.
pub const MISTRAL: &str = "[TOOL_CALLS]";
pub const MISTRAL_ARGUMENTS: &str = "[ARGS]";
/// Llama 3: an object, with or without this mark.
pub const PYTHON: &str = "<|python_tag|>";
/// Granite: a list of objects.
pub const GRANITE: &str = "<|tool_call|>";
/// DeepSeek: a name and an object in a block of code.
pub const DEEPSEEK: &str = "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>";
pub const DEEPSEEK_CALL: &str = "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>";
pub const DEEPSEEK_SEPARATOR: &str = "<\u{ff5c}tool\u{2581}sep\u{ff5c}>";

/// Most calls of one answer.
const MAX_CALLS: usize = 128;

/// A function is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The function's name.
    pub name: String,
    /// Its arguments, an object of JSON.
    pub arguments: String,
}

/// What may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSet {
    /// Names of the functions.
    pub names: BTreeSet<String>,
    /// Whether an answer may have several calls.
    pub parallel: bool,
}

/// Finds calls in a text that comes in pieces.
#[derive(Clone, Debug, Default)]
pub struct ToolScanner {
    tools: ToolSet,
    /// What may be the beginning of a call, or follows one.
    held: String,
    /// Whether `held` begins with a call.
    found: bool,
    /// Whether text was let through.
    begun: bool,
}

impl ToolScanner {
    /// Looks for calls of these functions; lets everything through if there are none.
    pub fn new(tools: ToolSet) -> ToolScanner {
        ToolScanner { tools, held: String::new(), found: false, begun: false }
    }

    /// Adds text; gives what certainly is no part of a call.
    pub fn push(&mut self, text: &str) -> String {
        if self.tools.names.is_empty() {
            return text.into();
        }
        self.held.push_str(text);
        if self.found {
            return String::new();
        }
        let start = MARKS.iter().filter_map(|mark| self.held.find(mark)).min();
        // An object at the beginning of an answer may be a call without any mark.
        let object = !self.begun && self.held.trim_start().starts_with('{');
        let blank = !self.begun && self.held.trim_start().is_empty();
        let keep = match start {
            _ if object || blank => 0,
            Some(start) => start,
            None => self.held.len() - MARKS.iter().map(|mark| overlap(&self.held, mark)).max().unwrap_or(0),
        };
        self.found = object || start.is_some();
        self.begun |= keep > 0;
        let held = self.held.split_off(keep);
        std::mem::replace(&mut self.held, held)
    }

    /// The text and the calls of a whole answer.
    pub fn scan(mut self, text: &str) -> (String, Vec<ToolCall>) {
        let begin = self.push(text);
        let (rest, calls) = self.finish();
        (begin + &rest, calls)
    }

    /// The rest of the text, and the calls.
    pub fn finish(self) -> (String, Vec<ToolCall>) {
        let ToolScanner { tools, held, found, .. } = self;
        match found.then(|| parse(&held)).flatten() {
            Some(mut calls)
                if !calls.is_empty() && calls.iter().all(|call| tools.names.contains(&call.name)) =>
            {
                calls.truncate(if tools.parallel { MAX_CALLS } else { 1 });
                (String::new(), calls)
            }
            _ => (held, Vec::new()),
        }
    }
}

/// Bytes at the end of a text with which a mark begins.
fn overlap(text: &str, mark: &str) -> usize {
    let fits = |&length: &usize| mark.is_char_boundary(length) && text.ends_with(&mark[..length]);
    (0..mark.len().min(text.len() + 1)).rev().find(fits).unwrap_or(0)
}

/// The calls of a text that begins with one. `None` if it is damaged.
fn parse(text: &str) -> Option<Vec<ToolCall>> {
    let text = text.trim();
    if text.starts_with(HERMES.0) || text.starts_with(XML.0) {
        return parse_tags(text);
    }
    if let Some(rest) = text.strip_prefix(MISTRAL) {
        return parse_mistral(rest);
    }
    if text.starts_with(DEEPSEEK) {
        return text.split(DEEPSEEK_CALL).skip(1).map(parse_deepseek).collect();
    }
    let rest = text.strip_prefix(PYTHON).or(text.strip_prefix(GRANITE)).unwrap_or(text);
    parse_json(rest)
}

/// An object, a list of objects, or several of them with or without semicolons between them.
fn parse_json(mut text: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    loop {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        match values.next()?.ok()? {
            Value::Array(items) => calls.extend(items.iter().map(call).collect::<Option<Vec<ToolCall>>>()?),
            value => calls.push(call(&value)?),
        }
        text = text.get(values.byte_offset()..)?.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
        if text.is_empty() {
            return Some(calls);
        }
    }
}

/// A call that is written as an object.
fn call(value: &Value) -> Option<ToolCall> {
    let object = value.get("function").filter(|inner| inner.is_object()).unwrap_or(value);
    let name = object.get("name")?.as_str()?.to_string();
    let arguments = object.get("arguments").or(object.get("parameters"));
    let arguments = match arguments {
        None => "{}".into(),
        Some(Value::Object(map)) => Value::from(map.clone()).to_string(),
        Some(Value::String(text)) => {
            serde_json::from_str::<Map<String, Value>>(text).ok()?;
            text.clone()
        }
        Some(_) => return None,
    };
    Some(ToolCall { name, arguments })
}

/// Calls between tags, one after the other.
fn parse_tags(mut text: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    while !text.is_empty() {
        let inner;
        if let Some(rest) = text.strip_prefix(HERMES.0) {
            // The last tag may be missing where the model ended.
            (inner, text) = rest.split_once(HERMES.1).unwrap_or((rest, ""));
        } else {
            (inner, text) = (text, "");
        }
        let inner = inner.trim();
        if inner.starts_with(XML.0) {
            calls.extend(inner.split(XML.0).skip(1).map(parse_xml).collect::<Option<Vec<ToolCall>>>()?);
        } else {
            calls.extend(parse_json(inner)?);
        }
        text = text.trim_start();
    }
    Some(calls)
}

/// `name>` with arguments in tags.
fn parse_xml(text: &str) -> Option<ToolCall> {
    let (name, rest) = text.split_once('>')?;
    let inner = rest.split(XML.1).next()?;
    let mut arguments = Map::new();
    for argument in inner.split(XML_ARGUMENT.0).skip(1) {
        let (name, value) = argument.split_once('>')?;
        let value = value.split(XML_ARGUMENT.1).next()?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        // Texts stand without quotes, all else as in JSON.
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        arguments.insert(name.trim().into(), value);
    }
    Some(ToolCall { name: name.trim().into(), arguments: Value::from(arguments).to_string() })
}

fn parse_mistral(text: &str) -> Option<Vec<ToolCall>> {
    if !text.contains(MISTRAL_ARGUMENTS) {
        return parse_json(text);
    }
    let calls = text.split(MISTRAL).map(|text| {
        let (name, arguments) = text.split_once(MISTRAL_ARGUMENTS)?;
        let arguments = arguments.trim();
        serde_json::from_str::<Map<String, Value>>(arguments).ok()?;
        Some(ToolCall { name: name.trim().into(), arguments: arguments.into() })
    });
    calls.collect()
}

/// `function`, the separator, a name, and an object in a block of code.
fn parse_deepseek(text: &str) -> Option<ToolCall> {
    let (_, rest) = text.split_once(DEEPSEEK_SEPARATOR)?;
    let name = rest.split(['\n', '`', '{']).next()?;
    let from = rest.find('{')?;
    let arguments =
        serde_json::Deserializer::from_str(&rest[from..]).into_iter::<Map<String, Value>>().next()?.ok()?;
    Some(ToolCall { name: name.trim().into(), arguments: Value::from(arguments).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn tools(parallel: bool) -> ToolSet {
        ToolSet { names: ["f", "get_time"].map(String::from).into(), parallel }
    }

    fn scan(pieces: &[&str]) -> (String, Vec<(String, Value)>) {
        let mut scanner = ToolScanner::new(tools(true));
        let mut text: String = pieces.iter().map(|piece| scanner.push(piece)).collect();
        let (rest, calls) = scanner.finish();
        text.push_str(&rest);
        let call = |call: ToolCall| (call.name, serde_json::from_str(&call.arguments).unwrap());
        (text, calls.into_iter().map(call).collect())
    }

    const DEEP: &str = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";

    /// Texts that call `f` with `{"a": 1}`.
    const ONE: &[&str] = &[
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "<function=f><parameter=a>1</parameter></function>",
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
        "[TOOL_CALLS]f[ARGS]{\"a\": 1}",
        "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
        "\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"a\": 1}}",
        "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}",
        "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
        DEEP,
    ];

    #[test]
    fn calls_of_every_family_are_found() {
        for text in ONE {
            assert_eq!(scan(&[text]), (String::new(), vec![("f".into(), json!({ "a": 1 }))]), "{text}");
        }
        let two = "<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>";
        assert_eq!(scan(&["I look. ", two]).0, "I look. ");
        assert_eq!(scan(&[two]).1, [("f".into(), json!({})), ("get_time".into(), json!({}))]);
        assert_eq!(scan(&["{\"name\": \"f\"}; {\"name\": \"f\"}"]).1.len(), 2);
        let mut one = ToolScanner::new(tools(false));
        one.push(two);
        assert_eq!(one.finish().1.len(), 1);
    }

    #[test]
    fn what_is_no_call_is_text() {
        for text in [
            "",
            " ",
            "Hello",
            "{\"a\": 1}",
            "{ not JSON",
            "<tool_call>{\"name\": \"other\"}</tool_call>",
            "<tool_call>{\"name\": 5}",
            "[TOOL_CALLS]",
            "[TOOL_CALLS]f[ARGS]{",
            "a < b [TOOL",
            "<function=f",
            "{\"name\": \"f\", \"arguments\": 5}",
            "<tool_call>{\"name\": \"f\"}</tool_call> and more text",
            "Say {\"name\": \"f\"}",
            DEEPSEEK,
        ] {
            assert_eq!(scan(&[text]), (text.to_string(), vec![]), "{text}");
        }
        let mut none = ToolScanner::new(ToolSet::default());
        assert_eq!(none.push(ONE[0]), ONE[0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cutting_the_text_into_pieces_changes_nothing(
            index in 0..ONE.len(), before in "[a{< ]{0,4}", cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)
        ) {
            let text = format!("{before}{}", ONE[index]);
            let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| bounds[cut.index(bounds.len())]).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(scan(&pieces), scan(&[&text]));
        }

        #[test]
        fn any_text_is_kept_whole_or_called(text in "(<tool_call>|</tool_call>|\\[TOOL_CALLS\\]|\\[ARGS\\]|[{}\":f, a<]|\"name\":|<function=|<parameter=){0,12}") {
            let (rest, calls) = scan(&[&text]);
            prop_assert!(!calls.is_empty() || rest == text);
        }
    }
}
