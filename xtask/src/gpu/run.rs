//! Runs the steps of a plan one after the other; each leaves a record in the file.

use super::Tapml;
use super::extract;
use super::numbers::RunDevice;
use super::plan::{Need, SCRATCH, Step};
use super::record::{Record, Run, Status, utc_now};
use crate::process::{self, Cause, Ended, Stop};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Seconds that must be left for a step to begin.
const LEAST: f64 = 3.0;
/// Lines and characters of a step's output that a record keeps as its error.
const ERROR_LINES: usize = 30;
const ERROR_CHARACTERS: usize = 3000;

pub struct PlanRunner<'a> {
    pub tapml: &'a Tapml,
    /// A folder for reports and logs.
    pub scratch: &'a Path,
    pub stop: &'a Stop,
    /// When the run began, and the seconds that it may take.
    pub until: Option<(Instant, f64)>,
    /// Whether steps are run that the file has already.
    pub again: bool,
}

/// The device, and the record of the step that told it.
pub struct Identified {
    pub device: RunDevice,
    pub record: Record,
}

impl PlanRunner<'_> {
    /// Asks which device this is. Fails if it cannot be opened: there is nothing to run then.
    pub fn identify(&self, step: &Step) -> Result<Identified> {
        println!("{}: {}", step.name, step.shown);
        let record = self.step(step)?;
        let report = std::fs::read_to_string(self.report(step)).unwrap_or_default();
        if report.is_empty() {
            bail!(
                "the device cannot be used: {}",
                record.reason.unwrap_or_else(|| record.status.name().into())
            );
        }
        let device = extract::device(&report).context("the device's report")?;
        println!("  {} ({}, {})", device.name, device.driver, device.kind);
        say(&record);
        Ok(Identified { device, record })
    }

    /// Runs all steps that are chosen, writing the file before and after each. Whether none failed.
    pub fn run_all(&self, mut run: Run, steps: &[(Step, bool)], out: &Path) -> Result<bool> {
        for (step, chosen) in steps {
            if self.keeps(&run, step, *chosen) {
                continue;
            }
            let (status, reason) = match (self.lacks(&run.device, step), chosen) {
                (Some(reason), _) => (Status::Skipped, reason),
                (None, false) => (Status::NotRun, "not chosen by --only".to_string()),
                (None, true) => (Status::NotRun, "its turn has not come".to_string()),
            };
            run.put(Record::new(&step.name, &step.shown, status, Some(reason)));
        }
        run.order(steps.iter().map(|(step, _)| step.name.as_str()));
        run.complete = false;
        run.write(out)?;
        for (i, (step, _)) in steps.iter().enumerate().filter(|(_, (_, chosen))| *chosen) {
            let place = format!("[{}/{}] {}", i + 1, steps.len(), step.name);
            match run.find(&step.name).map(|record| (record.status, record.reason.clone())) {
                Some((Status::NotRun, _)) => (),
                Some((status, reason)) => {
                    println!("{place}: {}, {}", status.name(), reason.unwrap_or_else(|| "kept".into()));
                    continue;
                }
                None => continue,
            }
            println!("{place}: {}", step.shown);
            let record = self.record(&mut run, step, out)?;
            say(&record);
            run.put(record);
            run.write(out)?;
        }
        run.complete = run.count(Status::NotRun) == 0;
        run.write(out)?;
        Ok(self.finish(&run, out))
    }

    /// Runs one step if there is time, telling the file before that it is running.
    fn record(&self, run: &mut Run, step: &Step, out: &Path) -> Result<Record> {
        let not_run =
            |reason: &str| Record::new(&step.name, &step.shown, Status::NotRun, Some(reason.into()));
        if self.stop.is_requested() {
            return Ok(not_run("the run was stopped"));
        }
        if self.seconds_left().is_some_and(|left| left < LEAST) {
            return Ok(not_run("no time was left (--seconds)"));
        }
        run.put(Record::new(&step.name, &step.shown, Status::Running, None));
        run.write(out)?;
        self.step(step)
    }

    /// Whether the file's record of this very command stays: its outcome, or whatever it says of a step that is not chosen.
    fn keeps(&self, run: &Run, step: &Step, chosen: bool) -> bool {
        let outcome = |record: &Record| {
            if chosen {
                record.status.is_final() && !self.again
            } else {
                record.status.is_final() || record.status == Status::TimedOut
            }
        };
        run.find(&step.name).is_some_and(|record| record.command == step.shown && outcome(record))
    }

    /// What the device lacks for a step.
    fn lacks(&self, device: &RunDevice, step: &Step) -> Option<String> {
        step.needs.iter().find_map(|need| match need {
            Need::F16 if !device.features.f16 => Some("the device has no f16".into()),
            Need::Hardware if !device.is_hardware() => {
                Some("speeds are measured on hardware only, and this device is software".into())
            }
            _ => None,
        })
    }

    fn seconds_left(&self) -> Option<f64> {
        self.until.map(|(start, seconds)| seconds - start.elapsed().as_secs_f64())
    }

    fn report(&self, step: &Step) -> PathBuf {
        self.folder(step).join("report.json")
    }

    /// The folder of a step's own.
    fn folder(&self, step: &Step) -> PathBuf {
        self.scratch.join(step.name.replace('/', "_"))
    }

    fn step(&self, step: &Step) -> Result<Record> {
        let folder = self.folder(step);
        // What an earlier run left there must not pass for this one's.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        let (log, report) = (folder.join("log"), self.report(step));
        let fill = |word: &String| word.replace(SCRATCH, &folder.display().to_string());
        let mut arguments: Vec<String> = step.arguments.iter().map(fill).collect();
        arguments.extend(["--json".into(), report.display().to_string()]);
        let own = step.limit as f64;
        let limit = self.seconds_left().map_or(own, |left| left.clamp(0.0, own));
        let mut command = self.tapml.command(&arguments);
        let ended = process::run(&mut command, &log, Duration::from_secs_f64(limit), self.stop)?;
        let printed =
            std::fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(&report).ok();
        Ok(judge(step, &ended, limit < own, text.as_deref(), &printed))
    }

    /// Tells how the run ended; whether no step failed and none was cut off.
    fn finish(&self, run: &Run, out: &Path) -> bool {
        let statuses = [Status::Passed, Status::Failed, Status::TimedOut, Status::Skipped, Status::NotRun];
        let counts: Vec<String> =
            statuses.iter().map(|s| format!("{} {}", run.count(*s), s.name())).collect();
        println!("{}: {}", out.display(), counts.join(", "));
        for record in run.steps.iter().filter(|record| record.status.is_failure()) {
            let reason = record.reason.as_deref().unwrap_or_default();
            println!(
                "{}: {}: {}",
                record.status.name(),
                record.name,
                reason.lines().next().unwrap_or_default()
            );
        }
        !self.stop.is_requested() && !run.steps.iter().any(|record| record.status.is_failure())
    }
}

