//! Chat templates: the checkpoint's Jinja text that turns messages into a prompt.

use crate::special::SpecialTokens;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, ErrorKind as JinjaError, context};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tapml_graph::{Error, Result};
use tapml_import::{Config, is_present};

/// The file with nothing but the template.
const FILE: &str = "chat_template.jinja";
/// Files that hold the template under a key: the first is of models that see.
const JSON: [&str; 2] = ["chat_template.json", "tokenizer_config.json"];
/// Name of the template within its environment and in messages.
const NAME: &str = "chat_template";
/// Steps that a template may take: enough for long chats, little enough that an endless loop ends.
const FUEL: u64 = 10_000_000;
/// The largest template file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What it says.
    pub content: Content,
}

/// What a message says: a text, or parts for models that see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// A text.
    Text(String),
    /// Texts and images in order.
    Parts(Vec<Part>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Part {
    /// The place of an image.
    Image,
    /// A text.
    Text {
        /// The text.
        text: String,
    },
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::Text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::Text(text.into())
    }
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<Content>) -> Message {
        Message { role: role.into(), content: content.into() }
    }

    /// A message for a model that sees: perhaps an image, then a text.
    pub fn with_image(role: impl Into<String>, image: bool, text: impl Into<String>) -> Message {
        let image = image.then_some(Part::Image);
        let parts = image.into_iter().chain([Part::Text { text: text.into() }]).collect();
        Message { role: role.into(), content: Content::Parts(parts) }
    }
}

/// A checkpoint's chat template, parsed.
pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Reads `chat_template.jinja`, else `chat_template` of `chat_template.json` or `tokenizer_config.json`; `None` if
    /// there is none.
    pub fn read(dir: &Path, special: &SpecialTokens) -> Result<Option<ChatTemplate>> {
        let path = dir.join(FILE);
        if is_present(&path)? {
            let source = tapml_files::read_text(&path, MAX_FILE, "a chat template")?;
            return ChatTemplate::new(&source, special)
                .map(Some)
                .map_err(|e| e.context(path.display().to_string()));
        }
        for path in JSON.map(|file| dir.join(file)) {
            let Some(config) = Config::read_if_present(&path)? else { continue };
            if let Some(source) = source(&config)? {
                let template = ChatTemplate::new(&source, special);
                return template.map(Some).map_err(|e| e.context(path.display().to_string()));
            }
        }
        Ok(None)
    }

    /// Parses a template, with the functions, filters and settings that Transformers gives to it.
    pub fn new(source: &str, special: &SpecialTokens) -> Result<ChatTemplate> {
        let mut environment = Environment::new();
        environment.set_syntax(syntax()?);
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", to_json);
        let tokens = [
            ("bos_token", &special.bos),
            ("eos_token", &special.eos),
            ("pad_token", &special.pad),
            ("unk_token", &special.unk),
        ];
        for (name, token) in tokens {
            if let Some(token) = token {
                environment.add_global(name, token.clone());
            }
        }
        let source = without_generation_marks(source);
        environment.add_template_owned(NAME, source).map_err(|e| failed("is not valid", &e))?;
        Ok(ChatTemplate { environment })
    }

    /// The prompt for these messages; with `add_generation_prompt` it ends where the assistant's answer begins.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let template = self.environment.get_template(NAME).map_err(|e| failed("is not valid", &e))?;
        template
            .render(context! { messages => Value::from(Serde(messages)), add_generation_prompt })
            .map_err(|e| failed("refused the messages", &e))
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChatTemplate")
    }
}

/// The whitespace rules that Transformers sets: a block's own line leaves nothing behind.
fn syntax() -> Result<SyntaxConfig> {
    let built = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    built.map_err(|e| Error::bug(format!("the syntax of chat templates: {e}")))
}

/// The template within `tokenizer_config.json`: a text, or a list of named ones of which `default` counts.
fn source(config: &Config) -> Result<Option<String>> {
    let root = config.root();
    let expected =
        "a text, or a list of objects with the texts `name` and `template`, one of them named `default`";
    match root.get(NAME) {
        None => Ok(None),
        Some(serde_json::Value::String(text)) => Ok(Some(text.clone())),
        Some(serde_json::Value::Array(items)) => {
            let default = items.iter().find(|i| i.get("name").and_then(|n| n.as_str()) == Some("default"));
            let text = default.and_then(|i| i.get("template")).and_then(|t| t.as_str());
            text.map(|t| Some(t.to_string())).ok_or_else(|| root.expected(NAME, expected))
        }
        Some(_) => Err(root.expected(NAME, expected)),
    }
}

fn failed(what: &str, error: &minijinja::Error) -> Error {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    let line = error.line().map_or(String::new(), |line| format!(" (line {line})"));
    Error::invalid(format!("the chat template {what}: {detail}{line}")).with_hint(
        "give the messages in the order that the template expects, or a plain prompt instead of a chat",
    )
}

fn raise_exception(message: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(JinjaError::InvalidOperation, message))
}

/// `tojson` as Transformers defines it: Python's `json.dumps` without escapes for HTML.
fn to_json(value: &Value, options: Kwargs) -> std::result::Result<String, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let mut text = Vec::new();
    let written = match indent {
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Spaced)),
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let pretty = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, pretty))
        }
    };
    let bad = |e: String| minijinja::Error::new(JinjaError::InvalidOperation, e);
    written.map_err(|e| bad(e.to_string()))?;
    String::from_utf8(text).map_err(|e| bad(e.to_string()))
}

/// JSON with a space after `,` and `:`, as Python writes it.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: std::io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: std::io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: std::io::Write + ?Sized>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// Replaces the block `generation`, by which Transformers marks the assistant's text for training, by one that does
/// nothing.
fn without_generation_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let end = start + length + 2;
        let tag = &rest[start..end];
        let name = tag[2..tag.len() - 2].trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
        text.push_str(&rest[..start]);
        text.push_str(&match name {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_string(),
        });
        rest = &rest[end..];
    }
    text + rest
}

#[cfg(test)]
mod tests;
