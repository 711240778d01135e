//! Anthropic's `/v1/messages`.

use super::client::{JSON, Reply, open, post};
use super::fixture::{Fixture, NAME, Wishes};
use serde_json::{Value, json};
use std::time::Duration;
use tapml_server::{ApiKeys, ServerOptions};

const PATH: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const CALLS: &str = "I look. <tool_call>{\"name\": \"get_time\", \"arguments\": {\"zone\": \"é\"}}</tool_call>\
                     <tool_call>{\"name\": \"stop\"}</tool_call>";

fn writing(script: &'static str) -> Fixture {
    Fixture::start_with(Wishes { script, context: 512, ..Wishes::default() })
}

fn body() -> Value {
    json!({ "model": NAME, "max_tokens": 9, "temperature": 0, "messages": [{ "role": "user", "content": "Hello" }] })
}

/// The body with another field.
fn body_with(field: &str, value: Value) -> Value {
    let mut body = body();
    body[field] = value;
    body
}

fn tools() -> Value {
    let tool = |name: &str| json!({ "name": name, "input_schema": { "type": "object" } });
    json!([tool("get_time"), tool("stop")])
}

/// What a client puts together from a stream.
fn join(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let mut partial = String::new();
    for event in &events[1..] {
        let index = event["index"].as_u64().unwrap_or(0) as usize;
        let content = message["content"].as_array_mut().unwrap();
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(content.len(), index);
                content.push(event["content_block"].clone());
            }
            "content_block_delta" if event["delta"]["type"] == "text_delta" => {
                let text = content[index]["text"].as_str().unwrap().to_string();
                content[index]["text"] = (text + event["delta"]["text"].as_str().unwrap()).into();
            }
            "content_block_delta" => partial.push_str(event["delta"]["partial_json"].as_str().unwrap()),
            "content_block_stop" if content[index]["type"] == "tool_use" => {
                content[index]["input"] = serde_json::from_str(&std::mem::take(&mut partial)).unwrap();
            }
            "message_delta" => {
                for field in ["stop_reason", "stop_sequence"] {
                    message[field] = event["delta"][field].clone();
                }
                message["usage"] = event["usage"].clone();
            }
            "content_block_stop" | "message_stop" => {}
            other => panic!("{other}"),
        }
    }
    message
}

/// Names and ids that differ from answer to answer are left out.
fn without_ids(mut message: Value) -> Value {
    message.as_object_mut().unwrap().remove("id");
    // The second of two equal prompts is in the cache.
    message.as_object_mut().unwrap().remove("usage");
    for block in message["content"].as_array_mut().unwrap() {
        block.as_object_mut().unwrap().remove("id");
    }
    message
}

#[test]
fn an_answer_is_that_of_the_chat() {
    let server = Fixture::start();
    let mut body = body_with("system", json!([{ "type": "text", "text": "Be kind.", "cache_control": {} }]));
    let reply = post(server.address, PATH, &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    let messages =
        json!([{ "role": "system", "content": "Be kind." }, { "role": "user", "content": "Hello" }]);
    let chat = json!({ "messages": messages, "max_tokens": 9, "temperature": 0 });
    let chat = post(server.address, "/v1/chat/completions", &chat).json();
    assert_eq!(
        answer["content"],
        json!([{ "type": "text", "text": chat["choices"][0]["message"]["content"] }])
    );
    assert!(answer["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(
        (&answer["type"], &answer["role"], &answer["model"]),
        (&json!("message"), &json!("assistant"), &json!(NAME))
    );
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("max_tokens"), &Value::Null));
    let tokens = |usage: &Value| {
        let count = |name: &str| usage[name].as_u64().unwrap();
        count("input_tokens") + count("cache_read_input_tokens") + count("cache_creation_input_tokens")
    };
    assert_eq!(tokens(&answer["usage"]), chat["usage"]["prompt_tokens"].as_u64().unwrap());
    assert_eq!(answer["usage"]["output_tokens"], 9);
    let count = post(server.address, COUNT, &body).json();
    assert_eq!(count, json!({ "input_tokens": chat["usage"]["prompt_tokens"] }));
    // The stream joins to the same.
    body["stream"] = true.into();
    let events = post(server.address, PATH, &body).named_events();
    assert_eq!(without_ids(join(&events)), without_ids(answer));
    assert_eq!(tokens(&events[0]["message"]["usage"]), count["input_tokens"].as_u64().unwrap());
    assert_eq!(tokens(&events[events.len() - 2]["usage"]), count["input_tokens"].as_u64().unwrap());
    let long = body_with("messages", json!([{ "role": "user", "content": "a ".repeat(400) }]));
    assert!(post(server.address, COUNT, &long).json()["input_tokens"].as_u64().unwrap() > 256);
    assert!(
        post(server.address, PATH, &long).anthropic_error(400)["message"].as_str().unwrap().contains("256")
    );
}

