//! The directives at the head of a user's kernel: `enable`, `requires` and `diagnostic`. WGSL wants them before all
//! declarations, so before those that stand in front of the kernel. And what a comment line declares of its sums, such as
//! `// accumulate: f32 serial`.
//!
//! Every byte of a text keeps its place: what is taken out is replaced by spaces, so that messages of the front end
//! name the line and column of the user's file.

use crate::wgsl;
use tapml_device::{Language, Source};
use tapml_graph::{DType, Error, Result};

/// How a user's kernel adds up, as its file declares.
///
/// A verdict bounds the rounding error of a kernel by it, in place of the built-in kernel's own figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredSums {
    /// The dtype of sums.
    pub dtype: DType,
    /// The longest serial chain of additions.
    pub chain: DeclaredChain,
}

/// The longest serial chain of additions that a user's kernel declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredChain {
    /// All terms of a sum are added one after the other.
    Serial,
    /// So many are.
    /// At least 1; it fits 32 bits.
    Longest(u64),
}

/// What such a comment begins with.
/// Spaces between the slashes and this word are allowed.
const ACCUMULATE: &str = "accumulate:";
/// The forms of the declaration.
const FORMS: &str =
    "`// accumulate: f32 serial` or `// accumulate: f32 chain=N`, with f16 or f32 and N from 1 on";

/// A kernel's text and what its directives said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// The text with spaces in the place of its directives, so that lines and columns stay.
    /// It ends in a line break.
    pub text: String,
    /// The other directives, one per line: those that have to stand in front.
    /// `enable f16` and `enable subgroups` are not among them: devices add these by themselves.
    pub front: String,
    /// Whether `f16` is enabled.
    pub f16: bool,
    /// Whether `subgroups` is enabled.
    pub subgroups: bool,
    /// How it declares to add up; `None` if it does not say.
    pub sums: Option<DeclaredSums>,
}

impl Directives {
    /// Takes the directives off a text; `file` is for messages. Fails on a directive that the front end does not know, and
    /// on a declaration of sums in another form.
    ///
    /// # Errors
    /// Both kinds name the line. A directive behind the first declaration is left in the text for the front end to
    /// refuse.
    pub fn split(file: &str, text: &str) -> Result<Directives> {
        let sums = declared_sums(file, text)?;
        let mut found = Directives { text: text.to_string(), sums, ..Directives::default() };
        let (mut at, mut head) = (0, String::new());
        while let Some((start, end)) = next(text, at) {
            let directive = plain(&text[start..end]);
            let kept = found.note(&directive);
            head += &blank(&text[at..start]);
            // naga does not know `subgroups`; the devices and the validator here take them without.
            // A word of equal length keeps the columns of the rest.
            let known = text[start..end].replace("subgroups", "f16      ");
            head += &if kept { known } else { blank(&text[start..end]) };
            found.text.replace_range(start..end, &blank(&text[start..end]));
            at = end;
        }
        // Only directives remain in `head`, so that no declaration of the user is parsed without its prelude.
        if !found.front.is_empty() {
            // The front end's word on each directive, at its place in the file.
            let (file, prelude) = (file.to_string(), String::new());
            wgsl::parse(&Source { language: Language::Wgsl, file, prelude, text: head }, false)?;
        }
        found.text += if text.ends_with('\n') { "" } else { "\n" };
        Ok(found)
    }

    /// What a text in CUDA C++ says: how it adds up, in a comment line. Fails as [`Directives::split`].
    pub fn of_cuda(file: &str, text: &str) -> Result<Directives> {
        let (sums, text) = (declared_sums(file, text)?, text.to_string());
        Ok(Directives { text, sums, ..Directives::default() })
    }

    /// Notes a directive; says whether the front end has to see it.
    ///
    /// An `enable` line of which some names are known is split: known ones set flags, the others go to `front`.
    fn note(&mut self, directive: &str) -> bool {
        let names = directive.strip_prefix("enable ").and_then(|rest| rest.strip_suffix(';'));
        let names: Vec<&str> =
            names.map(|names| names.split(',').map(str::trim).collect()).unwrap_or_default();
        self.f16 |= names.contains(&"f16");
        self.subgroups |= names.contains(&"subgroups");
        // The empty name is what a trailing comma leaves.
        let flags = |name: &&str| matches!(*name, "f16" | "subgroups" | "");
        if !names.is_empty() && names.iter().all(flags) {
            return false;
        }
        self.front += &if names.is_empty() {
            format!("{directive}\n")
        } else {
            names.iter().filter(|n| !flags(n)).map(|name| format!("enable {name};\n")).collect()
        };
        true
    }
}

