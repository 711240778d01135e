//! `/tokenize`, `/detokenize`, `/v1/models`.

use super::client::{get, post};
use super::fixture::{Fixture, NAME, tokenizer};
use serde_json::json;

#[test]
fn texts_become_tokens_and_tokens_texts() {
    let server = Fixture::start();
    let text = "Once upon a time \u{1F600}";
    let ids = tokenizer().encode(text).unwrap();
    let vllm =
        post(server.address, "/tokenize", &json!({ "prompt": text, "return_token_strs": true })).json();
    assert_eq!(
        (&vllm["tokens"], &vllm["count"], &vllm["max_model_len"]),
        (&json!(ids), &json!(ids.len()), &json!(256))
    );
    assert_eq!(vllm["token_strs"].as_array().unwrap().len(), ids.len());
    let plain = tokenizer().encode_plain(text).unwrap();
    let llama = post(server.address, "/tokenize", &json!({ "content": text, "with_pieces": true })).json();
    let found: Vec<u32> =
        llama["tokens"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap() as u32).collect();
    assert_eq!(found, plain);
    let back = post(server.address, "/detokenize", &json!({ "tokens": ids })).json();
    assert_eq!((&back["prompt"], &back["content"]), (&json!(text), &json!(text)));
    let chat = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    let chat = post(server.address, "/tokenize", &chat).json();
    assert_eq!(chat["tokens"], json!(tokenizer().encode_plain("[user] Hi\n[assistant]").unwrap()));
    let error = post(server.address, "/detokenize", &json!({ "tokens": [5, 4096] })).error(400);
    assert_eq!(error["param"], "tokens");
    assert_eq!(post(server.address, "/tokenize", &json!({})).error(400)["param"], "prompt");
}

#[test]
fn the_model_is_told_by_all_its_names() {
    let server = Fixture::start();
    let list = get(server.address, "/v1/models").json();
    assert_eq!(list["object"], "list");
    let names: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(names, [NAME, "alias/of it"]);
    assert_eq!(get(server.address, "/v1/models/alias/of%20it").json()["object"], "model");
    assert_eq!(get(server.address, "/v1/models/other").error(404)["code"], "model_not_found");
    let body = json!({ "model": "alias/of it", "prompt": "a", "max_tokens": 1 });
    assert_eq!(post(server.address, "/v1/completions", &body).json()["model"], NAME);
}
