//! Cases about compiling kernels: errors that point at the source, constants, limits, handles.
//!
//! An error must name the kernel and the line within its own text: lines of the prelude do not count.

use super::bench::{Bench, Check, equal, expect_refusal, fail, has_detail, skip};
use crate::{BindingKind::ReadWrite, ErrorKind, KernelDesc, KernelId, Language, Source};

/// Four lines before the kernel's own text.
const PRELUDE: &str = "alias Word = u32;\nfn twice(x: Word) -> Word {\n    return 2u * x;\n}\n";

/// A kernel that every device takes.
const GOOD: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn main() { out[0] = 1u; }
";

/// The error of a text with a prelude names this line, in the message and as a detail.
fn points_at(b: &mut Bench<'_>, text: &str, line: u32) -> Check {
    let mut desc = b.desc(&[ReadWrite], [1, 1, 1], text);
    desc.source.prelude = PRELUDE.into();
    let error =
        expect_refusal("a kernel with an error", &[ErrorKind::Compile], b.device.create_kernel(&desc))?;
    has_detail("a compile error", &error, "kernel", &desc.name)?;
    has_detail("a compile error", &error, "line", &line.to_string())?;
    let place = format!("{}:{line}", desc.source.file);
    if error.to_string().contains(&place) && error.to_string().contains(&desc.name) {
        Ok(())
    } else {
        fail(format!("the message names neither `{}` at `{place}`: {error}", desc.name))
    }
}

/// Found by the parser.
pub(super) fn syntax_error(b: &mut Bench<'_>) -> Check {
    let text = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n\n@compute @workgroup_size(1)\nfn main() {\n    out[0] = twice(1u;\n}\n";
    points_at(b, text, 5)
}

/// Found after parsing, where a place is easily lost.
pub(super) fn type_error(b: &mut Bench<'_>) -> Check {
    let text = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n@compute @workgroup_size(1)\nfn main() {\n    let x = twice(3u);\n    let y: f32 = 1.5;\n    out[0] = x + y;\n}\n";
    points_at(b, text, 6)
}

/// The text is right, but has no function of that name.
pub(super) fn missing_entry_point(b: &mut Bench<'_>) -> Check {
    let mut desc = b.desc(&[ReadWrite], [1, 1, 1], GOOD);
    desc.entry = "absent".into();
    let kinds = &[ErrorKind::Compile, ErrorKind::InvalidInput];
    let error = expect_refusal("a kernel without its entry point", kinds, b.device.create_kernel(&desc))?;
    has_detail("a missing entry point", &error, "kernel", &desc.name)
}

/// Without a description of it nothing could be bound.
pub(super) fn undeclared_binding(b: &mut Bench<'_>) -> Check {
    let desc = b.desc(&[], [1, 1, 1], GOOD);
    let kinds = &[ErrorKind::Compile, ErrorKind::InvalidInput];
    let error = expect_refusal(
        "a kernel that uses a binding its description lacks",
        kinds,
        b.device.create_kernel(&desc),
    )?;
    has_detail("an undeclared binding", &error, "kernel", &desc.name)
}

/// One constant of each type, one with a default that depends on another, one as an array's size.
const CONSTANTS: &str = "
override COUNT: u32;
override SHIFT: i32 = -3;
override SCALE: f32 = 1.0;
override FLAG: bool = false;
override HALF = COUNT / 2u;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
var<workgroup> shared_words: array<u32, COUNT>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) at: u32) {
    for (var i = at; i < COUNT; i += 8u) { shared_words[i] = i * i; }
    workgroupBarrier();
    if at == 0u {
        out[0] = COUNT;
        out[1] = bitcast<u32>(SHIFT);
        out[2] = bitcast<u32>(SCALE);
        out[3] = select(0u, 1u, FLAG);
        out[4] = HALF;
        out[5] = shared_words[COUNT - 1u];
    }
}
";

/// Its description with these values.
fn constants(b: &Bench<'_>, values: &[(&str, f64)]) -> KernelDesc {
    let mut desc = b.desc(&[ReadWrite], [8, 1, 1], CONSTANTS);
    desc.constants = values.iter().map(|&(name, value)| (name.into(), value)).collect();
    // For the largest `COUNT` of the cases, 100.
    desc.workgroup_memory = 400;
    desc
}

/// Constants arrive as f64 and must get the type that the text declares.
pub(super) fn override_constants(b: &mut Bench<'_>) -> Check {
    let out = b.create_zeroed("out", 24)?;
    let minus_three = 0u32.wrapping_sub(3);
    let desc = constants(b, &[("COUNT", 100.0)]);
    let found = b.compute_with(&desc, 1, &[out], 6)?;
    equal("constants left at their defaults", &found, &[100, minus_three, 1f32.to_bits(), 0, 50, 99 * 99])?;
    // The same text with other constants is another kernel.
    let desc = constants(b, &[("COUNT", 20.0), ("SHIFT", -70_000.0), ("SCALE", 0.1), ("FLAG", 1.0)]);
    let found = b.compute_with(&desc, 1, &[out], 6)?;
    let shift = 0u32.wrapping_sub(70_000);
    equal("constants given by name", &found, &[20, shift, 0.1f32.to_bits(), 1, 10, 19 * 19])
}

