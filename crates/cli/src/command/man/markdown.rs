//! All commands as one page of Markdown, made of the same texts as `--help`.

use clap::{Arg, Command};
use std::fmt::Write;

/// What stands above the commands.
const HEAD: &str = "# Commands

What each command does, its arguments, options and defaults. This page is made of the texts of `--help`; a test checks that it
is current (`TAPML_BLESS=1` writes it). [command-line.md](command-line.md) has an overview, the exit codes, and what a MODEL may be.
";

/// The page of a command and of all below it that help shows. The command is built.
pub fn page(command: &Command) -> String {
    let mut text = String::from(HEAD);
    section(command, true, &mut text);
    text
}

/// Appends a command's section, and those of all below it.
fn section(command: &Command, top: bool, text: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about());
    let mut paragraphs: Vec<String> = vec![format!("## `{name}`")];
    let about = about.map(ToString::to_string).unwrap_or_default();
    paragraphs
        .extend(about.split("\n\n").filter(|part| !part.is_empty()).map(|part| sentence(&escape(part))));
    let usage = command.clone().render_usage().to_string();
    paragraphs.push(code(usage.strip_prefix("Usage: ").unwrap_or(&usage)));
    paragraphs.extend(table(command, top));
    if let Some(after) = command.get_after_help() {
        // `Example:` and, indented, command lines, which need no heading.
        let after = after.to_string();
        let lines = after.lines().filter(|line| !["Example:", "Examples:"].contains(&line.trim()));
        paragraphs.push(code(&lines.collect::<Vec<_>>().join("\n")));
    }
    for paragraph in paragraphs {
        let _ = write!(text, "\n{}\n", paragraph.trim_end());
    }
    // `clap` adds a command `help` to every command that has others.
    let shown = |below: &&Command| !below.is_hide_set() && below.get_name() != "help";
    for below in command.get_subcommands().filter(shown) {
        section(below, false, text);
    }
}

/// The arguments of a command; those of all commands are told at the top alone.
fn table(command: &Command, top: bool) -> Option<String> {
    let shown = |arg: &&Arg| {
        let own = top || !arg.is_global_set();
        own && !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
    };
    // Arguments without a name come first, as in the usage above the table.
    let (places, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(shown).partition(|arg| arg.is_positional());
    if places.is_empty() && options.is_empty() {
        return None;
    }
    let mut table = String::from("| argument | default | what it is |\n|---|---|---|\n");
    for arg in places.into_iter().chain(options) {
        let _ = writeln!(table, "| {} | {} | {} |", name(arg), default(arg), help(arg));
    }
    Some(table)
}

/// `--target PLATFORM`, `-v`, `--verbose`, or `SUITE`.
fn name(arg: &Arg) -> String {
    let values = arg.get_value_names().map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
    // `clap` shows the id in capitals where the value has no name.
    let values = values.unwrap_or_else(|| vec![arg.get_id().as_str().to_uppercase()]).join(" ");
    if arg.is_positional() {
        return format!("`{}`", cell(&values));
    }
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    let long = arg.get_long().map(|long| {
        if arg.get_action().takes_values() {
            format!("`--{long} {}`", cell(&values))
        } else {
            format!("`--{long}`")
        }
    });
    short.into_iter().chain(long).collect::<Vec<_>>().join(", ")
}

/// The default values; none for a flag.
fn default(arg: &Arg) -> String {
    // The default of a flag, `false`, tells nothing.
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let values = arg.get_default_values().iter().map(|value| format!("`{}`", cell(&value.to_string_lossy())));
    values.collect::<Vec<_>>().join(", ")
}

/// What help says of an argument, with the values that it takes.
fn help(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = cell(&escape(&help));
    if arg.get_action().takes_values() {
        let values = arg.get_possible_values();
        let names =
            values.iter().filter(|value| !value.is_hide_set()).map(|value| format!("`{}`", value.get_name()));
        let names = names.collect::<Vec<_>>();
        if !names.is_empty() {
            let _ = write!(help, ": {}", names.join(", "));
        }
    }
    help
}

/// A text that Markdown would take for a link or a tag, as it is.
fn escape(text: &str) -> String {
    // Within backquotes Markdown takes signs as they are.
    let mut code = false;
    let mut escaped = String::new();
    for c in text.chars() {
        code ^= c == '`';
        if !code && ['[', '<', '*'].contains(&c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// A text that stands in a cell of a table.
fn cell(text: &str) -> String {
    // A line break would end the row.
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Indented as a block of code.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| format!("    {}", line.trim()));
    lines.collect::<Vec<_>>().join("\n")
}

/// A paragraph that ends with a full stop: help leaves it out.
fn sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.ends_with(['.', ':', '!', '?']) { text } else { text + "." }
}
