//! A kernel's source as mutation operators see it: live functions, and typed expressions with their places in the text.
//!
//! Mutation operators see both languages in one form. They ask for the language only where the texts differ.

mod cuda;
mod parsed;
mod tree;
mod types;
mod values;
mod wgsl;

pub use parsed::{Binary, FloatSum, NumberClass, closing_bracket};

use parsed::Parsed;
use std::ops::Range;
use tapml_device::{KernelDesc, Language};
use tapml_graph::Result;

/// The source of one kernel.
pub struct KernelSource {
    /// Prelude and text.
    pub full: String,
    /// Hash of the full source.
    pub hash: String,
    /// Its language.
    pub language: Language,
    /// The same with comments blanked: positions are equal.
    pub code: String,
    /// Bodies of the functions that the entry point reaches, by name; those of the prelude among them.
    pub live: Vec<(String, Range<usize>)>,
    /// Parts of them that these constants never reach, where that can be told.
    pub dead: Vec<Range<usize>>,
    /// Expressions of two operands in live functions, by place.
    pub binaries: Vec<Binary>,
    /// Statements of live functions with their semicolons. Headers of loops and blocks are none.
    pub statements: Vec<Range<usize>>,
    /// Those of them that add to a float.
    pub sums: Vec<FloatSum>,
    /// Names that are given to values in live functions, with the values.
    pub inits: Vec<(String, Range<usize>)>,
    /// Literal numbers with a fraction in live functions; of WGSL none are looked for.
    pub floats: Vec<Range<usize>>,
    /// Bytes of the prelude, which stands first.
    prelude: usize,
    /// The kernel's file, for diffs.
    file: String,
}

impl KernelSource {
    /// Parses a kernel.
    ///
    /// # Errors
    ///
    /// A text that does not parse, or that has no such entry point.
    pub fn parse(desc: &KernelDesc) -> Result<KernelSource> {
        let full = desc.source.full();
        let parsed = match desc.source.language {
            Language::Wgsl => wgsl::read(desc, &full)?,
            Language::Cuda => cuda::read(desc, &full)?,
        };
        let Parsed { code, live, dead, binaries, statements, sums, inits, floats } = parsed;
        Ok(KernelSource {
            hash: blake3::hash(full.as_bytes()).to_hex()[..16].to_string(),
            full,
            language: desc.source.language,
            code,
            live,
            dead,
            binaries,
            statements,
            sums,
            inits,
            floats,
            prelude: desc.source.prelude.len(),
            file: desc.source.file.clone(),
        })
    }

    /// Whether it is CUDA C++.
    pub fn is_cuda(&self) -> bool {
        self.language == Language::Cuda
    }

    /// Whether a byte lies in a live function, and not in a part that is never reached.
    pub fn is_live(&self, at: usize) -> bool {
        // `live` has whole bodies; `dead` takes parts out of them.
        let live = self.live.iter().any(|(_, range)| range.contains(&at));
        live && !self.dead.iter().any(|range| range.contains(&at))
    }

    /// Whether a byte lies in the kernel's own text rather than in what stands before it.
    pub fn is_own(&self, at: usize) -> bool {
        at >= self.prelude
    }

    /// Places of `needle` in live functions that are whole words at both ends, if those are letters.
    pub fn find<'a>(&'a self, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
        let word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        self.code.match_indices(needle).map(|(at, _)| at).filter(move |&at| {
            let before = self.code[..at].chars().next_back();
            let after = self.code[at + needle.len()..].chars().next();
            // A needle that begins with a sign may stand behind anything.
            let starts = !word(needle.chars().next()) || !word(before);
            let ends = !word(needle.chars().next_back()) || !word(after);
            starts && ends && self.is_live(at)
        })
    }

    /// Headers of `for` loops in live functions: between the parentheses.
    pub fn loops(&self) -> Vec<Range<usize>> {
        let headers = self.find("for").filter_map(|at| {
            let open = at + self.code[at..].find('(')?;
            Some(open + 1..closing_bracket(&self.code, open)?)
        });
        headers.collect()
    }

    /// Whether a range lies in the header of a loop.
    pub fn in_loop_header(&self, range: &Range<usize>) -> bool {
        self.loops().iter().any(|l| l.start <= range.start && range.end <= l.end)
    }

    /// The statement around a place; the place itself if there is none.
    pub fn statement_around(&self, range: &Range<usize>) -> Range<usize> {
        let holds = |s: &&Range<usize>| s.start <= range.start && range.end <= s.end;
        self.statements.iter().filter(holds).min_by_key(|s| s.len()).unwrap_or(range).clone()
    }

    /// The diff of replacing a range, with the file and the line.
    pub fn diff(&self, range: &Range<usize>, new: &str) -> String {
        let line_start = self.full[..range.start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.full[range.end..].find('\n').map_or(self.full.len(), |at| range.end + at);
        let (before, after) = (&self.full[line_start..range.start], &self.full[range.end..line_end]);
        let old = self.full[line_start..line_end].trim();
        let place = self.place(range.start);
        format!("{place}\n- {old}\n+ {}", format!("{before}{new}{after}").trim())
    }

    /// File and line of a byte; of what stands before the text, the header that it is from, if it says so.
    fn place(&self, at: usize) -> String {
        let number = |from: usize| self.full[from..at].matches('\n').count() + 1;
        if self.is_own(at) {
            return format!("{}:{}", self.file, number(self.prelude));
        }
        // Preludes of CUDA mark where each header begins.
        let mark = "#line 1 \"";
        let header = self.full[..at].rfind(mark).and_then(|start| {
            let (name, _) = self.full[start + mark.len()..].split_once('"')?;
            // Lines of a header are counted from behind its mark.
            let first = start + self.full[start..].find('\n')? + 1;
            (first <= at).then(|| format!("{name}:{}", number(first)))
        });
        header.unwrap_or_else(|| format!("{} (before it, line {})", self.file, number(0)))
    }
}
