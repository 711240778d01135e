//! `tapml serve` with a real model: answers, clients of others, and the end.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod embeddings;
mod images;
mod lm_eval;
mod process;
mod ranks;
mod site;

use common::{draft, json, python, stderr, tapml};
use process::{ServeProcess, counter};
use serde_json::{Value, json as value};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A template that takes functions.
const TEMPLATE: &str = "{% if tools %}{{ tools | tojson }}\n{% endif %}\
                        {% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";

#[test]
fn a_shape_is_served_with_random_weights_and_words_of_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let shape = folder.path().join("shape");
    std::fs::create_dir(&shape).unwrap();
    std::fs::copy(Path::new(&draft()).join("config.json"), shape.join("config.json")).unwrap();
    let shape = shape.to_str().unwrap();
    let server = ServeProcess::start_model(shape, folder.path(), &["--target", "cpu", "--random"]);
    let body = value!({"prompt": [1, 2, 3], "max_tokens": 4, "min_tokens": 4, "ignore_eos": true});
    let (status, answer) = server.post("/v1/completions", "", &body);
    assert_eq!(status, 200, "{answer}");
    let text = answer["choices"][0]["text"].as_str().unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_word =
        |word: &&str| word.strip_prefix('t').is_some_and(|id| id.parse::<u32>().is_ok_and(|id| id < 4096));
    assert!(words.len() == 4 && words.iter().all(is_word), "{text}");
    let url = server.report["url"].as_str().unwrap().trim_end_matches("/v1").to_string();
    let load = ["bench", "serve", &url, "--clients", "2", "--requests", "4", "--lengths", "5+3"];
    let report = json(tapml(folder.path()).args(load), 0);
    assert_eq!((&report["failed"], &report["output_tokens"]), (&value!(0), &value!(12)));
    server.stop();
}

#[test]
fn the_server_continues_a_prompt_as_generate_does() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        ServeProcess::start(folder.path(), &["--target", "cpu", "--name", "story", "--api-key", "secret"]);
    assert_eq!((&server.report["schema"], &server.report["names"]), (&value!(1), &value!(["story"])));
    let prompt = "Once upon a time";
    let mut generate = tapml(folder.path());
    generate.args(["generate", &draft(), "--target", "cpu", "--max-tokens", "12", "--prompt", prompt]);
    let expected = json(&mut generate, 0);
    let body =
        value!({ "model": "story", "prompt": prompt, "max_tokens": 12, "temperature": 0, "echo": true });
    assert_eq!(server.post("/v1/completions", "", &body).0, 401);
    let (status, answer) = server.post("/v1/completions", "authorization: Bearer secret\r\n", &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["text"], format!("{prompt}{}", expected["text"].as_str().unwrap()));
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("stopped") && said.contains("what is open may end"), "{said}");
}

#[test]
fn a_server_that_was_killed_starts_again_at_its_port() {
    let folder = tempfile::tempdir().unwrap();
    let start = |port: &str| {
        ServeProcess::start(folder.path(), &["--target", "cpu", "--api-key-file", "key.txt", "--port", port])
    };
    let mut server = start("0");
    let address = server.report["address"].as_str().unwrap().to_string();
    let key = std::fs::read_to_string(folder.path().join("key.txt")).unwrap();
    let headers = format!("authorization: Bearer {}\r\n", key.trim());
    let body = value!({ "prompt": "Once", "max_tokens": 8, "temperature": 0 });
    let (status, before) = server.post("/v1/completions", &headers, &body);
    assert_eq!(status, 200, "{before}");
    // A connection with a stream under way is open when it dies.
    let mut tcp = TcpStream::connect(&address).unwrap();
    let stream =
        value!({ "prompt": "Once", "max_tokens": 400, "stream": true, "ignore_eos": true }).to_string();
    let length = stream.len();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: {address}\r\n{headers}content-type: application/json\r\n\
         content-length: {length}\r\n\r\n{stream}"
    );
    tcp.write_all(head.as_bytes()).unwrap();
    let mut first = String::new();
    BufReader::new(tcp.try_clone().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let (_, port) = address.rsplit_once(':').unwrap();
    // The file of the key is the one that it made.
    let (status, after) = start(port).post("/v1/completions", &headers, &body);
    assert_eq!((status, &after["choices"]), (200, &before["choices"]));
}

#[test]
fn guesses_change_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let body = value!({ "prompt": "Once upon a time", "max_tokens": 40, "temperature": 0 });
    let mut texts = Vec::new();
    for guesses in [&[][..], &["--ngram", "4"], &["--draft", &draft(), "--draft-tokens", "3"]] {
        let server = ServeProcess::start(folder.path(), &[&["--target", "cpu"], guesses].concat());
        let (status, answer) = server.post("/v1/completions", "", &body);
        assert_eq!(status, 200, "{answer}");
        texts.push(answer["choices"][0]["text"].as_str().unwrap().to_string());
    }
    assert!(!texts[0].is_empty() && texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[test]
fn the_clients_of_openai_and_anthropic_understand_the_server() {
    if !python::has_packages(&["openai", "anthropic"], "clients of tapml serve") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chat.jinja"), TEMPLATE).unwrap();
    let server = ServeProcess::start(folder.path(), &["--target", "cpu", "--chat-template", "chat.jinja"]);
    let script = tapml_testing::root().join("tools/serve_clients.py");
    let output = python::python().arg(script).arg(server.report["url"].as_str().unwrap()).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("ok ").count(), 9, "{text}");
}

