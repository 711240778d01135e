//! Texts in WGSL that are composed of several files. Those that differ from shape to shape are composed of fragments, which say
//! what names they need of the others and which they give them, and of lines that a planner writes, such as bindings.
//!
//! WGSL has neither includes nor templates. A text is therefore put together here, before the device sees it; errors
//! name all the files that it was put together of.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use tapml_device::Source;

/// A part of a text. Its names are those that differ from shape to shape; what all texts of a kernel have in common, and the
/// shared declarations in front, go without saying. A name that ends in 0 is one of several that end in their numbers: see
/// [`Composition::add_numbered`].
///
/// The lists of names are declarations of a fragment's interface. Tests compare them with the text itself.
pub struct Fragment {
    /// The file's name in messages.
    pub file: &'static str,
    /// What is in it.
    pub text: &'static str,
    /// Names that it needs.
    pub needs: &'static [&'static str],
    /// Names that it gives.
    pub gives: &'static [&'static str],
}

/// The fragment in a file of the kernels.
macro_rules! fragment {
    ($file:literal, [$($need:literal),*] => [$($give:literal),*]) => {
        $crate::kernel::compose::Fragment {
            file: $file,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernel/", $file)),
            needs: &[$($need),*],
            gives: &[$($give),*],
        }
    };
}
pub(super) use fragment;

/// A text that is always composed of the same files.
pub struct FixedComposition {
    /// The files' names in messages.
    pub file: &'static str,
    /// What is in them.
    pub text: &'static str,
}

/// These files of the kernels, one behind the other.
macro_rules! joined {
    ($first:literal $(, $file:literal)* $(,)?) => {
        $crate::kernel::compose::FixedComposition {
            file: concat!($first $(, "+", $file)*),
            text: concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernel/", $first))
                $(, "\n", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernel/", $file)))*
            ),
        }
    };
}
pub(super) use joined;

/// A text in the making. Lines are written to it as to a string.
#[derive(Default)]
pub struct Composition {
    /// Files of the fragments, each listed at its first use.
    files: Vec<&'static str>,
    /// The text so far.
    text: String,
    /// Names that some fragment needs.
    needed: BTreeSet<String>,
    /// Names that a fragment or a written line declares.
    given: BTreeSet<String>,
}

impl Composition {
    /// Adds a fragment.
    pub fn add(&mut self, fragment: &Fragment) {
        self.put(fragment, fragment.text, str::to_string);
    }

    /// Adds a fragment for one of several things, such as weights: the names of the fragment that end in 0 end in this number.
    ///
    /// Only names that the fragment lists are renamed. Other words that end in 0 stay.
    pub fn add_numbered(&mut self, fragment: &Fragment, number: usize) {
        // Names of the language and of other fragments must not change.
        let listed = |name: &str| fragment.needs.contains(&name) || fragment.gives.contains(&name);
        let numbered = |name: &str| match name.strip_suffix('0') {
            Some(stem) if listed(name) => format!("{stem}{number}"),
            _ => name.to_string(),
        };
        let mut text = String::with_capacity(fragment.text.len());
        let mut rest = fragment.text;
        // The text is cut into names and what lies between, so that a listed name within a longer one is left alone.
        while let Some(begin) = rest.find(is_of_name) {
            let (before, from) = rest.split_at(begin);
            let (name, after) = from.split_at(from.find(|c| !is_of_name(c)).unwrap_or(from.len()));
            text += before;
            text += &numbered(name);
            rest = after;
        }
        text += rest;
        self.put(fragment, &text, numbered);
    }

    /// Appends the text of a fragment and notes its names as `name` turns them.
    fn put(&mut self, fragment: &Fragment, text: &str, name: impl Fn(&str) -> String) {
        // A numbered fragment is added several times, and its file is named once.
        if !self.files.contains(&fragment.file) {
            self.files.push(fragment.file);
        }
        self.text += text;
        self.needed.extend(fragment.needs.iter().map(|need| name(need)));
        self.given.extend(fragment.gives.iter().map(|give| name(give)));
    }

