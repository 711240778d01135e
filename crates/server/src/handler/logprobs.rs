//! Log probabilities as OpenAI writes them.

use crate::answer::{CandidateText, TokenText};
use serde_json::{Map, Value, json};

/// What stands for probabilities of 0, whose logarithm JSON cannot write.
const LEAST: f32 = -9999.0;

fn number(logprob: f32) -> Value {
    json!(logprob.max(LEAST))
}

/// The four lists of completions.
pub fn lists(tokens: &[TokenText]) -> Value {
    let all = |of: fn(&TokenText) -> Value| tokens.iter().map(of).collect::<Vec<Value>>();
    json!({
        "tokens": all(|token| token.text.clone().into()),
        "token_logprobs": all(|token| token.logprob.map_or(Value::Null, number)),
        "top_logprobs": all(top_map),
        "text_offset": all(|token| token.offset.into()),
    })
}

/// The likeliest tokens by their texts, and the token itself; null for the first token of a prompt.
fn top_map(token: &TokenText) -> Value {
    let Some(own) = token.logprob else { return Value::Null };
    let mut map: Map<String, Value> = Map::new();
    for CandidateText { text, logprob, .. } in &token.top {
        // Of equal texts the likeliest token counts, which comes first.
        map.entry(text.clone()).or_insert(number(*logprob));
    }
    map.entry(token.text.clone()).or_insert(number(own));
    map.into()
}

/// The list of chats.
pub fn content(tokens: &[TokenText]) -> Value {
    let one = |text: &str, logprob: f32| json!({ "token": text, "logprob": number(logprob), "bytes": text.as_bytes() });
    let token = |token: &TokenText| {
        let mut value = one(&token.text, token.logprob.unwrap_or(LEAST));
        let top: Vec<Value> = token.top.iter().map(|top| one(&top.text, top.logprob)).collect();
        value["top_logprobs"] = top.into();
        value
    };
    json!({ "content": tokens.iter().map(token).collect::<Vec<Value>>(), "refusal": null })
}

/// The list of llama-server's own answers, which has numbers of tokens, too.
pub fn native(tokens: &[TokenText]) -> Value {
    let one = |id: u32, text: &str, logprob: f32| json!({ "id": id, "token": text, "logprob": number(logprob), "bytes": text.as_bytes() });
    let token = |token: &TokenText| {
        let mut value = one(token.id, &token.text, token.logprob.unwrap_or(LEAST));
        let top: Vec<Value> = token.top.iter().map(|top| one(top.id, &top.text, top.logprob)).collect();
        value["top_logprobs"] = top.into();
        value
    };
    tokens.iter().map(token).collect::<Vec<Value>>().into()
}
