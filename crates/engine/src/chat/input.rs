//! What a template is given.

use super::{Message, budget};
use serde_json::{Map, Value};
use tapml_graph::{Error, Result};

/// Variables that a chat has fields for.
const OWN: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// A conversation and what else a template is given, as `apply_chat_template` of Transformers takes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chat {
    /// Objects with `role`, `content`, and what else the template reads, such as `tool_calls`.
    pub messages: Vec<Value>,
    /// Functions that the model may call, each as OpenAI's API describes it. `None` is Python's.
    pub tools: Option<Vec<Value>>,
    /// Texts that the answer may rest on. `None` is Python's.
    pub documents: Option<Vec<Value>>,
    /// Further variables, such as `enable_thinking`. They go before the special tokens.
    pub options: Map<String, Value>,
    /// Whether the prompt ends where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends with the last message, which the answer goes on with. Not together with
    /// `add_generation_prompt`.
    pub continue_final_message: bool,
}

impl Chat {
    /// A conversation that the assistant is to answer.
    ///
    /// # Errors
    /// Of kind `Bug` if a message is not one of JSON.
    pub fn new(messages: &[Message]) -> Result<Chat> {
        let json = |message: &Message| {
            serde_json::to_value(message).map_err(|e| Error::bug(format!("a message of a chat: {e}")))
        };
        let messages = messages.iter().map(json).collect::<Result<_>>()?;
        Ok(Chat { messages, add_generation_prompt: true, ..Chat::default() })
    }

    /// A rendered chat up to the end of its last message, as Transformers cuts it (`render_jinja_template` of
    /// `utils/chat_template_utils.py`): what a template puts behind a message would end the answer before it begins.
    pub(super) fn cut_behind_final_message(&self, mut rendered: String) -> Result<String> {
        let content = self.messages.last().and_then(|message| message.get("content"));
        let text = match content {
            Some(Value::Array(parts)) => parts.iter().rev().find_map(|part| part.get("text")),
            content => content,
        };
        let Some(text) = text.and_then(Value::as_str) else {
            return Err(Error::invalid("the last message has no text that the answer could go on with")
                .with_hint("give it a text as `content`, or leave `continue_final_message` out"));
        };
        let Some(at) = rendered.rfind(text.trim()) else {
            return Err(Error::invalid(
                "the chat template changes the last message, so that its end is not known",
            )
            .with_hint("leave `continue_final_message` out"));
        };
        // Many templates drop the blanks behind a message.
        let (spaced, trimmed) = (text.trim_start(), text.trim());
        let kept = if rendered[at..].starts_with(spaced) { spaced } else { trimmed };
        rendered.truncate(at + kept.len());
        Ok(rendered)
    }

    /// Fails if it is too long, if it is both to be continued and answered, or if an option has the name of a field.
    pub(super) fn check(&self) -> Result<()> {
        if self.add_generation_prompt && self.continue_final_message {
            let text = "`continue_final_message` and `add_generation_prompt` exclude one another";
            return Err(Error::invalid(text).with_hint("set one of them to false"));
        }
        if let Some(name) = OWN.iter().find(|name| self.options.contains_key(**name)) {
            let text = format!("`{name}` is no option of a chat template");
            return Err(Error::invalid(text).with_hint("it is a field of its own beside the options"));
        }
        let lists = [Some(&self.messages), self.tools.as_ref(), self.documents.as_ref()];
        let listed = lists.into_iter().flatten().flatten();
        let bytes: usize = listed.chain(self.options.values()).map(bytes_of).sum();
        if bytes > budget::VALUE {
            let found = format!("the messages have {bytes} bytes, a chat may have {}", budget::VALUE);
            return Err(Error::invalid(found).with_hint("give a shorter chat"));
        }
        Ok(())
    }
}

/// Bytes of the texts and keys in a value, and one for anything else.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_of).sum::<usize>() + 1,
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + bytes_of(value)).sum::<usize>() + 1,
    }
}
