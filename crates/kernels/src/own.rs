//! Kernels of one's own: WGSL that stands for no operator, read from its text alone.
//!
//! Such a kernel is launched on data of the user. Everything that a planner would know comes from the declarations of
//! the text, and from the values of constants that the user gives.

use crate::directives::Directives;
use crate::validate::Validator;
use crate::wgsl::{DeclaredBinding, WgslDeclarations, parse_declarations};
use tapml_device::{BindingKind, KernelDesc, Language, Source};
use tapml_graph::{Error, Result};

/// Describes the kernel `entry` of a WGSL text, or its only entry point. `constants` are values of `override` constants;
/// those without a default must be given. `file` is for messages.
///
/// The text may begin with `enable` directives. What it binds must be `@group(0)`, numbered from 0 without a gap, and
/// storage or uniform buffers. Also gives the names of the bindings, in order.
///
/// Fails with [`tapml_graph::ErrorKind::Compile`], with file, line and column, if the text is not valid, and with
/// [`tapml_graph::ErrorKind::InvalidInput`] if it declares something else.
pub fn own_kernel(
    file: &str,
    text: &str,
    entry: Option<&str>,
    constants: &[(String, f64)],
) -> Result<(KernelDesc, Vec<String>)> {
    // A byte order mark is no part of WGSL.
    let directives = Directives::split(file, text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let source = Source {
        language: Language::Wgsl,
        file: file.into(),
        prelude: directives.front.clone(),
        text: directives.text.clone(),
    };
    let found = parse_declarations(&source, directives.f16)?;
    let (entry, workgroup) = entry_point(file, &found, entry)?;
    let missing =
        found.overrides.iter().find(|(o, default)| !default && constants.iter().all(|(c, _)| c != o));
    if let Some((name, _)) = missing {
        return Err(Error::invalid(format!("{file}: the constant `{name}` has no value"))
            .with_hint("give one, or write a default behind `override`"));
    }
    let desc = KernelDesc {
        name: entry.clone(),
        source,
        entry,
        constants: constants.to_vec(),
        bindings: bindings(file, &found)?,
        workgroup,
        // Memory whose size depends on constants is refused by the check below, which evaluates them.
        workgroup_memory: found.workgroup_memory.unwrap_or(0),
        needs_f16: directives.f16,
        needs_subgroups: directives.subgroups,
        dependent_launch: false,
    };
    // Constants can make a valid text invalid, such as an array of length zero.
    Validator::new().check(&desc)?;
    Ok((desc, found.bindings.into_iter().map(|binding| binding.name).collect()))
}

/// Name and workgroup size of the wanted entry point, or of the only one. Errors list those that there are.
fn entry_point(file: &str, found: &WgslDeclarations, wanted: Option<&str>) -> Result<(String, [u32; 3])> {
    let names = || found.entries.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let entry = match (wanted, found.entries.as_slice()) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (Some(name), entries) => entries.iter().find(|(n, _)| n == name),
    };
    entry.cloned().ok_or_else(|| match (wanted, found.entries.len()) {
        (_, 0) => Error::invalid(format!("{file}: there is no compute entry point"))
            .with_hint("write `@compute @workgroup_size(64) fn main(…)`"),
        (Some(name), _) => Error::invalid(format!("{file}: there is no entry point `{name}`"))
            .with_hint(format!("there are: {}", names())),
        (None, count) => Error::invalid(format!("{file}: there are {count} entry points"))
            .with_hint(format!("name one of them: {}", names())),
    })
}

/// The kinds of the bindings, which must be numbered without a gap: a launch passes them as a list.
fn bindings(file: &str, found: &WgslDeclarations) -> Result<Vec<BindingKind>> {
    let kind = |(expected, DeclaredBinding { number, kind, name }): (u32, &DeclaredBinding)| match kind {
        Some(kind) if *number == expected => Ok(*kind),
        Some(_) => Err(Error::invalid(format!(
            "{file}: `{name}` is binding {number} of group 0, expected {expected}: bindings count from 0"
        ))),
        None => Err(Error::invalid(format!("{file}: `{name}` is neither a storage nor a uniform buffer"))),
    };
    (0..).zip(&found.bindings).map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::ErrorKind;

    const TEXT: &str = "enable f16;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
override factor: f32;
var<workgroup> part: array<f32, 64>;
@compute @workgroup_size(64) fn scale(@builtin(global_invocation_id) id: vec3u) {
    part[id.x % 64u] = f32(f16(x[id.x])) * factor;
    y[id.x] = part[id.x % 64u];
}
";

    #[test]
    fn a_text_tells_everything_about_its_kernel() {
        let (desc, names) = own_kernel("mine.wgsl", TEXT, None, &[("factor".into(), 2.0)]).unwrap();
        assert_eq!((desc.entry.as_str(), desc.workgroup, desc.workgroup_memory), ("scale", [64, 1, 1], 256));
        assert_eq!(desc.bindings, [BindingKind::Read, BindingKind::ReadWrite]);
        assert_eq!(names, ["x", "y"]);
        assert!(desc.needs_f16 && !desc.needs_subgroups);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let read = |text: &str, entry, constants: &[(String, f64)]| {
            own_kernel("mine.wgsl", text, entry, constants).unwrap_err()
        };
        let factor = [("factor".to_string(), 2.0)];
        assert!(read(TEXT, None, &[]).to_string().contains("`factor` has no value"));
        assert!(read(TEXT, Some("main"), &factor).hint().unwrap().contains("scale"));
        assert!(read("", None, &[]).to_string().contains("no compute entry point"));
        let gap = read(&TEXT.replace("binding(1)", "binding(2)"), None, &factor);
        assert!(gap.to_string().contains("expected 1"), "{gap}");
        let texture = TEXT.replace("var<storage, read> x: array<f32>", "var x: sampler");
        let texture = texture.replace("x[id.x]", "1.0");
        assert!(read(&texture, None, &factor).to_string().contains("neither a storage"));
        let broken = read(&TEXT.replace("* factor", "* factr"), None, &factor);
        assert_eq!((broken.kind(), broken.detail("line")), (ErrorKind::Compile, Some("7")), "{broken}");
    }
}
