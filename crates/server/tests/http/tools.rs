//! Functions that a model calls.

use super::client::post;
use super::fixture::{Fixture, Wishes};
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";
const CALLS: &str = "I look. <tool_call>{\"name\": \"get_time\", \"arguments\": {\"zone\": \"é\"}}</tool_call>\
                     <tool_call>{\"name\": \"stop\"}</tool_call>";

fn writing(script: &'static str) -> Fixture {
    Fixture::start_with(Wishes { script, context: 512, ..Wishes::default() })
}

fn body() -> Value {
    let function = |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } });
    json!({
        "messages": [{ "role": "user", "content": "What is the time?" }], "temperature": 0,
        "tools": [function("get_time"), function("stop")],
    })
}

#[test]
fn calls_are_told_whole_and_streamed() {
    let server = writing(CALLS);
    let answer = post(server.address, PATH, &body()).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let message = &choice["message"];
    assert_eq!(message["content"], "I look. ");
    let calls = message["tool_calls"].as_array().unwrap();
    let functions: Vec<&Value> = calls.iter().map(|call| &call["function"]).collect();
    let expected = [
        json!({ "name": "get_time", "arguments": "{\"zone\":\"é\"}" }),
        json!({ "name": "stop", "arguments": "{}" }),
    ];
    assert_eq!(functions, expected.iter().collect::<Vec<_>>());
    assert!(
        calls
            .iter()
            .all(|call| call["type"] == "function" && call["id"].as_str().unwrap().starts_with("call_"))
    );
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let mut streamed = body();
    streamed["stream"] = true.into();
    let events = post(server.address, PATH, &streamed).events();
    let deltas = events.iter().map(|event| &event["choices"][0]["delta"]);
    let text: String = deltas.clone().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, "I look. ");
    let calls: Vec<&Value> = deltas.filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
    assert_eq!(calls.iter().map(|call| &call["function"]).collect::<Vec<_>>(), functions);
    assert_eq!((&calls[0]["index"], &calls[1]["index"]), (&json!(0), &json!(1)));
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    // One call alone.
    let mut one = body();
    one["parallel_tool_calls"] = false.into();
    let answer = post(server.address, PATH, &one).json();
    assert_eq!(answer["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
    // The answer of the function goes back.
    let mut next = body();
    next["messages"].as_array_mut().unwrap().extend([
        json!({ "role": "assistant", "content": null, "tool_calls": message["tool_calls"] }),
        json!({ "role": "tool", "tool_call_id": calls[0]["id"], "content": "noon" }),
    ]);
    assert_eq!(post(server.address, PATH, &next).status, 200);
}

#[test]
fn special_tokens_are_text_where_functions_may_be_called() {
    // Some models mark calls by special tokens, which other answers leave out.
    let script = "<|pad|>Once<|pad|>";
    let server = writing(script);
    let text =
        |body: &Value| post(server.address, PATH, body).json()["choices"][0]["message"]["content"].clone();
    assert_eq!(text(&body()), script);
    assert_eq!(text(&json!({ "messages": body()["messages"], "temperature": 0 })), "Once");
}

#[test]
fn without_functions_a_call_is_text() {
    let server = writing(CALLS);
    let mut none = body();
    none["tool_choice"] = "none".into();
    for body in [none, json!({ "messages": body()["messages"], "temperature": 0 })] {
        let answer = post(server.address, PATH, &body).json();
        let choice = &answer["choices"][0];
        assert_eq!(
            (&choice["finish_reason"], &choice["message"]["content"]),
            (&json!("stop"), &json!(CALLS))
        );
        assert!(choice["message"].get("tool_calls").is_none());
    }
}

#[test]
fn functions_that_are_described_wrongly_are_refused() {
    let server = writing(CALLS);
    let wrong = [
        ("tool_choice", json!("always"), "tool_choice"),
        ("tool_choice", json!({ "type": "function", "function": { "name": "other" } }), "tool_choice"),
        (
            "tools",
            json!([{ "type": "function", "function": { "name": "f", "strict": true, "parameters": { "not": {} } } }]),
            "tools",
        ),
        ("tools", json!([{ "type": "function", "function": { "name": "a b" } }]), "tools[0].function.name"),
        ("tools", json!([{ "type": "retrieval" }]), "tools[0].type"),
        (
            "tools",
            json!([{ "type": "function", "function": { "name": "f", "parameters": [] } }]),
            "tools[0].function.parameters",
        ),
    ];
    for (field, value, param) in wrong {
        let mut body = body();
        body[field] = value;
        assert_eq!(post(server.address, PATH, &body).error(400)["param"], param);
    }
}
