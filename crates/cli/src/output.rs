//! What commands print: errors with advice, tables, and JSON to a file or to standard output.

use anyhow::{Context, Result};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where a report goes as JSON.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct JsonArg {
    /// Write the report as JSON to this file; `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl JsonArg {
    /// Whether JSON takes standard output, so that people's text must not.
    pub fn on_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    /// Writes the report if it was asked for. A file is written beside its name first and then renamed.
    pub fn write(&self, report: &impl Serialize) -> Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        let mut text = serde_json::to_string_pretty(report)?;
        text.push('\n');
        if self.on_stdout() {
            std::io::stdout().write_all(text.as_bytes())?;
            return Ok(());
        }
        write_file(path, text.as_bytes())
    }

    /// Prints a person's text: to standard output, or to standard error when JSON goes to standard output.
    pub fn say(&self, text: &str) -> Result<()> {
        if self.on_stdout() {
            writeln!(std::io::stderr(), "{text}")?;
        } else {
            writeln!(std::io::stdout(), "{text}")?;
        }
        Ok(())
    }
}

/// Writes a file whole or not at all. What is no regular file, such as a pipe or a device, is written through.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return std::fs::write(path, bytes).with_context(|| format!("could not write {}", path.display()));
    }
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    std::fs::write(&temporary, bytes).with_context(|| format!("could not write {}", temporary.display()))?;
    std::fs::rename(&temporary, path).with_context(|| format!("could not write {}", path.display()))
}

/// Fails early if a file that is written after long work could not be written.
pub fn expect_writable(path: Option<&Path>) -> Result<()> {
    let Some(path) = path.filter(|p| *p != Path::new("-") && !p.exists()) else { return Ok(()) };
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    let probe = path.with_file_name(name);
    std::fs::write(&probe, []).with_context(|| format!("could not write {}", path.display()))?;
    std::fs::remove_file(&probe).with_context(|| format!("could not remove {}", probe.display()))
}

/// Prints an error, its technical details and what to do about it.
pub fn print_error(error: &anyhow::Error) {
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "{}: {error:#}", console::style("error").red().bold().for_stderr());
    let Some(inner) = error.downcast_ref::<tapml::Error>() else { return };
    let line = inner.detail("line").and_then(|line| line.parse().ok());
    for (name, value) in inner.details() {
        let value = &if name == "source" { excerpt(value, line) } else { value.clone() };
        match value.contains('\n') {
            true => {
                let _ = writeln!(err, "  {name}:");
                value.lines().for_each(|line| drop(writeln!(err, "    {line}")));
            }
            false => drop(writeln!(err, "  {name}: {value}")),
        }
    }
    if let Some(hint) = inner.hint() {
        let _ = writeln!(err, "{}: {hint}", console::style("hint").cyan().bold().for_stderr());
    }
}

/// Lines shown on each side of the one that matters.
const AROUND: usize = 5;

/// The lines of a kernel around the one of a fault, or around its beginning if nobody knows which, with their numbers.
fn excerpt(text: &str, line: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= 2 * AROUND {
        return text.into();
    }
    let known = line.filter(|line| (1..=lines.len()).contains(line));
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
pub fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    let bold = |h: &&str| comfy_table::Cell::new(h).add_attribute(comfy_table::Attribute::Bold);
    table.set_header(header.iter().map(bold));
    table
}

/// A byte count for people: `21.3 MB`.
pub fn bytes(count: u64) -> String {
    indicatif::DecimalBytes(count).to_string()
}

/// A labelled line on standard error.
pub fn note(label: &str, text: &str) {
    let _ = writeln!(std::io::stderr(), "{}: {text}", console::style(label).yellow().bold().for_stderr());
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
