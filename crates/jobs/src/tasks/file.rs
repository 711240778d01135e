//! Tasks as a file has them: a JSON object a line.

use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use tapml_graph::{Error, Result};

/// Most bytes of a file of tasks.
const MOST_BYTES: u64 = 64 << 20;
/// What a line has to be.
const EXPECTED: &str =
    "expected a JSON object with the texts `prompt` and `answer`, and if wanted `kind` and `id`";

/// A prompt and the answer that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its own name; the number of its line if the file gives none.
    pub id: String,
    /// What is asked for, such as `add`; answers are counted by kind.
    pub kind: Option<String>,
    /// What the model is given, as it is.
    pub prompt: String,
    /// What has to follow up to the end of the line, without the spaces around it.
    pub answer: String,
    /// Where it stands: the file, and its line from 1.
    pub place: String,
}

/// A line as it is written. Keys of others may stand beside these.
#[derive(Deserialize)]
struct TaskLine {
    prompt: String,
    answer: String,
    kind: Option<String>,
    id: Option<TaskId>,
}

/// Some files number their tasks.
#[derive(Deserialize)]
#[serde(untagged)]
enum TaskId {
    Text(String),
    Number(u64),
}

/// Reads a file of tasks; lines without text count for nothing.
///
/// # Errors
/// If it cannot be read, a line is no task or has the id of another one, or there is no task. Messages name file and line.
pub fn read_tasks(path: &Path) -> Result<Vec<Task>> {
    let text = tapml_files::read_text(path, MOST_BYTES, "a file of tasks")?;
    parse(&text, &path.display().to_string())
}

fn parse(text: &str, file: &str) -> Result<Vec<Task>> {
    let (mut tasks, mut lines) = (Vec::new(), HashMap::new());
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let task = parse_line(line, format!("{file}, line {}", index + 1), index + 1)?;
        if let Some(first) = lines.insert(task.id.clone(), index + 1) {
            let id = task.id.escape_debug().to_string();
            return Err(Error::invalid(format!("{}: the id `{id}` is that of line {first}", task.place))
                .with_hint("give each task an id of its own, or none of them any"));
        }
        tasks.push(task);
    }
    if tasks.is_empty() {
        let text = format!("{file}: {EXPECTED} on each line, found no line with text");
        return Err(Error::invalid(text).with_hint("docs/guide/tasks.md shows such a file"));
    }
    Ok(tasks)
}

fn parse_line(text: &str, place: String, line: usize) -> Result<Task> {
    let bad = |found: &dyn std::fmt::Display| Error::invalid(format!("{place}: {EXPECTED}: {found}"));
    let read: TaskLine = serde_json::from_str(text).map_err(|error| {
        // A line's own number would be 1 each time.
        let error = error.to_string();
        bad(&error.rsplit_once(" at line ").map_or(error.as_str(), |(what, _)| what))
    })?;
    let answer = read.answer.trim();
    if read.prompt.is_empty() {
        return Err(bad(&"found an empty prompt"));
    }
    if answer.is_empty() || answer.contains(['\n', '\r']) {
        return Err(
            bad(&"found an answer that is not one line of text").with_hint("an answer ends with its line")
        );
    }
    let id = match read.id {
        Some(TaskId::Text(id)) => id,
        Some(TaskId::Number(id)) => id.to_string(),
        None => line.to_string(),
    };
    Ok(Task { id, kind: read.kind, answer: answer.to_string(), prompt: read.prompt, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_tasks() {
        let text = "{\"prompt\": \"2+2=\", \"answer\": \" 4 \"}\n\n{\"id\": 7, \"kind\": \"rev\", \"prompt\": \"ab=\", \"answer\": \"ba\", \"by\": 1}\n";
        let tasks = parse(text, "t").unwrap();
        let (id, kind) = ("1".to_string(), None);
        let place = "t, line 1".to_string();
        assert_eq!(tasks[0], Task { id, kind, prompt: "2+2=".into(), answer: "4".into(), place });
        let second = (tasks[1].id.as_str(), tasks[1].kind.as_deref(), tasks[1].place.as_str());
        assert_eq!(second, ("7", Some("rev"), "t, line 3"));
    }

    #[test]
    fn other_lines_are_errors_that_name_them() {
        let good = "{\"prompt\": \"a\", \"answer\": \"b\", \"id\": \"x\"}";
        for (bad, says) in [
            ("{\"prompt\": \"a\"}", "missing field `answer`"),
            ("{\"prompt\": 1, \"answer\": \"b\"}", "invalid type: integer `1`, expected a string"),
            ("[]", "invalid length 0"),
            ("prompt", "expected"),
            ("{\"prompt\": \"\", \"answer\": \"b\"}", "an empty prompt"),
            ("{\"prompt\": \"a\", \"answer\": \" \"}", "not one line of text"),
            ("{\"prompt\": \"a\", \"answer\": \"b\\nc\"}", "not one line of text"),
            (good, "the id `x` is that of line 1"),
        ] {
            let error = parse(&format!("{good}\n{bad}\n"), "t").unwrap_err().to_string();
            assert!(error.starts_with("t, line 2: ") && error.contains(says), "{bad}: {error}");
        }
        assert!(parse(" \n", "t").unwrap_err().to_string().contains("found no line with text"));
    }
}
