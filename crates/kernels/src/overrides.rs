//! Kernels that a user brings: checked against the built-in kernel of their operator, then used in its place.

use crate::built_in::{BuiltIn, any_device};
use crate::choices::TuningCache;
use crate::cuda_text::CudaText;
use crate::directives::{DeclaredSums, Directives};
use crate::kernel::settings;
use crate::kernel_text;
use crate::plan::NodePlan;
use crate::wgsl::{DeclaredBinding, WgslDeclarations, parse_declarations};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tapml_device::{BindingKind, DeviceInfo, KernelDesc, Language, Source};
use tapml_graph::{Error, Op, Result, TensorType};

/// Larger files are no kernels.
/// The bound keeps a wrong path, such as that of a checkpoint, from being read into memory.
const MAX_BYTES: u64 = 1 << 20;

/// Kernels to use instead of the built-in ones, by operator.
///
/// A user's kernel has the entry point, the bindings and the grid of the built-in one of its operator, and may use the
/// declarations that stand before that one: the symbols, the dtypes, the decoding of weights. Its workgroup size is its
/// own. How it adds up is taken to be as in the built-in one, unless a comment line of its file declares it, such as
/// `// accumulate: f32 serial` or `// accumulate: f32 chain=64`. Constants of the built-in kernel that it does not
/// declare are not set; further ones need a default.
/// [`BuiltIn::text`] gives the built-in one in this form.
///
/// A file in CUDA C++ (`.cu`) takes the place of a kernel in CUDA C++ and includes the same headers. All constants of the
/// built-in kernel are defined in front of it, and workgroup size and dynamic shared memory are those of the built-in one.
///
/// A few operators have several kernels, for different inputs: `add` means `add/portable`, and `add/row` is another.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// In the order in which they were given; each replaces another built-in kernel.
    kernels: Vec<UserKernel>,
    /// Empty unless [`Overrides::choose`] was called.
    choices: Arc<TuningCache>,
    /// See [`Overrides::with_row_invariance`].
    row_invariant: bool,
}

/// A user's file, read and checked.
#[derive(Clone, Debug)]
struct UserKernel {
    /// Operator of the built-in kernel.
    op: &'static str,
    /// As the user gave it, for messages.
    path: PathBuf,
    /// Name of the file without its folder.
    file: String,
    /// What stands at the head of the text, and the text without it.
    directives: Directives,
    /// What its text declares.
    interface: Interface,
    /// Name of the built-in kernel in whose place it is used.
    replaces: String,
    /// The whole file.
    text: Arc<str>,
}

/// What a user's text declares.
#[derive(Clone, Debug)]
enum Interface {
    Wgsl(WgslDeclarations),
    Cuda(CudaText),
}

/// A kernel that a user brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenKernel {
    /// Its operator.
    pub op: &'static str,
    /// Name of the built-in kernel in whose place it is used, such as `add/row`.
    pub replaces: String,
    /// Name of what nodes run then, as reports show it: operator and file, such as `add/mine.wgsl`.
    pub name: String,
}

impl Overrides {
    /// Reads and checks `OP=FILE`, or `OP/VARIANT=FILE` for another kernel than `OP/portable`, with a setting if it has some.
    ///
    /// Fails with [`tapml_graph::ErrorKind::InvalidInput`] on an unknown operator or a kernel whose interface differs, with
    /// [`tapml_graph::ErrorKind::Io`] if the file cannot be read, and with [`tapml_graph::ErrorKind::Compile`], file,
    /// line and column if it does
    /// not parse or validate.
    pub fn add(&mut self, spec: &str) -> Result<()> {
        let (op, path) = Overrides::split(spec).ok_or_else(|| {
            Error::invalid(format!("`{spec}` is no kernel choice"))
                .with_hint("write OP=FILE, such as rms_norm=mine.wgsl")
        })?;
        let path = Path::new(path);
        language(path)?;
        self.add_text(op, path, &tapml_files::read_text(path, MAX_BYTES, "a kernel")?)
    }

    /// The choice and the file of `OP=FILE`, where the choice may have a setting with a `=` of its own.
    pub fn split(spec: &str) -> Option<(&str, &str)> {
        let parts = settings::cut(spec).or_else(|| spec.split_once('='));
        // An empty part is a slip, not a choice.
        parts.filter(|(choice, path)| !choice.is_empty() && !path.is_empty())
    }

