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

    /// Fails if it is too long, or an option has the name of a field.
    pub(super) fn check(&self) -> Result<()> {
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
