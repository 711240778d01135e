//! Answers that come piece by piece.

use super::client::{JSON, open, post};
use super::fixture::{Fixture, Wishes};
use serde_json::{Value, json};
use std::time::Duration;

/// The texts of a stream's choices, with the reasons that they ended for.
fn join(events: &[Value], choices: usize) -> Vec<(String, Value)> {
    let mut joined = vec![(String::new(), Value::Null); choices];
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        let (text, finish) = &mut joined[choice["index"].as_u64().unwrap() as usize];
        assert!(finish.is_null(), "nothing comes behind the end");
        let piece = choice.get("text").or(choice["delta"].get("content"));
        text.push_str(piece.map_or("", |piece| piece.as_str().unwrap()));
        *finish = choice["finish_reason"].clone();
    }
    joined
}

#[test]
fn a_stream_joins_to_the_whole_answer() {
    let server = Fixture::start();
    for prompt in ["Once upon a time", "Tom had a dog", "\u{1F600} é", "x"] {
        for (stop, temperature) in [(Value::Null, 0.0), (json!(["e", "a\n"]), 0.0), (json!("the"), 3.0)] {
            for echo in [false, true] {
                let mut body = json!({
                    "prompt": [prompt, "B"], "max_tokens": 30, "temperature": temperature, "seed": 3, "stop": stop,
                    "echo": echo, "n": 2, "logprobs": 1,
                });
                let whole = post(server.address, "/v1/completions", &body).json();
                body["stream"] = true.into();
                body["stream_options"] = json!({ "include_usage": true });
                let reply = post(server.address, "/v1/completions", &body);
                assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
                let events = reply.events();
                let expected: Vec<(String, Value)> = whole["choices"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|c| (c["text"].as_str().unwrap().to_string(), c["finish_reason"].clone()))
                    .collect();
                assert_eq!(join(&events, 4), expected);
                let tokens = |index: u64| -> Vec<Value> {
                    let own = events.iter().flat_map(|e| e["choices"].as_array().unwrap());
                    let own = own.filter(|c| c["index"] == index);
                    own.flat_map(|c| c["logprobs"]["tokens"].as_array().unwrap().clone()).collect()
                };
                for index in 0..4 {
                    assert_eq!(json!(tokens(index)), whole["choices"][index as usize]["logprobs"]["tokens"]);
                }
                let last = events.last().unwrap();
                assert_eq!(last["choices"], json!([]));
                assert_eq!(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
                assert!(
                    events[..events.len() - 1].iter().all(|e| e["usage"].is_null() && e["id"] == last["id"])
                );
            }
        }
    }
}

#[test]
fn a_chat_begins_with_the_role_and_ends_with_the_reason() {
    let server = Fixture::start();
    let mut body = json!({
        "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 12, "temperature": 0, "logprobs": true,
    });
    let whole = post(server.address, "/v1/chat/completions", &body).json();
    body["stream"] = true.into();
    let events = post(server.address, "/v1/chat/completions", &body).events();
    assert!(
        events.iter().all(|event| event["object"] == "chat.completion.chunk" && event.get("usage").is_none())
    );
    assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let last = &events.last().unwrap()["choices"][0];
    assert_eq!((&last["delta"], &last["finish_reason"]), (&json!({}), &json!("length")));
    let choice = &whole["choices"][0];
    let content = choice["message"]["content"].as_str().unwrap().to_string();
    assert_eq!(join(&events, 1), [(content, json!("length"))]);
    let tokens = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(json!(tokens.flatten().collect::<Vec<_>>()), choice["logprobs"]["content"]);
}

#[test]
fn a_client_that_goes_away_is_cancelled() {
    let server = Fixture::start_with(Wishes { step_time: Duration::from_millis(20), ..Wishes::default() });
    let body = json!({ "prompt": "Once", "max_tokens": 200, "stream": true, "ignore_eos": true }).to_string();
    let mut stream = open(server.address, "POST", "/v1/completions", &[JSON], body.as_bytes());
    stream.event();
    while server.health()["running"] == 0 {}
    drop(stream);
    // All tokens would take four seconds.
    let start = std::time::Instant::now();
    server.wait_idle();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_client_that_goes_away_while_it_waits_for_the_whole_is_cancelled() {
    use std::io::Write;
    let server = Fixture::start_with(Wishes { step_time: Duration::from_millis(20), ..Wishes::default() });
    let body = json!({ "prompt": "Once", "max_tokens": 200, "ignore_eos": true }).to_string();
    let mut tcp = super::client::connect(server.address);
    tcp.write_all(super::client::head("POST", "/v1/completions", &[JSON], body.len()).as_bytes()).unwrap();
    tcp.write_all(body.as_bytes()).unwrap();
    while server.health()["running"] == 0 {}
    drop(tcp);
    let start = std::time::Instant::now();
    server.wait_idle();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}
