//! Missing barriers, races, memory that nobody wrote.

use super::{Found, Kernel};

/// A barrier is missing.
pub fn no_barrier(kernel: &Kernel<'_>) -> Vec<Found> {
    let barriers = kernel.source.statements().into_iter();
    barriers
        .filter(|range| kernel.at(range) == "workgroupBarrier();")
        .map(|range| kernel.text(range, ""))
        .collect()
}

/// Names of variables in workgroup memory.
fn workgroup_names<'a>(kernel: &'a Kernel<'_>) -> Vec<&'a str> {
    let declared = kernel.source.code.match_indices("var<workgroup> ");
    declared.filter_map(|(at, text)| kernel.source.code[at + text.len()..].split(':').next()).collect()
}

/// A value never reaches the workgroup's memory.
pub fn no_store(kernel: &Kernel<'_>) -> Vec<Found> {
    let names = workgroup_names(kernel);
    let stores = kernel.source.statements().into_iter().filter(|range| {
        let text = &kernel.source.code[range.clone()];
        let target = text.split_once(" = ").map(|(target, _)| target.trim());
        let name = target.and_then(|t| t.split(['[', '.']).next());
        name.is_some_and(|name| names.contains(&name))
    });
    stores.map(|range| kernel.text(range, "")).collect()
}

/// Lanes that should rest take part in a reduction.
pub fn racing_lanes(kernel: &Kernel<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for text in ["lane < step", "lane % TEAM < step"] {
        let places: Vec<usize> = kernel.source.find(text).collect();
        let new = format!("{} < 2u * step", text.trim_end_matches(" < step"));
        found.extend(places.into_iter().map(|at| kernel.text(at..at + text.len(), new.clone())));
    }
    found
}

/// Two workgroups write the same place.
pub fn racing_groups(kernel: &Kernel<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for axis in ["group.x", "group.y"] {
        let places: Vec<usize> = kernel.source.find(axis).collect();
        found.extend(places.into_iter().map(|at| kernel.text(at..at + axis.len(), format!("({axis} / 2u)"))));
    }
    found
}
