//! Kernels in CUDA C++ that a user brings: their entry point and its parameters, read from the text.
//!
//! No compiler is at hand where a user's file is read. The text is searched for `extern "C" __global__` declarations
//! with a small scanner, which does not run the preprocessor. What it cannot tell is left to the compiler on the
//! device.

use crate::kernel::cuda;
use tapml_device::{BindingKind, KernelDesc};
use tapml_graph::{Error, ErrorKind, Result};

/// What an entry point takes.
///
/// The order is that of the bindings of the built-in kernel; tensor maps, if it has some, come behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// Pointers: the text of each, and whether it may be written through.
    Pointers(Vec<(String, bool)>),
    /// One structure of all pointers, `const __grid_constant__`; tensor maps may stand behind it.
    /// Its fields are not read here.
    Structure,
}

/// A text in CUDA C++ as devices take it, and its entry points.
#[derive(Clone, Debug)]
pub struct CudaText {
    /// The headers that it includes.
    pub prelude: String,
    /// The text without its includes.
    pub text: String,
    /// Names of the entry points with what they take.
    /// In the order of the text; a name may be there several times if the text declares it so.
    pub entries: Vec<(String, Parameters)>,
}

impl CudaText {
    /// Reads a text; `file` is for messages. Fails with [`ErrorKind::Compile`] on a header that there is not.
    ///
    /// Includes of TapML's headers are taken out of the text and resolved to the prelude.
    pub fn read(file: &str, text: &str) -> Result<CudaText> {
        if let Some((line, name)) = cuda::unknown_header(text) {
            let known: Vec<&str> = cuda::header_names().collect();
            let place = format!("{file}:{line}:1");
            let text =
                format!("{place}: expected a header of TapML, found `#include \"{}\"`", name.escape_debug());
            return Err(Error::new(ErrorKind::Compile, text)
                .with_detail("file", file)
                .with_detail("line", line.to_string())
                .with_detail("column", "1")
                .with_hint(format!("headers: {}", known.join(", "))));
        }
        let (prelude, own) = cuda::compose_text(text);
        Ok(CudaText { prelude, entries: entries(&plain(text)), text: own })
    }

    /// What of the interface is not as a built-in kernel has it, one sentence each.
    /// Empty if it fits. A structure of pointers is taken to fit, since its fields are not read.
    pub fn differences(&self, expected: &KernelDesc) -> Vec<String> {
        let found = self.entries.iter().find(|(name, _)| *name == expected.entry);
        let Some((_, parameters)) = found else {
            let names: Vec<&str> = self.entries.iter().map(|(name, _)| name.as_str()).collect();
            return vec![format!(
                "expected an entry point `extern \"C\" __global__ void {}(…)`, found [{}]",
                expected.entry,
                names.join(", ")
            )];
        };
        // The layout of a structure is the compiler's business.
        let Parameters::Pointers(found) = parameters else { return Vec::new() };
        // Constants `MAP0`, `MAP1`, … of the built-in kernel stand for its tensor maps, one each.
        let maps =
            (0..).take_while(|i| expected.constants.iter().any(|(name, _)| *name == format!("MAP{i}")));
        let (count, maps) = (expected.bindings.len(), maps.count());
        if found.len() != count + maps {
            let maps = if maps > 0 { format!(" and {maps} tensor maps") } else { String::new() };
            return vec![format!(
                "expected {count} pointers{maps} as parameters of `{}`, or one structure of them, found {}",
                expected.entry,
                found.len()
            )];
        }
        let wrong = |(at, (kind, (text, written))): (usize, (&BindingKind, &(String, bool)))| {
            let writes = *kind == BindingKind::ReadWrite;
            let word = if writes { "a pointer to what is written" } else { "a pointer to `const`" };
            (writes != *written).then(|| format!("parameter {at}: expected {word}, found `{text}`"))
        };
        expected.bindings.iter().zip(found).enumerate().filter_map(wrong).collect()
    }
}

/// The text with spaces in the place of comments and strings, so that what looks like code in them is none.
///
/// Strings end at the next quotation mark: an escaped one is not told apart. Line breaks within comments are lost, so
/// that places in the result are not places in the file.
fn plain(text: &str) -> String {
    // The linkage is a string that counts.
    const LINKAGE: &str = "\"C\"";
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(first) = rest.chars().next() {
        let (kept, len) = match rest {
            _ if rest.starts_with(LINKAGE) => (LINKAGE, LINKAGE.len()),
            _ if rest.starts_with("//") => (" ", rest.find('\n').unwrap_or(rest.len())),
            _ if rest.starts_with("/*") => (" ", rest.find("*/").map_or(rest.len(), |at| at + 2)),
            _ if first == '"' => (" ", rest[1..].find('"').map_or(rest.len(), |at| at + 2)),
            _ => (&rest[..first.len_utf8()], first.len_utf8()),
        };
        out.push_str(kept);
        rest = &rest[len..];
    }
    out
}

/// The kernels of a text without comments that are declared `extern "C"`.
fn entries(text: &str) -> Vec<(String, Parameters)> {
    text.split("extern \"C\"").skip(1).filter_map(entry).collect()
}

