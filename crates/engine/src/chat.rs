//! Chat templates: the checkpoint's Jinja text that turns messages into a prompt.
//!
//! A template is a program of a stranger. It runs in a thread with a stack of known size, and within a budget of steps, work,
//! depth and bytes ([`budget`]): what exceeds it is an error, and no rendering takes more than some 200 MB.
//!
//! The functions and whitespace rules are those that Transformers gives to a template
//! (`apply_chat_template`).

mod budget;
mod guard;
mod input;
mod json;
mod library;
mod nesting;

pub use input::Chat;

use crate::special::SpecialTokens;
use minijinja::machinery::{self, CompiledTemplate, TemplateConfig};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind as JinjaError, context};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use tapml_graph::{Error, ErrorKind, Result};
use tapml_import::{Config, is_present};

/// The file with nothing but the template.
const FILE: &str = "chat_template.jinja";
/// Files that hold the template under a key: the first is of models that see.
const JSON: [&str; 2] = ["chat_template.json", "tokenizer_config.json"];
/// Name of the template within its environment and in messages.
const NAME: &str = "chat_template";
/// The largest file that holds a template, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// The largest template, in bytes: ten times the longest that models have.
const MAX_SOURCE: usize = 256 << 10;
/// Characters of a template's own message that are shown.
const MAX_DETAIL: usize = 2000;
/// By these a template reads messages whose content is a list of parts.
const PARTS: [&str; 4] = ["['type']", "[\"type\"]", "selectattr('type'", "selectattr(\"type\""];
// The library recurses over expressions; `nesting` bounds how deep.
/// Stack of the thread that a template is parsed and rendered in, in bytes: for the deepest nesting, without optimisation.
const STACK: usize = 64 << 20;

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
    Parts(Vec<MessagePart>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum MessagePart {
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
        let image = image.then_some(MessagePart::Image);
        let parts = image.into_iter().chain([MessagePart::Text { text: text.into() }]).collect();
        Message { role: role.into(), content: Content::Parts(parts) }
    }
}

/// A checkpoint's chat template.
pub struct ChatTemplate {
    /// Without the marks of `generation` blocks.
    source: String,
    /// Templates read them as variables.
    special: SpecialTokens,
    /// The file that it came from, for messages.
    file: Option<String>,
}

impl ChatTemplate {
    /// Reads `chat_template.jinja`, else `chat_template` of `chat_template.json` or `tokenizer_config.json`; `None` if
    /// there is none.
    ///
    /// # Errors
    /// If a file cannot be read, or holds a template that is not valid or beyond a limit.
    pub fn read(dir: &Path, special: &SpecialTokens) -> Result<Option<ChatTemplate>> {
        let path = dir.join(FILE);
        if is_present(&path)? {
            let source = tapml_files::read_text(&path, MAX_FILE, "a chat template")?;
            return ChatTemplate::from_source(&path.display().to_string(), &source, special).map(Some);
        }
        for path in JSON.map(|file| dir.join(file)) {
            let Some(config) = Config::read_if_present(&path)? else { continue };
            if let Some(source) = source(&config)? {
                return ChatTemplate::from_source(&path.display().to_string(), &source, special).map(Some);
            }
        }
        Ok(None)
    }

    /// The template of a file; errors name the file.
    pub(crate) fn from_source(file: &str, source: &str, special: &SpecialTokens) -> Result<ChatTemplate> {
        let template = ChatTemplate::new(source, special).map_err(|e| e.context(file))?;
        Ok(ChatTemplate { file: Some(file.to_string()), ..template })
    }

    /// Looks at a template. Fails if it is no template, or too long or too deep to be read.
    pub fn new(source: &str, special: &SpecialTokens) -> Result<ChatTemplate> {
        if source.len() > MAX_SOURCE {
            let found = format!("has {} bytes, at most {MAX_SOURCE} are read", source.len());
            return Err(unfit(&found));
        }
        let source = without_generation_marks(source);
        let template = ChatTemplate { source, special: special.clone(), file: None };
        // Compiled here only to be checked: a compiled template borrows its source, so each rendering
        // compiles anew.
        run_in_thread(|| {
            nesting::check(&template.source, syntax()?).map_err(|found| unfit(&found))?;
            let config = template.config()?;
            CompiledTemplate::new(NAME, &template.source, &config)
                .map_err(|e| template_error("is not valid", &e))?;
            Ok(())
        })?;
        Ok(template)
    }

    /// Its source, without the marks of what is trained on.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it reads messages whose content is a list of parts.
    pub fn takes_parts(&self) -> bool {
        PARTS.iter().any(|words| self.source.contains(words))
    }

