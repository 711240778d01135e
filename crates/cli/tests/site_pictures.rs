//! Sites of models that see: what a site answers about pictures is what `cpu` answers, in Dawn under Node and in Chromium.
#![allow(clippy::unwrap_used)]

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::held_out::HeldOut;
use common::site::{Files, Oddities, compile, compile_as, expect_same, read_json, run_node};
use common::{draft, json, tapml};
use serde_json::{Value, json as value};
use std::path::Path;
use tapml_testing::Browser;

fn model() -> String {
    tapml_testing::model("llava").display().to_string()
}

/// The requests of a chat, turn by turn, each behind the answers of Transformers; and these answers, which are those of `cpu`
/// (`pictures.rs`).
fn requests(held_out: &HeldOut, chat: &Value) -> Vec<(Value, Value)> {
    let mut messages = Vec::new();
    let turns = chat["turns"].as_array().unwrap().iter();
    let ask = |turn: &Value| {
        messages.push(held_out.message(turn));
        let request = value!({"messages": messages, "max_tokens": 12});
        messages.push(value!({"role": "assistant", "content": turn["torch"]}));
        (request, turn["torch"].clone())
    };
    turns.map(ask).collect()
}

/// What `cpu` writes about the one picture of a chat.
fn generate(folder: &Path, held_out: &HeldOut, chat: &Value) -> Value {
    let parts = chat["turns"][0]["parts"].as_array().unwrap();
    let [picture, question] = &parts[..] else { panic!("{parts:?}") };
    let url = &held_out.pictures[picture.as_u64().unwrap() as usize];
    let png = STANDARD.decode(url.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
    std::fs::write(folder.join("picture.png"), png).unwrap();
    let mut command = tapml(folder);
    command.args(["generate", &model(), "--target", "cpu", "--max-tokens", "12"]);
    json(command.args(["--image", "picture.png", "--prompt", question.as_str().unwrap()]), 0)
}

/// The first chat with so many pictures in all.
fn chat_of(held_out: &HeldOut, count: usize) -> &Value {
    let first = |chat: &Value| {
        let parts = chat["turns"][0]["parts"].as_array().unwrap();
        count > 1 || (parts[0].is_u64() && parts[1].is_string() && parts.len() == 2)
    };
    held_out.chats.iter().find(|chat| HeldOut::count_pictures(chat) == count && first(chat)).unwrap()
}

#[test]
fn a_site_sees_what_cpu_sees() {
    let (folder, held_out) = (tempfile::tempdir().unwrap(), HeldOut::open());
    let (site, report) = compile(folder.path(), &model(), &[]);
    let manifest = read_json(&site.join("site.json"));
    assert_eq!(manifest["image"]["rows"], 17);
    let programs = report["programs"].as_array().unwrap();
    assert!(programs.iter().any(|program| program["encoder"]["file"] == "encoder.json"), "{report}");
    let files = Files::serve(&site, Oddities::default());
    let mut expected = Vec::new();
    let mut steps = vec![value!({"load": files.url})];
    for count in [1, 2, 11] {
        for (request, answer) in requests(&held_out, chat_of(&held_out, count)) {
            steps.push(value!({"write": request}));
            expected.push(answer);
        }
    }
    // A device that is lost is opened again, and the pictures of the text are seen again.
    let again = steps.last().unwrap().clone();
    steps.extend([value!({"lose": true}), again, value!({"check": true})]);
    expected.push(expected.last().unwrap().clone());
    let Some(posted) = run_node(&files, &site, &Value::from(steps)) else { return };
    assert_eq!(posted[0]["facts"]["sees"], true);
    let found: Vec<&Value> = posted[1..=expected.len()].iter().map(|written| &written["text"]).collect();
    assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{posted:?}");
    expect_same(&posted[1], &generate(folder.path(), &held_out, chat_of(&held_out, 1)));
    // The second turn goes on behind the pictures of the first one.
    let cached = |at: usize| posted[at]["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached(1) == 0 && cached(2) > 17 && cached(6) > 11 * 17, "{posted:?}");
    assert!(posted[7]["reopened"] == 1 && cached(7) > 11 * 17, "{}", posted[7]);
    let checked = &posted[8]["report"];
    assert_eq!((&checked["failed"], &checked["skipped"]), (&value!(0), &value!([])), "{checked}");
    let ops: Vec<&Value> = checked["ops"].as_array().unwrap().iter().map(|op| &op["op"]).collect();
    assert!(ops.contains(&&value!("patches")) && ops.contains(&&value!("merge_rows")), "{ops:?}");
}

#[test]
fn pictures_that_cannot_be_seen_are_told() {
    let (folder, held_out) = (tempfile::tempdir().unwrap(), HeldOut::open());
    let less = ["--no-suite", "--positions", "64"];
    compile_as(folder.path(), &model(), "seeing", &less);
    let (blind, _) = compile_as(folder.path(), &draft(), "blind", &less);
    std::fs::copy(blind.join("tapml.js"), folder.path().join("tapml.js")).unwrap();
    let files = Files::serve(folder.path(), Oddities::default());
    let url = |url: &str| value!({"type": "image_url", "image_url": {"url": url}});
    let ask =
        |parts: Value| value!({"write": {"messages": [{"role": "user", "content": parts}], "max_tokens": 4}});
    let picture = url(&held_out.pictures[0]);
    let text = value!({"type": "text", "text": "which <image> is it?"});
    let raw = |bytes: usize, width: u32| value!({"type": "image", "image": {"data": vec![0; bytes], "width": width, "height": 2}});
    let steps = value!([
        {"load": format!("{}seeing/", files.url)},
        ask(value!([url("http://127.0.0.1/a.png")])),
        ask(value!([url("data:image/png;base64,a")])),
        ask(value!([picture, text])),
        ask(vec![picture.clone(); 4].into()),
        ask(value!([raw(15, 2)])),
        ask(value!([raw(8, 20_000)])),
        ask(value!([picture, {"type": "text", "text": "which shape is it?"}])),
        {"close": true},
        {"load": format!("{}blind/", files.url)},
        ask(value!([picture])),
    ]);
    let Some(posted) = run_node(&files, folder.path(), &steps) else { return };
    let told = [
        "is not fetched",
        "no base64",
        "has 1 images, and its prompt names 2",
        "17 of each of 4 images, the context holds 64",
        "image 1: an image of 2×2 pixels has 16 bytes of RGBA, found 15",
        "image 1: an image of 2×20000 pixels give a PNG, JPEG or WebP file of at most 16384 pixels",
    ];
    for (written, told) in posted[1..].iter().zip(told) {
        assert!(written["error"].as_str().is_some_and(|error| error.contains(told)), "{told}: {written}");
    }
    // What was refused leaves nothing behind.
    assert!(posted[7]["ids"].as_array().is_some_and(|ids| !ids.is_empty()), "{}", posted[7]);
    let refused = posted[9]["error"].as_str().unwrap();
    assert!(posted[8]["facts"]["sees"] == false && refused.contains("takes no images"), "{refused}");
}

#[test]
fn a_browser_sees_what_cpu_sees() {
    if !Browser::is_here() {
        return;
    }
    let (folder, held_out) = (tempfile::tempdir().unwrap(), HeldOut::open());
    let (site, _) = compile(folder.path(), &model(), &["--no-suite"]);
    let files = Files::serve(&site, Oddities::default());
    let chats = [1, 3].map(|count| requests(&held_out, chat_of(&held_out, count)));
    let broken = value!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]);
    let mut steps = vec![value!({"load": "./"})];
    steps.extend(chats.iter().flatten().map(|(request, _)| value!({"write": request})));
    steps.push(value!({"write": {"messages": [{"role": "user", "content": broken}]}}));
    let _browser = files.open(&Value::from(steps));
    assert_eq!(files.report()["facts"]["sees"], true);
    let written: Vec<Value> = chats.iter().flatten().map(|_| files.report()).collect();
    for (written, (_, answer)) in written.iter().zip(chats.iter().flatten()) {
        assert_eq!(written["text"], *answer, "{written}");
    }
    expect_same(&written[0], &generate(folder.path(), &held_out, chat_of(&held_out, 1)));
    let error = files.report_or_error()["error"].as_str().unwrap().to_string();
    assert!(error.contains("image 1: could not read the image"), "{error}");
}
