//! Kernels that a user brings: checked against the built-in kernel of their operator, then used in its place.

use crate::kernel::{KERNELS, Request};
use crate::plan::NodePlan;
use crate::wgsl::{Declared, declared};
use std::path::{Path, PathBuf};
use tapml_device::{AdapterKind, BindingKind, DeviceInfo, Features, KernelDesc, Limits, Source};
use tapml_graph::op::OPS;
use tapml_graph::{Context, Error, Result};

/// Larger files are no kernels.
const MAX_BYTES: u64 = 1 << 20;

/// Kernels to use instead of the built-in ones, by operator.
///
/// A user's kernel has the entry point, the bindings and the grid of the built-in one of its operator, and may use the
/// declarations that stand before that one: the symbols, the dtypes, the decoding of weights. Its workgroup size is its
/// own. Constants of the built-in kernel that it does not declare are not set; further ones need a default.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    kernels: Vec<UserKernel>,
}

#[derive(Clone, Debug)]
struct UserKernel {
    op: &'static str,
    path: PathBuf,
    /// Name of the file without its folder.
    file: String,
    text: String,
    needs_f16: bool,
    needs_subgroups: bool,
    declared: Declared,
}

impl Overrides {
    /// Reads and checks `OP=FILE`.
    ///
    /// Fails with [`tapml_graph::ErrorKind::InvalidInput`] on an unknown operator or a kernel whose interface differs, with
    /// [`tapml_graph::ErrorKind::Io`] if the file cannot be read, and with [`tapml_graph::ErrorKind::Compile`], file, line and column if it does
    /// not parse or validate.
    pub fn add(&mut self, spec: &str) -> Result<()> {
        let (op, path) = spec
            .split_once('=')
            .filter(|(op, path)| !op.is_empty() && !path.is_empty())
            .ok_or_else(|| {
                Error::invalid(format!("`{spec}` is no kernel choice"))
                    .with_hint("write OP=FILE, such as rms_norm=mine.wgsl")
            })?;
        let path = Path::new(path);
        if path.extension().is_none_or(|e| e != "wgsl") {
            let text = format!("kernel file {}: only WGSL (`.wgsl`) is supported", path.display());
            return Err(Error::unsupported(text));
        }
        let bytes = std::fs::metadata(path).map_err(|e| Error::io("read", path, &e))?.len();
        if bytes > MAX_BYTES {
            return Err(Error::invalid(format!("{} has {bytes} bytes: that is no kernel", path.display())));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, &e))?;
        self.add_text(op, path, &text)
    }

    /// As [`Overrides::add`] with the file's text at hand; `path` is for messages.
    pub fn add_text(&mut self, op: &str, path: &Path, text: &str) -> Result<()> {
        let row = KERNELS.iter().find(|row| row.op == op).ok_or_else(|| {
            let known: Vec<&str> = KERNELS.iter().map(|row| row.op).collect();
            Error::invalid(format!("unknown operator `{op}`"))
                .with_hint(format!("known: {}", known.join(", ")))
        })?;
        if self.kernels.iter().any(|k| k.op == op) {
            return Err(Error::invalid(format!("two kernels are given for `{op}`")));
        }
        let expected = built_in(row.op)?;
        let (text, needs_f16, needs_subgroups) = without_enables(text);
        let file =
            path.file_name().map_or_else(|| path.display().to_string(), |f| f.to_string_lossy().into_owned());
        let source =
            Source { file: path.display().to_string(), text: text.clone(), ..expected.source.clone() };
        let declared = declared(&source, needs_f16)?;
        let differences = differences(&expected, &declared);
        if !differences.is_empty() {
            let text =
                format!("{} does not fit operator `{op}`:\n  {}", path.display(), differences.join("\n  "));
            return Err(
                Error::invalid(text).with_hint(format!("compare with the built-in {}", expected.source.file))
            );
        }
        let path = path.to_path_buf();
        self.kernels.push(UserKernel { op: row.op, path, file, text, needs_f16, needs_subgroups, declared });
        Ok(())
    }

    /// The operators with the files that serve them.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.kernels.iter().map(|k| (k.op, k.path.as_path()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Puts the user's kernel, if there is one for this operator, in the place of the plan's main one.
    pub(crate) fn apply(&self, op: &str, plan: &mut NodePlan) -> Result<()> {
        let Some(user) = self.kernels.iter().find(|k| k.op == op) else { return Ok(()) };
        let name = format!("{op}/{}", user.file);
        for launch in plan.launches.iter_mut().filter(|l| l.desc.name == plan.kernel) {
            user.specialise(&mut launch.desc, &name);
        }
        plan.kernel = name;
        Ok(())
    }
}

