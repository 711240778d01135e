//! Chats about pictures that the bundled model which sees was not trained on.

use serde_json::{Value, json as value};

/// Chats about pictures held out; `tools/training/held_out.py` wrote them, with what Transformers answers.
pub struct HeldOut {
    /// PNG files as data URLs.
    pub pictures: Vec<String>,
    pub chats: Vec<Value>,
}

impl HeldOut {
    pub fn open() -> HeldOut {
        let file = tapml_testing::root().join("tests/pictures/held_out.json");
        let mut file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let pictures = file["pictures"].as_array().unwrap().iter();
        let pictures = pictures.map(|url| url.as_str().unwrap().to_string()).collect();
        let Value::Array(chats) = file["chats"].take() else { panic!("no chats") };
        HeldOut { pictures, chats }
    }

    /// What a user says in a turn, in OpenAI's form.
    pub fn message(&self, turn: &Value) -> Value {
        let part = |part: &Value| match part.as_u64() {
            Some(at) => {
                value!({ "type": "image_url", "image_url": { "url": self.pictures[at as usize] } })
            }
            None => value!({ "type": "text", "text": part }),
        };
        let content: Vec<Value> = turn["parts"].as_array().unwrap().iter().map(part).collect();
        value!({ "role": "user", "content": content })
    }

    /// How many pictures a chat has.
    pub fn count_pictures(chat: &Value) -> usize {
        let turns = chat["turns"].as_array().unwrap().iter();
        let count = |turn: &Value| turn["parts"].as_array().unwrap().iter().filter(|p| p.is_u64()).count();
        turns.map(count).sum()
    }
}