/// What a comment line of a text declares of its sums.
///
/// The last of two would decide silently, so that a second declaration is an error.
fn declared_sums(file: &str, text: &str) -> Result<Option<DeclaredSums>> {
    let mut found = None;
    for (number, line) in (1..).zip(text.lines()) {
        let comment = line.trim_start().strip_prefix("//").map(str::trim);
        let Some(declared) = comment.and_then(|text| text.strip_prefix(ACCUMULATE)) else { continue };
        let at = |text: String| {
            Error::invalid(format!("{file}:{number}: {text}"))
                .with_detail("file", file)
                .with_detail("line", number.to_string())
                .with_hint("how a kernel adds up is declared in one comment line, which decides what rounding explains")
        };
        let sums = parse_sums(declared.trim())
            .ok_or_else(|| at(format!("expected {FORMS}, found `{}`", comment.unwrap_or_default())))?;
        if found.replace(sums).is_some() {
            return Err(at("expected one declaration of how the kernel adds up, found a second one".into()));
        }
    }
    Ok(found)
}

/// Reads `f32 serial` or `f32 chain=N`.
fn parse_sums(text: &str) -> Option<DeclaredSums> {
    let (dtype, chain) = text.split_once(char::is_whitespace)?;
    let dtype = match dtype {
        "f32" => DType::F32,
        "f16" => DType::F16,
        _ => return None,
    };
    let chain = match chain.trim() {
        "serial" => DeclaredChain::Serial,
        longest => {
            let count = longest.strip_prefix("chain=")?.parse::<u32>().ok().filter(|&count| count > 0)?;
            DeclaredChain::Longest(count.into())
        }
    };
    Some(DeclaredSums { dtype, chain })
}

/// Where the next directive starts, if one comes next behind `at`, and where it ends behind its semicolon.
///
/// Bounds are bytes. A directive without a semicolon is none: the search fails at the end of the text.
fn next(text: &str, at: usize) -> Option<(usize, usize)> {
    let start = code(text, at);
    let word = text[start..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    word.filter(|word| ["enable", "requires", "diagnostic"].contains(word))?;
    let mut end = start;
    // Comments are skipped: a semicolon within one does not end the directive.
    while text.as_bytes().get(end) != Some(&b';') {
        end = code(text, end + text[end..].chars().next()?.len_utf8());
    }
    Some((start, end + 1))
}

/// The first byte from `at` on that is neither space nor comment.
/// It is the length of the text if there is none.
fn code(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start().len();
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += comment(rest);
        } else {
            return at;
        }
    }
}

