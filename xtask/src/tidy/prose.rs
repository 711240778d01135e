//! How pages for users are written: short sentences, and what holds now instead of what held before.

use super::markdown::{BlockKind, MarkdownPage, TextBlock};
use super::tracked_files;
use anyhow::{Context, Result};
use std::path::Path;

/// The most words that a page's sentences may have on average.
const WORDS: f64 = 20.0;

/// Pages outside `docs/` that the rules are for.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "RECIPES.md"];

/// A page that is made of the texts of `--help`. The length of its sentences is not counted.
const GENERATED: &str = "docs/reference/commands.md";

/// Phrases that tell the history of something instead of what it is. They are looked for outside code.
const HISTORY: &[&str] = &[
    "a run of the day before",
    "any more",
    "anymore",
    "earlier build",
    "earlier version",
    "formerly",
    "had been",
    "has been",
    "have been",
    "no longer",
    "not run again",
    "of the same day",
    "once",
    "previously",
    "so far",
    "until now",
    "used to",
    "yet",
];

/// Words that tell history in a text of `--help`. On a page they may tell the order of calls.
const HELP_HISTORY: &[&str] = &["earlier"];

/// What holds a phrase of [`HISTORY`] and tells no history.
const PRESENT: &[&str] = &["all at once", "at once"];

pub fn check(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    for file in tracked_files(root)? {
        let page = file.starts_with("docs/") && file.ends_with(".md") || PAGES.contains(&file.as_str());
        // A file that is deleted and not committed yet is tracked too.
        if !page || root.join(&file).symlink_metadata().is_err() {
            continue;
        }
        let text = std::fs::read_to_string(root.join(&file)).with_context(|| file.clone())?;
        errors.extend(problems(&file, &text));
    }
    Ok(())
}

fn problems(file: &str, text: &str) -> Vec<String> {
    let page = MarkdownPage::parse(text);
    let extra = if file == GENERATED { HELP_HISTORY } else { &[] };
    let mut problems: Vec<String> = page
        .blocks
        .iter()
        .filter_map(|block| Some((block.first_line, history(block, extra)?)))
        .map(|(line, phrase)| {
            format!("{file}:{line}: `{phrase}` tells history: say what holds now, without the word")
        })
        .collect();
    if file == GENERATED {
        return problems;
    }
    let lengths: Vec<usize> = page.blocks.iter().flat_map(sentences).collect();
    let (words, count) = (lengths.iter().sum::<usize>(), lengths.len().max(1));
    #[allow(clippy::cast_precision_loss, reason = "a page has few words")]
    let average = words as f64 / count as f64;
    if average > WORDS {
        problems.push(format!(
            "{file}: {average:.1} words a sentence on average, at most {WORDS}: one fact a sentence, many numbers in a table"
        ));
    }
    problems
}

/// The first phrase of a block that tells history, of [`HISTORY`] or of `extra`.
fn history(block: &TextBlock, extra: &[&'static str]) -> Option<&'static str> {
    let plain = block.plain().to_lowercase();
    let words: Vec<&str> = plain
        .split(|c: char| !c.is_alphanumeric() && c != '-' && c != '`')
        .filter(|word| !word.is_empty())
        .collect();
    let mut text = format!(" {} ", words.join(" "));
    for present in PRESENT {
        text = text.replace(&format!(" {present} "), " ");
    }
    HISTORY.iter().chain(extra).copied().find(|phrase| text.contains(&format!(" {phrase} ")))
}

/// The words of each sentence of a block. Headings, tables, and items of lists of links have no sentences.
fn sentences(block: &TextBlock) -> Vec<usize> {
    let text = block.plain();
    let link = block.kind == BlockKind::ListItem && text.starts_with('[');
    if link || matches!(block.kind, BlockKind::Heading | BlockKind::TableRow) {
        return Vec::new();
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut lengths = Vec::new();
    let mut length = 0;
    for (at, word) in words.iter().enumerate() {
        length += usize::from(word.contains(char::is_alphanumeric));
        if ends_sentence(word, words.get(at + 1)) && length > 0 {
            lengths.push(length);
            length = 0;
        }
    }
    lengths
}

/// Whether a sentence ends with a word. A full stop in front of a small letter belongs to an abbreviation.
fn ends_sentence(word: &str, next: Option<&&str>) -> bool {
    let Some(next) = next else { return true };
    let stops = word.trim_end_matches([')', '"', '*', '_']).ends_with(['.', '!', '?']);
    stops && !next.starts_with(char::is_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str) -> Vec<usize> {
        MarkdownPage::parse(text).blocks.iter().flat_map(sentences).collect()
    }

    #[test]
    fn sentences_are_counted_in_paragraphs_and_lists() {
        assert_eq!(lengths("One two three. Four five?\nSix\nseven."), [3, 2, 2]);
        assert_eq!(
            lengths("* One two:\n  three.\n* Four\n\n1. Five six. (Seven eight.) Nine"),
            [3, 1, 2, 2, 1]
        );
        assert_eq!(lengths("Takes 2.5 s e.g. on `one two three. four` — always."), [7]);
        assert_eq!(lengths("See [two words](a/long/target.md#x). `Code` begins"), [3, 2]);
    }

    #[test]
    fn code_headings_tables_and_lists_of_links_have_no_sentences() {
        for text in [
            "# One two.",
            "| one | two |\n|---|---|\n| three | four |",
            "    one two",
            "```\none two\n```",
            "* [one](two.md)",
            "* [one](two.md): three four.",
        ] {
            assert_eq!(lengths(text), Vec::<usize>::new(), "{text}");
        }
    }

    #[test]
    fn long_sentences_and_history_are_violations() {
        let long = "word ".repeat(21);
        assert_eq!(problems("a.md", &format!("Short. W{}", "ord w".repeat(20))), Vec::<String>::new());
        assert!(
            problems("a.md", &long)[0].starts_with("a.md: 21.0 words a sentence"),
            "{:?}",
            problems("a.md", &long)
        );
        for text in ["It was\nonce so.", "| used to | be |", "# No longer", "Not run\nagain: not run again."]
        {
            let found = problems("a.md", &format!("Fine.\n\n{text}"));
            assert!(found.len() == 1 && found[0].starts_with("a.md:3: `"), "{text}: {found:?}");
        }
    }

    #[test]
    fn texts_of_help_tell_no_history_and_may_have_long_sentences() {
        assert_eq!(problems(GENERATED, &"word ".repeat(21)), Vec::<String>::new());
        for phrase in ["so far", "earlier"] {
            let found = problems(GENERATED, &format!("| `--run N` | | The smallest call {phrase} |"));
            assert!(found.len() == 1 && found[0].contains(&format!("`{phrase}`")), "{found:?}");
        }
    }

    #[test]
    fn code_and_what_happens_together_is_no_history() {
        for text in [
            "All at once.",
            "At once, all.",
            "`used to`",
            "    once upon a time",
            "used together",
            "yet-another",
        ] {
            assert_eq!(problems("a.md", text), Vec::<String>::new(), "{text}");
        }
    }
}
