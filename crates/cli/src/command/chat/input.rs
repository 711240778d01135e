//! Lines as they are typed or piped become messages and slash commands. Knows no terminal.

use anyhow::{Result, anyhow, bail};
use std::path::PathBuf;

/// Begins and ends a text of several lines.
const MARK: &str = "\"\"\"";

/// What one or several lines say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A message for the model.
    Message(String),
    /// A line that begins with a slash.
    Slash(String),
}

/// Lines that are not complete yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputLines {
    text: String,
    open: OpenInput,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OpenInput {
    /// The next line begins something new.
    #[default]
    No,
    /// The last line ended with a backslash.
    Line,
    /// Within marks.
    Block,
}

impl InputLines {
    /// Whether the next line belongs to those before it.
    pub fn is_open(&self) -> bool {
        self.open != OpenInput::No
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        *self = InputLines::default();
    }

    /// Takes a line without its end; gives what is complete by it. Blank lines are nothing outside of marks.
    pub fn push(&mut self, line: &str) -> Option<Input> {
        let mut rest = line;
        if self.open == OpenInput::No {
            let text = line.trim();
            if text.is_empty() {
                return None;
            }
            match text.strip_prefix(MARK) {
                Some(behind) => (self.open, rest) = (OpenInput::Block, behind),
                None if text.starts_with('/') => return Some(Input::Slash(text.into())),
                None => {}
            }
        }
        if self.open == OpenInput::Block {
            if let Some(end) = rest.trim_end().strip_suffix(MARK) {
                self.text.push_str(end);
                return self.take();
            }
            // The mark may stand on a line of its own.
            if !(self.text.is_empty() && rest.is_empty()) {
                self.text.push_str(rest);
                self.text.push('\n');
            }
            return None;
        }
        if let Some(before) = rest.strip_suffix('\\') {
            self.text.push_str(before);
            self.text.push('\n');
            self.open = OpenInput::Line;
            return None;
        }
        self.text.push_str(rest);
        self.take()
    }

    /// There are no more lines: gives what a backslash left open.
    ///
    /// # Errors
    /// If a block has no end.
    pub fn finish(&mut self) -> Result<Option<Input>> {
        if self.open == OpenInput::Block {
            bail!("the input ends within a text that began with {MARK}; end it with {MARK}");
        }
        Ok(self.take())
    }

    fn take(&mut self) -> Option<Input> {
        let text = std::mem::take(self).text;
        // The end of the last line stands before the mark that is on a line of its own.
        let text = text.strip_suffix('\n').unwrap_or(&text);
        (!text.trim().is_empty()).then(|| Input::Message(text.into()))
    }
}

/// What a line with a slash asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlashCommand {
    Help,
    Reset,
    System(Option<String>),
    Image(PathBuf),
    Stats,
    Regenerate,
    Undo,
    Save(PathBuf),
    Load(PathBuf),
    Set(Option<(String, Option<String>)>),
    Quit,
}

/// The commands, their arguments, and what they do.
const COMMANDS: &[[&str; 3]] = &[
    ["/help", "", "tell the commands"],
    ["/reset", "", "begin anew; the system prompt and the settings stay"],
    ["/system", "[TEXT]", "set the system prompt, or remove it"],
    ["/image", "FILE", "show an image (PNG, JPEG, WebP) with the next message"],
    ["/stats", "", "tell speed, cache and guesses of the last answer"],
    ["/regenerate", "", "answer the last message again, with the next seed"],
    ["/undo", "", "take the last turn back"],
    ["/save", "FILE", "write the messages as JSON in OpenAI's form"],
    ["/load", "FILE", "go on with saved messages"],
    ["/set", "[NAME [VALUE]]", "tell the settings, or change one: /set temperature 0.7"],
    ["/quit", "", "end, as Ctrl-D does"],
];

/// What `/help` says.
pub fn help() -> String {
    let mut text = String::new();
    for [name, argument, what] in COMMANDS {
        text.push_str(&format!("{:28}{what}\n", format!("{name} {argument}")));
    }
    text.push_str("A line that ends with \\ goes on with the next one. A text between \"\"\" and \"\"\" may have any lines.\n");
    text.push_str("Ctrl-C ends an answer, or clears the line.");
    text
}

