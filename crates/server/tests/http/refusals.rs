//! What is refused, and how that is told.

use super::client::{JSON, connect, get, open, post, post_text};
use super::fixture::{Fixture, Wishes};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tapml_engine::EngineOptions;
use tapml_server::{ApiKeys, ServerOptions};

const COMPLETIONS: &str = "/v1/completions";

#[test]
fn a_wrong_field_is_named() {
    let server = Fixture::start();
    let cases = [
        (json!({}), "prompt"),
        (json!({ "prompt": null }), "prompt"),
        (json!({ "prompt": 5 }), "prompt"),
        (json!({ "prompt": [] }), "prompt"),
        (json!({ "prompt": ["a", 5] }), "prompt"),
        (json!({ "prompt": [-1] }), "prompt"),
        (json!({ "prompt": [4096] }), "prompt"),
        (json!({ "prompt": [[[1]]] }), "prompt"),
        (json!({ "prompt": "a", "max_tokens": -1 }), "max_tokens"),
        (json!({ "prompt": "a", "max_tokens": "5" }), "max_tokens"),
        (json!({ "prompt": "a", "max_tokens": 1.5 }), "max_tokens"),
        (json!({ "prompt": "a", "temperature": -0.1 }), "temperature"),
        (json!({ "prompt": "a", "temperature": "hot" }), "temperature"),
        (json!({ "prompt": "a", "top_p": 1.1 }), "top_p"),
        (json!({ "prompt": "a", "top_k": -2 }), "top_k"),
        (json!({ "prompt": "a", "min_p": 2 }), "min_p"),
        (json!({ "prompt": "a", "n": 0 }), "n"),
        (json!({ "prompt": "a", "n": 1000 }), "n"),
        (json!({ "prompt": ["a", "b"], "n": 128 }), "n"),
        (json!({ "prompt": "a", "best_of": 2 }), "best_of"),
        (json!({ "prompt": "a", "logprobs": 21 }), "logprobs"),
        (json!({ "prompt": "a", "logprobs": true }), "logprobs"),
        (json!({ "prompt": "a", "stop": "" }), "stop"),
        (json!({ "prompt": "a", "stop": 5 }), "stop"),
        (json!({ "prompt": "a", "stop": vec!["x"; 33] }), "stop"),
        (json!({ "prompt": "a", "suffix": "b" }), "suffix"),
        (json!({ "prompt": "a", "stream": "yes" }), "stream"),
        (json!({ "prompt": "a", "stream_options": {} }), "stream_options"),
        (json!({ "prompt": "a", "presence_penalty": 3 }), "presence_penalty"),
        (json!({ "prompt": "a", "frequency_penalty": -3 }), "frequency_penalty"),
        (json!({ "prompt": "a", "repetition_penalty": 0 }), "repetition_penalty"),
        (json!({ "prompt": "a", "logit_bias": { "5": 101 } }), "logit_bias"),
        (json!({ "prompt": "a", "logit_bias": { "five": 1 } }), "logit_bias"),
        (json!({ "prompt": "a", "logit_bias": [] }), "logit_bias"),
        (json!({ "prompt": "a", "seed": "x" }), "seed"),
        (json!({ "prompt": "a", "json_schema": 5 }), "json_schema"),
        (json!({ "prompt": "a", "model": 5 }), "model"),
    ];
    for (body, param) in cases {
        let error = post(server.address, COMPLETIONS, &body).error(400);
        assert_eq!(error["param"], param, "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    let chats = [
        (json!({}), "messages"),
        (json!({ "messages": "hi" }), "messages"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": ["hi"] }), "messages[0]"),
        (json!({ "messages": [{ "content": "hi" }] }), "messages[0].role"),
        (json!({ "messages": [{ "role": "king", "content": "hi" }] }), "messages[0].role"),
        (json!({ "messages": [{ "role": "user" }] }), "messages[0].content"),
        (json!({ "messages": [{ "role": "user", "content": [{}] }] }), "messages[0].content[0].type"),
        (json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 0 }), "max_tokens"),
        (json!({ "messages": [{ "role": "user", "content": "a" }], "top_logprobs": 2 }), "top_logprobs"),
        (json!({ "messages": [{ "role": "user", "content": "a" }], "logprobs": 2 }), "logprobs"),
        (json!({ "messages": [{ "role": "user", "content": "a".repeat(5000) }] }), "messages"),
    ];
    for (body, param) in chats {
        let error = post(server.address, "/v1/chat/completions", &body).error(400);
        assert_eq!(error["param"], param, "{body}: {error}");
    }
    server.wait_idle();
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    let server = Fixture::start();
    let deep = "[".repeat(200_000);
    let deep_field = format!("{{\"prompt\": {deep}");
    let closed = format!("{{\"prompt\": {}{}}}", "[".repeat(5000), "]".repeat(5000));
    let messages = format!("{{\"messages\": [{}1{}]}}", "{\"a\":".repeat(5000), "}".repeat(5000));
    for path in
        [COMPLETIONS, "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize", "/apply-template"]
    {
        for body in [
            "",
            "{",
            "null",
            "[]",
            "\"a\"",
            "{\"prompt\": \"a\"} x",
            "{'a': 1}",
            "\u{0}",
            &deep,
            &deep_field,
            &closed,
            &messages,
        ] {
            post_text(server.address, path, body).error(400);
        }
        let bytes = open(server.address, "POST", path, &[JSON], b"{\"prompt\": \"\xff\xfe\"}").rest();
        bytes.error(400);
    }
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        for body in ["", "{", "null", "[]", "{'a': 1}", &deep, &deep_field, &closed, &messages] {
            post_text(server.address, path, body).anthropic_error(400);
        }
    }
}