    /// The same, with only those built-in kernels by which a row's results depend on that row alone, bit by bit: one text of
    /// several in a step has the bits that it has alone then. Runs of one row take the kernels of many rows. What was measured
    /// for other kernels plays no part.
    pub fn with_row_invariance(mut self) -> Overrides {
        self.row_invariant = true;
        self
    }

    /// See [`Overrides::with_row_invariance`].
    pub fn is_row_invariant(&self) -> bool {
        self.row_invariant
    }

    /// As [`Overrides::add`] with the file's text at hand; `path` is for messages.
    ///
    /// The text is compared with the built-in kernel at every sample case, and has to fit one of them.
    pub fn add_text(&mut self, op: &str, path: &Path, text: &str) -> Result<()> {
        let cases = BuiltIn::cases(op, &any_device())?;
        let Some(expected) = cases.first() else {
            return Err(Error::bug(format!("no case of `{op}`")));
        };
        // Which of two kernels ran would depend on their order.
        if self.kernels.iter().any(|k| k.replaces == expected.kernel) {
            return Err(Error::invalid(format!("two kernels are given for `{}`", expected.kernel)));
        }
        let language = language(path)?;
        expect_language(expected, language, path)?;
        let file = path.display().to_string();
        // Editors may put a byte order mark in front, which no front end takes.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let ReadText { directives, interface, differences } = match language {
            Language::Wgsl => of_wgsl(&file, text, &cases)?,
            Language::Cuda => of_cuda(&file, text, expected.desc()?)?,
        };
        if !differences.is_empty() {
            let text =
                format!("{} does not fit operator `{op}`:\n  {}", path.display(), differences.join("\n  "));
            let hint = format!("`tapml kernel {}` prints the built-in one", expected.choice());
            return Err(Error::invalid(text).with_hint(hint));
        }
        // Reports name kernels by file names alone: a path would differ from machine to machine.
        let file =
            path.file_name().map_or_else(|| path.display().to_string(), |f| f.to_string_lossy().into_owned());
        let (op, path, replaces) = (expected.op, path.to_path_buf(), expected.kernel.clone());
        let text = text.into();
        self.kernels.push(UserKernel { op, path, file, directives, interface, replaces, text });
        Ok(())
    }

    /// Fails with [`tapml_graph::ErrorKind::Unsupported`] if a kernel is in a language that such a device does not take.
    pub fn expect_taken(&self, info: &DeviceInfo) -> Result<()> {
        let cuda = |kernel: &&UserKernel| matches!(kernel.interface, Interface::Cuda(_));
        match self.kernels.iter().find(cuda).filter(|_| info.features.cuda.is_none()) {
            None => Ok(()),
            Some(kernel) => {
                let (path, platform, device) = (kernel.path.display(), &info.platform, &info.name);
                let text = format!("{path} is in CUDA C++, which `{platform}` ({device}) does not take");
                Err(Error::unsupported(text).with_hint(format!(
                    "open `cuda` without `tuned=off` on a chip that `{}` serves, or bring a kernel in WGSL: \
                     `tapml kernel` lists those of `{}`",
                    kernel.replaces, kernel.op
                )))
            }
        }
    }

    /// The operators with the files that serve them.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.kernels.iter().map(|k| (k.op, k.path.as_path()))
    }

    /// The built-in kernels that are replaced, with the text of the file that replaces each.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kernels.iter().map(|k| (k.replaces.as_str(), &*k.text))
    }

    /// The user's kernels, in the order in which they were given.
    pub fn given_kernels(&self) -> impl Iterator<Item = GivenKernel> {
        self.kernels.iter().map(|kernel| GivenKernel {
            op: kernel.op,
            replaces: kernel.replaces.clone(),
            name: kernel.name(kernel.op),
        })
    }

    /// How the user's kernel of this name, such as `linear/mine.wgsl`, declares to add up; `None` if its file does not say.
    pub fn sums(&self, name: &str) -> Option<DeclaredSums> {
        self.kernels.iter().find(|kernel| kernel.name(kernel.op) == name)?.directives.sums
    }

    /// Chooses among the built-in kernels from now on; one for which nothing was chosen is taken as without.
    /// Choices of before are dropped.
    pub fn choose(&mut self, choices: TuningCache) {
        self.choices = Arc::new(choices);
    }

    /// The choices among the built-in kernels.
    pub fn choices(&self) -> &TuningCache {
        &self.choices
    }

    /// Whether a user's kernel stands in the place of this built-in one.
    pub(crate) fn replaces(&self, kernel: &str) -> bool {
        self.kernels.iter().any(|user| user.replaces == kernel)
    }

    /// The built-in kernel that was chosen for a node.
    pub(crate) fn choice(&self, op: &Op, inputs: &[TensorType]) -> Option<&str> {
        self.choices.kernel(op, inputs)
    }

    /// Whether a kernel is given for this operator.
    pub(crate) fn serves(&self, op: &str) -> bool {
        self.kernels.iter().any(|kernel| kernel.op == op)
    }

    /// Whether there are none; choices among the built-in kernels do not count.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Puts the user's kernel, if there is one for this plan's main one, in its place.
    ///
    /// # Errors
    /// `InvalidInput` if the text was put together for this node in a form that the user's text does not fit.
    pub(crate) fn apply(&self, op: &str, plan: &mut NodePlan) -> Result<()> {
        let user = self.kernels.iter().find(|k| k.replaces == plan.kernel);
        let Some(user) = user else { return Ok(()) };
        let name = user.name(op);
        for launch in plan.launches.iter_mut().filter(|l| l.desc.name == plan.kernel) {
            let differences = user.interface.differences(&launch.desc);
            if !differences.is_empty() {
                let (path, list) = (user.path.display(), differences.join("\n  "));
                let kernel = &plan.kernel;
                let text = format!(
                    "{path} does not fit a call of `{op}` for which `{kernel}` has another interface"
                );
                return Err(Error::invalid(format!("{text}:\n  {list}")));
            }
            user.specialise(&mut launch.desc, &name);
        }
        plan.kernel = name;
        // What the built-in kernel promises is no word of the user's.
        plan.accumulate.keeps_chain = false;
        Ok(())
    }
}