impl UserKernel {
    fn specialise(&self, desc: &mut KernelDesc, name: &str) {
        desc.name = name.into();
        desc.source.file = self.path.display().to_string();
        desc.source.text.clone_from(&self.text);
        desc.constants.retain(|(name, _)| self.declared.overrides.iter().any(|(own, _)| own == name));
        if let Some((_, workgroup)) = self.declared.entries.iter().find(|(entry, _)| *entry == desc.entry) {
            desc.workgroup = *workgroup;
        }
        desc.workgroup_memory = self.declared.workgroup_memory.unwrap_or(desc.workgroup_memory);
        desc.needs_f16 |= self.needs_f16;
        desc.needs_subgroups = self.needs_subgroups;
    }
}

/// The main kernel of an operator, as its first sample has it; bindings and constants do not depend on the sample.
fn built_in(op: &str) -> Result<KernelDesc> {
    let row = KERNELS.iter().find(|row| row.op == op);
    let sample = OPS.iter().find(|info| info.name == op).and_then(|info| (info.samples)().into_iter().next());
    let (row, sample) =
        row.zip(sample).ok_or_else(|| Error::bug(format!("operator `{op}` has no sample")))?;
    let info = DeviceInfo {
        platform: "any".into(),
        name: "any device".into(),
        driver: String::new(),
        kind: AdapterKind::Other,
        limits: Limits::WEBGPU,
        features: Features { f16: true, subgroups: None },
    };
    let inputs = sample.types();
    let outputs = sample.op.infer(&inputs)?;
    let request = Request { op: &sample.op, inputs: &inputs, outputs: &outputs, info: &info };
    let plan = (row.plan)(&request).context(|| format!("operator `{op}`"))?;
    let main = plan.launches.into_iter().find(|l| l.desc.name == plan.kernel);
    main.map(|l| l.desc).ok_or_else(|| Error::bug(format!("operator `{op}` has no main kernel")))
}

/// The text with lines that are one `enable` directive left blank, because declarations stand before it, and whether
/// they enabled `f16` and `subgroups`.
fn without_enables(text: &str) -> (String, bool, bool) {
    let (mut f16, mut subgroups) = (false, text.contains("subgroup"));
    let lines = text.lines().map(|line| {
        let names = line.trim().strip_prefix("enable ").and_then(|rest| rest.strip_suffix(';'));
        let names: Vec<&str> = names.map(|n| n.split(',').map(str::trim).collect()).unwrap_or_default();
        if names.is_empty() || !names.iter().all(|n| matches!(*n, "f16" | "subgroups")) {
            return line;
        }
        f16 |= names.contains(&"f16");
        subgroups |= names.contains(&"subgroups");
        ""
    });
    let mut kept = lines.collect::<Vec<&str>>().join("\n");
    kept.push('\n');
    (kept, f16, subgroups)
}

/// What of a kernel's interface is not as expected, one sentence each.
fn differences(expected: &KernelDesc, found: &Declared) -> Vec<String> {
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
        match found.bindings.iter().find(|b| b.0 == number) {
            None => list.push(format!("@binding({number}): expected {}, found none", words(Some(kind)))),
            Some((_, other, name)) if *other != Some(kind) => {
                let (want, have) = (words(Some(kind)), words(*other));
                list.push(format!("@binding({number}): expected {want}, found {have} `{name}`"));
            }
            Some(_) => {}
        }
    }
    for (number, kind, name) in found.bindings.iter().filter(|b| b.0 as usize >= expected.bindings.len()) {
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

fn words(kind: Option<BindingKind>) -> &'static str {
    match kind {
        Some(BindingKind::Read) => "var<storage, read>",
        Some(BindingKind::ReadWrite) => "var<storage, read_write>",
        Some(BindingKind::Uniform) => "var<uniform>",
        None => "a resource that kernels cannot use",
    }
}
