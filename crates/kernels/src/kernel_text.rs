//! The text of a built-in kernel as a file to start one's own from: it opens with what a kernel in its place is given.
//!
//! The comment is made from the same descriptions that a device is given, so that it cannot differ from them. Its
//! wording is that of one sample: sizes in it are examples.

use crate::built_in::BuiltIn;
use crate::kernel::cuda;
use crate::plan::{Accumulate, Arg, Launch, SYMBOLS};
use crate::wgsl::parse_declarations;
use std::fmt::Write;
use tapml_device::{BindingKind, Language};
use tapml_graph::{DType, Extent, Result, Symbols, TensorType};

/// Columns of the comment.
const WIDTH: usize = 110;
/// Characters of a command that stay on one line.
const LONGEST_COMMAND: usize = 120;
/// Characters of attributes that are shown.
const LONGEST: usize = 80;

/// A binding of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingText {
    /// How it is bound.
    pub kind: BindingKind,
    /// Its name in the kernel's text.
    pub name: String,
    /// What is bound, in words.
    pub of: String,
}

/// What `tapml kernel NAME` prints.
impl BuiltIn {
    /// The complete text of the kernel in the form that [`crate::Overrides::add`] takes, headed by a comment on what it is
    /// given: bindings, constants, grid, and the declarations in front of it.
    pub fn text(&self) -> Result<String> {
        let source = &self.desc()?.source;
        let mut text = self.comment()?;
        text.push('\n');
        match source.language {
            Language::Wgsl => text += source.text.trim(),
            // A device is given the headers in front; a file includes them.
            Language::Cuda => text += cuda::with_includes(&source.text).trim(),
        }
        text.push('\n');
        Ok(text)
    }

    /// The bindings in order.
    pub fn bindings(&self) -> Result<Vec<BindingText>> {
        let desc = self.desc()?;
        let names: Vec<String> = match desc.source.language {
            Language::Wgsl => {
                let declared = parse_declarations(&desc.source, desc.needs_f16)?;
                declared.bindings.into_iter().map(|binding| binding.name).collect()
            }
            // Parameters of the entry point, in their order.
            Language::Cuda => (0..desc.bindings.len()).map(|at| format!("parameter {at}")).collect(),
        };
        let args = self.main().map_or(&[][..], |main| &main.args);
        let texts = names.into_iter().zip(&desc.bindings).zip(args);
        Ok(texts.map(|((name, &kind), &arg)| BindingText { kind, name, of: self.bound(arg) }).collect())
    }

    /// The headers that a kernel in CUDA C++ includes, and those that these include, in the order in which they stand in
    /// front of its text. None of a kernel in WGSL.
    pub fn headers(&self) -> Result<Vec<String>> {
        let source = &self.desc()?.source;
        Ok(match source.language {
            Language::Wgsl => Vec::new(),
            Language::Cuda => cuda::headers_of(&source.prelude).map(str::to_string).collect(),
        })
    }

    /// What stands in front of the text of a kernel in WGSL: the heads of declarations, one each.
    pub fn prelude(&self) -> Result<Vec<String>> {
        let source = &self.desc()?.source;
        if source.language == Language::Cuda {
            return Ok(Vec::new());
        }
        let lines = source.prelude.lines();
        // Lines that are indented lie within a declaration.
        let heads = lines.filter(|line| {
            ["fn ", "alias ", "struct ", "override ", "const ", "var<"]
                .iter()
                .any(|word| line.starts_with(word))
        });
        Ok(heads.map(|line| line.strip_suffix(" {").unwrap_or(line).to_string()).collect())
    }

    /// Workgroups in x, y and z, in words.
    pub fn grid(&self) -> Vec<String> {
        self.main().map_or(Vec::new(), |main| main.groups.iter().map(extent).collect())
    }