/// A name that the text does not have, and a constant without a value or default.
pub(super) fn unknown_constant(b: &mut Bench<'_>) -> Check {
    let kinds = &[ErrorKind::Compile, ErrorKind::InvalidInput];
    for values in [&[("COUNT", 8.0), ("COLOUR", 1.0)][..], &[][..]] {
        let desc = constants(b, values);
        let what = format!("a kernel with the constants {values:?}");
        let error = expect_refusal(&what, kinds, b.device.create_kernel(&desc))?;
        has_detail(&what, &error, "kernel", &desc.name)?;
    }
    Ok(())
}

/// An error names the limit, and the numbers that are asked and offered.
pub(super) fn above_the_limits(b: &mut Bench<'_>) -> Check {
    let limits = b.device.info().limits.clone();
    let good = b.desc(&[ReadWrite], [1, 1, 1], GOOD);
    let storage = limits.max_storage_buffers;
    let mut over = vec![
        ("max_invocations", KernelDesc { workgroup: [limits.max_invocations, 2, 1], ..good.clone() }),
        (
            "max_storage_buffers",
            KernelDesc { bindings: vec![ReadWrite; storage as usize + 1], ..good.clone() },
        ),
        (
            "max_workgroup_memory",
            KernelDesc { workgroup_memory: limits.max_workgroup_memory + 4, ..good.clone() },
        ),
    ];
    // Else the limit of invocations would be met first.
    let deep = limits.max_workgroup_size[2] + 1;
    if deep <= limits.max_invocations {
        over.push(("max_workgroup_size.z", KernelDesc { workgroup: [1, 1, deep], ..good.clone() }));
    }
    for (limit, desc) in over {
        let error = expect_refusal(limit, &[ErrorKind::Unsupported], b.device.create_kernel(&desc))?;
        has_detail(limit, &error, "limit", limit)?;
        has_detail(limit, &error, "kernel", &desc.name)?;
        for name in ["asked", "offered"] {
            if error.detail(name).is_none_or(|v| v.parse::<u64>().is_err()) {
                return fail(format!("{limit}: the error has no number `{name}`: {error}"));
            }
        }
    }
    let out = b.create_zeroed("out", 4)?;
    let found = b.compute_with(&good, 1, &[out], 1)?;
    equal("a kernel made after refused ones", &found, &[1])
}

/// Planning rests on descriptions, so a wrong one is refused.
pub(super) fn check_misdescribed(b: &mut Bench<'_>) -> Check {
    let kinds = &[ErrorKind::Compile, ErrorKind::InvalidInput];
    let mut sized = b.desc(&[ReadWrite], [1, 1, 1], GOOD);
    sized.workgroup = [2, 1, 1];
    // One word more than is described.
    let mut shared = constants(b, &[("COUNT", 101.0)]);
    shared.workgroup_memory = 400;
    for (what, desc) in
        [("another workgroup size", sized), ("less workgroup memory than it declares", shared)]
    {
        let error =
            expect_refusal(&format!("a kernel described with {what}"), kinds, b.device.create_kernel(&desc))?;
        has_detail(what, &error, "kernel", &desc.name)?;
    }
    Ok(())
}

/// Devices with all features have nothing to refuse.
pub(super) fn missing_features(b: &mut Bench<'_>) -> Check {
    let features = b.device.info().features.clone();
    let mut lacking = Vec::new();
    let good = b.desc(&[ReadWrite], [1, 1, 1], GOOD);
    if !features.f16 {
        lacking.push(("f16", KernelDesc { needs_f16: true, ..good.clone() }));
    }
    if features.subgroups.is_none() {
        lacking.push(("subgroups", KernelDesc { needs_subgroups: true, ..good.clone() }));
    }
    if features.cuda.is_none() {
        let source = Source { language: Language::Cuda, ..good.source.clone() };
        lacking.push(("cuda", KernelDesc { source, ..good }));
    }
    if lacking.is_empty() {
        return skip("the device has every feature");
    }
    for (feature, desc) in lacking {
        let error = expect_refusal(feature, &[ErrorKind::Unsupported], b.device.create_kernel(&desc))?;
        has_detail(feature, &error, "feature", feature)?;
    }
    Ok(())
}

/// A destroyed kernel and one that never was.
pub(super) fn bad_handles(b: &mut Bench<'_>) -> Check {
    let desc = b.desc(&[ReadWrite], [1, 1, 1], GOOD);
    let id = b.kernel(&desc)?;
    b.destroy_kernel(id)?;
    for bad in [id, KernelId(u64::MAX)] {
        expect_refusal(
            "destroying an unknown kernel",
            &[ErrorKind::InvalidInput],
            b.device.destroy_kernel(bad),
        )?;
    }
    Ok(())
}