impl UserKernel {
    /// Its name in reports.
    fn name(&self, op: &str) -> String {
        format!("{op}/{}", self.file)
    }

    /// Makes a description of the built-in kernel that of the user's one, under this name.
    fn specialise(&self, desc: &mut KernelDesc, name: &str) {
        desc.name = name.into();
        desc.source.file = self.path.display().to_string();
        let declared = match &self.interface {
            Interface::Cuda(own) => {
                desc.source.prelude.clone_from(&own.prelude);
                desc.source.text.clone_from(&own.text);
                // A text that knows nothing of clusters keeps its grid.
                desc.constants.retain(|(name, _)| name != "CLUSTER_ROWS" || own.text.contains("CLUSTER"));
                return;
            }
            Interface::Wgsl(declared) => declared,
        };
        desc.source.prelude.insert_str(0, &self.directives.front);
        desc.source.text.clone_from(&self.directives.text);
        // WebGPU refuses values for constants that a module does not declare.
        desc.constants.retain(|(name, _)| declared.overrides.iter().any(|(own, _)| own == name));
        if let Some((_, workgroup)) = declared.entries.iter().find(|(entry, _)| *entry == desc.entry) {
            desc.workgroup = *workgroup;
        }
        // Its size may depend on constants: then that of the built-in kernel is assumed.
        desc.workgroup_memory = declared.workgroup_memory.unwrap_or(desc.workgroup_memory);
        desc.needs_f16 |= self.directives.f16;
        desc.needs_subgroups = self.directives.subgroups || self.directives.text.contains("subgroup");
    }
}

impl Interface {
    /// What is not as a built-in kernel has it, one sentence each; empty if all fits.
    fn differences(&self, expected: &KernelDesc) -> Vec<String> {
        match self {
            Interface::Wgsl(declared) => differences(expected, declared),
            Interface::Cuda(own) => own.differences(expected),
        }
    }
}

/// A text that was read.
struct ReadText {
    /// What it says of itself.
    directives: Directives,
    /// What it declares.
    interface: Interface,
    /// Where that is not as expected.
    differences: Vec<String>,
}

