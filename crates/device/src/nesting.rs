//! How deeply the expressions and blocks of a text in WGSL are nested. Front ends recurse over them, and a text of a stranger
//! with ten thousand signs in a row ends a process that runs out of stack. So texts are measured before they are read.

use crate::kernel::{Language, Source};
use tapml_graph::{Error, ErrorKind, Result};

// The emulator's and the printers' stacks have room for this depth.
/// Deepest nesting that is read: kernels stay below 60. A front end takes a few KiB of stack for each level.
const MAX_DEPTH: usize = 200;

impl Source {
    /// Fails with [`ErrorKind::Compile`] if a text in WGSL is nested so deeply that front ends could run out of stack. The
    /// details hold `file` and `line`.
    pub fn check_nesting(&self) -> Result<()> {
        if self.language != Language::Wgsl {
            return Ok(());
        }
        let full = self.full();
        let Some(line) = too_deep(&full) else { return Ok(()) };
        let within = self.line_in_text(line as u32);
        let place = match within {
            Some(line) => format!("{}:{line}", self.file),
            None => format!("{} (what stands before it, line {line})", self.file),
        };
        let text = format!("{place}: more than {MAX_DEPTH} operators, brackets or blocks within each other");
        let error = Error::new(ErrorKind::Compile, text).with_detail("file", &self.file);
        Err(error
            .with_detail("line", within.unwrap_or(line as u32).to_string())
            .with_hint("take the expression apart with `let`"))
    }
}

/// The line at which a text is nested beyond [`MAX_DEPTH`]. Every open bracket or block is a level, and so is every operator in
/// front of this place in an expression around it: operators of one expression form a tree as deep as they are many.
fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // Operators of the expression under way at each level.
    // `depth` is the sum over all levels of 1 and its operators.
    let mut levels: Vec<usize> = vec![0];
    let (mut depth, mut line, mut at) = (1, 1, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") || rest.starts_with(b"/*") {
            let comment = comment_len(rest);
            line += rest[..comment].iter().filter(|b| **b == b'\n').count();
            at += comment;
            continue;
        }
        // There is a level always.
        let own = levels.last_mut()?;
        match rest[0] {
            b'\n' => line += 1,
            b'(' | b'[' | b'{' => {
                levels.push(0);
                depth += 1;
            }
            b')' | b']' | b'}' => {
                depth -= 1 + *own;
                levels.pop();
                if levels.is_empty() {
                    // Brackets that do not match are for the front end to tell.
                    levels.push(0);
                    depth = 1;
                }
                if rest[0] == b'}' && !follows_else(&rest[1..]) {
                    depth -= std::mem::take(levels.last_mut()?);
                }
            }
            // The expression has ended.
            b';' | b',' => depth -= std::mem::take(own),
            b'+' | b'-' | b'*' | b'/' | b'%' | b'&' | b'|' | b'^' | b'!' | b'~' | b'<' | b'>' | b'='
            | b'.' => {
                *own += 1;
                depth += 1;
            }
            // A chain of `else if` nests as deep as it is long.
            b'e' if rest.starts_with(b"else") => {
                *own += 1;
                depth += 1;
                at += 3;
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(line);
        }
        at += 1;
    }
    None
}

/// Bytes of the comment that a text begins with.
fn comment_len(text: &[u8]) -> usize {
    if text.starts_with(b"//") {
        // Up to the end of the line, which is counted outside.
        return text.iter().position(|b| *b == b'\n').unwrap_or(text.len());
    }
    // Block comments of WGSL nest.
    let (mut open, mut at) = (0usize, 0);
    while at < text.len() {
        match &text[at..] {
            [b'/', b'*', ..] => (open, at) = (open + 1, at + 2),
            [b'*', b'/', ..] => (open, at) = (open - 1, at + 2),
            _ => at += 1,
        }
        if open == 0 {
            break;
        }
    }
    at
}

/// Whether `else` follows a closing brace: the chain goes on.
fn follows_else(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"else")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure_nesting(expression: &str) -> Option<usize> {
        too_deep(&format!("fn f() -> u32 {{\n    return {expression};\n}}\n"))
    }

    #[test]
    fn what_front_ends_would_recurse_over_is_refused() {
        for (piece, end) in [
            ("!", "true"),
            ("1+", "1"),
            ("*&", "x"),
            ("-", "1"),
            ("(", "1"),
            ("a[", "0"),
            ("vec2<", "f32"),
            ("a.", "x"),
        ] {
            assert_eq!(measure_nesting(&format!("{}{end}", piece.repeat(8000))), Some(2), "{piece}");
        }
        let chain = format!("fn f() {{\n{}{{}}\n}}", "if a {} else ".repeat(8000));
        assert_eq!(too_deep(&chain), Some(2), "else if");
        assert!(too_deep(&"{".repeat(8000)).is_some());
    }

    #[test]
    fn long_texts_that_are_not_deep_are_taken() {
        let statements = "x = a.b + c[d * 2] - f(1, 2);\n".repeat(5000);
        let blocks = "if x > 1 { y += 1; } else { y -= 1; }\n".repeat(5000);
        assert_eq!(too_deep(&format!("fn f() {{\n{statements}{blocks}}}\n")), None);
        let list = "1.0, ".repeat(10_000);
        assert_eq!(
            measure_nesting(&format!("array({list})[0] /* {} */ // {}", "!".repeat(9000), "-".repeat(9000))),
            None
        );
        for odd in [")", "}}}", "*/", "/*", "else", ""] {
            assert_eq!(too_deep(odd), None, "{odd}");
        }
    }
}
