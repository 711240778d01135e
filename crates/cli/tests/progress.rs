//! Commands that take long show progress on a terminal, and nowhere else.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, tapml};
use std::path::Path;
use std::process::Command;

/// Commands with the stage that they must show.
fn commands(folder: &Path) -> Vec<(Vec<String>, &'static str)> {
    let all = std::fs::read_to_string(tapml_testing::root().join("docs/data/models.tsv")).unwrap();
    let list = folder.join("models.tsv");
    let lines: Vec<&str> = all.lines().filter(|line| !line.starts_with('#')).take(3).collect();
    std::fs::write(&list, lines.join("\n")).unwrap();
    let prompts = common::prompts(folder).display().to_string();
    let words = |text: &str| -> Vec<String> {
        let named = |word: &str| match word {
            "MODEL" => draft(),
            "LIST" => list.display().to_string(),
            "PROMPTS" => prompts.clone(),
            word => word.to_string(),
        };
        text.split(' ').map(named).collect()
    };
    [
        ("generate MODEL --target cpu --prompt Once --max-tokens 2", "read the model"),
        ("logits MODEL --ids 1,2,3 --out logits.safetensors", "run the model"),
        ("quantize MODEL --out small", "quantise the weights"),
        ("eval MODEL --quantize q4 --tokens 40 --window 20", "compare"),
        (
            "bench decode MODEL --target cpu --prompt-tokens 4 --tokens 2 --prefill 0 --runs 1",
            "measure on cpu",
        ),
        ("compile --dry-run --list LIST --target vulkan", "plan models"),
        ("carve MODEL --steps 1 --prompts PROMPTS --out draft.suite", "carve"),
        ("check draft.suite --target emulator", "read the suite"),
        ("doctor cpu emulator", "emulator"),
        ("device check emulator --ops", "rms_norm"),
    ]
    .map(|(text, stage)| (words(text), stage))
    .to_vec()
}

/// What a command shows on a terminal of its own.
fn on_terminal(folder: &Path, arguments: &[String], more: &str) -> String {
    let quoted: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("'{}' {} {more}", env!("CARGO_BIN_EXE_tapml"), quoted.join(" "));
    let mut script = Command::new("script");
    // Without it a terminal is taken for one that cannot draw.
    script.env("TERM", "xterm");
    let output = script.args(["-qec", &line, "/dev/null"]).current_dir(folder).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a bar was drawn.
fn has_spinner(text: &str) -> bool {
    ["⠁", "⠉", "⠙", "⠚", "⠒", "⠂"].iter().any(|sign| text.contains(sign))
}

#[test]
fn progress_is_shown_on_a_terminal_unless_it_is_unwanted() {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        tapml_testing::skip("script", "util-linux's `script` gives a command a terminal");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Each run finds what the one before has written.
    let clear = || ["small", "draft.suite"].map(|name| std::fs::remove_dir_all(folder.path().join(name)));
    for (arguments, stage) in commands(folder.path()) {
        let is_check = arguments[0] == "check";
        let clear = || if is_check { None } else { Some(clear()) };
        let text = on_terminal(folder.path(), &arguments, "");
        assert!(text.contains(stage) && has_spinner(&text), "{arguments:?}: {text}");
        assert!(!text.contains("error: "), "{arguments:?}: {text}");
        clear();
        let text = on_terminal(folder.path(), &arguments, "--quiet --json quiet.json");
        assert!(!has_spinner(&text), "{arguments:?}: {text}");
        clear();
        let mut command = tapml(folder.path());
        let output = command.args(&arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!text.contains('\r') && !text.contains('\u{1b}'), "{arguments:?}: {text:?}");
    }
}