/// The bytes of the comment that the text begins with; comments nest.
/// One that does not end takes the rest of the text.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(two) = text.as_bytes().get(at..at + 2) {
        match two {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// A directive on one line, without comments.
/// A space stands wherever the text has spaces or comments.
fn plain(directive: &str) -> String {
    let (mut line, mut at) = (String::new(), 0);
    while at < directive.len() {
        let start = code(directive, at);
        line += if start > at && at > 0 { " " } else { "" };
        let Some(c) = directive[start..].chars().next() else { break };
        line.push(c);
        at = start + c.len_utf8();
    }
    line
}

/// Spaces in the place of all but line breaks.
/// There is one character for each byte, so that byte offsets stay those of the text.
fn blank(text: &str) -> String {
    text.bytes().map(|c| if c == b'\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tapml_graph::ErrorKind;

    fn split(text: &str) -> Directives {
        Directives::split("mine.wgsl", text).unwrap()
    }

    #[test]
    fn flags_are_noted_and_others_go_in_front() {
        let text = "// First.\nenable f16, subgroups; /* and /* nested ; */ */ requires\n  packed_4x8_integer_dot_product;\n\
                    diagnostic(off, derivative_uniformity); override enable_it: u32 = 1u;\n";
        let found = split(text);
        assert!(found.f16 && found.subgroups);
        let front = "requires packed_4x8_integer_dot_product;\ndiagnostic(off, derivative_uniformity);\n";
        assert_eq!(found.front, front);
        assert_eq!(found.text.len(), text.len());
        assert_eq!(found.text.lines().count(), text.lines().count());
        let last = found.text.lines().last().unwrap();
        assert_eq!((last.trim(), last.find("override")), ("override enable_it: u32 = 1u;", Some(40)));
        assert!(!found.text.contains("requires") && found.text.contains("nested"));
    }

    #[test]
    fn without_directives_the_text_stays() {
        for text in [
            "",
            "fn f() {}",
            "// enable f16;\nfn f() {}",
            "/* enable f16; */",
            "enabled",
            "/* open",
            "@diagnostic(off, x)",
        ] {
            let found = split(text);
            assert_eq!(found, Directives { text: format!("{text}\n"), ..Directives::default() });
        }
        assert_eq!(split("enable f16").text, "enable f16\n", "a directive ends with a semicolon");
        // Behind the first declaration it is none; the front end says so.
        assert_eq!(split("fn f() {}\nenable f16;\n").text, "fn f() {}\nenable f16;\n");
        assert_eq!(split("enable f16;enable subgroups;fn f() {}").text.trim(), "fn f() {}");
    }

    #[test]
    fn unknown_directives_are_errors_at_their_place() {
        for (text, line) in [
            ("enable f16;\n\n  enable abacus;\n", "3"),
            ("// é\nrequires telepathy;", "2"),
            ("enable subgroups, abacus;", "1"),
            ("diagnostic(loud, derivative_uniformity);", "1"),
        ] {
            let error = Directives::split("mine.wgsl", text).unwrap_err();
            assert_eq!((error.kind(), error.detail("line")), (ErrorKind::Compile, Some(line)), "{error}");
            assert!(error.to_string().starts_with(&format!("mine.wgsl:{line}:")), "{error}");
        }
    }

    #[test]
    fn a_comment_line_declares_how_a_kernel_adds_up() {
        let sums = |dtype, chain| Some(DeclaredSums { dtype, chain });
        for (text, expected) in [
            ("// accumulate: f32 serial\nfn f() {}", sums(DType::F32, DeclaredChain::Serial)),
            ("enable f16;\n  //accumulate:  f16   serial \n", sums(DType::F16, DeclaredChain::Serial)),
            ("fn f() {} // no\n// accumulate: f32 chain=48\n", sums(DType::F32, DeclaredChain::Longest(48))),
            ("// what we accumulate: nothing\n", None),
            ("let x = 1; // accumulate: anything\n", None),
        ] {
            assert_eq!(split(text).sums, expected, "{text}");
        }
    }

    #[test]
    fn a_malformed_declaration_of_sums_is_told_with_its_place() {
        for (text, line, words) in [
            ("\n// accumulate: serial\n", "2", "found `accumulate: serial`"),
            ("// accumulate: f64 serial\n", "1", "f64"),
            ("// accumulate: f32 chain=0\n", "1", "chain=0"),
            ("// accumulate: f32 chain=many\n", "1", "chain=many"),
            ("// accumulate:\n", "1", "expected `// accumulate: f32 serial`"),
            ("// accumulate: f32 serial\n\n// accumulate: f16 serial\n", "3", "a second one"),
        ] {
            let error = Directives::split("mine.wgsl", text).unwrap_err();
            assert_eq!(
                (error.kind(), error.detail("line")),
                (ErrorKind::InvalidInput, Some(line)),
                "{error}"
            );
            assert!(error.to_string().starts_with(&format!("mine.wgsl:{line}: ")), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_keeps_its_lines(text in "(enable |requires |diagnostic|f16|;|é|/\\*|\\*/|//|\n| |\\(off, a\\)|fn){0,12}") {
            if let Ok(found) = Directives::split("mine.wgsl", &text) {
                let breaks = |text: &str| text.matches('\n').count();
                let added = usize::from(!text.ends_with('\n'));
                prop_assert_eq!(breaks(&found.text), breaks(&text) + added);
            }
        }
    }
}
