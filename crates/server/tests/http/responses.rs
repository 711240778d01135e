//! OpenAI's `/v1/responses`.

use super::client::{JSON, open, post};
use super::fixture::{Fixture, NAME, Wishes};
use serde_json::{Value, json};
use std::time::Duration;
use tapml_server::ServerOptions;

const PATH: &str = "/v1/responses";
const CALLS: &str = "I look. <tool_call>{\"name\": \"get_time\", \"arguments\": {\"zone\": \"é\"}}</tool_call>\
                     <tool_call>{\"name\": \"stop\"}</tool_call>";

fn writing(script: &'static str) -> Fixture {
    Fixture::start_with(Wishes { script, context: 512, ..Wishes::default() })
}

fn body() -> Value {
    json!({ "model": NAME, "max_output_tokens": 9, "temperature": 0, "input": "Hello" })
}

/// The body with another field.
fn body_with(field: &str, value: Value) -> Value {
    let mut body = body();
    body[field] = value;
    body
}

fn tools() -> Value {
    let tool = |name: &str| json!({ "type": "function", "name": name, "parameters": { "type": "object" }, "strict": false });
    json!([tool("get_time"), tool("stop")])
}

/// What differs from answer to answer is left out.
fn without_ids(mut response: Value) -> Value {
    for field in ["id", "created_at", "usage"] {
        response.as_object_mut().unwrap().remove(field);
    }
    for item in response["output"].as_array_mut().unwrap() {
        for field in ["id", "call_id"] {
            item.as_object_mut().unwrap().remove(field);
        }
    }
    response
}

/// The response of a stream, whose parts join to it.
#[track_caller]
fn join(events: &[Value]) -> Value {
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<u64>>());
    assert_eq!(
        (&events[0]["type"], &events[1]["type"]),
        (&json!("response.created"), &json!("response.in_progress"))
    );
    assert_eq!(
        (&events[0]["response"]["status"], &events[0]["response"]["output"]),
        (&json!("in_progress"), &json!([]))
    );
    let response = events.last().unwrap()["response"].clone();
    assert_eq!(events[0]["response"]["id"], response["id"]);
    for (index, item) in response["output"].as_array().unwrap().iter().enumerate() {
        let own: Vec<&Value> = events.iter().filter(|event| event["output_index"] == index as u64).collect();
        assert_eq!(
            (&own[0]["type"], &own[0]["item"]["id"]),
            (&json!("response.output_item.added"), &item["id"])
        );
        assert_eq!(own.last().unwrap()["item"], *item);
        let of =
            |kind: &str| own.iter().filter(|event| event["type"] == kind).copied().collect::<Vec<&Value>>();
        let joined = |events: Vec<&Value>| {
            events.iter().map(|event| event["delta"].as_str().unwrap()).collect::<String>()
        };
        assert!(own[1..own.len() - 1].iter().all(|event| event["item_id"] == item["id"]));
        if item["type"] == "message" {
            let part = &item["content"][0];
            assert_eq!(joined(of("response.output_text.delta")), part["text"].as_str().unwrap());
            assert_eq!(of("response.output_text.done")[0]["text"], part["text"]);
            assert_eq!(of("response.content_part.done")[0]["part"], *part);
            assert_eq!(of("response.content_part.added").len(), 1);
        } else {
            assert_eq!(
                joined(of("response.function_call_arguments.delta")),
                item["arguments"].as_str().unwrap()
            );
            assert_eq!(of("response.function_call_arguments.done")[0]["arguments"], item["arguments"]);
        }
    }
    response
}

