//! The paths that llama-server has beside those of OpenAI.

use super::client::{get, post, post_text};
use super::fixture::{END, Fixture, NAME, Wishes, tokenizer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATH: &str = "/completion";

#[test]
fn a_prompt_is_continued_as_at_the_path_of_openai() {
    let server = Fixture::start();
    let ask = |path: &str, body: Value| post(server.address, path, &body).json();
    let prompt = "Tom had a dog";
    let expected = ask(
        "/v1/completions",
        json!({ "prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 3 }),
    );
    let body = json!({
        "prompt": prompt, "n_predict": 12, "temperature": 0, "n_probs": 3, "return_tokens": true, "top_k": 0,
    });
    let answer = ask(PATH, body.clone());
    assert_eq!(answer["content"], expected["choices"][0]["text"]);
    assert_eq!(ask("/completions", body)["content"], answer["content"]);
    let tokens: Vec<u32> = serde_json::from_value(answer["tokens"].clone()).unwrap();
    assert_eq!(
        (tokens.len(), &answer["stop_type"], &answer["truncated"]),
        (12, &json!("limit"), &json!(false))
    );
    let probs = answer["completion_probabilities"].as_array().unwrap();
    for ((token, prob), logprob) in
        tokens.iter().zip(probs).zip(expected["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap())
    {
        assert_eq!((&prob["id"], &prob["logprob"]), (&json!(token), logprob));
        assert_eq!(prob["top_logprobs"].as_array().unwrap().len(), 3);
    }
    let evaluated = answer["tokens_evaluated"].as_u64().unwrap();
    assert_eq!(evaluated, tokenizer().encode(prompt).unwrap().len() as u64);
    let timings = &answer["timings"];
    assert_eq!(timings["prompt_n"].as_u64().unwrap() + timings["cache_n"].as_u64().unwrap(), evaluated);
    assert_eq!(timings["predicted_n"], 12);
    let rate = 11e3 / timings["predicted_ms"].as_f64().unwrap();
    assert!((timings["predicted_per_second"].as_f64().unwrap() - rate).abs() < 1e-6 * rate, "{timings}");
}

#[test]
fn a_stream_joins_to_the_whole_answer() {
    let server = Fixture::start();
    let mut body = json!({ "prompt": "Once", "n_predict": 9, "seed": 3, "return_tokens": true });
    let whole = post(server.address, PATH, &body).json();
    body["stream"] = true.into();
    let reply = post(server.address, PATH, &body);
    let events = reply.body.split_terminator("\n\n");
    let events: Vec<Value> =
        events.map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect();
    let (last, parts) = events.split_last().unwrap();
    assert!(last["stop"] == true && parts.iter().all(|part| part["stop"] == false), "{}", reply.body);
    let text: String = parts.iter().map(|part| part["content"].as_str().unwrap()).collect();
    let tokens: Vec<Value> =
        parts.iter().flat_map(|part| part["tokens"].as_array().unwrap().clone()).collect();
    assert_eq!((json!(text), json!(tokens)), (whole["content"].clone(), whole["tokens"].clone()));
    assert_eq!(last["generation_settings"]["seed"], 3);
}

#[test]
fn prompts_are_texts_tokens_and_lists_of_them() {
    let server = Fixture::start();
    let answer = |prompt: Value| {
        let body = json!({ "prompt": prompt, "n_predict": 6, "temperature": 0 });
        post(server.address, PATH, &body).json()
    };
    let text = "Lily and the cat";
    let expected = answer(json!(text));
    let ids = tokenizer().encode(text).unwrap();
    let same = |found: &Value| assert_eq!(found["content"], expected["content"], "{found}");
    same(&answer(json!(ids)));
    same(&answer(json!({ "prompt_string": text })));
    same(&answer(json!([text])));
    let rest = tokenizer().encode_plain(" and the cat").unwrap();
    let begin = tokenizer().encode("Lily").unwrap();
    let mixed: Vec<Value> = rest.iter().map(|id| json!(id)).collect();
    assert_eq!([begin, rest].concat(), ids, "the text may be cut here");
    same(&answer(json!([vec![json!("Lily")], mixed].concat())));
    let list = answer(json!([ids, text, { "prompt_string": text }, [text, 5]]));
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 4);
    list[..3].iter().for_each(same);
    assert_ne!(list[3]["prompt"], list[0]["prompt"]);
    for wrong in ["[]", "[[]]", "5", "[1.5]", "[5, [6]]", "[[6], 5]", "{}", "[[[1], [2]]]", "{\"x\": \"a\"}"]
    {
        let reply = post_text(server.address, PATH, &format!("{{\"prompt\": {wrong}}}"));
        assert_eq!(reply.error(400)["param"], "prompt", "{wrong}");
    }
    let deep = format!("{{\"prompt\": {}5{}}}", "[".repeat(100_000), "]".repeat(100_000));
    post_text(server.address, PATH, &deep).error(400);
}

#[test]
fn options_of_llama_server_are_served_or_refused() {
    let server = Fixture::start();
    let ask = |body: &Value| post(server.address, PATH, body);
    let base = json!({ "prompt": "Once", "n_predict": 4, "temperature": 0 });
    let with = |name: &str, value: Value| {
        let mut body = base.clone();
        body[name] = value;
        body
    };
    let first = ask(&with("return_tokens", true.into())).json()["tokens"][0].as_u64().unwrap();
    let text = tokenizer().decode(&[u32::try_from(first).unwrap()]).unwrap();
    for bias in [json!([[first, -100]]), json!([[first, false]]), json!({ first.to_string(): -100 })] {
        let mut body = with("logit_bias", bias);
        body["return_tokens"] = true.into();
        assert_ne!(ask(&body).json()["tokens"][0], first, "{body}");
    }
    let settings = ask(&with("logit_bias", json!([[text, -100]]))).json()["generation_settings"].clone();
    assert_eq!(settings["logit_bias"][0]["bias"], -100.0);
    let settings = ask(&with("ignore_eos", true.into())).json()["generation_settings"].clone();
    assert_eq!(settings["logit_bias"], json!([{ "token": END, "bias": null }]));
    let chosen = ask(&with("response_fields", json!(["content", "generation_settings/n_predict", "none"])));
    assert_eq!(
        chosen.json().as_object().unwrap().keys().collect::<Vec<_>>(),
        ["content", "generation_settings/n_predict"]
    );
    // As many as the context holds.
    let long = ask(&with("n_predict", json!(-1))).json();
    assert_eq!((&long["truncated"], &long["stop_type"]), (&json!(true), &json!("limit")));
    for (name, value) in [
        ("post_sampling_probs", json!(true)),
        ("repeat_penalty", json!(1.1)),
        ("samplers", json!(["top_k"])),
        ("n", json!(2)),
        ("mirostat", json!(2)),
        ("n_probs", json!(21)),
        ("logit_bias", json!([[5]])),
        ("logit_bias", json!([[5, true]])),
        ("logit_bias", json!([[5, 101]])),
    ] {
        assert_eq!(ask(&with(name, value)).error(400)["param"], name);
    }
}

#[test]
fn the_server_tells_its_sizes_and_counts_a_chat() {
    let server = Fixture::start();
    let props = get(server.address, "/props").json();
    assert_eq!(
        (&props["default_generation_settings"]["n_ctx"], &props["model_alias"]),
        (&json!(256), &json!(NAME))
    );
    let chat = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    let prompt =
        post(server.address, "/apply-template", &chat).json()["prompt"].as_str().unwrap().to_string();
    let count = tokenizer().encode_plain(&prompt).unwrap().len();
    for path in ["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"] {
        assert_eq!(post(server.address, path, &chat).json(), json!({ "input_tokens": count }));
    }
    assert_eq!(get(server.address, "/models").json(), get(server.address, "/v1/models").json());
    let long = json!({ "prompt": "a ".repeat(400) });
    let error = post(server.address, PATH, &long).error(400);
    assert_eq!((&error["code"], &error["n_ctx"]), (&json!("context_length_exceeded"), &json!(256)));
    assert!(error["n_prompt_tokens"].as_u64().unwrap() > 256, "{error}");
    assert!(error["message"].as_str().unwrap().contains("exceeds the available context size"), "{error}");
}

#[test]
fn a_last_message_of_the_assistant_is_gone_on_with_if_the_server_is_told_to() {
    let server = Fixture::start_with(Wishes { prefill: true, ..Wishes::default() });
    let ask = |body: &Value| post(server.address, "/apply-template", body);
    let mut chat = json!({ "messages": [{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "He" }] });
    assert_eq!(ask(&chat).json()["prompt"], "[user] Hi\n[assistant] He");
    chat["messages"].as_array_mut().unwrap().push(json!({ "role": "assistant", "content": "llo" }));
    assert_eq!(ask(&chat).error(400)["param"], "messages");
    let both = json!({ "messages": chat["messages"], "add_generation_prompt": true, "continue_final_message": true });
    assert_eq!(ask(&both).error(400)["param"], "continue_final_message");
}

#[test]
fn health_tells_that_no_request_can_be_computed() {
    let lost = Arc::new(AtomicBool::new(false));
    let server = Fixture::start_with(Wishes { lost: lost.clone(), ..Wishes::default() });
    let ask = || post(server.address, PATH, &json!({ "prompt": "Once", "n_predict": 2 }));
    assert_eq!((ask().status, get(server.address, "/health").status), (200, 200));
    lost.store(true, Ordering::Relaxed);
    ask().error(503);
    let error = get(server.address, "/v1/health").error(503);
    assert!(error["message"].as_str().unwrap().contains("the plug was pulled"), "{error}");
    assert_eq!(error["code"], "model_unavailable");
    lost.store(false, Ordering::Relaxed);
    // A balancer sends no request meanwhile.
    let begun = Instant::now();
    while get(server.address, "/health").status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is not tried again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ask().status, 200);
}
