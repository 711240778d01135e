//! The terminal of a chat: lines with editing and a history, and the state that an end from outside must leave.

use crate::output;
use anyhow::{Context, Result};
use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use std::path::PathBuf;

/// Lines that the history keeps.
const KEPT: usize = 1000;

/// Reads lines from the terminal.
pub struct LineReader {
    editor: Editor<(), FileHistory>,
    /// Where the history is kept; `None` if it is not.
    history: Option<PathBuf>,
}

/// What a person typed.
pub enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    End,
}

impl LineReader {
    /// Takes the terminal, with the lines of earlier chats.
    ///
    /// # Errors
    /// If it cannot be taken.
    pub fn open() -> Result<LineReader> {
        restore_at_end();
        let config = Config::builder().build();
        let mut editor = Editor::with_config(config).context("could not read from the terminal")?;
        editor.set_max_history_size(KEPT)?;
        editor.set_auto_add_history(true);
        let history = user_data().map(|folder| folder.join("chat_history"));
        // There is none at first.
        if let Some(file) = history.as_ref().filter(|file| file.exists())
            && let Err(error) = editor.load_history(file)
        {
            output::note("history", &format!("{} was not read: {error}", file.display()));
        }
        Ok(LineReader { editor, history })
    }

    /// Reads a line; `goes_on` says that it belongs to the one before.
    ///
    /// # Errors
    /// If the terminal cannot be read.
    pub fn read(&mut self, goes_on: bool) -> Result<Typed> {
        match self.editor.readline(if goes_on { "… " } else { "> " }) {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(error).context("could not read from the terminal"),
        }
    }

    /// Keeps the lines for the next chat. A chat is worth more than its history: a failure is told and no error.
    pub fn keep_history(&mut self) {
        let Some(file) = &self.history else { return };
        let kept = file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::from);
        if let Err(error) = kept.and_then(|()| self.editor.append_history(file)) {
            output::note("history", &format!("{} was not written: {error}", file.display()));
            self.history = None;
        }
    }
}

/// The user's folder for what programs keep: `tapml` in `$XDG_DATA_HOME`, `~/.local/share` or `%LOCALAPPDATA%`.
fn user_data() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let shared = || named("HOME").map(|home| home.join(".local/share"));
    let root = named("XDG_DATA_HOME").or_else(shared).or_else(|| named("LOCALAPPDATA"));
    root.map(|root| root.join("tapml"))
}

/// Lines are read in a mode of the terminal that a shell does not expect: a signal that ends the process must end it, too.
fn restore_at_end() {
    #[cfg(unix)]
    if let Ok(state) = rustix::termios::tcgetattr(std::io::stdin()) {
        crate::stopping::set_last_words(move || {
            // The process ends whether or not this is done.
            let _ =
                rustix::termios::tcsetattr(std::io::stdin(), rustix::termios::OptionalActions::Now, &state);
        });
    }
}
