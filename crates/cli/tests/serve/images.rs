//! Chats with images over HTTP: the texts of `tapml run --image`, through every API, and clear refusals.

use super::common::{json, stderr, tapml};
use super::process::ServeProcess;
use super::{Value, common, value};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::path::{Path, PathBuf};

const QUESTION: &str = "what is this";

fn model(name: &str) -> PathBuf {
    tapml_testing::golden(name)
}

fn image(model: &Path) -> String {
    BASE64_STANDARD.encode(std::fs::read(model.join("image.png")).unwrap())
}

/// What the command that serves nobody says to an image and a question.
fn text_alone(model: &Path, folder: &Path) -> Value {
    let (path, image) = (model.display().to_string(), model.join("image.png").display().to_string());
    let arguments = ["generate", &path, "--target", "cpu", "--max-tokens", "8", "--ignore-eos"];
    let mut command = tapml(folder);
    json(command.args(arguments).args(["--prompt", QUESTION, "--image", &image]), 0)
}

fn chat(parts: Value) -> Value {
    let messages = value!([{ "role": "user", "content": parts }]);
    value!({ "messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": true })
}

fn image_part(url: &str) -> Value {
    value!({ "type": "image_url", "image_url": { "url": url } })
}

#[test]
fn every_api_answers_to_an_image_as_the_command_does() {
    for name in ["llava_tiny", "phi3_v_tiny"] {
        let folder = tempfile::tempdir().unwrap();
        let (model, text) = (model(name), value!({ "type": "text", "text": QUESTION }));
        let (data, alone) = (image(&model), text_alone(&model, folder.path()));
        let (expected, prompt) = (&alone["text"], alone["prompt_ids"].as_array().unwrap().len());
        let path = model.display().to_string();
        let server = ServeProcess::start_model(&path, folder.path(), &["--target", "cpu"]);
        let url = format!("data:image/png;base64,{data}");
        let body = chat(value!([image_part(&url), text]));
        for round in 0..2 {
            let (status, answer) = server.post("/v1/chat/completions", "", &body);
            assert_eq!(status, 200, "{answer}");
            assert_eq!(&answer["choices"][0]["message"]["content"], expected, "{name}, {round}");
            assert_eq!(answer["usage"]["prompt_tokens"], prompt, "{answer}");
            let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
            assert_eq!(cached as usize, if round == 0 { 0 } else { (prompt - 1) / 16 * 16 }, "{answer}");
        }
        // The order of the parts of a message is that of its content.
        let swapped = chat(value!([text, image_part(&url)]));
        assert_eq!(server.post("/v1/chat/completions", "", &swapped).0, 200);
        let source = value!({ "type": "base64", "media_type": "image/png", "data": data });
        let blocks = value!([{ "type": "image", "source": source }, text]);
        let body = value!({ "messages": [{ "role": "user", "content": blocks }], "max_tokens": 8, "temperature": 0, "ignore_eos": true });
        let (status, answer) = server.post("/v1/messages", "", &body);
        assert_eq!((status, &answer["content"][0]["text"]), (200, expected), "{answer}");
        let (_, counted) = server.post("/v1/messages/count_tokens", "", &body);
        assert_eq!(counted["input_tokens"], prompt, "{counted}");
        let parts =
            value!([{ "type": "input_image", "image_url": url }, { "type": "input_text", "text": QUESTION }]);
        let body = value!({ "input": [{ "role": "user", "content": parts }], "max_output_tokens": 8, "temperature": 0, "ignore_eos": true });
        let (status, answer) = server.post("/v1/responses", "", &body);
        assert_eq!((status, &answer["output"][0]["content"][0]["text"]), (200, expected), "{answer}");
        let props: Value = serde_json::from_str(&server.get("/props")).unwrap();
        assert_eq!(props["modalities"]["vision"], true);
        let (code, said) = server.stop();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn an_image_gets_the_same_answer_on_two_ranks() {
    for name in ["llava_tiny", "phi3_v_tiny"] {
        let folder = tempfile::tempdir().unwrap();
        let model = model(name);
        let expected = text_alone(&model, folder.path())["text"].clone();
        let url = format!("data:image/png;base64,{}", image(&model));
        let body = chat(value!([image_part(&url), { "type": "text", "text": QUESTION }]));
        let path = model.display().to_string();
        for target in ["cpu", "emulator"] {
            let arguments = ["--target", target, "--tensor-parallel", "2"];
            let server = ServeProcess::start_model(&path, folder.path(), &arguments);
            let (status, answer) = server.post("/v1/chat/completions", "", &body);
            assert_eq!(status, 200, "{answer}");
            assert_eq!(answer["choices"][0]["message"]["content"], expected, "{name} on {target}");
        }
    }
}

#[test]
fn images_that_cannot_be_taken_are_refused_and_answers_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("llava_tiny");
    let data = image(&model);
    let path = model.display().to_string();
    let server = ServeProcess::start_model(&path, folder.path(), &["--target", "cpu"]);
    let url = |kind: &str, data: &str| image_part(&format!("data:image/{kind};base64,{data}"));
    let cut = &data[..data.len() / 8 * 4];
    let many: Vec<Value> = (0..65).map(|_| url("png", &data)).collect();
    let several: Vec<Value> = (0..7).map(|_| url("png", &data)).collect();
    for (parts, told) in [
        (value!([image_part("https://example.org/a.png")]), "images are not fetched"),
        (value!([image_part("file:///etc/passwd")]), "images are not fetched"),
        (value!([url("png", "*")]), "no base64"),
        (value!([url("png", "aGk=")]), "could not read the image"),
        (value!([url("png", cut)]), "could not read the image"),
        (value!(many), "more than 64 images"),
        (value!(several), "exceeds the available context size"),
        (value!([url("png", &data), { "type": "text", "text": "<image>" }]), "names 2"),
        (value!([{ "type": "input_audio", "input_audio": {} }]), "`input_audio`"),
        (value!([{ "type": "image_url" }]), "must be a data URL"),
    ] {
        let (status, answer) = server.post("/v1/chat/completions", "", &chat(parts));
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(told), "{told}: {answer}");
    }
    let source = value!({ "type": "url", "url": "http://127.0.0.1/x" });
    let body = value!({ "messages": [{ "role": "user", "content": [{ "type": "image", "source": source }] }], "max_tokens": 1 });
    let (status, answer) = server.post("/v1/messages", "", &body);
    assert!(status == 400 && answer.to_string().contains("messages[0].content[0].source.url"), "{answer}");
    let (status, answer) = server.post("/v1/chat/completions", "", &chat(value!([url("png", &data)])));
    assert_eq!(status, 200, "{answer}");

    let other = value!({ "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}" });
    std::fs::write(folder.path().join("chat.jinja"), other["chat_template"].as_str().unwrap()).unwrap();
    let blind = ServeProcess::start(folder.path(), &["--target", "cpu", "--chat-template", "chat.jinja"]);
    let (status, answer) = blind.post("/v1/chat/completions", "", &chat(value!([url("png", &data)])));
    assert!(status == 400 && answer.to_string().contains("takes no images"), "{answer}");
}

