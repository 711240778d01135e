//! `tapml bench`: measurements of TapML itself; one file for each.
//!
//! These commands are for those who work on TapML, and for those who want to know how far its verdicts can be
//! trusted.

mod bugs;
mod decode;
mod draft;
mod models;
mod serve;
mod table;

use crate::Outcome;
use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure TapML itself: how many faults it finds, how fast models run.
#[derive(Args)]
pub struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Bugs(bugs::BugsCommand),
    Decode(decode::DecodeCommand),
    Draft(draft::DraftCommand),
    Serve(serve::ServeBenchCommand),
}

impl BenchCommand {
    /// Runs the measurement that was named.
    pub fn run(self) -> Result<Outcome> {
        match self.what {
            What::Bugs(command) => command.run(),
            What::Decode(command) => command.run(),
            What::Draft(command) => command.run(),
            What::Serve(command) => command.run(),
        }
    }
}
