//! `tapml chat`: scripted and in a terminal, with the texts of `tapml serve`, and what happens at the edges.
#![allow(clippy::unwrap_used)]

mod common;
#[allow(dead_code, reason = "tests of the server use the rest")]
#[path = "serve/process.rs"]
mod process;

use assert_cmd::Command;
use common::{draft, python, stderr, tapml};
use process::ServeProcess;
use serde_json::{Value, json};
use std::path::Path;

/// A template with words around each message.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

/// Longer than two pages of the cache.
const SYSTEM: &str = "You tell stories to little children. A story is short. It has a happy end, and all of its words are easy.";

/// Runs a program in a terminal: waits for a text, then types another one or sends SIGTERM, and so on; tells the exit code, all that
/// it showed, and whether it left the terminal as it was.
const TERMINAL: &str = r#"
import fcntl, json, os, pty, select, signal, sys, termios, time
# Held open, so that the modes of the terminal can be read when the program has ended.
fd, inner = pty.openpty()
modes = lambda: termios.tcgetattr(inner)
usual = modes()
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(inner, termios.TIOCSCTTY, 0)
    for standard in range(3):
        os.dup2(inner, standard)
    # What runs the tests may ignore it, as a shell does for its background.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
shown, at, end = b"", 0, time.time() + 120
def read():
    global shown
    if select.select([fd], [], [], 0.2)[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            return False
        shown += data
        return bool(data)
    return time.time() < end
for wait, send in json.loads(sys.argv[1]):
    wait = wait.encode()
    while wait not in shown[at:] and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and read():
        pass
    found = shown.find(wait, at)
    if found < 0:
        break
    at = found + len(wait)
    if send == "SIGTERM":
        os.kill(pid, signal.SIGTERM)
    else:
        os.write(fd, send.encode())
ended = 0
while not ended:
    if time.time() >= end:
        os.kill(pid, signal.SIGKILL)
    read()
    ended, status = os.waitpid(pid, os.WNOHANG)
while select.select([fd], [], [], 0)[0]:
    read()
code = os.waitstatus_to_exitcode(status)
print(json.dumps([code, shown.decode(errors="replace"), usual == modes()]))
"#;

fn chat(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = tapml(folder);
    command.args(["chat", &draft(), "--target", "cpu"]).args(arguments);
    command
}

/// The turns of a chat with these lines, which ends with `code`.
fn answers(command: &mut Command, lines: &str, code: i32) -> Vec<Value> {
    let output = command.args(["--json", "-"]).write_stdin(lines).assert().code(code).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(turn: &Value) -> &str {
    turn["message"]["content"].as_str().unwrap_or_else(|| panic!("{turn}"))
}

#[test]
fn a_piped_conversation_is_that_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chat.jinja"), TEMPLATE).unwrap();
    let template = ["--chat-template", "chat.jinja"];
    let mut command =
        chat(folder.path(), &[&template[..], &["--max-tokens", "24", "--system", SYSTEM]].concat());
    let turns = answers(&mut command, "Once upon a time\nWhat then?\\\nSay it.\n\"\"\"\n/end\n\"\"\"\n", 0);
    let server = ServeProcess::start(folder.path(), &[&["--target", "cpu"], &template[..]].concat());
    let mut messages = vec![json!({ "role": "system", "content": SYSTEM })];
    for (turn, question) in turns.iter().zip(["Once upon a time", "What then?\nSay it.", "/end"]) {
        messages.push(json!({ "role": "user", "content": question }));
        let body = json!({ "messages": messages, "max_tokens": 24, "temperature": 0 });
        let (status, answer) = server.post("/v1/chat/completions", "", &body);
        assert_eq!(status, 200, "{answer}");
        let choice = &answer["choices"][0];
        assert_eq!(choice["message"]["content"], turn["message"]["content"]);
        assert_eq!(choice["finish_reason"], turn["finish_reason"]);
        assert_eq!(answer["usage"], turn["usage"]);
        messages.push(turn["message"].clone());
    }
    assert_eq!(turns.len(), 3);
    assert!(!text(&turns[0]).is_empty());
    // What the model has seen is not computed again.
    let cached = |turn: &Value| turn["timings"]["cache_n"].as_u64().unwrap();
    assert_eq!(cached(&turns[0]), 0);
    // Of a last page, and of words that an answer goes on with, there may be new tokens.
    let seen = turns[0]["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(seen > 32 && cached(&turns[1]) + 32 > seen, "{}", turns[1]);
}

#[test]
fn without_a_template_texts_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let command = || chat(folder.path(), &["--max-tokens", "12"]);
    let told = command().write_stdin("Once upon a time\nTom was\n").assert().code(0).get_output().clone();
    let lines = String::from_utf8(told.stdout).unwrap();
    assert!(String::from_utf8(told.stderr).unwrap().contains("--chat-template FILE"));
    let generate = |prompt: &str| {
        let mut command = tapml(folder.path());
        command.args([
            "generate",
            &draft(),
            "--target",
            "cpu",
            "--max-tokens",
            "12",
            "--raw",
            "--prompt",
            prompt,
        ]);
        common::json(&mut command, 0)["text"].as_str().unwrap().to_string()
    };
    let first = generate("Once upon a time");
    let second = generate(&format!("Once upon a time{first}\nTom was"));
    assert_eq!(lines, format!("{first}\n{second}\n"), "standard output has the answers alone");
}

#[test]
fn what_fails_is_told_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let long = "and then ".repeat(400);
    let lines = format!(
        "One day\n{long}\n/exit\n/image nowhere.png\n/set temperature hot\n/set top_k 3\n/save saved.json\n\"\"\"open"
    );
    let turns = answers(&mut chat(folder.path(), &["--max-tokens", "8"]), &lines, 1);
    let errors: Vec<&str> = turns.iter().map(|turn| turn["error"].as_str().unwrap_or_default()).collect();
    for (error, told) in errors.iter().zip([
        "",
        "and the context holds 512; it is not kept",
        "no command `/exit`",
        "nowhere.png",
        "`temperature` is wrong",
        "the input ends within a text",
    ]) {
        assert!(error.contains(told) && error.is_empty() == told.is_empty(), "{error}: {told}");
    }
    assert_eq!(errors.len(), 6);
    let saved = std::fs::read(folder.path().join("saved.json")).unwrap();
    let saved: Value = serde_json::from_slice(&saved).unwrap();
    assert_eq!(saved, json!([{ "role": "user", "content": "One day" }, turns[0]["message"]]));
}

