//! `tapml bench`: measurements of TapML itself; one file for each.

mod bugs;
mod models;
mod table;

use crate::Outcome;
use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure TapML itself: how many faults it finds.
#[derive(Args)]
pub struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Bugs(bugs::BugsCommand),
}

impl BenchCommand {
    pub fn run(self) -> Result<Outcome> {
        match self.what {
            What::Bugs(command) => command.run(),
        }
    }
}