    /// The prompt for a chat. Fails with the template's own message if it refuses the chat, and if it goes beyond a limit.
    pub fn render(&self, chat: &Chat) -> Result<String> {
        let rendered = run_in_thread(|| self.render_here(chat));
        rendered.map_err(|e| match &self.file {
            Some(file) => e.context(file.clone()),
            None => e,
        })
    }

    fn render_here(&self, chat: &Chat) -> Result<String> {
        chat.check()?;
        let invalid = |e: minijinja::Error| template_error("is not valid", &e);
        let mut template = CompiledTemplate::new(NAME, &self.source, &self.config()?).map_err(invalid)?;
        // Without these checks one step could double a text.
        guard::guard(&mut template);
        let environment = self.environment();
        let context = context! {
            messages => Value::from(Serde(&chat.messages)),
            tools => Value::from(Serde(&chat.tools)),
            documents => Value::from(Serde(&chat.documents)),
            add_generation_prompt => chat.add_generation_prompt,
            ..Value::from(Serde(&chat.options))
        };
        let mut text = String::new();
        let outcome = machinery::eval(
            &environment,
            &template.instructions,
            context,
            &template.blocks,
            &mut machinery::make_string_output(&mut text),
            AutoEscape::None,
        );
        // A template may go on after an operation that failed.
        // Looked at before the outcome: the limit is the reason, whatever error followed from it.
        if let Some(limit) = budget::exceeded_limit() {
            return Err(unfit(&limit));
        }
        match outcome {
            Ok(_) if chat.continue_final_message => chat.cut_behind_final_message(text),
            Ok(_) => Ok(text),
            Err(e) if e.kind() == JinjaError::OutOfFuel => {
                Err(unfit(&format!("takes more than {} million steps", budget::STEPS / 1_000_000)))
            }
            Err(e) => Err(template_error("refused the messages", &e)),
        }
    }

    /// The functions, filters and settings that Transformers gives to a template.
    fn environment(&self) -> Environment<'_> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(budget::STEPS));
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        guard::add_checks(&mut environment);
        library::add_library(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        let tokens = [
            ("bos_token", &self.special.bos),
            ("eos_token", &self.special.eos),
            ("pad_token", &self.special.pad),
            ("unk_token", &self.special.unk),
        ];
        for (name, token) in tokens {
            if let Some(token) = token {
                environment.add_global(name, token.clone());
            }
        }
        environment
    }

    /// The syntax; nothing is escaped, as a prompt is no HTML.
    fn config(&self) -> Result<TemplateConfig> {
        Ok(TemplateConfig { syntax_config: syntax()?, default_auto_escape: Arc::new(|_| AutoEscape::None) })
    }
}

/// Runs what deals with a template in a thread of its own: with a stack that is large enough for the deepest template, and
/// counters that start at zero.
fn run_in_thread<T: Send>(run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("chat template".into()).stack_size(STACK);
        let thread = builder.spawn_scoped(scope, || tapml_constraint::panics::catch(run));
        let thread = thread.map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("no thread for the chat template: {e}"))
        })?;
        let panicked = || Err(Error::invalid("the template library panicked on the chat template"));
        thread.join().ok().flatten().unwrap_or_else(panicked)
    })
}

/// A template beyond a limit.
fn unfit(found: &str) -> Error {
    let hint = "a template of a chat needs far less: take the one that came with the weights, or give a plain prompt";
    Error::invalid(format!("the chat template {found}")).with_hint(hint)
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
            text.map(|t| Some(t.to_string())).ok_or_else(|| root.expected_error(NAME, expected))
        }
        Some(_) => Err(root.expected_error(NAME, expected)),
    }
}

/// With the template's own message, cut short, and the line.
fn template_error(what: &str, error: &minijinja::Error) -> Error {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    let detail: String = detail.chars().take(MAX_DETAIL).collect();
    let line = error.line().map_or(String::new(), |line| format!(" (line {line})"));
    Error::invalid(format!("the chat template {what}: {detail}{line}")).with_hint(
        "give the messages in the order that the template expects, or a plain prompt instead of a chat",
    )
}

/// By which a template refuses messages that it does not expect.
fn raise_exception(message: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(JinjaError::InvalidOperation, message))
}

/// Replaces the block `generation`, by which Transformers marks the assistant's text for training, by one that does
/// nothing.
fn without_generation_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        // `{%}` opens a block and does not close it.
        let Some(length) = rest[start + 2..].find("%}") else { break };
        let end = start + 2 + length + 2;
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
