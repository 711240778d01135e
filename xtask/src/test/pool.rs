//! Runs programs, some at a time.

use super::programs::TestProgram;
use crate::process::{self, Ended, Stop};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// What happens to a program.
pub enum ProgramEvent {
    Started,
    Ended { ended: Ended, output: String },
}

/// How many programs run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Of all programs.
    pub any: usize,
    /// Beside these, of those that wait.
    pub waiting: usize,
}

/// The programs that nobody has taken yet, in their order.
struct Open<'p>(Mutex<Vec<&'p TestProgram>>);

impl<'p> Open<'p> {
    /// The first that is wanted.
    fn take(&self, wanted: impl Fn(&TestProgram) -> bool) -> Option<&'p TestProgram> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|program| wanted(program))?;
        Some(open.remove(at))
    }
}

/// Runs programs in their order, as many at a time as there are lanes, and tells of each on this thread. What they print is in files of the folder
/// `outputs`. One that takes longer than `limit` is ended. When it is asked to stop, those that run are ended and no other begins.
pub fn run<'p>(
    programs: &'p [TestProgram],
    lanes: Lanes,
    limit: Duration,
    outputs: &Path,
    skip_log: &Path,
    stop: &Stop,
    mut tell: impl FnMut(&'p TestProgram, ProgramEvent),
) -> Result<()> {
    let _ = std::fs::remove_dir_all(outputs);
    std::fs::create_dir_all(outputs).with_context(|| format!("could not create {}", outputs.display()))?;
    let open = Open(Mutex::new(programs.iter().collect()));
    // Those that wait are left to their own lane while there are others.
    let is_first = |program: &TestProgram| lanes.waiting == 0 || !program.waits;
    let (sender, events) = mpsc::channel();
    std::thread::scope(|scope| {
        for lane in 0..(lanes.any + lanes.waiting).min(programs.len()) {
            let (sender, open) = (sender.clone(), &open);
            scope.spawn(move || {
                while !stop.is_requested() {
                    let next = if lane < lanes.any {
                        open.take(is_first).or_else(|| open.take(|_| true))
                    } else {
                        open.take(|program| program.waits)
                    };
                    let Some(program) = next else { return };
                    // Nobody listens after an error, of which this thread need not know.
                    let _ = sender.send((program, Ok(ProgramEvent::Started)));
                    let _ = sender.send((program, run_one(program, limit, outputs, skip_log, stop)));
                }
            });
        }
        drop(sender);
        let mut result = Ok(());
        for (program, event) in events {
            match event {
                Ok(event) => tell(program, event),
                Err(error) if result.is_ok() => result = Err(error.context(program.name.clone())),
                Err(_) => {}
            }
        }
        result
    })
}

