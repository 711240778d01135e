//! What was said, as requests with the fields of `/v1/chat/completions`. Knows neither a model nor a terminal.

use anyhow::{Result, anyhow, bail};
use serde_json::{Map, Value, json};

/// Settings that `/set` changes, all of them fields of a request.
pub const SETTINGS: &[&str] = &[
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "max_tokens",
    "min_tokens",
    "ignore_eos",
    "reasoning_effort",
    "chat_template_kwargs",
];

/// A conversation and its settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// What stands before all messages.
    system: Option<String>,
    /// Those of the user and the assistant, whole.
    messages: Vec<Value>,
    /// The first of them that the model is still given.
    first: usize,
    /// Images for the next message.
    images: Vec<Value>,
    settings: Map<String, Value>,
    /// How often the last message was answered before: each answer has a seed of its own.
    answers: u64,
}

impl Conversation {
    /// An empty one.
    pub fn new(system: Option<String>, settings: Map<String, Value>) -> Conversation {
        Conversation { system, settings, ..Conversation::default() }
    }

    /// What the model is to answer.
    pub fn request(&self) -> Value {
        let system = self.system.iter().map(|text| json!({ "role": "system", "content": text }));
        let messages: Vec<Value> = system.chain(self.messages[self.first..].iter().cloned()).collect();
        let mut request = self.settings.clone();
        if let Some(seed) = request.get("seed").and_then(Value::as_i64) {
            request.insert("seed".into(), seed.wrapping_add_unsigned(self.answers).into());
        }
        request.insert("messages".into(), messages.into());
        request.into()
    }

    /// Adds a message of the user, with the images that wait for it.
    pub fn ask(&mut self, text: &str) {
        let content = if self.images.is_empty() {
            text.into()
        } else {
            let text = json!({ "type": "text", "text": text });
            Value::from([&self.images[..], &[text]].concat())
        };
        self.messages.push(json!({ "role": "user", "content": content }));
        self.answers = 0;
    }

    /// Adds the answer. The images were seen.
    pub fn answer(&mut self, text: &str) {
        self.messages.push(json!({ "role": "assistant", "content": text }));
        self.images.clear();
    }

    /// An image for the next message; gives their number.
    pub fn attach(&mut self, image: Value) -> usize {
        self.images.push(image);
        self.images.len()
    }

    /// Gives the model one turn less: the oldest message of the user and what follows it up to the next one. Gives their number,
    /// 0 if only one is left.
    pub fn drop_oldest(&mut self) -> usize {
        let behind = self.messages.get(self.first + 1..).unwrap_or_default();
        let next = behind.iter().position(|message| message["role"] == "user");
        let dropped = next.map_or(0, |next| next + 1);
        self.first += dropped;
        dropped
    }

    /// Takes the last turn back. Fails if there is none.
    pub fn undo(&mut self) -> Result<()> {
        let Some(last) = self.messages.iter().rposition(|message| message["role"] == "user") else {
            bail!("there is no turn to take back");
        };
        self.messages.truncate(last);
        self.first = self.first.min(last);
        Ok(())
    }

    /// Takes the last answer back, so that the message before it is answered anew. Fails if there is no message.
    pub fn ask_again(&mut self) -> Result<()> {
        if self.messages.last().is_some_and(|message| message["role"] == "assistant") {
            self.messages.pop();
        }
        if self.messages.last().is_none_or(|message| message["role"] != "user") {
            bail!("there is no message to answer again");
        }
        self.first = self.first.min(self.messages.len() - 1);
        self.answers += 1;
        Ok(())
    }

    /// Forgets all messages; the system prompt and the settings stay.
    pub fn reset(&mut self) {
        (self.first, self.answers) = (0, 0);
        self.messages.clear();
        self.images.clear();
    }

