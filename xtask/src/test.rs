//! `cargo xtask test`: installs what tests need from Debian's packages if it may, runs all tests, counts the skips.
//!
//! Cargo builds the test programs and would run them one after the other. As many run at a time as there are processors, and
//! the ones that took longest begin. Beside them runs one of those that mostly wait for time to pass.

mod pool;
mod programs;
mod tally;
mod times;
mod web;

use crate::packages;
use crate::process::{Cause, Ended, Stop};
use anyhow::{Context, Result, bail};
use clap::Parser;
use pool::{Lanes, ProgramEvent};
use programs::TestProgram;
use std::path::Path;
use std::time::{Duration, Instant};
use tally::Tally;
use times::Times;

/// Run all tests.
#[derive(Parser)]
#[command(
    name = "cargo xtask test",
    after_help = "With `--package`, `--test` or words after `--`, the examples of the documentation and the tests of the \
                  browser's agent do not run.\n\n\
                  Examples:\n  cargo xtask test\n  cargo xtask test --test hub -- agents_dial_in"
)]
struct Arguments {
    /// Only the tests of this crate; may repeat
    #[arg(long, short, value_name = "CRATE")]
    package: Vec<String>,
    /// Only the integration tests of this name; may repeat
    #[arg(long, value_name = "NAME")]
    test: Vec<String>,
    /// Features to build with
    #[arg(long, value_name = "LIST")]
    features: Vec<String>,
    /// Test programs that run at a time; as many as processors, and one more of those that mostly wait, if not given
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Minutes after which a test program is ended and counts as failed
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
    /// Given to every test program, such as a part of a test's name
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

impl Arguments {
    /// Whether all tests run.
    fn runs_all(&self) -> bool {
        self.package.is_empty() && self.test.is_empty() && self.words.is_empty()
    }

    fn lanes(&self) -> Lanes {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        Lanes {
            any: self.jobs.map_or_else(processors, usize::from),
            waiting: usize::from(self.jobs.is_none()),
        }
    }

    /// How long a test program may take.
    fn limit(&self) -> Duration {
        Duration::from_secs(60 * u64::from(self.minutes))
    }
}

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let words = std::iter::once("cargo xtask test").chain(arguments.iter().map(String::as_str));
    let arguments = match Arguments::try_parse_from(words) {
        Err(e) if !e.use_stderr() => return e.print().context("standard output"),
        other => other?,
    };
    packages::install();
    web::install(root);
    let target = crate::target(root);
    std::fs::create_dir_all(&target).context("could not create the target folder")?;
    let skip_log = target.join("skips.log");
    let _ = std::fs::remove_file(&skip_log);
    let mut programs = programs::build(root, &arguments)?;
    // Until here Ctrl-C ends cargo and this, as it does by itself.
    let stop = Stop::on_signal()?;
    if arguments.runs_all() {
        programs.push(programs::documentation(root, &arguments));
        programs.extend(web::program(root, &skip_log)?);
    }
    let mut times = Times::open(&target.join("test-times.json"));
    times.sort(&mut programs);
    programs.iter_mut().for_each(|program| program.waits = times.waits(&program.name));
    let start = Instant::now();
    let outputs = target.join("test-output");
    let outcome = run_all(&programs, &arguments, &outputs, &skip_log, &stop, &mut times)?;
    // Words may choose a few tests, which says nothing of the time that all take.
    if arguments.words.is_empty() {
        times.save()?;
    }
    outcome.print(&skip_log, start.elapsed().as_secs_f64());
    if outcome.left > 0 {
        bail!("stopped: {} of {} test programs did not end by themselves", outcome.left, programs.len());
    }
    if !outcome.failures.is_empty() {
        bail!("tests failed");
    }
    Ok(())
}

/// What came of all programs.
#[derive(Default)]
struct SuiteOutcome {
    passed: u64,
    failed: u64,
    /// Programs with the names of their tests that failed.
    failures: Vec<String>,
    /// What programs said in their output that they skipped.
    skips: Vec<String>,
    /// Programs that did not run to their end.
    left: usize,
}

impl SuiteOutcome {
    fn add(&mut self, program: &TestProgram, ended: &Ended, mut tally: Tally) {
        if ended.cause == Cause::Stopped {
            return;
        }
        self.left -= 1;
        self.skips.extend(tally.skips.iter().map(|skip| format!("skipped: {}: {skip}\n", program.name)));
        // A program that dies, or is ended, counts no failure of its own.
        if ended.cause == Cause::TimeLimit {
            tally.failed += 1;
            tally.names.push(format!("it did not end within {:.0} s (--minutes)", ended.seconds));
        } else if ended.code != Some(0) && tally.failed == 0 {
            tally.failed = 1;
            let code = ended.code.map(|code| format!("it ended with code {code}"));
            tally.names.push(code.or(ended.note.clone()).unwrap_or_else(|| "it ended by a signal".into()));
        }
        self.passed += tally.passed;
        self.failed += tally.failed;
        if tally.failed > 0 {
            self.failures.push(format!("{}: {}", program.name, tally.names.join(", ")));
        }
    }

