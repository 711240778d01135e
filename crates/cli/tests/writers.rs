//! Several processes that write to one place, and what killed ones left there.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Agent, draft, prompts, stops, tapml};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn start(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapml"));
    command.args(arguments).current_dir(folder).env("TMPDIR", folder);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a command several times at once; exactly one may succeed, and the others must say why they did not.
fn one_of(count: usize, folder: &Path, arguments: &[&str]) {
    let all: Vec<Child> = (0..count).map(|_| start(folder, arguments)).collect();
    let all: Vec<Output> = all.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let (done, refused): (Vec<&Output>, Vec<&Output>) = all.iter().partition(|o| o.status.success());
    assert_eq!(done.len(), 1, "{all:?}");
    for output in refused {
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let says = ["another process is writing", "exists already", "holds a model already"];
        assert!(says.iter().any(|s| text.contains(s)), "{text}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_quantised_checkpoint_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let quantize =
        |out: &'static str| ["quantize", &draft(), "--scheme", "q4", "--out", out].map(String::from);
    let (alone, shared) = (quantize("alone"), quantize("shared"));
    tapml(folder.path()).args(&alone).assert().success();
    one_of(4, folder.path(), &shared.each_ref().map(String::as_str));
    assert_eq!(names(folder.path()), ["alone", "shared"]);
    let files = names(&folder.path().join("alone"));
    assert_eq!(files, names(&folder.path().join("shared")));
    for file in files {
        let read = |place: &str| std::fs::read(folder.path().join(place).join(&file)).unwrap();
        assert!(read("alone") == read("shared"), "{file}");
    }
}

#[test]
fn a_suite_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let (model, prompts) = (draft(), prompts(folder.path()));
    let prompts = prompts.display().to_string();
    let carve = ["carve", &model, "--steps", "1", "--prompts", &prompts, "--out", "a.suite"];
    one_of(3, folder.path(), &carve);
    assert_eq!(names(folder.path()), ["a.suite", "prompts.txt"]);
    tapml(folder.path()).args(["check", "a.suite", "--target", "cpu", "--op", "rms_norm"]).assert().success();
}

#[test]
fn reports_that_cannot_be_written_are_refused_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    for report in ["no/such/folder.json", "."] {
        let output = start(folder.path(), &["quantize", &draft(), "--out", "q4", "--json", report]);
        let output = output.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("--json") && !folder.path().join("q4").exists(), "{text}");
    }
}

#[test]
fn what_killed_processes_left_is_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let (model, prompts) = (draft(), prompts(folder.path()));
    let prompts = prompts.display().to_string();
    let carve = ["carve", &model, "--prompts", &prompts, "--out", "a.suite"];
    let partial = folder.path().join(".a.suite.partial");
    let writing = || {
        let mut child = start(folder.path(), &[&carve[..], &["--steps", "200"]].concat());
        while !partial.exists() {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before it began to write");
            std::thread::sleep(Duration::from_millis(2));
        }
        child
    };
    stops(writing(), Duration::from_millis(3500));
    assert_eq!(names(folder.path()), ["prompts.txt"]);
    let mut killed = writing();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(partial.exists());
    let done = start(folder.path(), &[&carve[..], &["--steps", "1"]].concat());
    assert!(done.wait_with_output().unwrap().status.success());
    assert_eq!(names(folder.path()), ["a.suite", "prompts.txt"]);
}

#[test]
fn folders_of_killed_agents_are_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let serve = || Agent::start_in(folder.path(), &["--target", "emulator"], temporary.path());
    let kept = serve();
    for _ in 0..2 {
        drop(serve());
    }
    assert_eq!(names(temporary.path()).len(), 2, "the second cleared what the first left");
    let last = serve();
    assert_eq!(names(temporary.path()).len(), 2, "those of the living");
    drop((kept, last));
}