#[test]
fn kernels_of_the_encoder_are_checked_before_the_first_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = model("llava_tiny").display().to_string();
    let arguments = ["--target", "emulator", "--context", "48"];
    let server = ServeProcess::start_model(&path, folder.path(), &arguments);
    let parts = value!([image_part(&format!("data:image/png;base64,{}", image(&model("llava_tiny")))), { "type": "text", "text": QUESTION }]);
    let (status, answer) = server.post("/v1/chat/completions", "", &chat(parts));
    let expected = &text_alone(&model("llava_tiny"), folder.path())["text"];
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, expected), "{answer}");
    let (_, said) = server.stop();
    assert!(said.contains("none is wrong"), "{said}");
    for (op, change) in [
        ("patches", ["let column = square % across", "let column = (square + 1u) % across"]),
        ("merge_rows", ["y[e] = source[slot * K + e % K]", "y[e] = x[e]"]),
    ] {
        let wrong = common::changed_kernel(folder.path(), op, change);
        let mut serve = tapml(folder.path());
        let said = stderr(serve.args(["serve", &path, "--kernel", &wrong]).args(arguments), 2);
        assert!(said.contains(&format!("computes wrong results: `{op}`")), "{said}");
    }
}

#[test]
fn a_wrong_kernel_of_the_encoder_is_found_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("llava_tiny");
    // The language model has no such operator.
    let wrong =
        common::changed_kernel(folder.path(), "layer_norm", ["/ f32(K) + EPS", "/ f32(K + 1u) + EPS"]);
    let arguments = ["--target", "emulator", "--check", "off", "--kernel", &wrong];
    let shadow = ["--shadow", "cpu:1", "--shadow-cases", "cases"];
    let path = model.display().to_string();
    let server = ServeProcess::start_model(&path, folder.path(), &[&arguments[..], &shadow].concat());
    let url = format!("data:image/png;base64,{}", image(&model));
    let body = chat(value!([image_part(&url), { "type": "text", "text": QUESTION }]));
    assert_eq!(server.post("/v1/chat/completions", "", &body).0, 200);
    let begun = std::time::Instant::now();
    let page = loop {
        let page = server.get("/metrics");
        assert!(begun.elapsed().as_secs() < 240, "{page}");
        if page.contains("tapml:shadow_failures_total{") {
            break page;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let mut failures = page.lines().filter(|line| line.starts_with("tapml:shadow_failures_total{"));
    assert!(failures.all(|line| line.contains("op=\"layer_norm\"")), "{page}");
    assert_eq!(server.stop().0, Some(0));
    let check = |kernels: &[&str], code| {
        let mut command = tapml(folder.path());
        command.arg("check").arg("cases/layer_norm-1.suite").args(["--target", "emulator"]).args(kernels);
        json(&mut command, code)["failed"].clone()
    };
    assert_eq!((check(&["--kernel", &wrong], 1), check(&[], 0)), (value!(1), value!(0)));
}
