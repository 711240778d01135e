//! Missing barriers, races, memory that nobody wrote.
//!
//! Their results may be right by chance, so a checking device is asked beside the verdict.

use super::kernel::{FoundEdit, MutatedKernel};

/// Statements of CUDA C++ that wait: for the block, the warp, the cluster, copies, a barrier in shared memory, the kernel in
/// front.
const WAITS: [&str; 10] = [
    "__syncthreads(",
    "__syncwarp(",
    "cluster_sync(",
    "cluster_meet(",
    "named_barrier",
    "cp_async_wait",
    "mbarrier_wait(",
    "ring.await_full(",
    "ring.await_empty(",
    "wait_previous(",
];

/// A barrier, or a wait, is missing; of copies in flight, one more may still be on its way.
pub fn no_barrier(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let cuda = kernel.source.is_cuda();
    let waits = |text: &str| {
        if cuda { WAITS.iter().any(|wait| text.starts_with(wait)) } else { text == "workgroupBarrier();" }
    };
    let mut found = Vec::new();
    for range in kernel.source.statements.iter().filter(|range| waits(kernel.text_at(range))) {
        // In C++ an empty statement keeps a loop or branch without braces valid.
        found.push(kernel.text(range.clone(), if cuda { ";" } else { "" }));
        let text = kernel.text_at(range);
        if let Some(end) = text.strip_prefix("cp_async_wait<").and_then(|rest| rest.find(">()")) {
            let end = range.start + "cp_async_wait<".len() + end;
            found.push(kernel.text(end..end, " + 1"));
        }
    }
    found
}

/// Names of variables in workgroup memory.
fn workgroup_names<'a>(kernel: &'a MutatedKernel<'_>) -> Vec<&'a str> {
    let code = &kernel.source.code;
    if !kernel.source.is_cuda() {
        let declared = code.match_indices("var<workgroup> ");
        return declared.filter_map(|(at, text)| code[at + text.len()..].split(':').next()).collect();
    }
    let declared = code.match_indices("__shared__ ").filter_map(|(at, _)| code[at..].split(';').next());
    let names = declared.flat_map(|line| line.split(',')).filter_map(|one| one.split('[').next());
    names.filter_map(|one| one.split(|c: char| !(c.is_alphanumeric() || c == '_')).next_back()).collect()
}

/// A value never reaches the workgroup's memory.
pub fn no_store(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let names = workgroup_names(kernel);
    let stores = kernel.source.statements.iter().filter(|range| {
        let text = &kernel.source.code[(*range).clone()];
        let target = text.split_once(" = ").map(|(target, _)| target.trim());
        // The variable in front of an index or a component.
        let name = target.and_then(|t| t.split(['[', '.']).next());
        name.is_some_and(|name| names.contains(&name))
    });
    let none = if kernel.source.is_cuda() { ";" } else { "" };
    stores.map(|range| kernel.text(range.clone(), none)).collect()
}

/// Lanes that should rest take part in a reduction.
pub fn racing_lanes(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let mut found = Vec::new();
    for text in ["lane < step", "lane % TEAM < step"] {
        let places: Vec<usize> = kernel.source.find(text).collect();
        let new = format!("{} < 2u * step", text.trim_end_matches(" < step"));
        found.extend(places.into_iter().map(|at| kernel.text(at..at + text.len(), new.clone())));
    }
    found
}

/// Two workgroups write the same place.
pub fn racing_groups(kernel: &MutatedKernel<'_>) -> Vec<FoundEdit> {
    let mut found = Vec::new();
    for axis in kernel.axes() {
        let places: Vec<usize> = kernel.source.find(axis).collect();
        found.extend(places.into_iter().map(|at| kernel.text(at..at + axis.len(), format!("({axis} / 2u)"))));
    }
    found
}
