//! Wrong specialisation constants: values, flags, sizes.

use super::{Found, Kernel};
use crate::mutant::{Change, Edit};

fn edit(kernel: &Kernel<'_>, name: &str, change: Change) -> Option<Found> {
    let old = kernel.constant(name)?;
    let new = change.of(old);
    // Constants reach a kernel as f32 or u32.
    if new as f32 == old as f32 {
        return None;
    }
    let diff = format!("{}, constant {name}\n- {old}\n+ {new}", kernel.desc.name);
    Some(Found { edit: Edit::Constant { name: name.into(), change }, diff })
}

fn all(kernel: &Kernel<'_>, rows: &[(&str, Change)]) -> Vec<Found> {
    rows.iter().filter_map(|&(name, change)| edit(kernel, name, change)).collect()
}

/// Attributes that are numbers.
pub fn values(kernel: &Kernel<'_>) -> Vec<Found> {
    let mut rows = vec![
        ("EPS", Change::Times(10.0)),
        ("EPS", Change::Times(0.1)),
        ("EPS", Change::Set(0.0)),
        ("OFFSET", Change::Set(0.0)),
        ("OFFSET", Change::Set(1.0)),
        ("SCALE", Change::Set(1.0)),
        ("SCALE", Change::Times(1.001)),
        ("SCALE", Change::Times(-1.0)),
        ("FACTOR", Change::Set(1.0)),
        ("FACTOR", Change::Times(1.001)),
        ("CAP", Change::Times(0.9)),
    ];
    if kernel.constant("SOFTCAP").is_some_and(|cap| cap != 0.0) {
        rows.extend([("SOFTCAP", Change::Set(0.0)), ("SOFTCAP", Change::Times(0.9))]);
    }
    // The root of the head size forgotten.
    if let (Some(scale), Some(_)) = (kernel.constant("SCALE"), kernel.constant("HEAD_DIM")) {
        rows.push(("SCALE", Change::Times(scale)));
    }
    let mut found = all(kernel, &rows);
    let literals = kernel.source.floats.iter().filter(|range| kernel.at(range).parse() != Ok(0.0));
    found
        .extend(literals.map(|range| kernel.text(range.clone(), format!("(1.001f * {})", kernel.at(range)))));
    found
}

/// Attributes that are choices.
pub fn flags(kernel: &Kernel<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for name in
        ["HAS_BIAS", "HAS_WEIGHT", "INTERLEAVED", "NORMALIZE", "WEIGHTED", "CAUSAL", "HAS_SINKS", "COLUMN"]
    {
        // What is not given cannot be read: only switching off makes sense for what is bound or not.
        let on = kernel.constant(name) == Some(1.0);
        let bound = name.starts_with("HAS") || matches!(name, "WEIGHTED" | "COLUMN");
        let change = Change::Set(if on { 0.0 } else { 1.0 });
        if on || !bound {
            found.extend(edit(kernel, name, change));
        }
    }
    for (name, choices) in [("FORM", 3), ("SCORES", 2), ("W_DTYPE", 3)] {
        let used = name != "W_DTYPE" || kernel.constant(name).is_some_and(|code| code > 0.0);
        let others = (0..choices).filter(|_| used).map(f64::from);
        // Narrow weights read as another narrow type; as f32 they would lie beyond the buffer.
        let others = others.filter(|&code| name != "W_DTYPE" || code > 0.0);
        found.extend(others.filter_map(|code| edit(kernel, name, Change::Set(code))));
    }
    if kernel.constant("WINDOW").is_some_and(|window| window > 0.0) {
        let changes = [Change::Set(0.0), Change::Plus(1.0), Change::Plus(-1.0)];
        found.extend(changes.into_iter().filter_map(|change| edit(kernel, "WINDOW", change)));
    }
    found
}

/// Sizes and strides.
pub fn sizes(kernel: &Kernel<'_>) -> Vec<Found> {
    let mut rows = vec![
        ("K", Change::Plus(-1.0)),
        ("D", Change::Plus(-1.0)),
        ("WIDTH", Change::Plus(1.0)),
        ("FIRST", Change::Plus(1.0)),
        ("SLOTS", Change::Plus(-1.0)),
        ("EXPERTS", Change::Plus(-1.0)),
        ("GROUP", Change::Plus(1.0)),
        ("CACHE_P", Change::Set(0.0)),
        ("CACHE_C", Change::Plus(1.0)),
        ("KEYS_P", Change::Set(0.0)),
        ("ROW_A", Change::Plus(1.0)),
        ("ROW_B", Change::Plus(1.0)),
    ];
    if kernel.constant("ROTARY_DIM").is_some_and(|dim| dim >= 4.0) {
        rows.extend([("ROTARY_DIM", Change::Times(0.5)), ("ROTARY_DIM", Change::Plus(-2.0))]);
    }
    if kernel.constant("VALUE_DIM").is_some_and(|dim| dim >= 2.0) {
        rows.extend([("HEAD_DIM", Change::Plus(-1.0)), ("VALUE_DIM", Change::Plus(-1.0))]);
    }
    if let (Some(heads), Some(kv)) = (kernel.constant("HEADS"), kernel.constant("KV_HEADS")) {
        if kv > 1.0 {
            rows.push(("KV_HEADS", Change::Set(1.0)));
        }
        if kv < heads {
            rows.push(("KV_HEADS", Change::Set(heads)));
        }
    }
    let small = |name: &str, change: Change| kernel.constant(name).is_some_and(|v| change.of(v) < 1.0);
    rows.retain(|&(name, change)| {
        matches!(name, "FIRST" | "CACHE_P" | "CACHE_C" | "KEYS_P") || !small(name, change)
    });
    all(kernel, &rows)
}
