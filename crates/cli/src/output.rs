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
    for (name, value) in inner.details() {
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
