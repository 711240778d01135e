//! Answers of a form that was asked for, from a model that would write something else.

use super::client::{get, post};
use super::fixture::{Fixture, Wishes};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn chat(fields: Value) -> Value {
    let mut body =
        json!({ "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 200, "temperature": 0 });
    fields.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    body
}

fn text(answer: &Value) -> &str {
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "{answer}");
    choice["message"]["content"].as_str().or(choice["text"].as_str()).unwrap()
}

fn schema() -> Value {
    json!({
        "type": "object", "required": ["name", "age"], "additionalProperties": false,
        "properties": { "name": { "type": "string", "maxLength": 5 }, "age": { "type": "integer", "minimum": 1, "maximum": 99 } },
    })
}

fn check(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(value["name"].as_str().unwrap().chars().count() <= 5, "{text}");
    assert!((1..=99).contains(&value["age"].as_i64().unwrap()), "{text}");
}

#[test]
fn json_of_a_schema_is_written_by_every_name_of_the_field() {
    let server = Fixture::start();
    let named = json!({ "name": "person", "strict": true, "schema": schema() });
    let forms = [
        json!({ "response_format": { "type": "json_schema", "json_schema": named } }),
        json!({ "response_format": { "type": "json_schema", "schema": schema() } }),
        json!({ "structured_outputs": { "json": schema(), "regex": null } }),
        json!({ "guided_json": schema().to_string() }),
        json!({ "json_schema": schema() }),
    ];
    for form in forms {
        let answer = post(server.address, CHAT, &chat(form.clone())).json();
        check(text(&answer));
        let mut streamed = chat(form);
        streamed["stream"] = true.into();
        let events = post(server.address, CHAT, &streamed).events();
        let deltas = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
        assert_eq!(deltas.collect::<String>(), text(&answer));
    }
    // Each of several answers is held to it, each with its own state.
    let several = chat(json!({ "guided_json": schema(), "n": 5, "temperature": 1.5, "seed": 3 }));
    let answer = post(server.address, CHAT, &several).json();
    for choice in answer["choices"].as_array().unwrap() {
        check(choice["message"]["content"].as_str().unwrap());
    }
    server.wait_idle();
}

#[test]
fn expressions_choices_and_grammars_are_kept_to() {
    let server = Fixture::start();
    let forms = [
        (json!({ "guided_choice": ["yes", "no"] }), &["yes", "no"][..]),
        (json!({ "structured_outputs": { "choice": ["yes"] } }), &["yes"]),
        (json!({ "guided_regex": "(a|b)c" }), &["ac", "bc"]),
        (json!({ "regex": "x{3}" }), &["xxx"]),
        (json!({ "grammar": "root ::= \"one\" | \"two\" \"!\"" }), &["one", "two!"]),
        (json!({ "ebnf": "root ::= [a-c] \"-\" [.]" }), &["a-.", "b-.", "c-."]),
        (json!({ "guided_grammar": "start: \"f(\" /[12]/ \")\"" }), &["f(1)", "f(2)"]),
        (json!({ "response_format": { "type": "regex", "value": "q" } }), &["q"]),
    ];
    for (form, expected) in forms {
        let mut completion = form.clone();
        completion["prompt"] = "Say".into();
        completion["max_tokens"] = 50.into();
        let answers = [
            post(server.address, CHAT, &chat(form)).json(),
            post(server.address, COMPLETIONS, &completion).json(),
        ];
        for answer in answers {
            assert!(expected.contains(&text(&answer)), "{answer}");
        }
    }
    let free = chat(json!({ "response_format": { "type": "text" }, "grammar": "", "max_tokens": 3 }));
    assert_eq!(post(server.address, CHAT, &free).json()["choices"][0]["finish_reason"], "length");
}

#[test]
fn forms_that_cannot_be_enforced_are_refused_before_a_token_is_made() {
    let server = Fixture::start();
    let cases = [
        (json!({ "guided_json": { "not": {} } }), "guided_json"),
        (json!({ "guided_json": 5 }), "guided_json"),
        (json!({ "guided_json": { "$ref": "http://127.0.0.1/a.json" } }), "guided_json"),
        (json!({ "response_format": { "type": "json_schema" } }), "response_format.json_schema.schema"),
        (json!({ "response_format": { "type": "grammar" } }), "response_format.type"),
        (json!({ "guided_regex": "(" }), "guided_regex"),
        (json!({ "guided_choice": ["a", ""] }), "guided_choice"),
        (json!({ "guided_choice": ["a"], "guided_regex": "a" }), "guided_choice"),
        (json!({ "structured_outputs": { "json": {}, "regex": "a" } }), "structured_outputs.regex"),
        (json!({ "structured_outputs": { "structural_tag": "a" } }), "structured_outputs.structural_tag"),
        (json!({ "grammar": "root ::= (" }), "grammar"),
        (json!({ "guided_grammar": "start: other" }), "guided_grammar"),
    ];
    for (form, param) in cases {
        let error = post(server.address, CHAT, &chat(form)).error(400);
        assert_eq!(error["param"], param, "{error}");
    }
    let metrics = get(server.address, "/metrics").body;
    let made = metrics.lines().find(|line| line.starts_with("vllm:generation_tokens_total")).unwrap();
    assert!(made.ends_with(" 0"), "{made}");
}

fn function(name: &str, strict: bool) -> Value {
    json!({ "type": "function", "function": { "name": name, "strict": strict, "parameters": schema() } })
}

fn calls(answer: &Value) -> Vec<(&str, &str)> {
    let calls = answer["choices"][0]["message"]["tool_calls"].as_array();
    let calls = calls.unwrap_or_else(|| panic!("{answer}"));
    calls
        .iter()
        .map(|call| {
            (call["function"]["name"].as_str().unwrap(), call["function"]["arguments"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn a_call_that_is_demanded_is_made_with_arguments_of_its_schema() {
    let server =
        Fixture::start_with(Wishes { script: "I would rather talk.", context: 512, ..Wishes::default() });
    let tools = json!([function("first", false), function("second", false)]);
    let named = json!({ "type": "function", "function": { "name": "second" } });
    for (choice, names) in [(json!("required"), &["first", "second"][..]), (named, &["second"])] {
        let body = chat(json!({ "tools": tools, "tool_choice": choice, "parallel_tool_calls": false }));
        let answer = post(server.address, CHAT, &body).json();
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
        let calls = calls(&answer);
        assert_eq!(calls.len(), 1);
        assert!(names.contains(&calls[0].0), "{calls:?}");
        check(calls[0].1);
    }
    // Without a demand it talks.
    let answer = post(server.address, CHAT, &chat(json!({ "tools": tools }))).json();
    assert_eq!(answer["choices"][0]["message"]["content"], "I would rather talk.");
}

#[test]
fn arguments_of_strict_functions_fulfil_their_schema() {
    const CALL: &str = "I look. <tool_call>\n{\"name\": \"first\", \"arguments\": {\"name\": \"Somebody long\", \"age\": \"five\"}}\n</tool_call>";
    let template = "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}";
    let server = Fixture::start_with(Wishes { script: CALL, context: 512, template, ..Wishes::default() });
    let body = |strict| chat(json!({ "tools": [function("first", strict)], "parallel_tool_calls": false }));
    let loose = post(server.address, CHAT, &body(false)).json();
    assert!(calls(&loose)[0].1.contains("five"), "{loose}");
    let strict = post(server.address, CHAT, &body(true)).json();
    assert_eq!(strict["choices"][0]["message"]["content"], "I look. ", "{strict}");
    calls(&strict).into_iter().for_each(|(_, arguments)| check(arguments));
    // A text of a form, or a call.
    let mut either = body(false);
    either["response_format"] =
        json!({ "type": "json_schema", "json_schema": { "schema": { "enum": ["a"] } } });
    let answer = post(server.address, CHAT, &either).json();
    match answer["choices"][0]["message"]["content"].as_str() {
        Some(text) => assert_eq!(text, "\"a\""),
        None => check(calls(&answer)[0].1),
    }
}
