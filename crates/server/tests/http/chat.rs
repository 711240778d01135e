//! `/v1/chat/completions`.

use super::client::post;
use super::fixture::{Fixture, NAME, Wishes, tokenizer};
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";

fn messages() -> Value {
    json!([{ "role": "system", "content": "Be kind." }, { "role": "user", "content": "Hello" }])
}

#[test]
fn an_answer_has_the_fields_of_openai() {
    let server = Fixture::start();
    let body = json!({ "model": NAME, "messages": messages(), "max_completion_tokens": 5, "temperature": 0 });
    let reply = post(server.address, PATH, &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["object"], "chat.completion");
    let choice = &answer["choices"][0];
    assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(0), &json!("length")));
    let message = &choice["message"];
    assert_eq!((&message["role"], &message["refusal"]), (&json!("assistant"), &Value::Null));
    assert!(!message["content"].as_str().unwrap().is_empty());
    assert_eq!(answer["usage"]["completion_tokens"], 5);
    // The chat is the completion of what the template makes of it.
    let prompt = post(server.address, "/apply-template", &json!({ "messages": messages() })).json();
    assert_eq!(prompt["prompt"], "[system] Be kind.\n[user] Hello\n[assistant]");
    let ids = tokenizer().encode_plain(prompt["prompt"].as_str().unwrap()).unwrap();
    let plain = json!({ "prompt": ids, "max_tokens": 5, "temperature": 0 });
    let plain = post(server.address, "/v1/completions", &plain).json();
    assert_eq!(plain["choices"][0]["text"], message["content"]);
}

#[test]
fn parts_of_a_message_are_joined_and_developers_are_the_system() {
    let server = Fixture::start();
    let parts = json!([{ "type": "text", "text": "Hello" }, { "type": "text", "text": "there" }]);
    let messages =
        json!([{ "role": "developer", "content": "Be kind." }, { "role": "user", "content": parts }]);
    let body = json!({ "messages": messages, "add_generation_prompt": false });
    let answer = post(server.address, "/apply-template", &body).json();
    assert_eq!(answer["prompt"], "[system] Be kind.\n[user] Hello\nthere\n");
}

#[test]
fn log_probabilities_join_to_the_content() {
    let server = Fixture::start();
    let body = json!({ "messages": messages(), "max_tokens": 9, "logprobs": true, "top_logprobs": 3, "temperature": 0 });
    let answer = post(server.address, PATH, &body).json();
    let choice = &answer["choices"][0];
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 9);
    let joined: String = content.iter().map(|t| t["token"].as_str().unwrap()).collect();
    assert_eq!(joined, choice["message"]["content"].as_str().unwrap());
    for token in content {
        let bytes: Vec<u8> = serde_json::from_value(token["bytes"].clone()).unwrap();
        assert_eq!(bytes, token["token"].as_str().unwrap().as_bytes());
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["logprob"]), (3, &token["logprob"]), "greedy takes the likeliest");
    }
    let without = json!({ "messages": messages(), "max_tokens": 2 });
    assert_eq!(post(server.address, PATH, &without).json()["choices"][0]["logprobs"], Value::Null);
}

#[test]
fn a_model_without_a_template_answers_no_chats() {
    let server = Fixture::start_with(Wishes { template: "", ..Wishes::default() });
    let error = post(server.address, PATH, &json!({ "messages": messages() })).error(400);
    assert!(error["message"].as_str().unwrap().contains("--chat-template"), "{error}");
}

#[test]
fn what_cannot_be_served_is_refused_before_a_token_is_made() {
    let server = Fixture::start();
    let image = |url: &str| {
        let image = json!({ "type": "image_url", "image_url": { "url": url } });
        json!([{ "role": "user", "content": [{ "type": "text", "text": "What is this?" }, image] }])
    };
    let of_assistant = json!([{ "role": "assistant", "content": [{ "type": "image_url", "image_url": { "url": "data:," } }] }]);
    let sound = json!([{ "type": "input_audio", "input_audio": {} }]);
    let schema = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": { "not": {} } } });
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let cases = [
        (json!({ "messages": image("data:,") }), "messages[0].content[1].image_url.url"),
        (json!({ "messages": image("https://example.org/a.png") }), "messages[0].content[1].image_url.url"),
        (json!({ "messages": of_assistant }), "messages[0].content[0].type"),
        // The model does not see.
        (json!({ "messages": image("data:image/png;base64,aGk=") }), "messages"),
        (json!({ "messages": [{ "role": "user", "content": sound }] }), "messages[0].content[0].type"),
        (json!({ "messages": messages(), "response_format": schema }), "response_format"),
        (json!({ "messages": messages(), "response_format": { "type": "xml" } }), "response_format.type"),
        (json!({ "messages": messages(), "response_format": {} }), "response_format.type"),
        (json!({ "messages": messages(), "grammar": "root ::= b" }), "grammar"),
        (json!({ "messages": messages(), "guided_choice": [] }), "guided_choice"),
        (json!({ "messages": messages(), "modalities": ["text", "audio"] }), "modalities"),
        (json!({ "messages": messages(), "audio": { "voice": "a" } }), "audio"),
        (json!({ "messages": messages(), "functions": tools }), "functions"),
    ];
    for (body, param) in cases {
        let error = post(server.address, PATH, &body).error(400);
        assert_eq!(error["param"], param, "{error}");
    }
    let neutral = json!({
        "messages": messages(), "max_tokens": 1, "response_format": { "type": "text" }, "modalities": ["text"],
        "grammar": null, "tools": [], "unknown": { "of": "nobody" }, "user": "me", "store": false,
    });
    assert_eq!(post(server.address, PATH, &neutral).status, 200);
}

#[test]
fn a_chat_without_a_bound_fills_the_context() {
    let server = Fixture::start();
    let answer = post(server.address, PATH, &json!({ "messages": messages(), "temperature": 0 })).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let total = answer["usage"]["total_tokens"].as_u64().unwrap();
    assert!((256..=257).contains(&total), "{answer}");
}

#[test]
fn an_answer_may_go_on_with_the_last_message() {
    let server = Fixture::start();
    let said =
        json!([{ "role": "user", "content": "Hello" }, { "role": "assistant", "content": "Once upon" }]);
    let rendered = |fields: Value| {
        let mut body = json!({ "messages": said });
        fields.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        post(server.address, "/apply-template", &body)
    };
    let going_on = rendered(json!({ "continue_final_message": true, "add_generation_prompt": false })).json();
    assert_eq!(going_on["prompt"], "[user] Hello\n[assistant] Once upon");
    rendered(json!({ "continue_final_message": true })).error(400);
}
