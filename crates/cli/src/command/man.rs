//! `tapml man`: the manual pages, made of the same texts as `--help`.
//!
//! The texts are those of the command line's definition, so that pages cannot lag behind it.

mod markdown;

use crate::{Cli, Outcome};
use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;
use tapml::files;

/// Print the manual page, or write those of all commands.
#[derive(Args)]
#[command(after_help = "Examples:\n  tapml man | man -l -\n  tapml man --out ~/.local/share/man/man1")]
pub struct ManCommand {
    /// Write `tapml.1`, `tapml-check.1` and so on into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print all commands as one page of Markdown
    #[arg(long, conflicts_with = "out")]
    markdown: bool,
}

impl ManCommand {
    /// Prints one page, all as Markdown, or writes one file for each command.
    ///
    /// # Errors
    /// If the folder or a page cannot be written.
    pub fn run(self) -> Result<Outcome> {
        // A page of `help` would say nothing.
        let mut command = Cli::command().disable_help_subcommand(true);
        // Names of subcommands are complete only when it is built.
        command.build();
        if self.markdown {
            std::io::stdout().write_all(markdown::page(&command).as_bytes())?;
            return Ok(Outcome::Holds);
        }
        let Some(out) = self.out else {
            std::io::stdout().write_all(&page(&command)?.1)?;
            return Ok(Outcome::Holds);
        };
        std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        for (name, text) in pages(&command)? {
            files::write(&out.join(name), &text)?;
        }
        Ok(Outcome::Holds)
    }
}

/// The pages of a command and of all below it that help shows, with the names of their files.
fn pages(command: &clap::Command) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = vec![page(command)?];
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        all.extend(pages(below)?);
    }
    Ok(all)
}

/// The page of a command, with the name of its file.
fn page(command: &clap::Command) -> Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render(&mut text)?;
    Ok((man.get_filename(), text))
}
