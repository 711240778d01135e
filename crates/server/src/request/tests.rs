//! No body makes reading panic, and each refusal has the form that clients expect.

use super::*;
use crate::error::ApiError;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any JSON, with the names and words of requests in it.
fn value() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "text",
        "type",
        "user",
        "assistant",
        "tool",
        "content",
        "role",
        "function",
        "name",
        "arguments",
        "auto",
        "none",
        "image_url",
        "{}",
        "",
        "é",
        "5",
        "include_usage",
        "tool_use",
        "tool_result",
        "tool_use_id",
        "input",
        "id",
        "input_schema",
        "disabled",
        "function_call",
        "function_call_output",
        "call_id",
        "output",
        "message",
        "format",
        "tool_calls",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_u32..10).prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|fields| Value::from(
                fields.into_iter().map(|(k, v)| (k.to_string(), v)).collect::<Map<_, _>>()
            )),
        ]
    })
}

/// An object with fields of requests.
fn request() -> impl Strategy<Value = Value> {
    let mut names = [sampling::NAMES, chat::TEMPLATE_NAMES, grammar::NAMES].concat();
    names.extend([
        "prompt",
        "echo",
        "logprobs",
        "max_tokens",
        "top_logprobs",
        "modalities",
        "tokens",
        "content",
        "system",
        "stop_sequences",
        "thinking",
        "output_config",
        "input",
        "instructions",
        "text",
        "reasoning",
        "include",
    ]);
    let fields = prop::collection::vec((prop::sample::select(names), value()), 0..6);
    fields.prop_map(|fields| {
        let mut body = json!({ "prompt": "a", "messages": [{ "role": "user", "content": "a" }] });
        fields.into_iter().for_each(|(name, value)| body[name] = value);
        body
    })
}

fn check<T>(parsed: Result<T, ApiError>) -> Result<(), TestCaseError> {
    if let Err(error) = parsed {
        prop_assert!(error.status.is_client_error(), "{error:?}");
        prop_assert!(error.body()["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));
    }
    Ok(())
}

fn parse_all(body: &[u8]) -> Result<(), TestCaseError> {
    check(CompletionRequest::parse(body))?;
    check(ChatRequest::parse(body))?;
    check(anthropic::parse(body))?;
    check(responses::ResponsesRequest::parse(body))?;
    check(TokenizeRequest::parse(body))?;
    check(DetokenizeRequest::parse(body))?;
    check(TemplateRequest::parse(body))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn bodies_of_fields_are_read_or_refused(body in request()) {
        parse_all(body.to_string().as_bytes())?;
    }

    #[test]
    fn damaged_bodies_are_read_or_refused(body in request(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = body.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        parse_all(&bytes)?;
        parse_all(&bytes[..at])?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        parse_all(&bytes)?;
    }
}

#[test]
fn of_equal_names_the_last_counts_and_null_is_nothing() {
    let parse = |text: &str| CompletionRequest::parse(text.as_bytes()).unwrap();
    let request = parse(
        r#"{"prompt": "a", "max_tokens": 3, "max_tokens": 5, "n": null, "unknown": {"max_tokens": 9}}"#,
    );
    assert_eq!((request.max_tokens, request.common.n), (5, 1));
    assert_eq!(parse(r#"{"pro\u006dpt": "a"}"#).prompts, [Prompt::Text("a".into())]);
}

#[test]
fn arguments_of_calls_become_objects() {
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{\"a\": [1]}" } });
    let messages = json!([{ "role": "assistant", "content": null, "tool_calls": [call] }, { "role": "tool", "content": "5" }]);
    let request = ChatRequest::parse(json!({ "messages": messages }).to_string().as_bytes()).unwrap();
    let read = &request.input.chat.messages[0];
    assert_eq!(read["tool_calls"][0]["function"]["arguments"], json!({ "a": [1] }));
    assert_eq!(read["content"], Value::Null);
}