/// The kernel that a declaration, behind its linkage, is of: attributes, return type, name, parameters.
///
/// `None` for what is no kernel, such as a function with C linkage alone.
fn entry(declaration: &str) -> Option<(String, Parameters)> {
    let mut rest = declaration.trim_start().strip_prefix("__global__")?.trim_start();
    loop {
        // One word of the declaration at a time; the first that is neither a keyword nor an attribute is the name.
        let word = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        let behind = rest[word.len()..].trim_start();
        rest = match word {
            "" => return None,
            "void" | "static" | "inline" => behind,
            // An attribute, with arguments or without.
            _ if word.starts_with("__") => {
                if behind.starts_with('(') {
                    behind[group(behind)? + 2..].trim_start()
                } else {
                    behind
                }
            }
            _ => {
                let inside = &behind.strip_prefix('(')?[..group(behind)?];
                return Some((word.to_string(), parameters(inside)));
            }
        };
    }
}

/// The length of what stands in the parentheses that a text begins with.
/// `None` if they do not close.
fn group(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at - 1),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The parameters of an entry point, from the text between its parentheses.
fn parameters(text: &str) -> Parameters {
    let (mut depth, mut list) = (0, vec![String::new()]);
    for c in text.chars() {
        // Commas within templates, arrays or nested parentheses do not separate parameters.
        depth += i32::from(matches!(c, '(' | '<' | '[')) - i32::from(matches!(c, ')' | '>' | ']'));
        match (c, list.last_mut()) {
            (',', _) if depth == 0 => list.push(String::new()),
            (_, Some(last)) => last.push(c),
            _ => {}
        }
    }
    let squeezed = |text: &String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let list: Vec<String> = list.iter().map(squeezed).filter(|text| !text.is_empty()).collect();
    let pointer = |text: &str| outside_templates(text).contains('*');
    // A grid constant without a pointer is passed by value: the structure of all pointers.
    let structure = |text: &String| text.contains("__grid_constant__") && !pointer(text);
    if list.first().is_some_and(structure) {
        return Parameters::Structure;
    }
    let written = |text: &str| {
        let outside = outside_templates(text);
        // `const` in front of the first `*` belongs to what is pointed at; behind it, to the pointer itself.
        let pointee = outside.split('*').next().unwrap_or_default();
        pointer(text) && !pointee.split(' ').any(|word| word == "const")
    };
    Parameters::Pointers(list.into_iter().map(|text| (text.clone(), written(&text))).collect())
}

/// A declaration without the arguments of its templates, which may multiply.
fn outside_templates(text: &str) -> String {
    let mut depth = 0;
    let outside = |c: &char| {
        depth += i32::from(*c == '<');
        let outside = depth == 0;
        depth -= i32::from(*c == '>');
        outside
    };
    text.chars().filter(outside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::{BuiltIn, any_device};
    use tapml_device::Language;

    fn read(text: &str) -> CudaText {
        CudaText::read("mine.cu", text).unwrap()
    }

    #[test]
    fn every_built_in_kernel_fits_itself() {
        let mut seen = 0;
        for one in BuiltIn::all(&any_device()).unwrap() {
            let desc = one.desc().unwrap();
            if desc.source.language != Language::Cuda {
                continue;
            }
            let found = read(&one.text().unwrap());
            assert_eq!(found.differences(desc), Vec::<String>::new(), "{}", one.kernel);
            assert_eq!(found.prelude, desc.source.prelude, "{}", one.kernel);
            seen += 1;
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn entry_points_are_found_behind_attributes_and_not_in_comments() {
        let text = "// extern \"C\" __global__ void no(int* a) {}\n\
                    extern \"C\" __global__ void __cluster_dims__(f(8), 1, 1) __launch_bounds__(T) gemv(\n\
                    const volatile float* x, T<2, 3>* y, /* , */ const u32 *symbols) { g(\"extern\"); }\n\
                    extern \"C\" __global__ void two(const __grid_constant__ Bindings<4 + 2 * A> in) {}\n\
                    extern \"C\" int three(int* a) { return 0; }\n";
        let pointers =
            [("const volatile float* x", false), ("T<2, 3>* y", true), ("const u32 *symbols", false)];
        let pointers = pointers.map(|(text, written)| (text.to_string(), written)).to_vec();
        let expected =
            [("gemv".to_string(), Parameters::Pointers(pointers)), ("two".into(), Parameters::Structure)];
        assert_eq!(read(text).entries, expected);
    }

    #[test]
    fn a_header_that_there_is_not_is_told_with_its_place() {
        let error =
            CudaText::read("mine.cu", "\n#include \"base.cuh\"\n#include \"basic.cuh\"\n").unwrap_err();
        assert!(error.to_string().starts_with("mine.cu:3:1: expected a header of TapML"), "{error}");
        assert!(error.hint().unwrap().contains("base.cuh"));
        let found = read("#include \"base.cuh\"\nint a;\n");
        assert_eq!(found.text, "//#include \"base.cuh\"\nint a;\n");
        assert!(found.prelude.starts_with("#line 1 \"cuda/include/base.cuh\"\n"));
    }
}
