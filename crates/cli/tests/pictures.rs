//! The bundled model that sees: it answers right about pictures it was not trained on, eleven in a chat and at any place, on
//! every target that is here, and the same words as Transformers.
#![allow(clippy::unwrap_used)]

mod common;
#[allow(dead_code, reason = "tests of the server use the rest")]
#[path = "serve/process.rs"]
mod process;

use assert_cmd::Command;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::held_out::HeldOut;
use common::{json, tapml};
use process::ServeProcess;
use serde_json::{Value, json as value};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

impl HeldOut {
    /// Asks a server all turns of a chat, each behind the answers of Transformers; gives whether each answer is theirs and whether
    /// it is right.
    fn ask(&self, server: &ServeProcess, chat: &Value) -> Vec<[bool; 2]> {
        let mut messages = Vec::new();
        let turns = chat["turns"].as_array().unwrap().iter();
        let ask = |turn: &Value| {
            messages.push(self.message(turn));
            let body = value!({ "messages": messages, "max_tokens": 12, "temperature": 0 });
            let (status, answer) = server.post("/v1/chat/completions", "", &body);
            assert_eq!(status, 200, "{answer}");
            let text = &answer["choices"][0]["message"]["content"];
            messages.push(value!({ "role": "assistant", "content": turn["torch"] }));
            [*text == turn["torch"], *text == turn["right"]]
        };
        turns.map(ask).collect()
    }

    /// Asks about these chats from several threads at once; gives how many answers there are, how many of them are those of
    /// Transformers, and how many are right.
    fn ask_at_once(&self, server: &ServeProcess, chats: &[&Value], threads: usize) -> [usize; 3] {
        let (next, counts) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 3]);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(chat) = chats.get(next.fetch_add(1, Ordering::Relaxed)) {
                        for [same, right] in self.ask(server, chat) {
                            for (count, add) in counts.iter().zip([true, same, right]) {
                                count.fetch_add(usize::from(add), Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        counts.map(AtomicUsize::into_inner)
    }

    /// Writes the pictures of a turn as files; gives their names, in the order of the turn.
    fn write(&self, folder: &Path, turn: &Value) -> Vec<String> {
        let parts = turn["parts"].as_array().unwrap().iter();
        let write = |at: u64| {
            let (name, url) = (format!("{at}.png"), &self.pictures[at as usize]);
            let bytes = STANDARD.decode(url.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
            std::fs::write(folder.join(&name), bytes).unwrap();
            name
        };
        parts.filter_map(Value::as_u64).map(write).collect()
    }
}

fn model() -> String {
    tapml_testing::model("llava").display().to_string()
}

/// A server of the model with these options.
fn serve(folder: &Path, options: &[&str]) -> ServeProcess {
    ServeProcess::start_model(&model(), folder, options)
}

/// Whether there is such a device.
fn is_here(target: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let devices = json(tapml(folder.path()).args(["device", "list"]), 0);
    devices["devices"].as_array().unwrap().iter().any(|device| device["platform"] == target)
}

#[test]
fn pictures_held_out_are_seen_as_in_transformers() {
    let (folder, held_out) = (tempfile::tempdir().unwrap(), HeldOut::open());
    let server = serve(folder.path(), &["--target", "cpu"]);
    let chats: Vec<&Value> = held_out.chats.iter().collect();
    assert!(chats.iter().filter(|chat| HeldOut::count_pictures(chat) == 11).count() >= 6);
    // Alone first, then beside others: whatever else is computed, a chat gets the same words.
    for threads in [1, 6] {
        let [all, same, right] = held_out.ask_at_once(&server, &chats, threads);
        assert_eq!((all, same), (80, 80), "{threads} threads");
        assert!(right * 100 >= all * 95, "{right} of {all} are right");
    }
}

#[test]
fn quantised_it_sees_as_well() {
    let (folder, held_out) = (tempfile::tempdir().unwrap(), HeldOut::open());
    let chats: Vec<&Value> = held_out.chats.iter().collect();
    for scheme in ["q8", "q4"] {
        let server = serve(folder.path(), &["--target", "cpu", "--quantize", scheme]);
        let [all, _, right] = held_out.ask_at_once(&server, &chats, 4);
        assert!(right * 100 >= all * 95, "{scheme}: {right} of {all} are right");
    }
}

#[test]
fn a_gpu_sees_the_same() {
    let (folder, held_out) = (tempfile::tempdir().unwrap(), HeldOut::open());
    if !is_here("vulkan") {
        tapml_testing::skip("vulkan", "no adapter");
        return;
    }
    let many = held_out.chats.iter().filter(|chat| HeldOut::count_pictures(chat) == 11).take(2);
    let chats: Vec<&Value> = many.chain(held_out.chats.iter().take(8)).collect();
    let server = serve(folder.path(), &["--target", "vulkan"]);
    let [all, same, right] = held_out.ask_at_once(&server, &chats, 4);
    assert_eq!((all, same), (20, 20));
    assert!(right >= 19, "{right} of {all} are right");
}

#[test]
fn the_emulator_sees_the_same() {
    let (folder, held_out) = (tempfile::tempdir().unwrap(), HeldOut::open());
    let small = held_out.chats.iter().filter(|chat| HeldOut::count_pictures(chat) == 1).take(2);
    let chats: Vec<&Value> = small.collect();
    let server = serve(folder.path(), &["--target", "emulator"]);
    assert_eq!(held_out.ask_at_once(&server, &chats, 2), [4, 4, 4]);
}

/// What a chat answers to these lines.
fn talk(command: &mut Command, lines: &str) -> Vec<String> {
    let output = command.args(["--json", "-"]).write_stdin(lines).assert().success().get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    let turn = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
    text.lines().map(|line| turn(line)["message"]["content"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_chat_is_shown_eleven_pictures_one_after_the_other() {
    let (folder, held_out) = (tempfile::tempdir().unwrap(), HeldOut::open());
    // All pictures of these chats come before the question.
    let first = |chat: &&Value| {
        let parts = chat["turns"][0]["parts"].as_array().unwrap();
        HeldOut::count_pictures(chat) == 11 && parts.len() == 12 && parts[11].is_string()
    };
    let chat = held_out.chats.iter().find(first).unwrap();
    let turns = chat["turns"].as_array().unwrap();
    let names = held_out.write(folder.path(), &turns[0]);
    assert_eq!(names.len(), 11);
    let (early, late) = names.split_at(4);
    let mut lines: String = late.iter().map(|name| format!("/image {name}\n")).collect();
    for turn in turns {
        lines += turn["parts"].as_array().unwrap().last().unwrap().as_str().unwrap();
        lines += "\n";
    }
    lines += "how many images are there?\n";
    for options in [&["--target", "cpu"][..], &["--target", "cpu", "--quantize", "q8"]] {
        let mut command = tapml(folder.path());
        command.args(["chat", &model()]).args(options);
        for name in early {
            command.args(["--image", name]);
        }
        let expected = turns.iter().map(|turn| turn["right"].as_str().unwrap()).chain(["11"]);
        assert_eq!(talk(&mut command, &lines), expected.collect::<Vec<&str>>(), "{options:?}");
    }
}
