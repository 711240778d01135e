//! `/openapi.json` says what the server does.

use super::client::{JSON, Reply, get, open, post};
use super::fixture::Fixture;
use serde_json::{Value, json};
use tapml_engine::EmbeddingOptions;

/// A request of each kind that is right.
fn right(name: &str) -> Value {
    match name {
        "CompletionRequest" => json!({ "prompt": "a", "max_tokens": 1 }),
        "ResponsesRequest" => json!({ "input": "a", "max_output_tokens": 1 }),
        "NativeRequest" => json!({ "prompt": "a", "n_predict": 1 }),
        "TokenizeRequest" => json!({ "prompt": "a" }),
        "DetokenizeRequest" => json!({ "tokens": [5] }),
        "EmbeddingRequest" => json!({ "input": "a" }),
        _ => json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 1 }),
    }
}

/// Fails if this is no refusal that names a field.
#[track_caller]
fn expect_named(reply: &Reply, path: &str, field: &str) {
    if path.starts_with("/v1/messages") {
        let error = reply.anthropic_error(400);
        assert!(error["message"].as_str().unwrap().contains(&format!("`{field}")), "{field}: {error}");
    } else {
        let error = reply.error(400);
        assert!(error["param"].as_str().unwrap_or_default().starts_with(field), "{field}: {error}");
    }
}

/// Values that a schema does not allow, and the least and greatest that it does.
fn bounds(schema: &Value) -> (Vec<Value>, Vec<Value>) {
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().map(|kind| kind.as_str().unwrap()).collect(),
        _ => return (vec![json!(true)], vec![]),
    };
    let (mut wrong, mut right) = (Vec::new(), Vec::new());
    for (kind, value) in [
        ("string", json!("x")),
        ("boolean", json!(true)),
        ("array", json!([])),
        ("object", json!({})),
        ("null", Value::Null),
    ] {
        if !kinds.contains(&kind) {
            wrong.push(value);
        }
    }
    for (bound, beyond) in [("minimum", -1), ("maximum", 1)] {
        let Some(bound) = schema.get(bound) else { continue };
        right.push(bound.clone());
        match bound.as_i64() {
            Some(whole) => wrong.extend(whole.checked_add(beyond).map(|value| json!(value))),
            None => wrong.push(json!(bound.as_f64().unwrap() + f64::from(beyond as i32))),
        }
    }
    if kinds.contains(&"integer") {
        wrong.push(json!(1.5));
    }
    (wrong, right)
}

#[test]
fn every_field_has_the_type_and_bounds_of_the_document() {
    let server = Fixture::start();
    let document = get(server.address, "/openapi.json").json();
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let encoder =
        Fixture::start_encoder(EmbeddingOptions { matryoshka: true, ..EmbeddingOptions::default() });
    let mut fields = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(operation) = methods.get("post") else { continue };
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) else { continue };
        let schema = &document["components"]["schemas"][name];
        let server = if name == "EmbeddingRequest" { &encoder } else { &server };
        assert_eq!(post(server.address, path, &right(name)).status, 200, "{name}");
        for required in schema["required"].as_array().into_iter().flatten() {
            let mut body = right(name);
            body.as_object_mut().unwrap().remove(required.as_str().unwrap());
            expect_named(&post(server.address, path, &body), path, required.as_str().unwrap());
        }
        for (field, schema) in schema["properties"].as_object().unwrap() {
            fields += 1;
            // The field of a second kind of text is read only in place of the first.
            let base = match field.as_str() {
                "content" | "messages" if name == "TokenizeRequest" => json!({}),
                "add_special" => json!({ "content": "a" }),
                "stream_options" => {
                    json!({ "prompt": "a", "messages": right("")["messages"], "max_tokens": 1, "stream": true })
                }
                "top_logprobs" => {
                    json!({ "messages": right("")["messages"], "logprobs": true, "max_tokens": 1 })
                }
                _ => right(name),
            };
            let ask = |value: &Value| {
                let mut body = base.clone();
                body[field] = value.clone();
                open(server.address, "POST", path, &[JSON], body.to_string().as_bytes()).rest()
            };
            let (wrong, right) = bounds(schema);
            for value in wrong {
                expect_named(&ask(&value), path, field);
            }
            for value in right {
                let reply = ask(&value);
                assert_eq!(reply.status, 200, "{name}.{field} = {value}: {}", reply.body);
            }
        }
    }
    assert!(fields > 50, "{fields}");
}

#[test]
fn every_path_answers_as_the_document_says() {
    let server = Fixture::start();
    let document = get(server.address, "/openapi.json").json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{name}", "fake");
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let reply = open(server.address, method, &path, &[JSON], b"{}").rest();
            let Some(operation) = methods.get(method.to_lowercase()) else {
                assert_eq!(reply.status, 405, "{method} {path}: {}", reply.body);
                continue;
            };
            let status = reply.status.to_string();
            assert!(operation["responses"].get(&status).is_some(), "{method} {path}: {status}");
        }
    }
}
