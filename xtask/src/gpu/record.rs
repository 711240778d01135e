//! The file of a run: one record for each step, written whole after each of them.

use super::numbers::{Numbers, RunDevice};
use crate::packed::read_text;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of the file's fields.
pub const SCHEMA: u32 = 1;

/// All that was run against one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub schema: u32,
    /// Of the first step, UTC: `2026-01-31`.
    pub date: String,
    pub commit: String,
    /// What `tapml --version` says.
    pub version: String,
    /// The device string.
    pub target: String,
    pub device: RunDevice,
    pub machine: Machine,
    /// Whether only the short plan was run.
    pub quick: bool,
    /// Whether every step of the plan has ended or cannot run on this device.
    pub complete: bool,
    pub steps: Vec<Record>,
}

/// The machine that the device is in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub system: String,
    pub processors: usize,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub command: String,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Numbers>,
    /// Why it failed, or why it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Passed,
    Failed,
    TimedOut,
    /// The device lacks what it needs.
    Skipped,
    /// Not chosen, or no time was left, or the run was stopped.
    NotRun,
    /// It was running when the file was written.
    Running,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Failed => "failed",
            Status::TimedOut => "timed out",
            Status::Skipped => "skipped",
            Status::NotRun => "not run",
            Status::Running => "running",
        }
    }

    pub fn is_failure(self) -> bool {
        matches!(self, Status::Failed | Status::TimedOut)
    }

    /// Whether a run that goes on need not run it again.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Passed | Status::Failed)
    }
}

impl Record {
    pub fn new(name: &str, command: &str, status: Status, reason: Option<String>) -> Record {
        Record {
            name: name.into(),
            command: command.into(),
            status,
            exit_code: None,
            seconds: None,
            ended: None,
            numbers: None,
            reason,
        }
    }
}

impl Machine {
    pub fn current() -> Machine {
        Machine {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl Run {
    /// Reads a file. Fails if it is not of this schema.
    pub fn read(path: &Path) -> Result<Run> {
        let text = read_text(path).with_context(|| path.display().to_string())?;
        let what = || format!("{} is no record of a run on a GPU", path.display());
        let run: Run = serde_json::from_str(&text).with_context(what)?;
        if run.schema != SCHEMA {
            bail!("{}: schema {}, expected {SCHEMA}", path.display(), run.schema);
        }
        Ok(run)
    }

    /// Writes the file beside its name and renames it: whoever reads it, at any time, finds a whole one.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = self.text()?;
        let mut name = path.file_name().context("the output needs a file name")?.to_os_string();
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        std::fs::write(&temporary, text)
            .with_context(|| format!("could not write {}", temporary.display()))?;
        std::fs::rename(&temporary, path).with_context(|| format!("could not write {}", path.display()))
    }

    /// The file: a line for each field and for each step, so that a step that changed is a line that changed.
    fn text(&self) -> Result<String> {
        let serde_json::Value::Object(fields) = serde_json::to_value(self)? else {
            bail!("a run is an object");
        };
        let lines = fields.iter().map(|(name, value)| match value {
            serde_json::Value::Array(items) if !items.is_empty() => {
                let items: Vec<String> = items.iter().map(|item| format!("    {item}")).collect();
                format!("  {name:?}: [\n{}\n  ]", items.join(",\n"))
            }
            value => format!("  {name:?}: {value}"),
        });
        Ok(format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n")))
    }

    /// Puts a record in the place of the one of the same name, or at the end.
    pub fn put(&mut self, record: Record) {
        match self.steps.iter_mut().find(|old| old.name == record.name) {
            Some(old) => *old = record,
            None => self.steps.push(record),
        }
    }

    /// Puts the steps into the order of these names, behind those that are not among them.
    pub fn order<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let names: Vec<&str> = names.collect();
        self.steps.sort_by_key(|record| names.iter().position(|name| *name == record.name));
    }

    pub fn find(&self, name: &str) -> Option<&Record> {
        self.steps.iter().find(|record| record.name == name)
    }

    pub fn count(&self, status: Status) -> usize {
        self.steps.iter().filter(|record| record.status == status).count()
    }

    /// What keeps this run from going on in the file of `old`.
    pub fn differs_from(&self, old: &Run) -> Option<String> {
        let own = [
            ("commit", &self.commit, &old.commit),
            ("version", &self.version, &old.version),
            ("target", &self.target, &old.target),
            ("device", &self.device.name, &old.device.name),
            ("driver", &self.device.driver, &old.device.driver),
        ];
        let differs = own.into_iter().find(|(_, new, old)| new != old)?;
        Some(format!("its {} is `{}`, this run's is `{}`", differs.0, differs.2, differs.1))
    }
}

/// Now, in UTC: `2026-01-31T12:00:00Z`.
pub fn utc_now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    timestamp(seconds)
}

/// The time so many seconds after 1970 began, by the civil calendar (H. Hinnant, `civil_from_days`).
fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        // From `date -u -d TEXT +%s`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
    }
}