#[test]
fn the_oldest_turns_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "Once upon a time there was a little girl.\n".repeat(6);
    let mut command =
        chat(folder.path(), &["--context", "96", "--max-tokens", "20", "--system", "Tell a story."]);
    let turns = answers(&mut command, &lines, 0);
    let dropped: Vec<u64> = turns.iter().map(|turn| turn["dropped_messages"].as_u64().unwrap()).collect();
    assert!(dropped[..2] == [0, 0] && dropped.iter().sum::<u64>() >= 4, "{dropped:?}");
    for turn in &turns {
        assert!(turn["usage"]["prompt_tokens"].as_u64().unwrap() + 20 <= 96, "{turn}");
        assert!(!text(turn).is_empty() && turn["context_full"] == false, "{turn}");
    }
    // Who reads an answer knows before it what the model was not given.
    std::fs::write(folder.path().join("lines"), &lines).unwrap();
    let mut both = std::process::Command::new("sh");
    both.args([
        "-c",
        "\"$0\" \"$@\" < lines 2>&1",
        env!("CARGO_BIN_EXE_tapml"),
        "chat",
        &draft(),
        "--target",
        "cpu",
    ]);
    both.args(["--context", "96", "--max-tokens", "20", "--system", "Tell a story."]);
    let told = String::from_utf8(both.current_dir(folder.path()).output().unwrap().stdout).unwrap();
    let note = "messages are dropped to make room; the system prompt stays\n";
    let (_, after) = told.split_once(note).unwrap_or_else(|| panic!("{told}"));
    let first = &turns[dropped.iter().position(|&count| count > 0).unwrap()];
    assert!(after.starts_with(text(first)), "{told}");
    let whole = chat(folder.path(), &["--context", "40", "--message", "One day"])
        .assert()
        .code(0)
        .get_output()
        .clone();
    assert!(String::from_utf8(whole.stderr).unwrap().contains("all 40 tokens are in use"));
}