#[test]
fn an_answer_is_that_of_the_chat() {
    let server = Fixture::start();
    let mut body = body_with("instructions", json!("Be kind."));
    let reply = post(server.address, PATH, &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    let messages =
        json!([{ "role": "system", "content": "Be kind." }, { "role": "user", "content": "Hello" }]);
    let chat = json!({ "messages": messages, "max_tokens": 9, "temperature": 0 });
    let chat = post(server.address, "/v1/chat/completions", &chat).json();
    let [item] = &answer["output"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(
        (&item["type"], &item["role"], &item["status"]),
        (&json!("message"), &json!("assistant"), &json!("incomplete"))
    );
    let text = &chat["choices"][0]["message"]["content"];
    assert_eq!(
        item["content"],
        json!([{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }])
    );
    assert_eq!(
        (&answer["object"], &answer["status"], &answer["store"]),
        (&json!("response"), &json!("incomplete"), &json!(false))
    );
    assert_eq!(answer["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    assert_eq!(
        (&answer["instructions"], &answer["max_output_tokens"], &answer["top_p"]),
        (&json!("Be kind."), &json!(9), &json!(1.0))
    );
    for (own, other) in [
        ("input_tokens", "prompt_tokens"),
        ("output_tokens", "completion_tokens"),
        ("total_tokens", "total_tokens"),
    ] {
        assert_eq!(answer["usage"][own], chat["usage"][other]);
    }
    let items = json!([
        { "role": "developer", "content": "Be kind." },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] },
    ]);
    let again = post(server.address, PATH, &body_with("input", items)).json();
    assert_eq!(again["output"][0]["content"], item["content"]);
    body["stream"] = true.into();
    let events = post(server.address, PATH, &body).named_events();
    assert_eq!(without_ids(join(&events)), without_ids(answer));
    assert_eq!(events.last().unwrap()["type"], "response.incomplete");
}

#[test]
fn calls_are_items_and_their_outputs_go_back() {
    let server = writing(CALLS);
    let mut body = body_with("tools", tools());
    body["max_output_tokens"] = 300.into();
    let answer = post(server.address, PATH, &body).json();
    assert_eq!(answer["status"], "completed");
    let items = answer["output"].as_array().unwrap();
    let kinds: Vec<&Value> = items.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call"]);
    assert_eq!(items[0]["content"][0]["text"], "I look. ");
    assert_eq!((&items[1]["name"], &items[1]["arguments"]), (&json!("get_time"), &json!("{\"zone\":\"é\"}")));
    assert_ne!(items[1]["call_id"], items[2]["call_id"]);
    assert_eq!(answer["tools"], tools());
    body["stream"] = true.into();
    let events = post(server.address, PATH, &body).named_events();
    assert_eq!(without_ids(join(&events)), without_ids(answer.clone()));
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    // The items of an answer are an input as they are.
    let mut input = vec![
        json!({ "role": "user", "content": "Hello" }),
        json!({ "type": "reasoning", "id": "r", "summary": [] }),
    ];
    input.extend(items.iter().cloned());
    input.push(json!({ "type": "function_call_output", "call_id": items[1]["call_id"], "output": "noon" }));
    input.push(json!({ "type": "function_call_output", "call_id": items[2]["call_id"], "output": [{ "type": "input_text", "text": "x" }] }));
    let call = |item: &Value| json!({ "id": item["call_id"], "type": "function", "function": { "name": item["name"], "arguments": item["arguments"] } });
    let chat = json!({ "max_tokens": 9, "temperature": 0, "messages": [
        { "role": "user", "content": "Hello" },
        { "role": "assistant", "content": "I look. ", "tool_calls": [call(&items[1]), call(&items[2])] },
        { "role": "tool", "tool_call_id": items[1]["call_id"], "content": "noon" },
        { "role": "tool", "tool_call_id": items[2]["call_id"], "content": "x" },
    ] });
    let answer = post(server.address, PATH, &body_with("input", input.into())).json();
    let chat = post(server.address, "/v1/chat/completions", &chat).json();
    assert_eq!(answer["usage"]["input_tokens"], chat["usage"]["prompt_tokens"], "{answer} {chat}");
    assert_eq!(answer["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"]);
    body["tool_choice"] = "none".into();
    let none = join(&post(server.address, PATH, &body).named_events());
    assert_eq!(none["output"].as_array().unwrap().len(), 1);
}

#[test]
fn calls_that_are_demanded_and_forms_are_those_of_the_chat() {
    let server = writing("I would rather talk.");
    let schema = json!({ "type": "object", "additionalProperties": false });
    let mut body = body_with("tools", json!([{ "type": "function", "name": "stop", "parameters": schema }]));
    body["max_output_tokens"] = 300.into();
    body["parallel_tool_calls"] = false.into();
    body["tool_choice"] = json!({ "type": "function", "name": "stop" });
    let answer = post(server.address, PATH, &body).json();
    let [call] = &answer["output"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("stop")));
    let format =
        json!({ "type": "json_schema", "name": "time", "strict": true, "schema": { "enum": ["noon"] } });
    let mut form = body_with("text", json!({ "format": format }));
    form["max_output_tokens"] = 50.into();
    let answer = post(server.address, PATH, &form).json();
    assert_eq!(answer["output"][0]["content"][0]["text"], "\"noon\"", "{answer}");
}

