//! What commands print: errors with advice, tables, and JSON to a file or to standard output.
//!
//! Standard output has what was asked for and nothing else; notes, progress and errors go to standard error. Every
//! text passes through [`shown`], which makes signs that command a terminal visible.

use crate::table::ReportTable;
use anyhow::Result;
use clap::builder::{PathBufValueParser, TypedValueParser};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use tapml::{files, platform, shown};

/// Where a report goes as JSON.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct JsonArg {
    /// Write the report as JSON to this file; `-` for standard output
    #[arg(long, value_name = "FILE", value_parser = writable())]
    pub json: Option<PathBuf>,
}

/// A report of work in which connections to devices were lost and opened again.
#[derive(Serialize)]
struct Reconnected<'a, T: Serialize> {
    /// Its fields stand beside the count.
    #[serde(flatten)]
    report: &'a T,
    /// How often.
    reconnects: u64,
}

impl JsonArg {
    /// Whether JSON takes standard output, so that people's text must not.
    /// It does if the file is `-`.
    pub fn on_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    /// The file that the report goes to.
    pub fn file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| *path != Path::new("-"))
    }

    /// Writes the report if it was asked for. A file is written beside its name first and then renamed.
    ///
    /// # Errors
    /// If the report does not serialise, or cannot be written.
    pub fn write(&self, report: &impl Serialize) -> Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        let reconnects = platform::count_reopened();
        let told = match reconnects {
            0 => serde_json::to_string_pretty(report),
            // A report that is a list has no place for it.
            _ => serde_json::to_string_pretty(&Reconnected { report, reconnects })
                .or_else(|_| serde_json::to_string_pretty(report)),
        };
        let mut text = shown::json(&told?);
        text.push('\n');
        if self.on_stdout() {
            std::io::stdout().write_all(text.as_bytes())?;
            return Ok(());
        }
        Ok(files::write(path, text.as_bytes())?)
    }

    /// Prints a person's text: to standard output, or to standard error when JSON goes to standard output.
    pub fn say(&self, text: &str) -> Result<()> {
        let text = shown::report(text, is_styled(self.on_stdout()));
        self.print(&text)
    }

    /// As [`JsonArg::say`] for a text that is asked for as it is, however long its lines are.
    pub fn say_whole(&self, text: &str) -> Result<()> {
        self.print(&shown::whole(text))
    }

    /// Prints a line where people's text belongs.
    fn print(&self, text: &str) -> Result<()> {
        if self.on_stdout() {
            writeln!(std::io::stderr(), "{text}")?;
        } else {
            writeln!(std::io::stdout(), "{text}")?;
        }
        Ok(())
    }
}

/// Reads the name of a file to write, and fails if it could not be written: better now than after long work.
pub fn writable() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        // Standard output is there.
        if path == Path::new("-") { Ok(path) } else { files::expect_writable(&path).map(|()| path) }
    })
}

/// Prints an error, its technical details and what to do about it.
///
/// Failures to write are passed over: there is nowhere left to tell them.
pub fn print_error(error: &anyhow::Error) {
    let mut err = std::io::stderr().lock();
    let clipped = |text: &str| shown::report(&shown::first_lines(text), false);
    let label = console::style("error").red().bold().for_stderr();
    let _ = writeln!(err, "{label}: {}", clipped(&format!("{error:#}")));
    // Details and advice belong to TapML's own errors.
    let Some(inner) = error.downcast_ref::<tapml::Error>() else { return };
    let line = inner.detail("line").and_then(|line| line.parse().ok());
    for (name, value) in inner.details() {
        let (name, value) = (clipped(name), clipped(value));
        // Only a kernel's text may be long: its lines around the fault are enough.
        let value = if name == "source" { excerpt(&value, line) } else { value };
        if value.contains('\n') {
            let _ = writeln!(err, "  {name}:");
            value.lines().for_each(|line| drop(writeln!(err, "    {line}")));
        } else {
            drop(writeln!(err, "  {name}: {value}"))
        }
    }
    if let Some(hint) = inner.hint() {
        let _ = writeln!(err, "{}: {}", console::style("hint").cyan().bold().for_stderr(), clipped(hint));
    }
}

/// Lines shown on each side of the one that matters.
const AROUND: usize = 5;

/// The lines of a kernel around the one of a fault, or around its beginning if nobody knows which, with their numbers.
fn excerpt(text: &str, line: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // Such a text is shown as a whole.
    if lines.len() <= 2 * AROUND {
        return text.into();
    }
    let known = line.filter(|line| (1..=lines.len()).contains(line));
    // Where no line is known, the entry point is what a reader looks for.
    let begins = || lines.iter().position(|line| line.contains("@compute")).map_or(1, |at| at + 1);
    let at = known.unwrap_or_else(begins);
    let shown = at.saturating_sub(AROUND).max(1)..=(at + AROUND).min(lines.len());
    let mark = |n: usize| if known == Some(n) { '>' } else { ' ' };
    let rows = shown.map(|n| format!("{}{n:5} | {}\n", mark(n), lines[n - 1]));
    format!("{}({} lines in all)", rows.collect::<String>(), lines.len())
}

/// Whether the reader of our output went away, which is no failure (`tapml … | head`).
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| {
        e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// A borderless table with a header.
pub fn table(header: &[&str]) -> ReportTable {
    ReportTable::new(header)
}

/// A byte count for people: `21.3 MB`.
/// Units are powers of 1000.
pub fn bytes(count: u64) -> String {
    indicatif::DecimalBytes(count).to_string()
}

/// A labelled line on standard error.
pub fn note(label: &str, text: &str) {
    let label = console::style(shown::report(label, false)).yellow().bold().for_stderr();
    let _ = writeln!(std::io::stderr(), "{label}: {}", shown::report(&shown::first_lines(text), false));
}

/// Prints at once, to standard error where that is asked for. The text is given as it is.
pub fn print_at_once(stderr: bool, text: &str) -> std::io::Result<()> {
    if stderr {
        std::io::stderr().write_all(text.as_bytes()).and_then(|()| std::io::stderr().flush())
    } else {
        std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush())
    }
}

/// Whether standard output, or standard error, is a terminal.
pub fn is_terminal(stderr: bool) -> bool {
    if stderr { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() }
}

/// Whether it is one that shows styles.
pub fn is_styled(stderr: bool) -> bool {
    is_terminal(stderr) && if stderr { console::colors_enabled_stderr() } else { console::colors_enabled() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_source_is_shown_around_its_fault() {
        let text: String =
            (1..=185).map(|n| if n == 40 { "@compute\n".into() } else { format!("line {n}\n") }).collect();
        let shown = excerpt(&text, Some(100));
        assert!(
            shown.contains(">  100 | line 100\n") && shown.contains("   95 | ") && shown.contains("  105 | ")
        );
        assert_eq!(shown.lines().count(), 12, "{shown}");
        assert!(shown.ends_with("(185 lines in all)"));
        let unknown = excerpt(&text, None);
        assert!(unknown.contains("   40 | @compute") && !unknown.contains('>'), "{unknown}");
        assert_eq!(excerpt(&text, Some(1)).lines().count(), 7);
        assert_eq!(excerpt(&text, Some(185)).lines().count(), 7);
        assert_eq!(excerpt("one\ntwo", Some(2)), "one\ntwo");
    }
}
