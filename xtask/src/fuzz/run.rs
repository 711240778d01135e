//! Runs one fuzz target and reads what libFuzzer tells about it.

use super::{Finding, Ran};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes that an input may make a process hold, in MiB: budgets end below a fourth of it, the rest is the sanitizer's.
const MEMORY: u64 = 1536;
/// Seconds that an input may take, with the sanitizer on a busy machine.
const TIMEOUT: u64 = 60;
/// Time between lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

pub fn run(folder: &Path, name: &str, binary: &Path, seconds: u64) -> Result<Ran> {
    // What a run found first is where the next one begins; inputs of the tree are only read.
    let (own, seeds) = (folder.join("target/corpus").join(name), folder.join("corpus").join(name));
    let findings = folder.join("target/findings").join(name);
    for made in [&own, &findings] {
        std::fs::create_dir_all(made).with_context(|| made.display().to_string())?;
    }
    let mut command = Command::new(if cfg!(unix) { Path::new("nice") } else { binary });
    if cfg!(unix) {
        command.args(["-n", "10"]).arg(binary);
    }
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-rss_limit_mb={MEMORY}"));
    command.arg(format!("-timeout={TIMEOUT}")).arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}/", findings.display())).arg(&own);
    if seeds.is_dir() {
        command.arg(&seeds);
    }
    let dictionary = folder.join("dictionaries").join(format!("{name}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    // Targets that read files write one for each input.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        command.env("TMPDIR", memory);
    }
    let begin = Instant::now();
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut process = started.with_context(|| binary.display().to_string())?;
    let mut told = FuzzProgress::default();
    let mut next = PROGRESS;
    for line in BufReader::new(process.stderr.take().context("a pipe")?).split(b'\n') {
        told.read(&String::from_utf8_lossy(&line?));
        if begin.elapsed() >= next {
            next = begin.elapsed() + PROGRESS;
            let at = begin.elapsed().as_secs();
            eprintln!(
                "fuzz: {name}: {at} of {seconds} s, {} executions, coverage {}",
                told.executions, told.coverage
            );
        }
    }
    let status = process.wait().context("the target")?;
    let finding = if status.success() { None } else { Some(told.finding(&status.to_string())) };
    Ok(Ran {
        target: name.into(),
        executions: told.executions,
        coverage: told.coverage,
        seconds: begin.elapsed().as_secs_f64(),
        finding,
    })
}

/// What libFuzzer has told so far.
#[derive(Default)]
struct FuzzProgress {
    executions: u64,
    coverage: u64,
    input: Option<PathBuf>,
    message: Option<String>,
}

impl FuzzProgress {
    fn read(&mut self, line: &str) {
        if let Some(count) = line.strip_prefix('#').and_then(|rest| rest.split_whitespace().next()) {
            self.executions = count.parse().unwrap_or(self.executions).max(self.executions);
            let coverage = line.split("cov: ").nth(1).and_then(|rest| rest.split_whitespace().next());
            self.coverage = coverage.and_then(|count| count.parse().ok()).unwrap_or(self.coverage);
        } else if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = count.trim().parse().unwrap_or(self.executions);
        } else if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.input = Some(path.trim().into());
        } else if self.message.is_none() && (line.contains("panicked at") || line.contains("ERROR: ")) {
            self.message = Some(line.trim().to_string());
        }
    }

    fn finding(&mut self, status: &str) -> Finding {
        Finding { input: self.input.take(), message: self.message.take().unwrap_or_else(|| status.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_coverage_and_findings_are_read() {
        let mut told = FuzzProgress::default();
        for line in [
            "INFO: Seed: 1",
            "#2\tINITED cov: 17 ft: 18 corp: 1/1b exec/s: 0 rss: 40Mb",
            "#1024\tpulse  cov: 29 ft: 40 corp: 5/8b lim: 11 exec/s: 512 rss: 44Mb",
            "thread '<unnamed>' panicked at crates/a.rs:3:4:",
            "==1== ERROR: libFuzzer: deadly signal",
            "artifact_prefix='f/'; Test unit written to f/crash-12",
            "stat::number_of_executed_units: 1030",
        ] {
            told.read(line);
        }
        assert_eq!((told.executions, told.coverage), (1030, 29));
        let finding = told.finding("exit status: 77");
        assert_eq!(finding.input, Some("f/crash-12".into()));
        assert!(finding.message.contains("panicked at crates/a.rs:3:4"), "{}", finding.message);
    }
}
