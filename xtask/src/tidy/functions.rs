//! The lines of functions in the languages beside Rust. They are told by their layout: a function of Python ends before the
//! next line that is indented no deeper, one of the others at the bracket below the line that opened it.

use super::sizes::FUNCTION_LINES;

/// Words that begin a line with a bracket behind it and no function.
const NO_FUNCTIONS: &[&str] =
    &["if", "for", "while", "switch", "else", "loop", "return", "const", "let", "}", "//", "*"];

/// A function of a text: its first line, counted from 1, and how many it has.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    line: usize,
    lines: usize,
}

/// Tells the functions of a file with this ending that are too long.
pub fn check(name: &str, ending: &str, text: &str, errors: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let found = if ending == "py" { of_python(&lines) } else { in_brackets(&lines) };
    for Function { line, lines } in found.into_iter().filter(|found| found.lines > FUNCTION_LINES) {
        errors.push(format!("{name}:{line}: a function has {lines} lines, at most {FUNCTION_LINES}"));
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn of_python(lines: &[&str]) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let word = line.trim_start().strip_prefix("async ").unwrap_or(line.trim_start());
        if !word.starts_with("def ") {
            continue;
        }
        // A bracket that closes the parameters stands as deep as the function.
        let is_behind = |next: &&str| {
            !next.trim().is_empty()
                && indent(next) <= indent(line)
                && !next.trim_start().starts_with([')', ']'])
        };
        let end = lines[at + 1..].iter().position(is_behind).map_or(lines.len(), |more| at + 1 + more);
        let blank = lines[at..end].iter().rev().take_while(|line| line.trim().is_empty()).count();
        found.push(Function { line: at + 1, lines: end - at - blank });
    }
    found
}

fn in_brackets(lines: &[&str]) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let word = line.trim_start();
        let first = word.split(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
        if !line.ends_with('{') || !line.contains('(') || NO_FUNCTIONS.contains(&first) {
            continue;
        }
        let closing = format!("{}}}", " ".repeat(indent(line)));
        if let Some(more) = lines[at..].iter().position(|next| next.starts_with(&closing)) {
            found.push(Function { line: at + 1, lines: more + 1 });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Function, in_brackets, of_python};

    #[test]
    fn functions_end_where_their_layout_says() {
        let python = "class A:\n    def f(\n        self,\n    ) -> int:\n        return 1\n\n    async def g(self):\n        pass\n\n\nx = 1\n";
        let lines: Vec<&str> = python.lines().collect();
        assert_eq!(of_python(&lines), [Function { line: 2, lines: 4 }, Function { line: 7, lines: 2 }]);
        let wgsl = "struct S {\n    a: f32,\n}\n\nfn f(a: f32) -> f32 {\n    if a > (0.0) {\n        return a;\n    }\n    return 0.0;\n}\n";
        let lines: Vec<&str> = wgsl.lines().collect();
        assert_eq!(in_brackets(&lines), [Function { line: 5, lines: 6 }]);
        let script = "class B {\n    run(a: number): void {\n        for (;;) {\n        }\n    }\n}\n";
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!(in_brackets(&lines), [Function { line: 2, lines: 4 }]);
    }
}