    /// The other launches of a node, and whether they come before or after the kernel.
    /// A file in the kernel's place does not replace these.
    fn other_launches(&self) -> Vec<String> {
        let at = self.plan.launches.iter().position(|launch| launch.desc.name == self.kernel).unwrap_or(0);
        let others = self.plan.launches.iter().enumerate().filter(|(_, l)| l.desc.name != self.kernel);
        // Launches run in the order of the plan.
        let word = |index| if index < at { "before" } else { "after" };
        others.map(|(index, Launch { desc, .. })| format!("{} {} it", desc.name, word(index))).collect()
    }

    /// What an argument is, in words.
    fn bound(&self, arg: Arg) -> String {
        match arg {
            Arg::Input { index, offset, .. } => match self.sample.inputs.get(index) {
                Some(input) => format!("{}input {index}, {}", section(&input.ty, offset), input.ty),
                None => format!("input {index}"),
            },
            Arg::Output(index) => match self.outputs.get(index) {
                Some(ty) => format!("output {index}, {ty}"),
                None => format!("output {index}"),
            },
            Arg::Scratch(index) => {
                let bytes = self.plan.scratch.get(index).map(|s| extent(&s.bytes())).unwrap_or_default();
                format!("scratch of {bytes} bytes")
            }
            Arg::Constant(index) => {
                let bytes = self.plan.constants.get(index).map_or(0, Vec::len);
                format!("a constant of {bytes} bytes")
            }
            Arg::Symbols => {
                // The order is that of the block.
                let names: Vec<&str> = SYMBOLS.iter().map(|symbol| symbol.name()).collect();
                format!("the values of {} in this run", names.join(" and "))
            }
        }
    }

    /// The sample in words: operator, attributes as far as they are short, types of the inputs.
    fn case(&self) -> String {
        let attributes = self.sample.op.attributes_text();
        let more = if attributes.chars().count() > LONGEST { "…" } else { "" };
        // Cut by characters, not bytes: attributes may hold any text.
        let attributes: String = attributes.chars().take(LONGEST).collect();
        let types: Vec<String> = self.sample.types().iter().map(ToString::to_string).collect();
        let of = if types.is_empty() { "" } else { " of " };
        format!("{} {attributes}{more}{of}{}", self.op, types.join(", "))
    }

    /// The comment, line by line; each begins with `//`.
    fn comment(&self) -> Result<String> {
        let desc = self.desc()?;
        let mut c = Comment::default();
        let files = desc.source.file.replace('+', ", ");
        c.line(&format!("{}, a kernel of TapML's own ({files}).", self.kernel));
        c.line("Another in its place keeps the entry point, the bindings and the grid; constants that it does not \
                declare are not set, further ones need a default, and the workgroup size is its own. Try it with");
        let check = format!("tapml check SUITE --target PLATFORM --op {}", self.op);
        let own = format!("--kernel {}=FILE", self.choice());
        if check.len() + own.len() > LONGEST_COMMAND {
            c.item(&format!("{check} \\"));
            c.item(&format!("    {own}"));
        } else {
            c.item(&format!("{check} {own}"));
        }
        c.line("");
        c.line(&format!("Sizes and constants below are those of one case: {}.", self.case()));
        let language = desc.source.language;
        c.line(&match language {
            Language::Wgsl => "Bindings of group 0:".to_string(),
            Language::Cuda => format!(
                "Parameters of `{}`: pointers in this order, or one structure of all of them.",
                desc.entry
            ),
        });
        for (number, BindingText { kind, name, of }) in self.bindings()?.iter().enumerate() {
            match language {
                Language::Wgsl => c.item(&format!("{number} {name}: {}, {of}", words(*kind))),
                Language::Cuda => c.item(&format!("{number}: {}, {of}", access(*kind))),
            }
        }
        let constants = desc.constants.iter().map(|(name, value)| format!("{name}={value}"));
        c.line(&format!("Constants: {}", join_lines(constants)));
        c.line(&format!(
            "Workgroup: {:?} invocations; grid: [{}] workgroups.",
            desc.workgroup,
            self.grid().join(", ")
        ));
        c.line(&match &self.plan.accumulate {
            Accumulate { chain, .. } if chain.as_const() == Some(0) => {
                "A verdict takes it that nothing is added up.".into()
            }
            Accumulate { dtype, chain, .. } => {
                format!("A verdict allows for sums in {dtype} whose longest chain of additions is {chain}.")
            }
        });
        if self.plan.constants.iter().any(|bytes| bytes.len() == 4) {
            c.line("Where an optional input is not given, four zero bytes are bound in its place.");
        }
        let others = self.other_launches();
        if !others.is_empty() {
            c.line(&format!("Other launches of the same node stay as they are: {}.", others.join(", ")));
        }
        self.front(&mut c)?;
        Ok(c.0)
    }

