//! Wrong specialisation constants: values, flags, sizes.
//!
//! Constants are WGSL's overrides and their counterparts in CUDA. A name that a kernel does not have finds nothing there.

use super::kernel::{FoundEdit, MutatedKernel};
use crate::mutant::{ConstantChange, Edit};

/// The change of one constant; `None` if the kernel has no such constant or its value stays the same.
fn edit(kernel: &MutatedKernel<'_>, name: &str, change: ConstantChange) -> Option<FoundEdit> {
    let old = kernel.constant(name)?;
    let new = change.apply(old);
    // Constants reach a kernel as f32 or u32.
    if new as f32 == old as f32 {
        return None;
    }
    let diff = format!("{}, constant {name}\n- {old}\n+ {new}", kernel.desc.name);
    Some(FoundEdit { edit: Edit::Constant { name: name.into(), change }, diff })
}

/// The changes of these constants that change something.
fn all(kernel: &MutatedKernel<'_>, rows: &[(&str, ConstantChange)]) -> Vec<FoundEdit> {
    rows.iter().filter_map(|&(name, change)| edit(kernel, name, change)).collect()
}

/// Attributes that are numbers.
pub fn values(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let mut rows = vec![
        ("EPS", ConstantChange::Times(10.0)),
        ("EPS", ConstantChange::Times(0.1)),
        ("EPS", ConstantChange::Set(0.0)),
        ("OFFSET", ConstantChange::Set(0.0)),
        ("OFFSET", ConstantChange::Set(1.0)),
        ("SCALE", ConstantChange::Set(1.0)),
        // A thousandth is a small fault, which only a tight verdict sees.
        ("SCALE", ConstantChange::Times(1.001)),
        ("SCALE", ConstantChange::Times(-1.0)),
        ("FACTOR", ConstantChange::Set(1.0)),
        ("FACTOR", ConstantChange::Times(1.001)),
        ("CAP", ConstantChange::Times(0.9)),
    ];
    if kernel.constant("SOFTCAP").is_some_and(|cap| cap != 0.0) {
        rows.extend([("SOFTCAP", ConstantChange::Set(0.0)), ("SOFTCAP", ConstantChange::Times(0.9))]);
    }
    // The root of the head size forgotten.
    if let (Some(scale), Some(_)) = (kernel.constant("SCALE"), kernel.constant("HEAD_DIM")) {
        rows.push(("SCALE", ConstantChange::Times(scale)));
    }
    let mut found = all(kernel, &rows);
    // Numbers in the text of CUDA kernels; a zero times anything stays zero.
    let literals = kernel.source.floats.iter().filter(|range| kernel.text_at(range).parse() != Ok(0.0));
    found.extend(
        literals.map(|range| kernel.text(range.clone(), format!("(1.001f * {})", kernel.text_at(range)))),
    );
    found
}

/// Attributes that are choices.
pub fn flags(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let mut found = Vec::new();
    for name in
        ["HAS_BIAS", "HAS_WEIGHT", "INTERLEAVED", "NORMALIZE", "WEIGHTED", "CAUSAL", "HAS_SINKS", "COLUMN"]
    {
        // What is not given cannot be read: only switching off makes sense for what is bound or not.
        let on = kernel.constant(name) == Some(1.0);
        let bound = name.starts_with("HAS") || matches!(name, "WEIGHTED" | "COLUMN");
        let change = ConstantChange::Set(if on { 0.0 } else { 1.0 });
        if on || !bound {
            found.extend(edit(kernel, name, change));
        }
    }
    for (name, choices) in [("FORM", 3), ("SCORES", 2), ("W_DTYPE", 3)] {
        // A code of 0 is f32, which is not read as anything else.
        let used = name != "W_DTYPE" || kernel.constant(name).is_some_and(|code| code > 0.0);
        let others = (0..choices).filter(|_| used).map(f64::from);
        // Narrow weights read as another narrow type; as f32 they would lie beyond the buffer.
        let others = others.filter(|&code| name != "W_DTYPE" || code > 0.0);
        found.extend(others.filter_map(|code| edit(kernel, name, ConstantChange::Set(code))));
    }
    if kernel.constant("WINDOW").is_some_and(|window| window > 0.0) {
        let changes = [ConstantChange::Set(0.0), ConstantChange::Plus(1.0), ConstantChange::Plus(-1.0)];
        found.extend(changes.into_iter().filter_map(|change| edit(kernel, "WINDOW", change)));
    }
    found
}

/// Sizes and strides.
pub fn sizes(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let mut rows = vec![
        ("K", ConstantChange::Plus(-1.0)),
        ("D", ConstantChange::Plus(-1.0)),
        ("WIDTH", ConstantChange::Plus(1.0)),
        ("FIRST", ConstantChange::Plus(1.0)),
        ("SLOTS", ConstantChange::Plus(-1.0)),
        ("EXPERTS", ConstantChange::Plus(-1.0)),
        ("GROUP", ConstantChange::Plus(1.0)),
        ("CACHE_P", ConstantChange::Set(0.0)),
        ("CACHE_C", ConstantChange::Plus(1.0)),
        ("KEYS_P", ConstantChange::Set(0.0)),
        ("ROW_A", ConstantChange::Plus(1.0)),
        ("ROW_B", ConstantChange::Plus(1.0)),
    ];
    if kernel.constant("ROTARY_DIM").is_some_and(|dim| dim >= 4.0) {
        rows.extend([("ROTARY_DIM", ConstantChange::Times(0.5)), ("ROTARY_DIM", ConstantChange::Plus(-2.0))]);
    }
    if kernel.constant("VALUE_DIM").is_some_and(|dim| dim >= 2.0) {
        rows.extend([("HEAD_DIM", ConstantChange::Plus(-1.0)), ("VALUE_DIM", ConstantChange::Plus(-1.0))]);
    }
    if let (Some(heads), Some(kv)) = (kernel.constant("HEADS"), kernel.constant("KV_HEADS")) {
        // One key/value head for all, or one for each query head.
        if kv > 1.0 {
            rows.push(("KV_HEADS", ConstantChange::Set(1.0)));
        }
        if kv < heads {
            rows.push(("KV_HEADS", ConstantChange::Set(heads)));
        }
    }
    let small =
        |name: &str, change: ConstantChange| kernel.constant(name).is_some_and(|v| change.apply(v) < 1.0);
    // A size below 1 would leave nothing to compute.
    rows.retain(|&(name, change)| {
        matches!(name, "FIRST" | "CACHE_P" | "CACHE_C" | "KEYS_P") || !small(name, change)
    });
    all(kernel, &rows)
}