/// Reads a text in WGSL and compares it with the cases of the built-in kernel.
fn of_wgsl(file: &str, text: &str, cases: &[BuiltIn]) -> Result<ReadText> {
    let directives = Directives::split(file, text)?;
    // The text of some kernels is put together for a case, such as with a bias or without: one's own fits any of them.
    let fit = |case: &BuiltIn| {
        let desc = case.desc()?;
        let prelude = format!("{}{}", directives.front, desc.source.prelude);
        let (file, text) = (file.to_string(), directives.text.clone());
        let source = Source { file, prelude, text, ..desc.source.clone() };
        let declared = parse_declarations(&source, directives.f16 || desc.needs_f16)?;
        let differences = differences(desc, &declared);
        Ok((declared, differences))
    };
    let fits =
        |tried: &Result<(WgslDeclarations, Vec<String>)>| matches!(tried, Ok((_, none)) if none.is_empty());
    // What is wrong with a text that fits none is told by the first.
    let fitting = cases.iter().map(fit).find(fits);
    let first = || cases.first().map_or_else(|| Err(Error::bug(format!("no case of {file}"))), fit);
    let (declared, differences) = fitting.unwrap_or_else(first)?;
    Ok(ReadText { directives, interface: Interface::Wgsl(declared), differences })
}

/// Reads a text in CUDA C++ and compares it with the built-in kernel.
fn of_cuda(file: &str, text: &str, expected: &KernelDesc) -> Result<ReadText> {
    let (directives, own) = (Directives::of_cuda(file, text)?, CudaText::read(file, text)?);
    let differences = own.differences(expected);
    Ok(ReadText { directives, interface: Interface::Cuda(own), differences })
}

/// The language of a kernel file, by its name.
fn language(path: &Path) -> Result<Language> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("wgsl") => Ok(Language::Wgsl),
        Some("cu") => Ok(Language::Cuda),
        _ => Err(Error::unsupported(format!(
            "kernel file {}: expected WGSL (`.wgsl`) or CUDA C++ (`.cu`)",
            path.display()
        ))),
    }
}

/// Fails unless the built-in kernel is in the language of the file that is to take its place.
fn expect_language(expected: &BuiltIn, language: Language, path: &Path) -> Result<()> {
    let own = expected.desc()?.source.language;
    if own == language {
        return Ok(());
    }
    let word = |language| if language == Language::Wgsl { "WGSL" } else { "CUDA C++" };
    let (path, kernel) = (path.display(), &expected.kernel);
    let text = format!("{path} is in {}, `{kernel}` is in {}", word(language), word(own));
    Err(Error::invalid(text).with_hint(format!(
        "name a kernel in {} as OP/VARIANT=FILE; `tapml kernel` lists them",
        word(language)
    )))
}

/// What of a kernel's interface is not as expected, one sentence each.
fn differences(expected: &KernelDesc, found: &WgslDeclarations) -> Vec<String> {
    let mut list = Vec::new();
    if !found.entries.iter().any(|(name, _)| *name == expected.entry) {
        let names: Vec<&str> = found.entries.iter().map(|(name, _)| name.as_str()).collect();
        list.push(format!(
            "expected a compute entry point `{}`, found [{}]",
            expected.entry,
            names.join(", ")
        ));
    }
    for (number, &kind) in (0u32..).zip(&expected.bindings) {
        match found.bindings.iter().find(|b| b.number == number) {
            None => list.push(format!("@binding({number}): expected {}, found none", words(Some(kind)))),
            Some(other) if other.kind != Some(kind) => {
                let (want, have, name) = (words(Some(kind)), words(other.kind), &other.name);
                list.push(format!("@binding({number}): expected {want}, found {have} `{name}`"));
            }
            Some(_) => {}
        }
    }
    let more = found.bindings.iter().filter(|b| b.number as usize >= expected.bindings.len());
    for DeclaredBinding { number, kind, name } in more {
        list.push(format!("@binding({number}): expected none, found {} `{name}`", words(*kind)));
    }
    for (name, default) in &found.overrides {
        if !default && !expected.constants.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = expected.constants.iter().map(|(name, _)| name.as_str()).collect();
            list.push(format!(
                "override `{name}` has no default; the constants set are {}",
                known.join(", ")
            ));
        }
    }
    list
}

/// How WGSL writes a binding of this kind.
fn words(kind: Option<BindingKind>) -> &'static str {
    kind.map_or("a resource that kernels cannot use", kernel_text::words)
}
