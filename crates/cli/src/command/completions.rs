//! `tapml completions`: what a shell needs to complete the command line.
//!
//! Shells read the output from a file that the user puts in its place.

use crate::{Cli, Outcome};
use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use std::io::Write;

/// Print the completions of the command line for a shell.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tapml completions bash > ~/.local/share/bash-completion/completions/tapml\n  \
                  tapml completions zsh > ~/.zfunc/_tapml\n  \
                  tapml completions fish > ~/.config/fish/completions/tapml.fish"
)]
pub struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

impl CompletionsCommand {
    /// Prints them. They are generated from the same definitions as `--help`.
    pub fn run(self) -> Result<Outcome> {
        // Generated into memory first: the generator panics where it cannot write.
        let mut text = Vec::new();
        generate(self.shell, &mut Cli::command(), "tapml", &mut text);
        std::io::stdout().write_all(&text)?;
        Ok(Outcome::Holds)
    }
}