    fn print(&self, skip_log: &Path, seconds: f64) {
        let skips = std::fs::read_to_string(skip_log).unwrap_or_default() + &self.skips.concat();
        print!("{skips}");
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        let (passed, failed, skipped) = (self.passed, self.failed, skips.lines().count());
        println!("{passed} passed, {failed} failed, {skipped} skipped in {seconds:.0} s");
    }
}

/// Runs the programs and prints what each said when it has ended.
fn run_all(
    programs: &[TestProgram],
    arguments: &Arguments,
    outputs: &Path,
    skip_log: &Path,
    stop: &Stop,
    times: &mut Times,
) -> Result<SuiteOutcome> {
    let mut outcome = SuiteOutcome { left: programs.len(), ..SuiteOutcome::default() };
    let bar = indicatif::ProgressBar::new(programs.len() as u64);
    bar.set_style(indicatif::ProgressStyle::with_template("{pos} of {len} programs in {elapsed}{msg}")?);
    bar.enable_steady_tick(Duration::from_secs(1));
    let mut running: Vec<&str> = Vec::new();
    let (lanes, limit) = (arguments.lanes(), arguments.limit());
    pool::run(programs, lanes, limit, outputs, skip_log, stop, |program, event| {
        match event {
            ProgramEvent::Started => running.push(&program.name),
            ProgramEvent::Ended { ended, output } => {
                running.retain(|name| *name != program.name);
                let busy = ended.busy.map(|busy| format!(", {busy:.1} s on processors")).unwrap_or_default();
                bar.suspend(|| {
                    println!("---- {} ({:.1} s{busy}) ----\n{output}", program.name, ended.seconds);
                });
                outcome.add(program, &ended, (program.count)(&output));
                if ended.cause == Cause::Exited {
                    times.set(&program.name, ended.seconds, ended.busy);
                }
                bar.inc(1);
            }
        }
        let failed = if outcome.failed > 0 { format!(", {} failed", outcome.failed) } else { String::new() };
        bar.set_message(format!("{failed}: {}", running.join(", ")));
    })?;
    bar.finish_and_clear();
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &str) -> Arguments {
        Arguments::try_parse_from(words.split(' ')).expect("known arguments")
    }

    #[test]
    fn all_tests_run_unless_some_are_chosen() {
        for words in ["test", "test --features a/b", "test --jobs 3"] {
            assert!(arguments(words).runs_all(), "{words}");
        }
        for words in ["test --test hub", "test -p graph", "test -- name", "test --test a --test b -- name"] {
            assert!(!arguments(words).runs_all(), "{words}");
        }
        assert_eq!(arguments("test -j 3").lanes(), Lanes { any: 3, waiting: 0 });
        assert_eq!(arguments("test").lanes().waiting, 1);
        assert!(Arguments::try_parse_from(["test", "-j", "0"]).is_err());
        assert_eq!(arguments("test --minutes 2").limit(), Duration::from_secs(120));
    }

    #[test]
    fn a_program_that_dies_or_hangs_is_a_failure_and_one_that_was_stopped_is_left() {
        let ended = |cause, code| Ended { cause, code, seconds: 1.0, busy: None, note: None };
        let good = Tally { passed: 4, ..Tally::default() };
        let bad = Tally { passed: 1, failed: 2, names: vec!["x".into(), "y".into()], ..Tally::default() };
        let mut outcome = SuiteOutcome { left: 5, ..SuiteOutcome::default() };
        outcome.add(&TestProgram::without_command("a"), &ended(Cause::Exited, Some(0)), good);
        outcome.add(&TestProgram::without_command("b"), &ended(Cause::Exited, Some(101)), bad);
        outcome.add(&TestProgram::without_command("c"), &ended(Cause::Exited, None), Tally::default());
        outcome.add(&TestProgram::without_command("d"), &ended(Cause::Stopped, None), Tally::default());
        let silent = Tally { passed: 1, ..Tally::default() };
        outcome.add(&TestProgram::without_command("e"), &ended(Cause::TimeLimit, None), silent);
        assert_eq!((outcome.passed, outcome.failed, outcome.left), (6, 4, 1));
        let hangs = "e: it did not end within 1 s (--minutes)";
        assert_eq!(outcome.failures, ["b: x, y", "c: it ended by a signal", hangs]);
    }
}
