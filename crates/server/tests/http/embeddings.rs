//! `/v1/embeddings`, and what else a server of an encoder answers.

use super::client::{JSON, get, head, post};
use super::fixture::{Fixture, NAME, state, tokenizer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use tapml_engine::{EmbeddingOptions, PoolingMode};

const PATH: &str = "/v1/embeddings";

fn first_row() -> EmbeddingOptions {
    EmbeddingOptions { pooling: vec![PoolingMode::Cls], ..EmbeddingOptions::default() }
}

fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap();
    for (at, entry) in data.iter().enumerate() {
        assert_eq!((&entry["object"], &entry["index"]), (&json!("embedding"), &json!(at)));
    }
    let numbers = |entry: &Value| entry["embedding"].as_array().unwrap().clone();
    data.iter().map(|entry| numbers(entry).iter().map(|n| n.as_f64().unwrap() as f32).collect()).collect()
}

#[test]
fn all_forms_of_input_give_the_same_vectors() {
    let server = Fixture::start_encoder(EmbeddingOptions::default());
    let texts = ["Once upon a time", "a"];
    let ids = texts.map(|text| tokenizer().encode(text).unwrap());
    let mean = |ids: &Vec<u32>| {
        let rows: Vec<[f32; 4]> = ids.iter().zip(1..).map(|(id, at)| state(*id, at)).collect();
        (0..4).map(|c| rows.iter().map(|row| row[c]).sum::<f32>() / rows.len() as f32).collect::<Vec<f32>>()
    };
    let expected: Vec<Vec<f32>> = ids.iter().map(mean).collect();
    let count = ids.iter().map(Vec::len).sum::<usize>();
    for (input, expected, tokens) in [
        (json!(texts), &expected[..], count),
        (json!(ids), &expected[..], count),
        (json!(texts[0]), &expected[..1], ids[0].len()),
        (json!(ids[1]), &expected[1..], ids[1].len()),
    ] {
        let answer =
            post(server.address, PATH, &json!({ "input": input, "model": NAME, "user": "me" })).json();
        assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!(NAME)));
        assert_eq!(vectors(&answer), expected, "{input}");
        assert_eq!(answer["usage"], json!({ "prompt_tokens": tokens, "total_tokens": tokens }));
    }
    let body = json!({ "input": texts, "encoding_format": "base64" });
    let answer = post(server.address, PATH, &body).json();
    for (entry, expected) in answer["data"].as_array().unwrap().iter().zip(expected) {
        let bytes = STANDARD.decode(entry["embedding"].as_str().unwrap()).unwrap();
        let numbers: Vec<f32> =
            bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(numbers, expected);
    }
}

#[test]
fn vectors_are_made_as_the_options_say() {
    let options = EmbeddingOptions {
        pooling: vec![PoolingMode::Cls, PoolingMode::LastToken],
        normalize: true,
        matryoshka: true,
        sizes: vec![2],
        ..EmbeddingOptions::default()
    };
    let server = Fixture::start_encoder(options);
    let ask = |body: Value| vectors(&post(server.address, PATH, &body).json()).remove(0);
    let whole = ask(json!({ "input": [7, 9, 3] }));
    let raw = [state(7, 1), state(3, 3)].concat();
    let length = raw.iter().map(|v| v * v).sum::<f32>().sqrt();
    assert!(whole.iter().zip(&raw).all(|(found, raw)| (found - raw / length).abs() < 1e-6), "{whole:?}");
    assert_eq!(ask(json!({ "input": [7, 9, 3], "dimensions": 8 })), whole);
    let cut = ask(json!({ "input": [7, 9, 3], "dimensions": 2 }));
    let length = (49.0_f32 + 1.0).sqrt();
    assert!((cut[0] - 7.0 / length).abs() < 1e-6 && (cut[1] - 1.0 / length).abs() < 1e-6, "{cut:?}");
    for size in [1, 3, 9] {
        let error = post(server.address, PATH, &json!({ "input": [7], "dimensions": size })).error(400);
        assert_eq!(error["param"], "dimensions");
        assert!(error["message"].as_str().unwrap().contains("one of [2]"), "{error}");
    }
    let meta = get(server.address, "/v1/models").json()["data"][0]["meta"].clone();
    let expected = json!({
        "n_vocab": tokenizer().vocab(), "n_embd": 8, "pooling": ["cls", "lasttoken"], "normalized": true,
    });
    assert_eq!(meta, expected);
}

