//! `tapml eval --tasks`: files of tasks, and tasks solved in several ways side by side.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, json, stderr, tapml};
use serde_json::{Value, json as value};

/// The paths of the bundled model of tasks and of its tasks.
fn task_paths() -> [String; 2] {
    let model = tapml_testing::model("llama_tasks");
    let tasks = model.join("tasks.jsonl");
    [model, tasks].map(|path| path.display().to_string())
}

/// The answers of a row.
fn answers(row: &Value) -> Vec<&str> {
    row["answers"].as_array().unwrap().iter().map(|answer| answer["answer"].as_str().unwrap()).collect()
}

#[test]
fn each_way_answers_as_the_reference_does() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = ["The old man", "It was a dark", "She looked at", "Upon the sea", "He said to her"];
    let line =
        |prompt: &&str| value!({"prompt": prompt, "answer": "house", "kind": &prompt[..2]}).to_string();
    let lines: Vec<String> = prompts.iter().map(line).collect();
    std::fs::write(folder.path().join("t.jsonl"), lines.join("\n")).unwrap();
    let model = draft();
    let rows = ["--target emulator", "--ngram 3", &format!("--draft {model}"), "--quantize q4"];
    let rows = rows.map(|row| ["--row", row]);
    let args = [&["eval", &model, "--tasks", "t.jsonl"], rows.as_flattened()].concat();
    let found = json(tapml(folder.path()).args(args), 0);
    let rows = found["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &found["spread"], &found["passed"]), (5, &0.into(), &true.into()), "{found}");
    for row in &rows[1..4] {
        assert_eq!(answers(&rows[0]), answers(row));
        assert!(row["comparison"]["kl"].as_f64().unwrap() < 1e-6, "{row}");
    }
    assert_eq!(rows[1]["device"]["platform"], "emulator");
    assert!(rows[3]["accepted_tokens"].as_u64() > Some(0), "nothing was guessed");
    assert!(rows[4]["comparison"]["kl"].as_f64() > Some(0.0));
    let kinds: Vec<&str> =
        rows[0]["kinds"].as_array().unwrap().iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Th", "It", "Sh", "Up", "He"]);
    for row in rows {
        let limit = if row["quantize"].is_null() { 1.0 } else { 3.0 };
        assert_eq!((&row["tasks"], &row["limit"]), (&5.into(), &limit.into()));
    }
}

#[test]
fn the_bundled_tasks_are_solved_as_well_with_fewer_bits_and_with_guesses() {
    let folder = tempfile::tempdir().unwrap();
    let [model, tasks] = task_paths();
    let rows = ["--activation f16", "--quantize q8", "--quantize q4", "--ngram 3"].map(|row| ["--row", row]);
    let args = [&["eval", &model, "--tasks", &tasks], rows.as_flattened()].concat();
    let found = json(tapml(folder.path()).args(args), 0);
    assert_eq!((&found["count"], &found["passed"]), (&Value::from(164), &Value::from(true)), "{found}");
    let rows = found["rows"].as_array().unwrap();
    let counts = || rows.iter().map(|row| row["solved"].as_u64().unwrap());
    assert_eq!(found["spread"].as_u64(), Some(counts().max().unwrap() - counts().min().unwrap()));
    let solved = rows[0]["solved"].as_u64().unwrap();
    assert!((66..=115).contains(&solved), "40 to 70 % of 164 are to be solved, found {solved}");
    for row in rows {
        assert_eq!(row["tasks"], 164);
        assert!(row["distance"].as_f64().unwrap() <= row["limit"].as_f64().unwrap(), "{row}");
        let of_kinds: u64 =
            row["kinds"].as_array().unwrap().iter().map(|kind| kind["solved"].as_u64().unwrap()).sum();
        assert_eq!(row["solved"], of_kinds);
    }
    assert_eq!(answers(&rows[0]), answers(&rows[4]), "guesses change no answer");
    assert!(rows[4]["compared_tokens"].as_u64() > Some(0), "nothing was guessed");
    assert_eq!(rows[0]["comparison"]["kl"], 0.0);
    assert_eq!(rows[4]["comparison"], rows[0]["comparison"]);
    let kl = |row: usize| rows[row]["comparison"]["kl"].as_f64().unwrap();
    assert!(0.0 < kl(1) && kl(1) < kl(2) && kl(2) < kl(3), "{} {} {}", kl(1), kl(2), kl(3));
}