impl SlashCommand {
    /// Reads a line that begins with a slash.
    ///
    /// # Errors
    /// If there is no such command, or its argument is missing or too much.
    pub fn parse(line: &str) -> Result<SlashCommand> {
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        let Some([_, form, _]) = COMMANDS.iter().find(|[own, ..]| *own == name) else {
            return Err(anyhow!(
                "there is no command `{name}`; /help tells all, and {MARK} begins a text with a slash"
            ));
        };
        if argument.is_empty() && *form == "FILE" {
            bail!("`{name}` needs a file: {name} FILE");
        }
        if !argument.is_empty() && form.is_empty() {
            bail!("`{name}` takes no argument, found `{argument}`");
        }
        let text = Some(argument).filter(|text| !text.is_empty()).map(String::from);
        let file = || PathBuf::from(argument);
        Ok(match name {
            "/help" => SlashCommand::Help,
            "/reset" => SlashCommand::Reset,
            "/system" => SlashCommand::System(text),
            "/image" => SlashCommand::Image(file()),
            "/stats" => SlashCommand::Stats,
            "/regenerate" => SlashCommand::Regenerate,
            "/undo" => SlashCommand::Undo,
            "/save" => SlashCommand::Save(file()),
            "/load" => SlashCommand::Load(file()),
            "/set" => SlashCommand::Set(text.map(|text| match text.split_once(char::is_whitespace) {
                Some((name, value)) => (name.into(), Some(value.trim().into())),
                None => (text, None),
            })),
            _ => SlashCommand::Quit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Input> {
        let mut lines = InputLines::default();
        let mut found: Vec<Input> = text.split('\n').filter_map(|line| lines.push(line)).collect();
        found.extend(lines.finish().expect("no block is open"));
        found
    }

    fn message(text: &str) -> Input {
        Input::Message(text.into())
    }

    #[test]
    fn lines_become_messages_and_commands() {
        assert_eq!(
            read("one\n\n  \n /help \ntwo"),
            [message("one"), Input::Slash("/help".into()), message("two")]
        );
        assert_eq!(read("one\\\n  two\\\nthree\nfour"), [message("one\n  two\nthree"), message("four")]);
        assert_eq!(read("one\\\n/not a command"), [message("one\n/not a command")]);
        assert_eq!(read("one\\"), [message("one")]);
    }

    #[test]
    fn a_block_holds_any_lines() {
        assert_eq!(read("\"\"\"\na\n\n/b\\\n\"\"\"\nc"), [message("a\n\n/b\\"), message("c")]);
        assert_eq!(read("\"\"\"/a \"\"\""), [message("/a ")]);
        assert_eq!(read(" \"\"\"a\nb\"\"\" "), [message("a\nb")]);
        assert_eq!(read("\"\"\"\n\"\"\""), []);
        let mut lines = InputLines::default();
        assert!(lines.push("\"\"\"a").is_none() && lines.is_open() && lines.finish().is_err());
        lines.clear();
        assert_eq!(lines.push("b"), Some(message("b")));
    }

    #[test]
    fn commands_are_read_with_their_arguments() {
        let parse = |line: &str| SlashCommand::parse(line).ok();
        assert_eq!(parse("/system  be kind "), Some(SlashCommand::System(Some("be kind".into()))));
        assert_eq!(parse("/system"), Some(SlashCommand::System(None)));
        assert_eq!(parse("/save a b.json"), Some(SlashCommand::Save("a b.json".into())));
        let set = SlashCommand::Set(Some(("stop".into(), Some("a b".into()))));
        assert_eq!(parse("/set stop  a b"), Some(set));
        assert_eq!(parse("/set seed"), Some(SlashCommand::Set(Some(("seed".into(), None)))));
        for wrong in ["/", "/exit", "/save", "/quit now", "/helpme", "/usr/bin/x: not found"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_command_is_one_of_its_own() {
        let parsed = COMMANDS.iter().map(|[name, form, _]| {
            let line = if *form == "FILE" { format!("{name} x") } else { name.to_string() };
            SlashCommand::parse(&line).expect("a command")
        });
        let parsed: Vec<SlashCommand> = parsed.collect();
        let quits = parsed.iter().filter(|command| **command == SlashCommand::Quit).count();
        assert_eq!((quits, parsed.len()), (1, COMMANDS.len()));
        assert!(COMMANDS.iter().all(|[name, ..]| help().contains(name)));
    }
}
