//! `tapml device reports`: the files that pages of `tapml compile --out` save when they check the device that they run on.

use super::super::check::details;
use crate::Outcome;
use crate::output::{JsonArg, table};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tapml::Error;
use tapml::migrate::ratio_text;
use tapml::migrate::report::{CheckReport, OpCheck};

/// The largest file that is read, in bytes. A report has some lines for each operator.
const MAX_FILE: u64 = 16 << 20;
/// The form that is read.
const SCHEMA: u32 = 1;

/// A report with what a page says of its browser.
#[derive(Deserialize)]
struct SentReport {
    #[serde(flatten)]
    check: CheckReport,
    browser: BrowserFacts,
}

/// What a page says of its browser and of its site.
#[derive(Deserialize, Serialize)]
struct BrowserFacts {
    /// The text by which the browser names itself to servers.
    agent: String,
    /// The release that compiled the site.
    tapml: String,
    model: String,
    /// SHA-256 of the program whose kernels ran.
    sha256: String,
    f16: bool,
}

/// A line of the table.
#[derive(Serialize)]
struct SentLine {
    file: String,
    device: String,
    driver: String,
    #[serde(flatten)]
    browser: BrowserFacts,
    cases: u64,
    failed: u64,
    /// Kernel rows that no call ran.
    skipped: usize,
    /// Observed over allowed error of the worst call.
    worst: f64,
    passed: bool,
    /// Operators with a wrong call.
    wrong: Vec<String>,
}

/// What is written as JSON.
#[derive(Serialize)]
struct SentReports {
    schema: u32,
    reports: Vec<SentLine>,
}

/// Shows a line for each file and what is wrong; exit code 1 tells of a wrong call.
///
/// # Errors
/// If a file is no such report.
pub(super) fn show(files: &[PathBuf], json: &JsonArg) -> Result<Outcome> {
    let mut rows = table(&["", "DEVICE", "BROWSER", "MODEL", "CASES", "FAILED", "WORST", "FILE"])
        .with_optional(&["BROWSER", "FILE"]);
    let (mut lines, mut more) = (Vec::new(), String::new());
    for file in files {
        let sent = read(file)?;
        for op in sent.check.ops.iter().filter(|op| !op.passes()) {
            more += &format!("\n\n{}: {}", sent.check.target.device, details(op).trim_start());
        }
        let line = SentLine::from_report(file, sent);
        rows.add_row([
            if line.passed { "ok" } else { "FAILED" }.to_string(),
            line.device.clone(),
            line.driver.clone(),
            line.browser.model.clone(),
            line.cases.to_string(),
            line.failed.to_string(),
            ratio_text(line.worst),
            line.file.clone(),
        ]);
        lines.push(line);
    }
    let failed = lines.iter().filter(|line| !line.passed).count();
    json.say(&format!("{rows}{more}\n\n{} reports, {failed} with wrong calls", lines.len()))?;
    json.write(&SentReports { schema: 1, reports: lines })?;
    Ok(if failed == 0 { Outcome::Holds } else { Outcome::Fails })
}

impl SentLine {
    fn from_report(file: &Path, SentReport { check, browser }: SentReport) -> SentLine {
        let worst = check.ops.iter().filter_map(|op| op.worst.as_ref()).map(|worst| worst.ratio);
        let wrong = check.ops.iter().filter(|op| !op.passes());
        SentLine {
            file: file.display().to_string(),
            cases: check.cases,
            failed: check.failed,
            skipped: check.skipped.len(),
            worst: worst.fold(0.0, f64::max),
            passed: check.cases > 0 && check.failed == 0 && check.ops.iter().all(OpCheck::passes),
            wrong: wrong.map(|op| op.op.clone()).collect(),
            device: check.target.device,
            driver: check.target.driver,
            browser,
        }
    }
}

/// Reads a file that somebody sent.
fn read(file: &Path) -> Result<SentReport> {
    let bytes = tapml::files::read(file, MAX_FILE, "a report")?;
    let hint = "a page of `tapml compile --out` saves it behind its button \"Check this device\"";
    let bad = |what: &dyn std::fmt::Display| {
        Error::invalid(format!("{} is no report of a page: {what}", file.display())).with_hint(hint)
    };
    let mut value: Value = serde_json::from_slice(&bytes).map_err(|e| bad(&e))?;
    escape_controls(&mut value);
    let found = SentReport::deserialize(value).map_err(|e| bad(&e))?;
    if found.check.schema != SCHEMA {
        let text = format!("schema {} of a report is unknown, expected {SCHEMA}", found.check.schema);
        return Err(Error::unsupported(text).context(file.display().to_string()).into());
    }
    Ok(found)
}

/// Escapes control characters of all texts but ends of lines: they are of strangers, and a terminal does what they say.
fn escape_controls(value: &mut Value) {
    let is_control = |c: char| c.is_control() && c != '\n';
    match value {
        Value::String(text) if text.contains(is_control) => {
            let escape = |c: char| if is_control(c) { c.escape_default().to_string() } else { c.to_string() };
            *text = text.chars().map(escape).collect();
        }
        Value::Array(values) => values.iter_mut().for_each(escape_controls),
        Value::Object(fields) => fields.values_mut().for_each(escape_controls),
        _ => {}
    }
}
