//! How a command ended, and the exit code that says so.

use std::process::ExitCode;

/// How a command that could run ended.
///
/// The three are the exit codes that scripts rely on. An error ends in exit code 2 as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything holds: exit code 0.
    Holds,
    /// Something failed the check: exit code 1.
    Fails,
    /// Nothing failed, but something could not be run: exit code 2.
    NotRun,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Holds => ExitCode::SUCCESS,
            Outcome::Fails => ExitCode::from(1),
            Outcome::NotRun => ExitCode::from(2),
        }
    }
}