#[test]
fn events_come_in_the_order_of_anthropic() {
    let server = writing(CALLS);
    let mut body = body_with("tools", tools());
    body["max_tokens"] = 300.into();
    let answer = post(server.address, PATH, &body).json();
    assert_eq!(answer["stop_reason"], "tool_use");
    let expected = json!([
        { "type": "text", "text": "I look. " },
        { "type": "tool_use", "name": "get_time", "input": { "zone": "é" } },
        { "type": "tool_use", "name": "stop", "input": {} },
    ]);
    assert_eq!(without_ids(answer.clone())["content"], expected);
    assert!(answer["content"][1]["id"].as_str().unwrap().starts_with("toolu_"));
    assert_ne!(answer["content"][1]["id"], answer["content"][2]["id"]);
    body["stream"] = true.into();
    let events = post(server.address, PATH, &body).named_events();
    assert_eq!(without_ids(join(&events)), without_ids(answer));
    let mut names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    names.dedup();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let expected =
        [&["message_start"], &block[..], &block[..], &block[..], &["message_delta", "message_stop"]].concat();
    assert_eq!(names, expected);
    for (choice, calls) in [
        (json!({ "type": "auto", "disable_parallel_tool_use": true }), 1),
        (json!({ "type": "auto" }), 2),
        (json!({ "type": "none" }), 0),
    ] {
        body["tool_choice"] = choice;
        let content = join(&post(server.address, PATH, &body).named_events())["content"].clone();
        let blocks = content.as_array().unwrap().iter();
        assert_eq!(blocks.filter(|block| block["type"] == "tool_use").count(), calls, "{content}");
    }
}

#[test]
fn calls_that_are_demanded_and_forms_are_those_of_the_chat() {
    let server = writing("I would rather talk.");
    let schema = json!({ "type": "object", "additionalProperties": false });
    let mut body = body_with(
        "tools",
        json!([{ "name": "start", "input_schema": schema }, { "name": "stop", "input_schema": schema }]),
    );
    body["max_tokens"] = 300.into();
    body["tool_choice"] = json!({ "type": "tool", "name": "stop", "disable_parallel_tool_use": true });
    let answer = post(server.address, PATH, &body).json();
    let [call] = &answer["content"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("stop")));
    let schema = json!({ "enum": ["noon"] });
    let mut form =
        body_with("output_config", json!({ "format": { "type": "json_schema", "schema": schema } }));
    form["max_tokens"] = 50.into();
    let answer = post(server.address, PATH, &form).json();
    assert_eq!(answer["content"], json!([{ "type": "text", "text": "\"noon\"" }]), "{answer}");
}

#[test]
fn calls_and_results_are_messages_of_the_chat() {
    let server = Fixture::start();
    let image = json!({ "type": "image", "source": {} });
    let messages = json!([
        { "role": "user", "content": [{ "type": "text", "text": "The" }, { "type": "text", "text": "time?" }] },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "Hm", "signature": "x" }, { "type": "text", "text": "I look." },
            { "type": "tool_use", "id": "t1", "name": "get_time", "input": { "a": 1 } },
            { "type": "tool_use", "id": "t2", "name": "stop", "input": {} },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t1", "content": [{ "type": "text", "text": "noon" }] },
            { "type": "tool_result", "tool_use_id": "t2", "is_error": true },
            { "type": "text", "text": "And now?" },
        ] },
    ]);
    let function = |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } });
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let chat = json!({ "messages": [
        { "role": "user", "content": "The\ntime?" },
        { "role": "assistant", "content": "I look.", "tool_calls": [call("t1", "get_time", "{\"a\":1}"), call("t2", "stop", "{}")] },
        { "role": "tool", "tool_call_id": "t1", "content": "noon" },
        { "role": "tool", "tool_call_id": "t2", "content": "" },
        { "role": "user", "content": "And now?" },
    ], "tools": [function("get_time"), function("stop")], "max_tokens": 9, "temperature": 0 });
    let mut body = body_with("messages", messages);
    body["tools"] = tools();
    let answer = post(server.address, PATH, &body).json();
    let chat = post(server.address, "/v1/chat/completions", &chat).json();
    assert_eq!(answer["content"][0]["text"], chat["choices"][0]["message"]["content"], "{answer} {chat}");
    let usage = &answer["usage"];
    let read = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(read, chat["usage"]["prompt_tokens"].as_u64().unwrap());
    body["messages"][2]["content"][0]["content"] = json!([image]);
    let error = post(server.address, PATH, &body).anthropic_error(400);
    assert!(error["message"].as_str().unwrap().contains("`messages[2].content[0].content[0]`"), "{error}");
}

