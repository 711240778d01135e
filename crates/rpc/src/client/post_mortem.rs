//! An agent's post-mortem as an error: the sentence in the message, everything else in details.

use crate::wire::{PostMortem, Reason};
use tapml_graph::{Error, ErrorKind};

/// The error that a post-mortem stands for. Its details are `kernel`, `file`, `line`, `dispatch`, `running`, `signal` or
/// `exit code`, `memory`, `recent`, `output` and `source`, as far as they are known, and `deadline` if one was missed.
pub fn error(place: &str, report: PostMortem) -> Error {
    let text = format!("{place}: {}", report.summary);
    let mut error = Error::new(ErrorKind::DeviceLost, text).with_hint(hint(report.reason()));
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            error = error.clone().with_detail(name, value);
        }
    };
    if let Some(kernel) = report.kernels.first() {
        add("kernel", kernel.name.clone());
        add("file", kernel.file.clone());
        add("line", if kernel.line > 0 { kernel.line.to_string() } else { String::new() });
        add("dispatch", kernel.label.clone());
    }
    if report.reason() == Reason::Deadline {
        add("deadline", format!("{} ms", report.busy_ms));
    }
    add("running", report.running.clone());
    add("signal", if report.signal > 0 { report.signal.to_string() } else { String::new() });
    add("exit code", report.exit_code.map_or(String::new(), |code| code.to_string()));
    add("busy", format!("{} ms", report.busy_ms));
    add("memory", format!("{} bytes of buffers", report.memory));
    add("recent", report.recent.join("\n"));
    add("output", report.output.clone());
    add("source", report.kernels.first().map_or(String::new(), |k| k.text.clone()));
    error
}

fn hint(reason: Reason) -> &'static str {
    match reason {
        Reason::Deadline => {
            "the option `deadline=SECONDS` allows more, as far as the agent does (--deadline); `trace=on` names the command"
        }
        Reason::Crashed | Reason::Killed => {
            "the agent serves on: run the command again; the option `trace=on` names the command that was running"
        }
        _ => "connect again",
    }
}
