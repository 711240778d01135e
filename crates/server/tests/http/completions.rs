//! `/v1/completions`.

use super::client::post;
use super::fixture::{END, Fixture, NAME, tokenizer};
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

#[test]
fn an_answer_has_the_fields_of_openai() {
    let server = Fixture::start();
    let body = json!({ "model": NAME, "prompt": "Once upon a time", "max_tokens": 5, "temperature": 0 });
    let reply = post(server.address, PATH, &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let answer = reply.json();
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!(NAME)));
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["index"], &choice["finish_reason"], &choice["logprobs"]),
        (&json!(0), &json!("length"), &Value::Null)
    );
    let prompt = tokenizer().encode("Once upon a time").unwrap().len();
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(prompt), &json!(5)));
    assert_eq!(usage["total_tokens"], prompt + 5);
    assert_eq!(post(server.address, PATH, &body).json()["choices"], answer["choices"], "greedy");
}

#[test]
fn a_prompt_is_a_text_or_texts_or_ids_or_lists_of_ids() {
    let server = Fixture::start();
    let ask = |prompt: Value| {
        let body = json!({ "prompt": prompt, "max_tokens": 6, "temperature": 0 });
        let answer = post(server.address, PATH, &body).json();
        let choices = answer["choices"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        for (index, choice) in choices.iter().enumerate() {
            assert_eq!(choice["index"], index);
        }
        choices.iter().map(|choice| choice["text"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let ids = |text: &str| tokenizer().encode(text).unwrap();
    let (one, two) = (ask(json!("Tom had")), ask(json!("A little dog")));
    assert_ne!(one, two);
    assert_eq!(ask(json!(["Tom had", "A little dog"])), [one.clone(), two.clone()].concat());
    assert_eq!(ask(json!(ids("Tom had"))), one);
    assert_eq!(ask(json!([ids("Tom had"), ids("A little dog")])), [one, two].concat());
}

#[test]
fn echo_gives_the_prompt_with_its_log_probabilities() {
    let server = Fixture::start();
    let prompt = "Once upon a time there was";
    let ids = tokenizer().encode(prompt).unwrap();
    // As lm-eval asks.
    let body = json!({ "prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 2, "echo": true });
    let answer = post(server.address, PATH, &body).json();
    let lists = &answer["choices"][0]["logprobs"];
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(lists[list].as_array().unwrap().len(), ids.len() + 1, "{list}");
    }
    assert_eq!((&lists["token_logprobs"][0], &lists["top_logprobs"][0]), (&Value::Null, &Value::Null));
    let joined: String = lists["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert_eq!(joined, text(&answer));
    assert!(text(&answer).starts_with(prompt), "{answer}");
    for at in 1..=ids.len() {
        let own = lists["token_logprobs"][at].as_f64().unwrap();
        let top = lists["top_logprobs"][at].as_object().unwrap();
        let most = top.values().map(|p| p.as_f64().unwrap()).fold(f64::NEG_INFINITY, f64::max);
        assert!(own <= 0.0 && own <= most, "{top:?}");
        assert_eq!(top[lists["tokens"][at].as_str().unwrap()].as_f64(), Some(own));
        let before: usize = (0..at).map(|t| lists["tokens"][t].as_str().unwrap().chars().count()).sum();
        assert_eq!(lists["text_offset"][at], before);
    }
    // The same with no new token at all.
    let none = json!({ "prompt": ids, "max_tokens": 0, "logprobs": 2, "echo": true });
    let scored = post(server.address, PATH, &none).json();
    let mut expected = lists["token_logprobs"].as_array().unwrap().clone();
    expected.pop();
    assert_eq!(scored["choices"][0]["logprobs"]["token_logprobs"], json!(expected));
    assert_eq!(scored["usage"]["completion_tokens"], 0);
    assert_eq!(text(&scored), prompt);
}

#[test]
fn the_token_that_ends_an_answer_is_told_with_its_probability() {
    let server = Fixture::start();
    let body =
        json!({ "prompt": "Tom", "logprobs": 0, "logit_bias": { END.to_string(): 100 }, "temperature": 0 });
    let answer = post(server.address, PATH, &body).json();
    let choice = &answer["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["text"]), (&json!("stop"), &json!("")));
    assert_eq!(choice["logprobs"]["tokens"], json!(["<|end|>"]));
    assert_eq!(answer["usage"]["completion_tokens"], 1);
    let more = json!({ "prompt": "Tom", "min_tokens": 4, "logit_bias": { END.to_string(): 100 } });
    assert_eq!(post(server.address, PATH, &more).json()["usage"]["completion_tokens"], 5);
    let on = json!({ "prompt": "Tom", "ignore_eos": true, "max_tokens": 7, "logit_bias": { END.to_string(): 100 } });
    assert_eq!(post(server.address, PATH, &on).json()["choices"][0]["finish_reason"], "length");
}

#[test]
fn an_answer_ends_before_a_stop_text() {
    let server = Fixture::start();
    let ask = |stop: Value, logprobs: Value| {
        let body = json!({ "prompt": "One day", "max_tokens": 40, "temperature": 0, "stop": stop, "logprobs": logprobs });
        post(server.address, PATH, &body).json()
    };
    let whole = ask(Value::Null, Value::Null);
    let whole = text(&whole);
    let characters: Vec<(usize, char)> = whole.char_indices().collect();
    for length in [1, 2, 5] {
        for start in (0..characters.len() - length).step_by(7) {
            let (from, to) = (characters[start].0, characters[start + length].0);
            let stop = &whole[from..to];
            let answer = ask(json!([stop, "never there"]), json!(1));
            let choice = &answer["choices"][0];
            let expected = &whole[..whole.find(stop).unwrap()];
            assert_eq!((text(&answer), &choice["finish_reason"]), (expected, &json!("stop")), "{stop:?}");
            let tokens = choice["logprobs"]["tokens"].as_array().unwrap();
            let joined: String = tokens.iter().map(|t| t.as_str().unwrap()).collect();
            assert!(joined.starts_with(expected), "{joined:?} {expected:?}");
            assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() <= 40);
        }
    }
    assert_eq!(text(&ask(json!("never there"), Value::Null)), whole);
}

#[test]
fn several_answers_have_seeds_of_their_own() {
    let server = Fixture::start();
    let ask = |seed: i64| {
        let body = json!({ "prompt": "One day", "n": 4, "seed": seed, "temperature": 5, "max_tokens": 8 });
        let answer = post(server.address, PATH, &body).json();
        assert_eq!(answer["usage"]["completion_tokens"], 32);
        let texts = answer["choices"].as_array().unwrap().iter().map(|c| c["text"].to_string());
        texts.collect::<std::collections::BTreeSet<String>>()
    };
    let (first, again) = (ask(7), ask(7));
    assert_eq!(first.len(), 4);
    assert_eq!(first, again);
    assert_ne!(first, ask(-70_000));
}

#[test]
fn a_full_context_ends_an_answer() {
    let server = Fixture::start();
    let ids = vec![5; 250];
    let answer =
        post(server.address, PATH, &json!({ "prompt": ids, "max_tokens": 1000, "temperature": 0 })).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    let new = answer["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((6..=7).contains(&new), "{answer}");
    let ids = vec![5; 257];
    let error = post(server.address, PATH, &json!({ "prompt": ids })).error(400);
    assert_eq!((&error["code"], &error["param"]), (&json!("context_length_exceeded"), &json!("prompt")));
}

#[test]
fn penalties_and_biases_change_the_choice() {
    let server = Fixture::start();
    let ask = |more: Value| {
        let mut body = json!({ "prompt": "One day", "max_tokens": 12, "temperature": 0 });
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        text(&post(server.address, PATH, &body).json()).to_string()
    };
    let plain = ask(json!({}));
    assert_eq!(
        ask(
            json!({ "presence_penalty": 0.0, "frequency_penalty": 0, "repetition_penalty": 1.0, "top_k": -1 })
        ),
        plain
    );
    let dog = tokenizer().encode_plain(" dog").unwrap()[0];
    let dogs = ask(json!({ "logit_bias": { dog.to_string(): 100 } }));
    assert_eq!(dogs, tokenizer().decode(&[&[dog][..]; 12].concat()).unwrap());
    let fewer = ask(json!({ "logit_bias": { dog.to_string(): 8 }, "frequency_penalty": 2.0 }));
    assert!(fewer.matches("dog").count() < 12, "{fewer}");
}