#[test]
fn the_text_that_ends_an_answer_is_told() {
    let server = writing("one two three four");
    let mut body = body_with("stop_sequences", json!(["four", " three"]));
    body["max_tokens"] = 100.into();
    let answer = post(server.address, PATH, &body).json();
    assert_eq!(answer["content"], json!([{ "type": "text", "text": "one two" }]));
    assert_eq!(
        (&answer["stop_reason"], &answer["stop_sequence"]),
        (&json!("stop_sequence"), &json!(" three"))
    );
    body["stop_sequences"] = json!(["never"]);
    let answer = post(server.address, PATH, &body).json();
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    body["stop_sequences"] = json!(["one"]);
    assert_eq!(post(server.address, PATH, &body).json()["content"], json!([]));
    body["stream"] = true.into();
    let names = post(server.address, PATH, &body).named_events();
    let names: Vec<&Value> = names.iter().map(|event| &event["type"]).collect();
    assert_eq!(names, ["message_start", "message_delta", "message_stop"]);
}

#[test]
fn refusals_have_the_form_of_anthropic() {
    let options =
        ServerOptions { keys: ApiKeys::new(&["one"]), max_concurrent: 1, ..ServerOptions::default() };
    let slow = Wishes { server: options, step_time: Duration::from_millis(20), ..Wishes::default() };
    let server = Fixture::start_with(slow);
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| -> Reply {
        open(server.address, method, path, headers, body.as_bytes()).rest()
    };
    let key = ("x-api-key", "one");
    for path in [PATH, COUNT] {
        let kind = |reply: Reply, status| reply.anthropic_error(status)["type"].clone();
        assert_eq!(kind(ask("POST", path, &[JSON], "{}"), 401), "authentication_error");
        assert_eq!(kind(ask("GET", path, &[key], ""), 405), "invalid_request_error");
        assert_eq!(kind(ask("POST", path, &[key], "{}"), 415), "invalid_request_error");
        let long = format!("{{\"messages\": \"{}\"}}", "a".repeat(10 << 20));
        assert_eq!(kind(ask("POST", path, &[key, JSON], &long), 413), "request_too_large");
        let origin = [key, JSON, ("origin", "https://evil.example")];
        assert_eq!(kind(ask("POST", path, &origin, "{}"), 403), "permission_error");
        let other = body_with("model", json!("other")).to_string();
        assert_eq!(kind(ask("POST", path, &[key, JSON], &other), 404), "not_found_error");
    }
    ask("GET", "/v1/messages/batches", &[key], "").anthropic_error(404);
    ask("GET", "/v1/messagesx", &[key], "").error(404);
    let mut body = body_with("stream", true.into());
    body["max_tokens"] = 200.into();
    let mut stream = open(server.address, "POST", PATH, &[JSON, key], body.to_string().as_bytes());
    assert!(stream.named_event().0 == "message_start");
    let full = ask("POST", PATH, &[JSON, key], &body.to_string());
    assert_eq!(full.header("retry-after"), Some("1"));
    assert_eq!(full.anthropic_error(429)["type"], "rate_limit_error");
}

#[test]
fn a_stream_that_breaks_off_ends_with_an_error() {
    let options = ServerOptions { grace: Duration::from_millis(50), ..ServerOptions::default() };
    let slow = Wishes { server: options, step_time: Duration::from_millis(20), ..Wishes::default() };
    let server = Fixture::start_with(slow);
    let mut body = body_with("stream", true.into());
    body["max_tokens"] = 200.into();
    let mut stream = open(server.address, "POST", PATH, &[JSON], body.to_string().as_bytes());
    stream.named_event();
    server.stopper.stop();
    let events = stream.rest().named_events();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], last["error"]["type"].is_string()), (&json!("error"), true), "{last}");
    server.join().unwrap();
}

