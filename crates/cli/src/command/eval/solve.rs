//! `tapml eval --tasks`: tasks with one right answer each, solved in several ways side by side.

use super::EvalCommand;
use super::row::RowArgs;
use crate::Outcome;
use crate::command::common::serve_options;
use crate::output::{self, JsonArg, table};
use crate::progress::Bar;
use crate::stopping;
use anyhow::Result;
use serde::Serialize;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tapml::import::LogitRows;
use tapml::model::GraphOptions;
use tapml::serve::ServeOptions;
use tapml::tasks::{TaskRow, TaskRun, judge_rows, read_tasks};

/// What is written as JSON.
#[derive(Serialize)]
struct TasksReport {
    schema: u32,
    /// As it was named on the command line.
    model: String,
    /// The source that prompts with their right answers are compared with.
    reference: String,
    /// The file.
    tasks: String,
    /// Tasks in the file.
    count: usize,
    /// One for each way to solve them.
    rows: Vec<TaskRow>,
    /// Tasks solved; absent if there is one way only, or it was stopped.
    median: Option<f64>,
    /// The most tasks solved less the fewest; absent as the median.
    spread: Option<usize>,
    /// Whether each way lies near enough to the median.
    passed: bool,
    /// From the start of the command.
    seconds: f64,
    /// Someone asked to stop before all were solved.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
}

impl EvalCommand {
    /// Solves the tasks in each way; what was solved is reported even if the user stops it.
    pub(super) fn solve(&self, file: &Path) -> Result<Outcome> {
        let (start, stop) = (Instant::now(), stopping::stop_on_signal()?);
        let bar = Arc::new(Bar::at_stage("read the models"));
        let tasks = read_tasks(file)?;
        let reference = self.reference.as_deref().unwrap_or(&self.model);
        let (_, source) = GraphOptions::default().open(reference, LogitRows::All)?;
        let report = Arc::new(Mutex::new(TasksReport {
            schema: 1,
            model: self.model.display().to_string(),
            reference: reference.display().to_string(),
            tasks: file.display().to_string(),
            count: tasks.len(),
            rows: Vec::new(),
            median: None,
            spread: None,
            passed: true,
            seconds: 0.0,
            stopped: false,
        }));
        for (index, run) in self.runs().iter().enumerate() {
            self.set_last_words(&report, &bar);
            let mut so_far = |row: &TaskRow| {
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                report.rows.truncate(index);
                report.rows.push(row.clone());
                report.seconds = start.elapsed().as_secs_f64();
            };
            let solved = run.run(&tasks, &source, bar.as_ref(), &stop, &mut so_far);
            stopping::or_last_words(solved)?;
        }
        bar.finish();
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.median = judge_rows(&mut report.rows);
        report.spread = report.median.and_then(|_| {
            let solved = || report.rows.iter().map(|row| row.solved);
            Some(solved().max()? - solved().min()?)
        });
        report.passed = report.rows.iter().all(TaskRow::passes);
        write_report(&report, &self.json)?;
        Ok(if report.passed { Outcome::Holds } else { Outcome::Fails })
    }

    /// What is told if the process is stopped.
    fn set_last_words(&self, report: &Arc<Mutex<TasksReport>>, bar: &Arc<Bar>) {
        let (report, bar, json) = (Arc::clone(report), Arc::clone(bar), self.json.clone());
        stopping::set_last_words(move || {
            bar.finish();
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.stopped = true;
            if let Err(error) = write_report(&report, &json) {
                output::print_error(&error);
            }
        });
    }

    /// The command's own way, then those of its rows.
    fn runs(&self) -> Vec<TaskRun> {
        let own = RowArgs { target: None, graph: self.graph.clone(), guess: self.guess.clone() };
        let run = |row: &RowArgs| {
            let serve = ServeOptions {
                model: self.model.clone(),
                target: row.target.clone().unwrap_or_else(|| self.target.clone()),
                check: false,
                ..serve_options(&row.graph, &row.guess)
            };
            TaskRun { serve, ngram: row.guess.ngram }
        };
        std::iter::once(&own).chain(&self.row).map(run).collect()
    }
}

/// Shows the report, and writes it.
fn write_report(report: &TasksReport, json: &JsonArg) -> Result<()> {
    json.say(&render(report))?;
    json.write(report)
}

/// A line for each way, the kinds of tasks, and what follows from it.
fn render(report: &TasksReport) -> String {
    let mut ways = table(&[
        "",
        "TARGET",
        "ACTIVATION",
        "WEIGHTS",
        "GUESSES",
        "SOLVED",
        "FROM MEDIAN",
        "MAY",
        "KL",
        "SAME TOKEN",
        "SECONDS",
    ]);
    for (index, row) in report.rows.iter().enumerate() {
        let distance = row.distance.map_or("".into(), |distance| distance.to_string());
        let compared =
            |shown: fn(&tapml::eval::Comparison) -> String| row.comparison.as_ref().map_or("".into(), shown);
        ways.add_row([
            format!("{}", index + 1),
            row.target.clone(),
            row.activation.to_string(),
            row.quantize.map_or("as stored".into(), |scheme| scheme.to_string()),
            guesses(row),
            format!("{} of {}", row.solved, row.tasks),
            distance,
            row.limit.to_string(),
            compared(|c| format!("{:.6}", c.kl)),
            compared(|c| format!("{:.2} %", 100.0 * c.top1_agreement)),
            format!("{:.1}", row.seconds),
        ]);
    }
    format!("{ways}\n\n{}{}", kinds(report), verdict(report))
}

/// Where guessed tokens come from, and how many of those that were compared were right.
fn guesses(row: &TaskRow) -> String {
    let from = match (&row.draft, row.ngram) {
        (Some(draft), _) => draft.display().to_string(),
        (None, Some(tokens)) => format!("ngram {tokens}"),
        (None, None) => return "none".into(),
    };
    format!("{from}: {} of {} right", row.accepted_tokens, row.compared_tokens)
}

/// Tasks solved of each kind, a column for each way; nothing if the file names no kinds.
fn kinds(report: &TasksReport) -> String {
    let Some(first) = report.rows.first().filter(|row| row.kinds.iter().any(|count| count.kind.is_some()))
    else {
        return String::new();
    };
    let numbers: Vec<String> = (1..=report.rows.len()).map(|number| number.to_string()).collect();
    let header: Vec<&str> = ["KIND", "TASKS"].into_iter().chain(numbers.iter().map(String::as_str)).collect();
    let mut kinds = table(&header);
    for (index, count) in first.kinds.iter().enumerate() {
        let solved =
            report.rows.iter().map(|row| row.kinds.get(index).map_or(0, |count| count.solved).to_string());
        let name = count.kind.clone().unwrap_or_else(|| "others".into());
        kinds.add_row([name, count.tasks.to_string()].into_iter().chain(solved));
    }
    format!("{kinds}\n\n")
}

/// Whether the ways agree.
fn verdict(report: &TasksReport) -> String {
    let Some((median, spread)) = report.median.zip(report.spread) else {
        return if report.stopped { "stopped".into() } else { "one way only: add `--row` to compare".into() };
    };
    let far = report.rows.iter().enumerate().filter(|(_, row)| !row.passes());
    let far: Vec<String> = far.map(|(index, _)| (index + 1).to_string()).collect();
    match far.as_slice() {
        [] => format!("median {median}, spread {spread}: each way lies as near as it may"),
        rows => {
            format!("median {median}, spread {spread}: too far from the median lies row {}", rows.join(", "))
        }
    }
}
