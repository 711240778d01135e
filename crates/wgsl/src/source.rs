//! Where in a kernel's file a span of the compiled text lies.
//!
//! Text is only ever replaced by spaces of the same length behind the header, so a byte of the compiled
//! text has its place in the file by subtraction.

use naga::Span;
use tapml_device::{Error, ErrorKind, Source};

/// The extension for matrices that subgroups hold, by naga's name.
const MATRICES: &str = "wgpu_cooperative_matrix";

/// The text given to the front end, and how its positions map to the kernel's file.
#[derive(Clone, Debug)]
pub struct SourceMap {
    /// Prelude and text as they were given.
    source: Source,
    /// What the front end parses: directives, prelude and text.
    pub text: String,
    /// Bytes of directives in front of the first line.
    header: usize,
    /// Whether `f16` is enabled.
    pub wants_f16: bool,
}

/// A place in a kernel's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, or the file's name followed by `prelude` if the place is in the prelude.
    pub file: String,
    /// From 1; 0 if unknown.
    pub line: u32,
    /// From 1, in bytes; 0 if unknown.
    pub column: u32,
    /// The line's text, trimmed.
    pub source: String,
}

impl SourceMap {
    /// Prepares a source for the front end. Directives may stand anywhere in WGSL assembled from pieces: they are blanked,
    /// and those that naga wants are put in front.
    pub fn new(source: &Source, needs_f16: bool) -> SourceMap {
        let (mut wants_f16, mut wants_matrices) = (needs_f16, false);
        let (mut body, mut others) = (String::new(), String::new());
        for line in source.full().split_inclusive('\n') {
            let enabled = enabled_extensions(line);
            if let Some(names) = &enabled {
                wants_f16 |= names.contains(&"f16");
                wants_matrices |= names.contains(&MATRICES);
            } else if is_directive(line) {
                // Directives must stand before everything else.
                others = format!("{others}{} ", line.trim());
            } else {
                body.push_str(line);
                continue;
            }
            // Blanks of the same length keep lines and columns.
            body.extend(line.bytes().map(|c| if c == b'\n' { '\n' } else { ' ' }));
        }
        // One line in front, without a line break: line numbers stay.
        let mut header = String::from(if wants_f16 { "enable f16; " } else { "" });
        if wants_matrices {
            header += &format!("enable {MATRICES}; ");
        }
        header += &others;
        SourceMap { source: source.clone(), header: header.len(), text: header + &body, wants_f16 }
    }

    /// The line (from 1) of the full text that holds a span's first byte; 0 if unknown.
    pub fn line(&self, span: Span) -> u32 {
        let before = span.to_range().and_then(|range| self.text.get(..range.start));
        before.map_or(0, |before| before.matches('\n').count() as u32 + 1)
    }

    /// The place where a line of the full text (from 1) begins.
    pub fn locate_line(&self, full_line: u32) -> Location {
        let file = self.source.file.clone();
        let text = self.text.lines().nth(full_line.saturating_sub(1) as usize).unwrap_or_default();
        let source = text.trim().to_string();
        match self.source.line_in_text(full_line) {
            Some(line) => Location { file, line, column: 1, source },
            None => Location { file: format!("{file} (prelude)"), line: full_line, column: 1, source },
        }
    }

    /// The place of a span's first byte.
    pub fn locate(&self, span: Span) -> Location {
        let unknown = Location { file: self.source.file.clone(), line: 0, column: 0, source: String::new() };
        let Some(range) = span.to_range() else { return unknown };
        let Some(before) = self.text.get(..range.start) else { return unknown };
        let full_line = before.matches('\n').count() as u32 + 1;
        let line_start = before.rfind('\n').map_or(0, |p| p + 1);
        // The header stands in the first line.
        let skipped = if line_start == 0 { self.header } else { 0 };
        let column = (range.start - line_start).saturating_sub(skipped) as u32 + 1;
        let line_text = self.text[line_start..].lines().next().unwrap_or_default();
        let source = line_text.get(skipped..).unwrap_or_default().trim().to_string();
        match self.source.line_in_text(full_line) {
            Some(line) => Location { line, column, source, ..unknown },
            None => {
                Location { file: format!("{} (prelude)", self.source.file), line: full_line, column, source }
            }
        }
    }

    /// An error at a span, with the source line in its message.
    pub fn error(&self, kind: ErrorKind, kernel: &str, span: Span, message: &str) -> Error {
        let at = self.locate(span);
        let text = match at.line {
            0 => format!("kernel `{kernel}`: {}: {message}", at.file),
            _ => format!(
                "kernel `{kernel}`: {}:{}:{}: {message}: `{}`",
                at.file, at.line, at.column, at.source
            ),
        };
        Error::new(kind, text).with_detail("kernel", kernel).with_detail("line", at.line.to_string())
    }
}

/// The extensions that a line enables, if it is an `enable` directive of extensions that are known.
fn enabled_extensions(line: &str) -> Option<Vec<&str>> {
    let list = line.trim().strip_prefix("enable ")?.strip_suffix(';')?;
    let names: Vec<_> = list.split(',').map(str::trim).collect();
    names.iter().all(|name| ["f16", "subgroups", MATRICES].contains(name)).then_some(names)
}

/// Whether a line is a `requires` or `diagnostic` directive.
fn is_directive(line: &str) -> bool {
    let line = line.trim();
    (line.starts_with("requires ") || line.starts_with("diagnostic(")) && line.ends_with(';')
}
