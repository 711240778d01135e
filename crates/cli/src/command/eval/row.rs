//! The flags of `--row`: one more way to solve tasks.

use crate::command::common::{GraphArgs, GuessArgs};
use clap::{Args, FromArgMatches};

/// One more way to solve the tasks.
#[derive(Args, Clone, Debug)]
pub struct RowArgs {
    /// Where the model runs; as the command's if not given
    #[arg(long, value_name = "PLATFORM")]
    pub target: Option<String>,
    /// What the graph is made with.
    #[command(flatten)]
    pub graph: GraphArgs,
    /// Where guessed tokens come from.
    #[command(flatten)]
    pub guess: GuessArgs,
}

/// Reads the flags of a row, with spaces between them.
///
/// # Errors
/// With what is wrong with them, in one line.
pub fn parse_row(text: &str) -> Result<RowArgs, String> {
    let command =
        RowArgs::augment_args(clap::Command::new("--row").no_binary_name(true).disable_help_flag(true));
    let matches = command.try_get_matches_from(text.split_whitespace());
    matches.and_then(|matches| RowArgs::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        line.trim_start_matches("error: ").to_string()
    })
}