#[test]
fn an_answer_that_the_client_has_begun_is_gone_on_with() {
    let server = Fixture::start();
    let messages =
        json!([{ "role": "user", "content": "Hello" }, { "role": "assistant", "content": "Once upon" }]);
    let answer = post(server.address, PATH, &body_with("messages", messages.clone())).json();
    let chat = json!({
        "messages": messages, "max_tokens": 9, "temperature": 0,
        "continue_final_message": true, "add_generation_prompt": false,
    });
    let expected = post(server.address, "/v1/chat/completions", &chat).json();
    assert_eq!(answer["content"][0]["text"], expected["choices"][0]["message"]["content"], "{answer}");
    assert_eq!(answer["usage"]["input_tokens"], expected["usage"]["prompt_tokens"]);
}

#[test]
fn a_wrong_field_is_named() {
    let server = Fixture::start();
    let content = |block: Value| json!([{ "role": "user", "content": [block] }]);
    let said = |block: Value| json!([{ "role": "assistant", "content": [block] }]);
    let cases = [
        ("messages", json!([]), "messages"),
        ("messages", json!("hi"), "messages"),
        ("messages", json!(["hi"]), "messages[0].role"),
        ("messages", json!([{ "role": "tool", "content": "a" }]), "messages[0].role"),
        ("messages", json!([{ "role": "user" }]), "messages[0].content"),
        ("messages", content(json!({})), "messages[0].content[0].type"),
        ("messages", content(json!({ "type": "text" })), "messages[0].content[0].text"),
        ("messages", content(json!({ "type": "image" })), "messages[0].content[0].source.type"),
        ("messages", content(json!({ "type": "tool_use" })), "messages[0].content[0]"),
        ("messages", content(json!({ "type": "tool_result" })), "messages[0].content[0].tool_use_id"),
        ("messages", said(json!({ "type": "tool_use", "id": "a" })), "messages[0].content[0].input"),
        ("messages", said(json!({ "type": "tool_use", "input": {} })), "messages[0].content[0].id"),
        ("messages", said(json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} })), "messages"),
        ("system", json!([{ "type": "image" }]), "system[0]"),
        ("max_tokens", json!(0), "max_tokens"),
        ("stop_sequences", json!("a"), "stop_sequences"),
        ("stop_sequences", json!([""]), "stop_sequences"),
        ("temperature", json!("hot"), "temperature"),
        ("tools", json!([{ "name": "a" }]), "tools[0].input_schema"),
        ("tools", json!([{ "input_schema": {} }]), "tools[0].name"),
        ("tools", json!([{ "type": "bash_20250124", "name": "bash" }]), "tools[0]"),
        ("tool_choice", json!({ "type": "king" }), "tool_choice.type"),
        ("tool_choice", json!({ "type": "tool" }), "tool_choice.name"),
        ("tool_choice", json!({ "type": "any" }), "tool_choice"),
        (
            "output_config",
            json!({ "format": { "type": "json_schema", "schema": { "not": {} } } }),
            "output_config.format",
        ),
        ("output_config", json!({ "format": { "type": "xml" } }), "output_config.format.type"),
        ("thinking", json!({ "type": "enabled", "budget_tokens": 1024 }), "thinking"),
        ("mcp_servers", json!([{}]), "mcp_servers"),
        ("n", json!(2), "n"),
        ("guided_json", json!({ "not": {} }), "guided_json"),
    ];
    for (field, value, named) in cases {
        let error = post(server.address, PATH, &body_with(field, value.clone())).anthropic_error(400);
        assert_eq!(error["type"], "invalid_request_error");
        assert!(
            error["message"].as_str().unwrap().contains(&format!("`{named}`")),
            "{field} {value}: {error}"
        );
    }
    let neutral = json!({ "type": "adaptive" });
    let mut body = body_with("thinking", neutral);
    body["metadata"] = json!({ "user_id": "me" });
    body["tools"] = json!([]);
    assert_eq!(post(server.address, PATH, &body).status, 200);
    server.wait_idle();
}