    /// Sets the system prompt, or removes it.
    pub fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    /// Sets a field of requests, or leaves it to the model if there is no value. A value is JSON, else a text.
    ///
    /// # Errors
    /// If there is no such setting.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        if !SETTINGS.contains(&name) {
            return Err(anyhow!("there is no setting `{name}`; there are {}", SETTINGS.join(", ")));
        }
        let read = |text: &str| match serde_json::from_str(text) {
            // A text that ends answers may be written as a number.
            Ok(value) if name != "stop" || matches!(value, Value::String(_) | Value::Array(_)) => value,
            _ => Value::from(text),
        };
        match value {
            Some(text) => self.settings.insert(name.into(), read(text)),
            None => self.settings.remove(name),
        };
        Ok(())
    }

    /// The settings in words.
    pub fn settings(&self) -> String {
        let words = |(name, value): (&String, &Value)| format!("{name} {value}");
        self.settings.iter().map(words).collect::<Vec<String>>().join(", ")
    }

    /// The most tokens of an answer, if they are set.
    pub fn max_tokens(&self) -> Option<usize> {
        self.settings.get("max_tokens").and_then(Value::as_u64).and_then(|most| usize::try_from(most).ok())
    }

    /// The last message, if it is not answered.
    pub fn is_open(&self) -> bool {
        self.messages.last().is_some_and(|message| message["role"] == "user")
    }

    /// All messages in OpenAI's form, the system prompt first.
    pub fn message_list(&self) -> Value {
        let whole = Conversation { first: 0, ..self.clone() };
        whole.request()["messages"].take()
    }

    /// Takes the place of all messages by saved ones: a list, or an object with `messages`.
    ///
    /// # Errors
    /// If they are no list.
    pub fn load(&mut self, mut saved: Value) -> Result<()> {
        let list = if saved.is_object() { saved["messages"].take() } else { saved };
        let Value::Array(mut messages) = list else {
            bail!("expected a list of messages, or an object with the list `messages`");
        };
        let system = messages.first().filter(|message| message["role"] == "system");
        let system = system.and_then(|message| message["content"].as_str()).map(String::from);
        if system.is_some() {
            messages.remove(0);
        }
        self.reset();
        (self.system, self.messages) = (system, messages);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(conversation: &Conversation) -> Vec<String> {
        let request = conversation.request();
        let messages = request["messages"].as_array().expect("a list").iter();
        messages.map(|message| message["content"].as_str().unwrap_or("parts").to_string()).collect()
    }

    fn talk() -> Conversation {
        let mut talk = Conversation::new(Some("be kind".into()), Map::new());
        for (question, answer) in [("a", "A"), ("b", "B")] {
            talk.ask(question);
            talk.answer(answer);
        }
        talk
    }

    #[test]
    fn the_oldest_turns_go_first_and_the_system_prompt_stays() {
        let mut talk = talk();
        talk.ask("c");
        assert!(talk.is_open());
        assert_eq!(talk.drop_oldest(), 2);
        assert_eq!(contents(&talk), ["be kind", "b", "B", "c"]);
        assert_eq!(talk.drop_oldest(), 2);
        assert_eq!(contents(&talk), ["be kind", "c"]);
        assert_eq!(talk.drop_oldest(), 0, "the last message stays");
        assert_eq!(contents(&talk), ["be kind", "c"]);
        assert_eq!(talk.message_list().as_array().map(Vec::len), Some(6), "what is saved is whole");
        talk.undo().expect("a turn");
        talk.undo().expect("a turn");
        assert_eq!(contents(&talk), ["be kind"]);
        assert_eq!(talk.message_list().as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn turns_are_taken_back_and_answered_again_with_another_seed() {
        let mut talk = talk();
        talk.set("seed", Some("7")).expect("a setting");
        talk.ask_again().expect("a message");
        assert_eq!(contents(&talk), ["be kind", "a", "A", "b"]);
        assert_eq!(talk.request()["seed"], 8);
        talk.answer("B2");
        talk.undo().expect("a turn");
        assert_eq!(contents(&talk), ["be kind", "a", "A"]);
        talk.reset();
        assert_eq!(contents(&talk), ["be kind"]);
        assert!(talk.undo().is_err() && talk.ask_again().is_err());
    }

    #[test]
    fn images_wait_for_a_message_that_is_answered() {
        let mut talk = Conversation::default();
        assert_eq!(talk.attach(json!({ "type": "image_url" })), 1);
        talk.ask("what");
        assert_eq!(talk.request()["messages"][0]["content"].as_array().map(Vec::len), Some(2));
        talk.undo().expect("a turn");
        talk.ask("what");
        talk.answer("a cat");
        talk.ask("sure?");
        assert_eq!(contents(&talk), ["parts", "a cat", "sure?"]);
    }

    #[test]
    fn settings_are_fields_of_the_request() {
        let mut talk = Conversation::default();
        for (name, value) in [("temperature", "0.7"), ("stop", "3"), ("chat_template_kwargs", "{\"a\":true}")]
        {
            talk.set(name, Some(value)).expect("a setting");
        }
        let request = talk.request();
        assert_eq!((&request["temperature"], &request["stop"]), (&json!(0.7), &json!("3")));
        assert_eq!(request["chat_template_kwargs"]["a"], true);
        talk.set("stop", None).expect("a setting");
        assert!(talk.request().get("stop").is_none() && talk.set("stream", Some("true")).is_err());
        talk.set("max_tokens", Some("5")).expect("a setting");
        assert_eq!(talk.max_tokens(), Some(5));
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let (talk, mut other) = (talk(), Conversation::default());
        other.load(talk.message_list()).expect("a list");
        assert_eq!(other, talk);
        other.load(json!({ "messages": [{ "role": "user", "content": "x" }] })).expect("an object");
        assert!(other.is_open() && contents(&other) == ["x"]);
        for wrong in [json!(1), json!({}), json!({ "messages": "x" })] {
            assert!(other.load(wrong).is_err());
        }
        assert_eq!(contents(&other), ["x"], "what is no list changes nothing");
    }
}