#[test]
fn types_lengths_and_paths_are_checked() {
    let server = Fixture::start();
    for kind in
        [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/x-www-form-urlencoded")]]
    {
        open(server.address, "POST", COMPLETIONS, kind, b"{}").rest().error(415);
    }
    let kind = [("content-type", "Application/JSON; charset=utf-8")];
    assert_eq!(open(server.address, "POST", COMPLETIONS, &kind, b"{\"prompt\":\"a\"}").rest().status, 200);
    let long = format!("{{\"prompt\": \"{}\"}}", "a".repeat(10 << 20));
    assert_eq!(post_text(server.address, COMPLETIONS, &long).error(413)["code"], "request_too_large");
    get(server.address, "/v1/nothing").error(404);
    let reply = get(server.address, COMPLETIONS);
    assert_eq!(reply.header("allow"), Some("POST"));
    reply.error(405);
    assert_eq!(
        post(server.address, COMPLETIONS, &json!({ "model": "other", "prompt": "a" })).error(404)["param"],
        "model"
    );
    let error = post(server.address, "/v1/embeddings", &json!({ "input": "a" })).error(400);
    assert_eq!(error["code"], "unsupported_model");
}

#[test]
fn a_chunked_body_is_bounded_too() {
    let server = Fixture::start();
    let mut tcp = connect(server.address);
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    tcp.write_all(head.as_bytes()).unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    for _ in 0..10 {
        tcp.write_all(chunk.as_bytes()).unwrap();
    }
    tcp.write_all(b"0\r\n\r\n").unwrap();
    super::client::read_head(tcp).rest().error(413);
}

#[test]
fn only_those_with_a_key_are_let_in() {
    let options = ServerOptions { keys: ApiKeys::new(&["one", "two"]), ..ServerOptions::default() };
    let server = Fixture::start_with(Wishes { server: options, ..Wishes::default() });
    let ask = |headers: &[(&str, &str)]| open(server.address, "GET", "/v1/models", headers, b"").rest();
    for headers in [
        &[][..],
        &[("authorization", "Bearer three")],
        &[("authorization", "one")],
        &[("authorization", "Basic one")],
        &[("authorization", "Bearer on")],
        &[("x-api-key", "")],
    ] {
        let reply = ask(headers);
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        assert_eq!(reply.error(401)["code"], "invalid_api_key");
    }
    for headers in
        [&[("authorization", "Bearer one")], &[("authorization", "bearer two")], &[("x-api-key", "two")]]
    {
        assert_eq!(ask(headers).status, 200);
    }
    assert_eq!(get(server.address, "/health").status, 200);
    get(server.address, "/metrics").error(401);
    get(server.address, "/nothing").error(401);
}

#[test]
fn pages_of_other_sites_are_kept_out() {
    let options = ServerOptions { origins: vec!["https://ok.example".into()], ..ServerOptions::default() };
    let server = Fixture::start_with(Wishes { server: options, ..Wishes::default() });
    let ask = |method: &str, origin: &str| {
        open(server.address, method, "/v1/models", &[("origin", origin)], b"").rest()
    };
    let reply = ask("GET", "https://evil.example");
    assert_eq!(reply.header("access-control-allow-origin"), None);
    reply.error(403);
    ask("OPTIONS", "https://evil.example").error(403);
    let reply = ask("OPTIONS", "https://ok.example");
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (204, Some("https://ok.example"))
    );
    assert!(reply.header("access-control-allow-headers").unwrap().contains("authorization"));
    let reply = ask("GET", "https://ok.example");
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, Some("https://ok.example"))
    );
    assert_eq!(ask("GET", "http://localhost").status, 200, "the server's own");
}