fn run_one(
    program: &TestProgram,
    limit: Duration,
    outputs: &Path,
    skip_log: &Path,
    stop: &Stop,
) -> Result<ProgramEvent> {
    let [path, arguments @ ..] = program.command.as_slice() else { anyhow::bail!("there is no program") };
    let mut command = Command::new(path);
    command.args(arguments).current_dir(&program.folder).env("TAPML_SKIP_LOG", skip_log);
    // This program runs under cargo too, whose words about this package are wrong for another.
    for (key, _) in std::env::vars_os() {
        if key.to_str().is_some_and(|key| key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(key);
        }
    }
    if let Some(manifest) = &program.manifest {
        command.env("CARGO_MANIFEST_PATH", manifest).env("CARGO_MANIFEST_DIR", &program.folder);
    }
    let output = outputs.join(format!("{}.txt", program.name.replace(['/', '\\'], "-")));
    let ended = process::run(&mut command, &output, limit, stop)?;
    let output = std::fs::read(&output).with_context(|| format!("could not read {}", output.display()))?;
    Ok(ProgramEvent::Ended { ended, output: String::from_utf8_lossy(&output).into_owned() })
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::process::Cause;
    use std::collections::BTreeMap;
    use std::time::Instant;

    const ONE: Lanes = Lanes { any: 1, waiting: 0 };

    fn script(name: &str, text: &str) -> TestProgram {
        let command = ["/bin/sh", "-c", text].map(Into::into).into();
        TestProgram {
            folder: "/".into(),
            command,
            manifest: Some("/Cargo.toml".into()),
            ..TestProgram::without_command(name)
        }
    }

    /// Runs scripts; how each ended, with what it said.
    fn run_scripts(programs: &[TestProgram], any: usize, stop: &Stop) -> BTreeMap<String, (Ended, String)> {
        run_scripts_within(programs, Lanes { any, waiting: 0 }, Duration::MAX, stop)
    }

    fn run_scripts_within(
        programs: &[TestProgram],
        lanes: Lanes,
        limit: Duration,
        stop: &Stop,
    ) -> BTreeMap<String, (Ended, String)> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut all = BTreeMap::new();
        run(
            programs,
            lanes,
            limit,
            &folder.path().join("outputs"),
            &folder.path().join("skips"),
            stop,
            |program, event| {
                match event {
                    // The last script asks for a stop when it begins.
                    ProgramEvent::Started if program.name == "stop" => stop.request(),
                    ProgramEvent::Started => {}
                    ProgramEvent::Ended { ended, output } => {
                        all.insert(program.name.clone(), (ended, output));
                    }
                }
            },
        )
        .expect("all scripts start");
        all
    }

    #[test]
    fn programs_run_beside_each_other_in_the_place_and_environment_of_their_package() {
        // Each waits for a file that the other makes, so neither ends alone.
        let folder = tempfile::tempdir().expect("a folder");
        let wait = |mine: &str, other: &str| {
            let folder = folder.path().display();
            format!(
                "touch {folder}/{mine}; while [ ! -e {folder}/{other} ]; do sleep 0.01; done; pwd; echo $CARGO_MANIFEST_PATH \
                 $CARGO_PKG_NAME >&2"
            )
        };
        let programs = [script("a/b", &wait("1", "2")), script("c", &format!("{}; exit 3", wait("2", "1")))];
        let all = run_scripts(&programs, 2, &Stop::default());
        for (name, code) in [("a/b", 0), ("c", 3)] {
            let (ended, output) = &all[name];
            assert_eq!((ended.cause, ended.code), (Cause::Exited, Some(code)));
            assert_eq!(output, "/\n/Cargo.toml\n");
        }
    }

    #[test]
    fn one_that_waits_runs_beside_the_others_and_in_their_place_when_there_are_none() {
        let folder = tempfile::tempdir().expect("a folder");
        // Each ends once the other has begun.
        let meet = |waits: bool, mine: &str, other: &str| {
            let folder = folder.path().display();
            let text = format!("touch {folder}/{mine}; while [ ! -e {folder}/{other} ]; do sleep 0.01; done");
            TestProgram { waits, ..script(mine, &text) }
        };
        let programs = [
            meet(false, "computes", "first"),
            meet(false, "last", "computes"),
            meet(true, "first", "last"),
            meet(true, "second", "third"),
            meet(true, "third", "second"),
        ];
        let lanes = Lanes { waiting: 1, ..ONE };
        let all = run_scripts_within(&programs, lanes, Duration::from_secs(30), &Stop::default());
        assert_eq!(all.len(), programs.len());
        for (name, (ended, _)) in all {
            assert_eq!((ended.cause, ended.code), (Cause::Exited, Some(0)), "{name}");
        }
    }

    #[test]
    fn a_stop_ends_what_runs_and_nothing_else_begins() {
        let start = Instant::now();
        let programs = [script("first", "exit 0"), script("stop", "sleep 60"), script("later", "exit 0")];
        let all = run_scripts(&programs, 1, &Stop::default());
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(all["first"].0.cause, Cause::Exited);
        assert_eq!(all["stop"].0.cause, Cause::Stopped);
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_and_the_next_begins() {
        let start = Instant::now();
        let programs = [script("hangs", "echo here; sleep 60"), script("later", "exit 0")];
        let all = run_scripts_within(&programs, ONE, Duration::from_secs(2), &Stop::default());
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!((all["hangs"].0.cause, all["hangs"].1.as_str()), (Cause::TimeLimit, "here\n"));
        assert_eq!((all["later"].0.cause, all["later"].0.code), (Cause::Exited, Some(0)));
    }
}