    /// Writes a line.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text += line.as_ref();
        self.text.push('\n');
    }

    /// Writes a line that gives a name.
    /// The line is written as it stands; the name only counts for [`Composition::missing`].
    pub fn declare(&mut self, name: &str, line: impl AsRef<str>) {
        self.line(line);
        self.given.insert(name.into());
    }

    /// Writes the binding of a buffer of group 0.
    ///
    /// It declares a storage array without a fixed length; `element` is the WGSL type of its elements.
    pub fn bind(&mut self, at: usize, written: bool, name: &str, element: &str) {
        let access = if written { "read_write" } else { "read" };
        let line = format!("@group(0) @binding({at}) var<storage, {access}> {name}: array<{element}>;");
        self.declare(name, line);
    }

    /// Writes the binding of the symbols.
    /// It comes behind all others, as the last binding of each kernel.
    pub fn bind_symbols(&mut self, at: usize) {
        self.declare("symbols", format!("@group(0) @binding({at}) var<uniform> symbols: Symbols;"));
    }

    /// Names that a fragment needs and nothing gives.
    pub fn missing(&self) -> Vec<&str> {
        self.needed.difference(&self.given).map(String::as_str).collect()
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Makes it the text of a source.
    ///
    /// # Panics
    /// In debug builds, if a fragment needs a name that nothing gives. Release builds leave the finding to the WGSL
    /// front end.
    pub fn put_into(self, source: &mut Source) {
        debug_assert!(self.missing().is_empty(), "{:?} are missing of {:?}", self.missing(), self.files);
        // `tapml kernel` splits the list at this sign.
        source.file = self.files.join("+");
        source.text = self.text;
    }
}

impl Write for Composition {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text += text;
        Ok(())
    }
}

/// Whether names have such letters.
fn is_of_name(letter: char) -> bool {
    letter == '_' || letter.is_ascii_alphanumeric()
}

#[cfg(test)]
impl Fragment {
    /// Panics unless the text has all names that are listed, those that it gives as declarations of its own.
    pub fn expect_names(&self) {
        for name in self.needs.iter().chain(self.gives) {
            let found = self.text.split(|c| !is_of_name(c)).any(|word| word == *name);
            assert!(found, "{}: no `{name}`", self.file);
        }
        for name in self.gives {
            let declares = |line: &str| {
                let declared = line.split(['(', '{', ':', ' ', '=']).find(|word| word == name);
                declared.is_some() && !line.starts_with([' ', '/', '}'])
            };
            assert!(self.text.lines().any(declares), "{}: `{name}` is not declared", self.file);
        }
        for need in self.needs {
            assert!(!self.gives.contains(need), "{}: gives `{need}` itself", self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Fragment = Fragment {
        file: "a/part.wgsl",
        text: "fn part0(i: u32) -> u32 {\n    let x0 = w0[i] + w00[i];\n    return x0 + 10u;\n}\n",
        needs: &["w0"],
        gives: &["part0"],
    };

    #[test]
    fn only_listed_names_are_numbered() {
        PART.expect_names();
        let mut text = Composition::default();
        text.bind(0, false, "w0", "u32");
        text.add_numbered(&PART, 0);
        assert_eq!(text.missing(), Vec::<&str>::new());
        text.add_numbered(&PART, 2);
        assert_eq!(text.missing(), ["w2"]);
        text.bind(1, true, "w2", "u32");
        let mut source = Source {
            language: tapml_device::Language::Wgsl,
            file: String::new(),
            prelude: String::new(),
            text: String::new(),
        };
        text.put_into(&mut source);
        assert_eq!(source.file, "a/part.wgsl");
        let other = "fn part2(i: u32) -> u32 {\n    let x0 = w2[i] + w00[i];\n    return x0 + 10u;\n}\n";
        let first = "@group(0) @binding(0) var<storage, read> w0: array<u32>;\n";
        let second = "@group(0) @binding(1) var<storage, read_write> w2: array<u32>;\n";
        assert_eq!(source.text, format!("{first}{}{other}{second}", PART.text));
    }
}