#[test]
fn turns_are_saved_loaded_taken_back_and_said_again() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "One day\nTom\n/undo\n/save a.json\n/regenerate\n/set temperature 0.9\n/regenerate\n/stats\n/quit\nnever\n";
    let first = answers(&mut chat(folder.path(), &["--max-tokens", "16", "--ngram", "3"]), lines, 0);
    assert_eq!(first.len(), 4, "nothing is read behind /quit");
    assert_eq!(text(&first[2]), text(&first[0]), "the likeliest text is one");
    assert_ne!(text(&first[3]), text(&first[0]), "another seed draws another text");
    let loaded = answers(&mut chat(folder.path(), &["--max-tokens", "16"]), "/load a.json\nTom\n", 0);
    assert_eq!(text(&loaded[0]), text(&first[1]), "a conversation goes on where it was saved");
    let mut stats = chat(folder.path(), &["--max-tokens", "16", "--ngram", "3"]);
    let told = stats.write_stdin("/stats\nOne day\n/stats\n/help\n").assert().code(1).get_output().clone();
    let told = String::from_utf8(told.stderr).unwrap();
    for words in [
        "there is no answer yet",
        "in the prefix cache (0 %)",
        "the first after",
        "of 512 tokens",
        "/regenerate",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn a_model_that_sees_is_shown_images() {
    let folder = tempfile::tempdir().unwrap();
    let model = tapml_testing::golden("llava_tiny");
    let (image, path) = (model.join("image.png").display().to_string(), model.display().to_string());
    let mut alone = tapml(folder.path());
    alone.args(["generate", &path, "--target", "cpu", "--max-tokens", "8", "--image", &image]);
    let alone = common::json(alone.args(["--prompt", "what is this"]), 0);
    let mut command = tapml(folder.path());
    command.args(["chat", &path, "--target", "cpu", "--max-tokens", "8"]);
    let turns = answers(&mut command, &format!("/image {image}\nwhat is this\n"), 0);
    assert_eq!(turns[0]["message"]["content"], alone["text"]);
    assert_eq!(turns[0]["usage"]["prompt_tokens"], alone["prompt_ids"].as_array().unwrap().len());
    let refused = stderr(chat(folder.path(), &["--image", &image]).write_stdin(""), 2);
    assert!(refused.contains("takes no images"), "{refused}");
}

#[test]
fn a_chat_that_cannot_begin_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let told = stderr(tapml(folder.path()).args(["chat", "nowhere", "--target", "cpu"]), 2);
    assert!(told.contains("nowhere"), "{told}");
    let told = stderr(tapml(folder.path()).args(["chat", "--target", "cpu"]), 2);
    assert!(told.contains("no model was given") && told.contains("models/llama"), "{told}");
    let told = stderr(&mut chat(folder.path(), &["--temperature", "-1"]), 2);
    assert!(told.contains("`temperature` must be from 0 to 100"), "{told}");
    let told = stderr(&mut chat(folder.path(), &["-m", &"and then ".repeat(400)]), 2);
    assert!(told.contains("the context holds 512"), "{told}");
    // The model of the current folder.
    let mut here = tapml(Path::new(&draft()));
    let said = here.args(["chat", "--target", "cpu", "-m", "One day", "--max-tokens", "4"]).assert().code(0);
    let told = String::from_utf8(said.get_output().stderr.clone()).unwrap();
    assert!(told.contains(". on cpu; `tapml chat MODEL` chooses otherwise"), "{told}");
}

