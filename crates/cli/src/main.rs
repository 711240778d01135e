//! The `tapml` command: parses flags to plain data, hands them to one file per command, maps results to exit codes.
//!
//! A command prints a report for people, writes it as JSON if asked, and says by its [`Outcome`] whether what it
//! checked holds. Doc comments of types that `clap` derives from are the texts of `--help`; other remarks on them are
//! plain comments.

mod command;
mod outcome;
mod output;
mod progress;
mod stopping;
mod table;

use clap::Parser;
use outcome::Outcome;
use std::process::ExitCode;

/// Bring ML models to new platforms, one checked operator at a time.
///
/// Exit codes: 0 all holds, 1 something failed the check, 2 the command could not run.
#[derive(Parser)]
#[command(name = "tapml", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: command::Command,
    /// Log more: -v for debug, -vv for trace
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Show no progress
    #[arg(short, long, global = true)]
    quiet: bool,
}

/// Parses the command line, runs the command, and maps what it gave to an exit code.
fn main() -> ExitCode {
    // Before anything else: the environment may be changed only while there is a single thread.
    quiet_mesa();
    let cli = Cli::parse();
    if cli.quiet {
        progress::hide();
    }
    // More flags than there are levels mean the last one.
    let level = ["warn", "debug", "trace"][usize::from(cli.verbose.min(2))];
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format(log_line)
        .init();
    // Agents stop their sessions, and servers are stopped in their own way.
    let listening = match cli.command {
        command::Command::Device(_) => Ok(()),
        _ => stopping::listen().map(drop),
    };
    match listening.and_then(|()| cli.command.run()) {
        Ok(outcome) => outcome.into(),
        // A reader that went away has seen what it wanted.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(2)
        }
    }
}

/// A line of the log, whose text may be others'.
fn log_line(out: &mut env_logger::fmt::Formatter, record: &log::Record<'_>) -> std::io::Result<()> {
    use std::io::Write;
    let (level, target) = (record.level(), record.target());
    let style = out.default_level_style(level);
    // Other machines' texts may hold signs that command a terminal.
    let text = tapml::shown::report(&record.args().to_string(), false);
    writeln!(out, "[{} {style}{level:<5}{style:#} {target}] {text}", out.timestamp())
}

/// Mesa's device-selection layer asks a Wayland compositor for its device and complains on standard error where none
/// runs, as on a server. Without a session there is nothing to select.
#[allow(unsafe_code)]
fn quiet_mesa() {
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() && std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: called first in `main`, when no other thread exists that could read the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