/// The record of a step that ended. `cut`: its time was what the whole run had left.
fn judge(step: &Step, ended: &Ended, cut: bool, report: Option<&str>, printed: &str) -> Record {
    let numbers = report.map(|text| extract::numbers(step.report, text));
    let (status, mut reason) = match (ended.cause, ended.code) {
        (Cause::Stopped, _) => (Status::NotRun, Some("the run was stopped meanwhile".to_string())),
        (Cause::TimeLimit, _) if cut => (
            Status::NotRun,
            Some(format!("stopped after {:.1} s: no time was left (--seconds)", ended.seconds)),
        ),
        (Cause::TimeLimit, _) => (
            Status::TimedOut,
            Some(format!("stopped after its limit of {} s\n{}", step.limit, tail(printed))),
        ),
        (Cause::Exited, Some(0)) => (Status::Passed, None),
        (Cause::Exited, _) => {
            let failures = numbers.iter().flatten().flat_map(|n| n.failures().to_vec()).collect::<Vec<_>>();
            let text = if failures.is_empty() { tail(printed) } else { failures.join("\n") };
            (Status::Failed, Some(text))
        }
    };
    let mut record = Record::new(&step.name, &step.shown, status, None);
    match numbers {
        Some(Ok(numbers)) => record.numbers = Some(numbers),
        // A step that says it passed must have said what.
        Some(Err(error)) if status == Status::Passed => {
            (record.status, reason) = (Status::Failed, Some(format!("{error:#}")));
        }
        None if status == Status::Passed => {
            (record.status, reason) = (Status::Failed, Some("it wrote no report".into()));
        }
        _ => (),
    }
    let notes = [reason, ended.note.clone()].into_iter().flatten().collect::<Vec<_>>().join("\n");
    record.reason = Some(notes).filter(|notes| !notes.is_empty());
    record.exit_code = ended.code;
    record.seconds = Some((ended.seconds * 100.0).round() / 100.0);
    record.ended = Some(utc_now());
    record
}

/// The end of what a step printed.
fn tail(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let text = lines[lines.len().saturating_sub(ERROR_LINES)..].join("\n");
    let excess = text.chars().count().saturating_sub(ERROR_CHARACTERS);
    text.chars().skip(excess).collect()
}

fn say(record: &Record) {
    let numbers = record.numbers.as_ref().map(|numbers| numbers.summary());
    let first = record.reason.as_deref().and_then(|reason| reason.lines().next()).map(str::to_string);
    let details: Vec<String> = numbers.into_iter().chain(first).collect();
    println!("  {} in {:.1} s: {}", record.status.name(), record.seconds.unwrap_or(0.0), details.join("; "));
}