#[test]
fn wrong_requests_are_refused_by_field() {
    let server = Fixture::start_encoder(first_row());
    let vocab = tokenizer().vocab();
    for (body, field, told) in [
        (json!({}), "input", "missing"),
        (json!({ "input": [] }), "input", "no tokens"),
        (json!({ "input": [[]] }), "input", "no tokens"),
        (json!({ "input": [["a"]] }), "input", "wrong"),
        (json!({ "input": ["a", 1] }), "input", "wrong"),
        (json!({ "input": [vocab] }), "input", "the model has the tokens 0 to"),
        (
            json!({ "input": vec![1; 33] }),
            "input",
            "has 33 tokens and exceeds the available context size of 32",
        ),
        (json!({ "input": vec!["a"; 2049] }), "input", "wrong"),
        (json!({ "input": "a", "encoding_format": "int8" }), "encoding_format", "`float` or `base64`"),
        (json!({ "input": "a", "dimensions": 2 }), "dimensions", "cannot be cut"),
        (json!({ "input": "a", "dimensions": 0 }), "dimensions", "from 1"),
    ] {
        let error = post(server.address, PATH, &body).error(400);
        assert_eq!(error["param"], field, "{error}");
        assert!(error["message"].as_str().unwrap().contains(told), "{told}: {error}");
    }
    assert_eq!(
        post(server.address, PATH, &json!({ "input": "a", "model": "x" })).error(404)["param"],
        "model"
    );
}

#[test]
fn an_encoder_answers_all_but_generation() {
    let server = Fixture::start_encoder(first_row());
    post(server.address, PATH, &json!({ "input": ["a", "b"] })).json();
    let messages = json!([{ "role": "user", "content": "a" }]);
    for (path, body) in [
        ("/v1/completions", json!({ "prompt": "a" })),
        ("/v1/completions", json!({ "prompt": "a", "response_format": { "type": "json_object" } })),
        ("/v1/chat/completions", json!({ "messages": messages })),
        ("/v1/responses", json!({ "input": "a" })),
        ("/apply-template", json!({ "messages": messages })),
    ] {
        let error = post(server.address, path, &body).error(400);
        assert_eq!(error["code"], "unsupported_model", "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains("use /v1/embeddings"), "{error}");
    }
    let body = json!({ "messages": messages, "max_tokens": 1 });
    let error = post(server.address, "/v1/messages", &body).anthropic_error(400);
    assert!(error["message"].as_str().unwrap().contains("/v1/embeddings"), "{error}");
    let tokens = post(server.address, "/tokenize", &json!({ "prompt": "Once upon" })).json();
    assert_eq!(tokens["max_model_len"], 32);
    let text = post(server.address, "/detokenize", &json!({ "tokens": tokens["tokens"] })).json();
    assert!(text["prompt"].as_str().unwrap().contains("Once upon"), "{text}");
    let health = server.health();
    let expected = json!({ "status": "ok", "model": NAME, "context": 32, "running": 0, "waiting": 0 });
    assert_eq!(health, expected);
    let metrics = get(server.address, "/metrics").body;
    let count = tokenizer().encode("a").unwrap().len() + tokenizer().encode("b").unwrap().len();
    for line in [
        format!("vllm:prompt_tokens_total{{engine=\"0\",model_name=\"{NAME}\"}} {count}"),
        format!("tapml:embeddings_total{{engine=\"0\",model_name=\"{NAME}\"}} 2"),
        format!(
            "vllm:request_success_total{{engine=\"0\",model_name=\"{NAME}\",finished_reason=\"stop\"}} 1"
        ),
    ] {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[test]
fn requests_share_the_encoder_and_one_that_leaves_takes_no_more_of_it() {
    let server = Fixture::start_encoder(first_row());
    let address = server.address;
    // Two seconds of work alone.
    let long = json!({ "input": vec![[5]; 2000] }).to_string();
    let mut gone = TcpStream::connect(address).unwrap();
    gone.write_all((head("POST", PATH, &[JSON], long.len()) + &long).as_bytes()).unwrap();
    while server.health()["running"] == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let short = post(address, PATH, &json!({ "input": [7] })).json();
    assert_eq!(vectors(&short), [state(7, 1).to_vec()]);
    let finished = || -> u64 {
        let page = get(address, "/metrics").body;
        let line = page.lines().find(|line| line.starts_with("tapml:embeddings_total{")).unwrap().to_string();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let mut before = finished();
    assert!(before < 1000, "a short request waits for one text, not for all: {before}");
    drop(gone);
    loop {
        thread::sleep(Duration::from_millis(100));
        let after = finished();
        if after == before {
            break;
        }
        before = after;
    }
    assert!(before < 2000, "{before}");
}