#[test]
fn requests_beyond_the_bounds_are_told_to_come_again() {
    let options = ServerOptions { max_concurrent: 2, ..ServerOptions::default() };
    let slow = Wishes { server: options, step_time: Duration::from_millis(30), ..Wishes::default() };
    let server = Fixture::start_with(slow);
    let body = json!({ "prompt": "a", "max_tokens": 200, "stream": true, "ignore_eos": true }).to_string();
    let begin = || open(server.address, "POST", COMPLETIONS, &[JSON], body.as_bytes());
    let (mut one, mut two) = (begin(), begin());
    one.event();
    two.event();
    let reply = begin().rest();
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.error(429)["type"], "rate_limit_error");
    assert_eq!(get(server.address, "/health").status, 200, "this takes no place");
    drop((one, two));
    server.wait_idle();
    assert_eq!(post(server.address, COMPLETIONS, &json!({ "prompt": "a", "max_tokens": 1 })).status, 200);
}

#[test]
fn a_full_queue_is_told() {
    let engine = EngineOptions { queue: 2, ..EngineOptions::default() };
    let slow = Wishes { engine, sequences: 1, step_time: Duration::from_millis(50), ..Wishes::default() };
    let server = Fixture::start_with(slow);
    let body = json!({ "prompt": ["a", "b", "c", "d", "e", "f"], "max_tokens": 100 });
    let error = post(server.address, COMPLETIONS, &body).error(429);
    assert!(error["message"].as_str().unwrap().contains("wait"), "{error}");
    server.wait_idle();
}

#[test]
fn a_slow_sender_is_cut_off() {
    let options = ServerOptions { read_timeout: Duration::from_millis(300), ..ServerOptions::default() };
    let server = Fixture::start_with(Wishes { server: options, ..Wishes::default() });
    let start = Instant::now();
    let mut head = connect(server.address);
    head.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: local").unwrap();
    let mut body = connect(server.address);
    body.write_all(super::client::head("POST", COMPLETIONS, &[JSON], 100).as_bytes()).unwrap();
    body.write_all(b"{").unwrap();
    let mut idle = connect(server.address);
    let mut rest = Vec::new();
    // Closed, whatever is told before.
    let _ = head.read_to_end(&mut rest);
    let _ = idle.read_to_end(&mut rest);
    super::client::read_head(body).rest().error(408);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn no_field_can_be_of_a_wrong_type() {
    let server = Fixture::start();
    // Each value is right for some field; none may end without an answer or a refusal of the right form.
    let values = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!("x"),
        json!([]),
        json!({}),
        json!([{}]),
        json!([[1]]),
        json!(true),
    ];
    let names = [
        "model",
        "n",
        "stream_options",
        "stop",
        "seed",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "logit_bias",
        "min_tokens",
        "stop_token_ids",
        "best_of",
        "prompt",
        "echo",
        "logprobs",
        "max_tokens",
        "messages",
        "tools",
        "tool_choice",
        "response_format",
        "structured_outputs",
        "guided_json",
        "guided_choice",
        "grammar",
        "regex",
        "chat_template_kwargs",
        "documents",
        "reasoning_effort",
        "cache_salt",
    ];
    for name in names {
        for value in &values {
            for path in [COMPLETIONS, "/v1/chat/completions"] {
                let mut body: Value = json!({ "prompt": "a", "messages": [{ "role": "user", "content": "a" }], "max_tokens": 1 });
                body[name] = value.clone();
                let reply = post(server.address, path, &body);
                match reply.status {
                    200 => assert!(reply.json()["choices"].is_array()),
                    status => {
                        assert!((400..500).contains(&status), "{body}: {}", reply.body);
                        reply.error(status);
                    }
                }
            }
        }
    }
}