/// What `tapml chat` of the model shows in a terminal, which it leaves as it was, and its exit code.
fn in_terminal(folder: &Path, arguments: &[&str], steps: &[(&str, &str)]) -> (i64, String) {
    let mut command = python::python();
    command.args([
        "-c",
        TERMINAL,
        &serde_json::to_string(steps).unwrap(),
        env!("CARGO_BIN_EXE_tapml"),
        "chat",
    ]);
    command.args(["--target", "cpu"]).args(arguments).current_dir(folder);
    let output = command.env("XDG_DATA_HOME", folder).env("TERM", "xterm").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let (code, shown, restored): (i64, String, bool) =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{told}"));
    assert!(restored, "the terminal has other modes than before: {shown}");
    (code, shown)
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_an_answer_and_not_the_chat() {
    let folder = tempfile::tempdir().unwrap();
    let model = tapml_testing::model("llama").display().to_string();
    let mut command = tapml(folder.path());
    command.args(["chat", &model, "--target", "cpu", "--max-tokens", "3"]);
    let begins = text(&answers(&mut command, "Once upon a time\n", 0)[0]).to_string();
    let steps = [
        ("> ", "cleared\x03"),
        ("> ", "Once upon a time\r"),
        (&begins, "\x03"),
        ("what was said is kept", "/save a.json\r"),
        ("the messages are in a.json", "/nonsense\r"),
        ("there is no command `/nonsense`", "/set max_tokens 2\r"),
        ("max_tokens is 2", "Tom\\\r"),
        ("… ", "went\r"),
        ("the answer ends at max_tokens", ""),
        // Between two prompts the terminal itself would take it for the end of a line.
        ("> ", "\x04"),
    ];
    let (code, shown) = in_terminal(folder.path(), &[&model, "--max-tokens", "450"], &steps);
    assert_eq!(code, 0, "{shown}");
    let saved: Value = serde_json::from_slice(&std::fs::read(folder.path().join("a.json")).unwrap()).unwrap();
    let said = saved[1]["content"].as_str().unwrap_or_else(|| panic!("{saved} {shown}"));
    assert!(said.starts_with(&begins) && saved.as_array().unwrap().len() == 2, "{saved}");
    assert!(shown.contains("what was said is kept") && shown.contains("max_tokens is 2"), "{shown}");
    let history = std::fs::read_to_string(folder.path().join("tapml/chat_history")).unwrap();
    assert!(history.contains("Once upon a time\n") && history.contains("went\n"), "{history}");
}

#[cfg(unix)]
#[test]
fn sigterm_ends_the_chat_and_gives_the_terminal_back() {
    let folder = tempfile::tempdir().unwrap();
    let model = tapml_testing::model("llama").display().to_string();
    let mut command = tapml(folder.path());
    command.args(["chat", &model, "--target", "cpu", "--max-tokens", "3"]);
    let begins = text(&answers(&mut command, "Once upon a time\n", 0)[0]).to_string();
    let during = [("> ", "Once upon a time\r"), (&begins, "SIGTERM")];
    let (code, shown) = in_terminal(folder.path(), &[&model, "--max-tokens", "450"], &during);
    assert!(code == 0 && !shown.contains("what was said is kept"), "{code}: {shown}");
    let (code, shown) = in_terminal(folder.path(), &[&model], &[("> ", "SIGTERM")]);
    assert_eq!(code, 0, "{shown}");
}

#[test]
fn a_draft_model_guesses_and_the_answer_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let model = tapml_testing::model("llama").display().to_string();
    let talk = |more: &[&str]| {
        let mut command = tapml(folder.path());
        command.args(["chat", &model, "--target", "cpu", "--max-tokens", "24"]).args(more);
        command.args(["--json", "turns.jsonl"]).write_stdin("Once upon a time\n/stats\n");
        let told = String::from_utf8(command.assert().code(0).get_output().stderr.clone()).unwrap();
        let turns = std::fs::read_to_string(folder.path().join("turns.jsonl")).unwrap();
        (serde_json::from_str::<Value>(&turns).unwrap(), told)
    };
    let (alone, told) = talk(&[]);
    assert!(!told.contains("guesses:"), "{told}");
    let (guessed, told) = talk(&["--draft", &draft()]);
    assert_eq!(text(&guessed), text(&alone));
    let count = |name: &str| guessed["guesses"][name].as_u64().unwrap();
    let (accepted, compared) = (count("accepted_tokens"), count("compared_tokens"));
    assert!(0 < accepted && accepted <= compared, "{guessed}");
    assert!(told.contains(&format!("guesses: {accepted} of {compared} were right")), "{told}");
}