#[test]
fn an_answer_without_text_is_a_message_too() {
    let server = Fixture::start();
    let mut body = body_with("logit_bias", json!({ "1": 100 }));
    let answer = post(server.address, PATH, &body).json();
    assert_eq!(
        (&answer["status"], &answer["output"][0]["content"][0]["text"]),
        (&json!("completed"), &json!(""))
    );
    body["stream"] = true.into();
    assert_eq!(without_ids(join(&post(server.address, PATH, &body).named_events())), without_ids(answer));
}

#[test]
fn a_stream_that_breaks_off_tells_that_it_failed() {
    let options = ServerOptions { grace: Duration::from_millis(50), ..ServerOptions::default() };
    let slow = Wishes { server: options, step_time: Duration::from_millis(20), ..Wishes::default() };
    let server = Fixture::start_with(slow);
    let mut body = body_with("stream", true.into());
    body["max_output_tokens"] = 200.into();
    let mut stream = open(server.address, "POST", PATH, &[JSON], body.to_string().as_bytes());
    stream.named_event();
    server.stopper.stop();
    let events = stream.rest().named_events();
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["status"]),
        (&json!("response.failed"), &json!("failed")),
        "{last}"
    );
    assert_eq!(last["response"]["error"]["code"], "server_error", "{last}");
    server.join().unwrap();
}

#[test]
fn a_wrong_field_is_named() {
    let server = Fixture::start();
    let part = |part: Value| json!([{ "role": "user", "content": [part] }]);
    let cases = [
        ("input", json!(5), "input"),
        ("input", json!([]), "input"),
        ("input", json!(["hi"]), "input[0].role"),
        ("input", json!([{ "role": "king", "content": "a" }]), "input[0].role"),
        ("input", json!([{ "role": "user" }]), "input[0].content"),
        ("input", part(json!({ "type": "input_image" })), "input[0].content[0].image_url"),
        ("input", part(json!({ "type": "input_text" })), "input[0].content[0].text"),
        ("input", json!([{ "type": "function_call", "call_id": "a", "name": "f" }]), "input[0].arguments"),
        ("input", json!([{ "type": "function_call_output", "output": "a" }]), "input[0].call_id"),
        ("input", json!([{ "type": "function_call_output", "call_id": "a" }]), "input[0].output"),
        ("input", json!([{ "type": "item_reference", "id": "a" }]), "input[0].type"),
        ("input", json!([{ "type": "computer_call" }]), "input[0].type"),
        ("previous_response_id", json!("resp_1"), "previous_response_id"),
        ("conversation", json!("conv_1"), "conversation"),
        ("background", json!(true), "background"),
        ("include", json!(["message.output_text.logprobs"]), "include"),
        ("max_output_tokens", json!(0), "max_output_tokens"),
        ("text", json!({ "format": 5 }), "text.format"),
        ("text", json!({ "format": { "type": "xml" } }), "text.format.type"),
        (
            "text",
            json!({ "format": { "type": "json_schema", "name": "a", "schema": { "not": {} } } }),
            "text.format",
        ),
        ("response_format", json!({ "type": "text" }), "response_format"),
        ("tools", json!([{ "type": "web_search" }]), "tools[0].type"),
        ("tools", json!([{ "type": "function" }]), "tools[0].name"),
        ("tool_choice", json!({ "type": "function" }), "tool_choice.name"),
        ("top_logprobs", json!(2), "top_logprobs"),
        ("n", json!(2), "n"),
        ("guided_json", json!({ "not": {} }), "guided_json"),
    ];
    for (field, value, param) in cases {
        let error = post(server.address, PATH, &body_with(field, value.clone())).error(400);
        assert_eq!(error["param"], param, "{field} {value}: {error}");
    }
    let mut neutral = body_with("text", json!({ "format": { "type": "text" }, "verbosity": "low" }));
    for (field, value) in [
        ("store", json!(true)),
        ("include", json!(["reasoning.encrypted_content"])),
        ("reasoning", json!({ "effort": "low" })),
        ("truncation", json!("disabled")),
        ("background", json!(false)),
    ] {
        neutral[field] = value;
    }
    assert_eq!(post(server.address, PATH, &neutral).status, 200);
    server.wait_idle();
}