#[test]
fn further_clients_understand_the_server() {
    // A virtual environment of Python that holds packages of npm, too.
    let clients = std::env::var_os("TAPML_CLIENTS").map(PathBuf::from).unwrap_or_default();
    let script = |name: &str| tapml_testing::root().join("tools").join(name);
    let (python, packages) = (clients.join("bin/python"), clients.join("node_modules"));
    let mut commands = Vec::new();
    if python.is_file() {
        let mut command = Command::new(python);
        command.arg(script("serve_frameworks.py"));
        commands.push(command);
    } else {
        tapml_testing::skip("frameworks of Python", "TAPML_CLIENTS names no virtual environment");
    }
    if packages.is_dir() {
        let mut command = Command::new("node");
        command.arg(script("serve_clients.mjs")).arg(&clients);
        commands.push(command);
    } else {
        tapml_testing::skip("clients of JavaScript", "TAPML_CLIENTS names no folder with packages of npm");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chat.jinja"), TEMPLATE).unwrap();
    for mut command in commands {
        let server =
            ServeProcess::start(folder.path(), &["--target", "cpu", "--chat-template", "chat.jinja"]);
        let output = command.arg(server.report["url"].as_str().unwrap()).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("ok "), "{text}");
        eprint!("{text}");
    }
}

/// What the document promises: no failure of the server, no status and no body that it does not describe.
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

#[test]
fn requests_made_of_the_document_are_answered_as_it_says() {
    if !python::has_packages(&["schemathesis"], "the document of tapml serve") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chat.jinja"), TEMPLATE).unwrap();
    let server = ServeProcess::start(folder.path(), &["--target", "cpu", "--chat-template", "chat.jinja"]);
    let document = format!("http://{}/openapi.json", server.report["address"].as_str().unwrap());
    let run = "from schemathesis.cli import schemathesis; schemathesis()";
    let fixed = ["--phases", "fuzzing", "--max-examples", "10", "--seed", "1", "--checks", CHECKS];
    let mut command = python::python();
    // What it finds is kept in the folder, which is removed.
    command.current_dir(folder.path()).args(["-c", run, "run", &document]).args(fixed);
    let output = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("generated") && text.contains("passed"), "{text}");
}

#[test]
fn what_cannot_be_served_is_told_before_the_port_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], code| stderr(tapml(folder.path()).arg("serve").args(arguments), code);
    let said = refused(&["no-such-model"], 2);
    assert!(said.contains("no-such-model"), "{said}");
    let said = refused(&[&draft(), "--target", "cpu", "--host", "256.0.0.1"], 2);
    assert!(said.contains("could not listen"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = refused(&[&draft(), "--target", "cpu", "--port", &port], 2);
    assert!(said.contains("could not listen"), "{said}");
    let other = tapml_testing::model("llama_head64").display().to_string();
    let said = refused(&[&draft(), "--target", "cpu", "--draft", &other], 2);
    assert!(said.contains("the draft model has"), "{said}");
    let said = refused(&[&draft(), "--target", "emulator", "--random", "--shadow", "cpu:1"], 2);
    assert!(said.contains("random weights cannot be shadowed"), "{said}");
    // Before the model is looked at.
    let said = refused(&["no-such-model", "--chat-template", "no-such.jinja"], 2);
    assert!(said.contains("no-such.jinja"), "{said}");
    let said = refused(&["no-such-model", "--shadow", "abacus:0.1"], 2);
    assert!(said.contains("the source of --shadow") && said.contains("abacus"), "{said}");
    let said = refused(&["no-such-model", "--ngram", "0"], 2);
    assert!(said.contains("`ngram` must be at least 1"), "{said}");
    let said = refused(&["no-such-model", "--draft", "no-such-draft"], 2);
    assert!(said.contains("the small model") && said.contains("no-such-draft"), "{said}");
    let said = refused(&[&draft(), "--target", "cpu", "--api-key", ""], 2);
    assert!(said.contains("must not be empty"), "{said}");
}

#[test]
fn live_calls_of_a_right_model_pass_on_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--target", "emulator", "--check", "off", "--context", "48", "--shadow", "cpu:1"];
    let server = ServeProcess::start(folder.path(), &arguments);
    let health: Value = serde_json::from_str(&server.get("/health")).unwrap();
    assert_eq!(health["shadow"], value!({ "source": "cpu", "share": 1.0 }));
    let page = server.load_until_checked(40);
    assert!(!page.contains("tapml:shadow_failures_total{"), "{page}");
    assert_eq!(counter(&page, "tapml:shadow_skipped_total"), 0, "{page}");
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("100 % of the calls are checked on `cpu`"), "{said}");
    assert!(!folder.path().join(".tapml").exists(), "no call fails");
}