#[test]
fn a_way_that_lies_far_from_the_median_fails() {
    let folder = tempfile::tempdir().unwrap();
    let [model, tasks] = task_paths();
    // Scales of powers of two cost this model more than three tasks.
    let rows = ["--row", "--ngram 2", "--row", "--quantize mxfp4"];
    let args = [&["eval", &model, "--tasks", &tasks, "--json", "out.json"], &rows[..]].concat();
    let output = tapml(folder.path()).args(args).assert().code(1).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("too far from the median lies row 3") && text.contains("ngram 2: "), "{text}");
    assert!(text.lines().any(|line| line.split_whitespace().eq(["KIND", "TASKS", "1", "2", "3"])), "{text}");
    let report = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["passed"], &report["rows"][2]["limit"]), (&Value::from(false), &Value::from(3.0)));
}

#[test]
fn files_that_hold_no_tasks_are_refused_with_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let refuses = |content: &str, says: &[&str]| {
        std::fs::write(folder.path().join("tasks.jsonl"), content).unwrap();
        let text = stderr(tapml(folder.path()).args(["eval", &draft(), "--tasks", "tasks.jsonl"]), 2);
        says.iter().for_each(|says| assert!(text.contains(says), "{says}: {text}"));
    };
    let good = "{\"prompt\": \"The old\", \"answer\": \"man\"}\n";
    refuses("", &["tasks.jsonl", "found no line with text"]);
    refuses("\n \n", &["tasks.jsonl", "found no line with text"]);
    let expected = "expected a JSON object with the texts `prompt` and `answer`";
    refuses(&format!("{good}\nThe old man\n"), &["tasks.jsonl", "line 3", expected]);
    refuses(
        &format!("{good}{{\"prompt\": \"The\"}}\n"),
        &["tasks.jsonl", "line 2", "missing field `answer`"],
    );
    refuses(&format!("{good}{{\"prompt\": \"The\", \"answer\": [1]}}"), &["line 2", "expected a string"]);
    let long = "The old man looked at it. ".repeat(100);
    refuses(
        &format!("{good}{{\"prompt\": \"{long}\", \"answer\": \"yes\"}}\n"),
        &["tasks.jsonl", "line 2", "tokens", "the model takes 1 to 512"],
    );
    let missing = stderr(tapml(folder.path()).args(["eval", &draft(), "--tasks", "other.jsonl"]), 2);
    assert!(missing.contains("other.jsonl"), "{missing}");
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.jsonl"), "{\"prompt\": \"The old\", \"answer\": \"man\"}\n")
        .unwrap();
    let refuses = |more: &[&str], says: &str| {
        let model = draft();
        let text = stderr(tapml(folder.path()).args([&["eval", &model], more].concat()), 2);
        assert!(text.contains(says), "{says}: {text}");
    };
    refuses(&["--ngram", "3"], "add `--tasks FILE.jsonl`");
    refuses(&["--row", "--ngram 3"], "--tasks <FILE.jsonl>");
    refuses(&["--tasks", "t.jsonl", "--text", "t.jsonl"], "cannot be used with");
    refuses(&["--tasks", "t.jsonl", "--row", "--quantise q4"], "unexpected argument '--quantise' found");
    refuses(&["--tasks", "t.jsonl", "--row", "--quantize q3"], "unknown quantisation `q3`");
    refuses(&["--tasks", "t.jsonl", "--row", "--target nowhere"], "nowhere");
}