    /// What the device has to have, and what stands in front of the text.
    fn front(&self, c: &mut Comment) -> Result<()> {
        let needs = self.row().map(|row| row.needs.words()).unwrap_or_default();
        if !needs.is_empty() {
            c.line(&format!("It needs {}.", needs.join(" and ")));
        }
        match self.desc()?.source.language {
            Language::Wgsl => {
                c.line("In front of this text, in one module with it, stand");
                self.prelude()?.iter().for_each(|head| c.item(head));
            }
            Language::Cuda => {
                c.line(&format!(
                    "`#include \"NAME\"` on a line of its own puts a header of TapML in front of the text, once, and what that \
                     one includes before it. In front of this text stand {}.",
                    join_lines(self.headers()?.into_iter())
                ));
            }
        }
        Ok(())
    }
}

/// A comment being written.
#[derive(Default)]
struct Comment(String);

impl Comment {
    /// A paragraph, cut into lines.
    fn line(&mut self, text: &str) {
        let mut line = String::from("//");
        for word in text.split_whitespace() {
            // A word that is longer than a line stays whole.
            if line.len() + word.len() >= WIDTH {
                self.0 += &line;
                self.0.push('\n');
                line.truncate(2);
            }
            line.push(' ');
            line += word;
        }
        self.0 += &line;
        self.0.push('\n');
    }

    /// A line that stays whole.
    fn item(&mut self, text: &str) {
        let _ = writeln!(self.0, "//   {text}");
    }
}

/// Items with commas between them; `none` if there are none.
fn join_lines(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".into() } else { items.join(", ") }
}

/// What a kernel in CUDA C++ does with a binding.
fn access(kind: BindingKind) -> &'static str {
    match kind {
        BindingKind::Read | BindingKind::Uniform => "read",
        BindingKind::ReadWrite => "read and written",
    }
}

/// How WGSL writes a binding.
pub fn words(kind: BindingKind) -> &'static str {
    match kind {
        BindingKind::Read => "var<storage, read>",
        BindingKind::ReadWrite => "var<storage, read_write>",
        BindingKind::Uniform => "var<uniform>",
    }
}

/// Which section of a packed weight begins at this byte, in words that stand in front of it.
fn section(ty: &TensorType, offset: u64) -> &'static str {
    let sections = ty.dtype.packing().zip(ty.sizes(&Symbols::new()).ok());
    let sections = sections.and_then(|(packing, sizes)| packing.sections(&sizes).ok()).unwrap_or_default();
    let names = ["words of ", "scales of ", "zero points of "];
    let at = sections.iter().position(|section| section.offset as u64 == offset);
    at.and_then(|at| names.get(at)).copied().unwrap_or_default()
}

/// As a formula of the symbols.
fn extent(extent: &Extent) -> String {
    match extent.divisor {
        0 | 1 => extent.dim.to_string(),
        divisor => format!("ceil(({})/{divisor})", extent.dim),
    }
}

/// The text of a kernel by name; see [`BuiltIn::find`] and [`BuiltIn::text`].
pub fn kernel_text(name: &str, dtype: DType, info: &tapml_device::DeviceInfo) -> Result<String> {
    BuiltIn::find(name, dtype, info)?.text()
}
