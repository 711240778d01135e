//! Text on its way to people. All output of the command and the Python package passes here: names, errors and texts of models, agents and drivers are
//! others', and must neither command a terminal nor bury everything else.
//!
//! Two dangers are met: escape sequences that command a terminal, and characters that reorder or hide text
//! (Unicode TR 36 and CVE-2021-42574). TapML's own emphasis passes as two private marks.

use std::fmt::Write;

// Longer lines are data that nobody reads in a terminal.
/// Characters of a line that are shown.
const LINE: usize = 4000;
/// Lines of one error or detail that are shown.
const LINES: usize = 200;
/// Begin and end what [`strong`] makes; in a text of others they do no harm.
const MARKS: [char; 2] = ['\u{2}', '\u{3}'];

/// Bold red where the output is a terminal.
pub fn strong(text: &str) -> String {
    format!("{}{text}{}", MARKS[0], MARKS[1])
}

/// A report or a message: signs that command a terminal are spelt out, long lines cut. `styled` says whether it goes to a
/// terminal that shows styles.
pub fn report(text: &str, styled: bool) -> String {
    let mut out = String::with_capacity(text.len().min(1 << 20));
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        match line.char_indices().nth(LINE) {
            None => spell(line, styled, &mut out),
            Some((end, _)) => {
                spell(&line[..end], styled, &mut out);
                let _ = write!(out, "… ({} more bytes)", line.len() - end);
            }
        }
    }
    out
}

/// A text that is asked for as it is, such as that of a graph: [`report`] without cutting.
pub fn whole(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        spell(line, false, &mut out);
    }
    out
}

/// JSON text with what [`report`] spells out as JSON spells it.
///
/// JSON allows such characters in strings; a terminal that shows the file would obey them.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && (c.is_control() || hides(c)) {
            // JSON escapes are UTF-16 units: a character beyond the first plane takes two.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// The beginning of a text that others made, as part of a report: at most 200 lines.
pub fn first_lines(text: &str) -> String {
    match text.match_indices('\n').nth(LINES - 1) {
        None => text.into(),
        Some((end, _)) => {
            let rest = &text[end + 1..];
            format!("{}\n… ({} more lines)", &text[..end], rest.split('\n').count())
        }
    }
}

/// Adds a line with everything spelt out that a terminal would obey or that hides what stands beside it.
fn spell(line: &str, styled: bool, out: &mut String) {
    // A line that leaves a mark open must not colour the rest of the terminal.
    let mut open = false;
    // Line ends of Windows are no control characters to spell out.
    for c in line.strip_suffix('\r').unwrap_or(line).chars() {
        if MARKS.contains(&c) {
            open = c == MARKS[0];
            out.push_str(match (styled, open) {
                (false, _) => "",
                (true, true) => "\u{1b}[1;31m",
                (true, false) => "\u{1b}[0m",
            });
        } else if c != '\t' && (c.is_control() || hides(c)) {
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    if open && styled {
        out.push_str("\u{1b}[0m");
    }
}

/// Whether a character changes the order of others, ends a line unseen, or carries text that nobody sees.
fn hides(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_spelt_out() {
        let evil = "a\u{1b}[2Jb\u{9b}31m\u{7}\u{8}c\rd\u{202e}e\u{7f}\tä\r\nf";
        let seen = "a\\u{1b}[2Jb\\u{9b}31m\\u{7}\\u{8}c\\u{d}d\\u{202e}e\\u{7f}\tä\nf";
        assert_eq!(report(evil, true), seen);
        assert_eq!(whole(evil), seen);
        let text = format!("{} \u{2}x\ny\u{3}", strong("fault"));
        assert_eq!(report(&text, false), "fault x\ny");
        assert_eq!(report(&text, true), "\u{1b}[1;31mfault\u{1b}[0m \u{1b}[1;31mx\u{1b}[0m\ny\u{1b}[0m");
    }

    #[test]
    fn json_says_the_same_in_plain_signs() {
        let evil = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{e0041}ä\n";
        let text = json(&serde_json::to_string_pretty(&[evil]).unwrap());
        assert!(text.chars().all(|c| c == '\n' || c == 'ä' || (' '..='~').contains(&c)), "{text:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap()[0], evil);
    }

    #[test]
    fn long_lines_and_texts_are_cut() {
        let line = "ä".repeat(LINE + 3);
        assert_eq!(report(&format!("{line}\nb"), false), format!("{}… (6 more bytes)\nb", "ä".repeat(LINE)));
        assert_eq!(whole(&line), line);
        let lines = "a\n".repeat(1000);
        assert_eq!(first_lines(&lines).lines().count(), LINES + 1);
        assert!(first_lines(&lines).ends_with("… (801 more lines)"));
        assert_eq!(first_lines("a\nb"), "a\nb");
    }
}