#[test]
fn a_wrong_kernel_under_load_is_found_and_leaves_a_case() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = common::changed_kernel(folder.path(), "rms_norm", ["/ f32(K) + EPS", "/ f32(K + 1u) + EPS"]);
    let arguments = ["--target", "emulator", "--check", "off", "--context", "48", "--kernel", &wrong];
    let server = ServeProcess::start(
        folder.path(),
        &[&arguments[..], &["--shadow", "cpu:1", "--shadow-cases", "cases"]].concat(),
    );
    assert_eq!(server.report["shadow"]["cases"], "cases");
    let page = server.load_until_checked(40);
    let failures: Vec<&str> =
        page.lines().filter(|line| line.starts_with("tapml:shadow_failures_total{")).collect();
    assert!(failures.len() == 1 && failures[0].contains("op=\"rms_norm\""), "{failures:?}");
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    let line = said.lines().find(|line| line.contains("`rms_norm`")).expect("the failure is told");
    assert!(line.contains("times the allowed error") && line.contains("tapml check"), "{line}");

    let cases: Vec<_> = folder.path().join("cases").read_dir().unwrap().map(|e| e.unwrap().path()).collect();
    assert!((1..=4).contains(&cases.len()), "{cases:?}");
    let mut check = tapml(folder.path());
    check.arg("check").arg(&cases[0]).args(["--target", "emulator", "--kernel", &wrong]);
    let checked = json(&mut check, 1);
    assert_eq!((&checked["cases"], &checked["failed"]), (&value!(1), &value!(1)), "{checked}");
    let mut right = tapml(folder.path());
    right.arg("check").arg(&cases[0]).args(["--target", "emulator"]);
    assert_eq!(json(&mut right, 0)["failed"], 0);
    let mut reduce = tapml(folder.path());
    reduce.arg("reduce").arg(&cases[0]).args(["--op", "rms_norm", "--target", "emulator", "--out", "bug"]);
    let reduced = json(reduce.args(["--kernel", &wrong]), 0);
    assert_eq!((&reduced["op"], &reduced["fails"]), (&value!("rms_norm"), &value!(true)), "{reduced}");
}

#[test]
fn a_wrong_paged_kernel_is_found_by_a_case_of_the_pages_that_calls_name() {
    let folder = tempfile::tempdir().unwrap();
    let pieces = ["exp_accurate(score - peak)", "exp_accurate((score - peak) * 0.9)"];
    let wrong = common::changed_kernel(folder.path(), "paged_attention", pieces);
    let arguments = ["--target", "emulator", "--check", "off", "--context", "48", "--kernel", &wrong];
    let pages = ["--pages", "8192", "--shadow", "cpu:1", "--shadow-cases", "cases"];
    let server = ServeProcess::start(folder.path(), &[&arguments[..], &pages].concat());
    let page = server.load_until_checked(40);
    let failures: Vec<&str> =
        page.lines().filter(|line| line.starts_with("tapml:shadow_failures_total{")).collect();
    assert!(failures.len() == 1 && failures[0].contains("op=\"paged_attention\""), "{failures:?}");
    assert_eq!(server.stop().0, Some(0));

    let case = folder.path().join("cases/paged_attention-1.suite");
    let files = case.read_dir().unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    // The pools take tens of megabytes.
    assert!(files.sum::<u64>() < 200_000);
    let check = |kernels: &[&str], code| {
        let mut command = tapml(folder.path());
        command.arg("check").arg(&case).args(["--target", "emulator"]).args(kernels);
        json(&mut command, code)["failed"].clone()
    };
    assert_eq!((check(&["--kernel", &wrong], 1), check(&[], 0)), (value!(1), value!(0)));
    let mut reduce = tapml(folder.path());
    reduce.arg("reduce").arg(&case).args(["--op", "paged_attention", "--target", "emulator", "--out", "bug"]);
    let reduced = json(reduce.args(["--kernel", &wrong]), 0);
    assert_eq!((&reduced["op"], &reduced["fails"]), (&value!("paged_attention"), &value!(true)), "{reduced}");
}

#[test]
fn a_case_that_cannot_be_written_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // A file where the folder would be.
    std::fs::write(folder.path().join("taken"), "").unwrap();
    let wrong = common::changed_kernel(folder.path(), "rms_norm", ["/ f32(K) + EPS", "/ f32(K + 1u) + EPS"]);
    let arguments = ["--target", "emulator", "--check", "off", "--context", "48", "--kernel", &wrong];
    let server = ServeProcess::start(
        folder.path(),
        &[&arguments[..], &["--shadow", "cpu:1", "--shadow-cases", "taken/cases"]].concat(),
    );
    let page = server.load_until_checked(40);
    assert!(counter(&page, "tapml:shadow_unwritten_total") > 0, "{page}");
    assert_eq!(server.post("/v1/completions", "", &value!({ "prompt": "A", "max_tokens": 1 })).0, 200);
    let (code, said) = server.stop();
    assert!(code == Some(0) && said.contains("no case could be left"), "{said}");
}
