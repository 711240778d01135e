//! How long each test program took, kept in the target folder, so that the longest begin. Where nothing is kept, as in a fresh
//! clone, those begin that are known to take long.

use super::programs::TestProgram;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// About the seconds that the longest programs take on two processors. What is kept of earlier runs counts instead.
const LONGEST: &[(&str, u64)] = &[
    ("crates/cfamily/tests/compile.rs", 250),
    ("crates/migrate/tests/architectures.rs", 190),
    ("crates/bugs/tests/fused.rs", 160),
    ("crates/cli/tests/asleep.rs", 150),
    ("crates/cli/tests/bugs.rs", 150),
    ("crates/kernels/tests/ops.rs", 150),
    ("crates/opencl/tests/oclgrind.rs", 110),
    ("crates/cli/tests/tune.rs", 90),
    ("crates/migrate/tests/kernel_rows.rs", 90),
    ("crates/cli/tests/commands.rs", 80),
    ("crates/cli/tests/models.rs", 80),
    ("crates/jobs/tests/paged.rs", 80),
    ("crates/bugs/tests/bench.rs", 80),
    ("crates/rpc/tests/machine.rs", 70),
    ("crates/cli/tests/browser.rs", 70),
    ("crates/cli/tests/runtimes.rs", 60),
    ("crates/cli/tests/serve/main.rs", 50),
    ("documentation", 50),
    ("crates/migrate/tests/deployed.rs", 50),
];

/// Those that are on a processor for less than half of their time.
const WAITING: &[&str] = &[
    "crates/cli/tests/hosts.rs",
    "crates/cli/tests/network.rs",
    "crates/rpc/tests/again.rs",
    "crates/rpc/tests/machine.rs",
    "crates/rpc/tests/network.rs",
];

/// What a program took.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct ProgramTime {
    milliseconds: u64,
    /// Milliseconds on processors, where the system tells.
    busy: Option<u64>,
}

pub struct Times {
    path: PathBuf,
    /// By the program's name.
    known: BTreeMap<String, ProgramTime>,
}

impl Times {
    /// Those of earlier runs. None if there is no such file or it has another form.
    pub fn open(path: &Path) -> Times {
        let text = std::fs::read(path).unwrap_or_default();
        Times { path: path.into(), known: serde_json::from_slice(&text).unwrap_or_default() }
    }

    pub fn set(&mut self, name: &str, seconds: f64, busy: Option<f64>) {
        let milliseconds = |seconds: f64| (1000.0 * seconds) as u64;
        let taken = ProgramTime { milliseconds: milliseconds(seconds), busy: busy.map(milliseconds) };
        self.known.insert(name.into(), taken);
    }

    /// Whether the program is on a processor for less than half of its time.
    pub fn waits(&self, name: &str) -> bool {
        let usual = || WAITING.contains(&name);
        let known = self.known.get(name).and_then(|taken| Some(2 * taken.busy? < taken.milliseconds));
        known.unwrap_or_else(usual)
    }

    pub fn save(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.known).context("times of tests")?;
        std::fs::write(&self.path, text).with_context(|| format!("could not write {}", self.path.display()))
    }

    /// Sorts programs, the longest first. One that begins last may run alone at the end, so those of unknown time come before
    /// all others.
    pub fn sort(&self, programs: &mut [TestProgram]) {
        programs.sort_by_key(|program| Reverse(self.milliseconds(&program.name).unwrap_or(u64::MAX)));
    }

    fn milliseconds(&self, name: &str) -> Option<u64> {
        let usual = || LONGEST.iter().find(|(known, _)| *known == name).map(|(_, seconds)| 1000 * seconds);
        self.known.get(name).map(|taken| taken.milliseconds).or_else(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_begin_and_times_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("times.json");
        let mut times = Times::open(&path);
        times.set("short", 0.2, None);
        times.set("long", 60.0, Some(40.0));
        times.save().expect("times are written");
        let mut programs = ["short", "new", "long", "newer"].map(TestProgram::without_command);
        Times::open(&path).sort(&mut programs);
        assert_eq!(programs.map(|program| program.name), ["new", "newer", "long", "short"]);
        std::fs::write(&path, "[").expect("a file");
        assert!(Times::open(&path).known.is_empty());
    }

    #[test]
    fn a_program_that_is_on_processors_for_less_than_half_of_its_time_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut times = Times::open(&folder.path().join("times.json"));
        assert!(times.waits(WAITING[0]) && !times.waits(LONGEST[0].0));
        times.set(WAITING[0], 10.0, Some(12.0));
        times.set(LONGEST[0].0, 10.0, Some(4.0));
        times.set("new", 10.0, None);
        assert!(!times.waits(WAITING[0]) && times.waits(LONGEST[0].0) && !times.waits("new"));
    }

    #[test]
    fn without_kept_times_those_that_take_long_begin_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut times = Times::open(&folder.path().join("times.json"));
        let mut programs = ["documentation", "new", LONGEST[0].0].map(TestProgram::without_command);
        times.sort(&mut programs);
        assert_eq!(programs.map(|program| program.name), ["new", LONGEST[0].0, "documentation"]);
        let mut programs = ["documentation", LONGEST[0].0].map(TestProgram::without_command);
        times.set(LONGEST[0].0, 0.5, None);
        times.sort(&mut programs);
        assert_eq!(programs.map(|program| program.name), ["documentation", LONGEST[0].0]);
        let longest = LONGEST.iter().map(|(name, _)| *name).filter(|name| *name != "documentation");
        for name in longest.chain(WAITING.iter().copied()) {
            assert!(crate::root().join(name).is_file(), "{name} is no file");
        }
    }
}
