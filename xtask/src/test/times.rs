//! How long each test program took, kept in the target folder, so that the longest begin.

use super::programs::TestProgram;
use anyhow::{Context, Result};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub struct Times {
    path: PathBuf,
    /// Milliseconds by the program's name.
    known: BTreeMap<String, u64>,
}

impl Times {
    /// Those of earlier runs. None if there is no such file or it has another form.
    pub fn open(path: &Path) -> Times {
        let text = std::fs::read(path).unwrap_or_default();
        Times { path: path.into(), known: serde_json::from_slice(&text).unwrap_or_default() }
    }

    pub fn set(&mut self, name: &str, seconds: f64) {
        self.known.insert(name.into(), (1000.0 * seconds) as u64);
    }

    pub fn save(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.known).context("times of tests")?;
        std::fs::write(&self.path, text).with_context(|| format!("could not write {}", self.path.display()))
    }

    /// Sorts programs, the longest first. One that begins last may run alone at the end, so those of unknown time come before
    /// all others.
    pub fn sort(&self, programs: &mut [TestProgram]) {
        programs.sort_by_key(|program| Reverse(self.known.get(&program.name).copied().unwrap_or(u64::MAX)));
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
        times.set("short", 0.2);
        times.set("long", 60.0);
        times.save().expect("times are written");
        let mut programs = ["short", "new", "long", "newer"].map(TestProgram::without_command);
        Times::open(&path).sort(&mut programs);
        assert_eq!(programs.map(|program| program.name), ["new", "newer", "long", "short"]);
        std::fs::write(&path, "[").expect("a file");
        assert!(Times::open(&path).known.is_empty());
    }
}
