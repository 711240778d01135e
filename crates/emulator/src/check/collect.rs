//! Collects findings: one entry per kind and instruction, with the first occurrence and a count.
//!
//! Reports must not depend on the number of threads: of several occurrences the first in the order of the grid stays.

use crate::front::ReadyKernel;
use std::collections::HashMap;
use std::sync::Mutex;
use tapml_device::{Finding, FindingKind};

/// The first occurrence of a defect at one instruction.
///
/// `count` is that of all occurrences, on all lanes and workgroups.
#[derive(Clone, Debug)]
pub struct FirstOccurrence {
    /// What happened, with values of this occurrence.
    pub message: String,
    /// Where in the grid it happened.
    pub workgroup: [u32; 3],
    /// Local index of the invocation.
    pub lane: u32,
    pub count: u64,
}

impl FirstOccurrence {
    /// The order of the grid: x fastest, then y, z; within a workgroup by lane.
    fn order(&self) -> ([u32; 3], u32) {
        let [x, y, z] = self.workgroup;
        ([z, y, x], self.lane)
    }
}

/// Defects by kind and instruction.
/// The key's second part is the index of the instruction.
pub type Entries = HashMap<(FindingKind, usize), FirstOccurrence>;

/// What all threads of a dispatch found.
#[derive(Default)]
pub struct Collector(Mutex<Entries>);

impl Collector {
    /// Adds one thread's entries. Of two first occurrences the one in the lower workgroup stays, so that reports do not
    /// depend on which thread came first.
    pub fn merge(&self, entries: Entries) {
        // A thread that panicked ends the whole dispatch with an error, so nothing is lost.
        let Ok(mut all) = self.0.lock() else { return };
        for (key, entry) in entries {
            match all.get_mut(&key) {
                None => {
                    all.insert(key, entry);
                }
                Some(known) => {
                    let count = known.count + entry.count;
                    if entry.order() < known.order() {
                        *known = entry;
                    }
                    known.count = count;
                }
            }
        }
    }

    /// The findings, located in the kernel's source, in source order.
    pub fn finish(self, kernel: &ReadyKernel, label: &str) -> Vec<Finding> {
        // All threads are done, so nobody holds the lock.
        let entries = self.0.into_inner().unwrap_or_default();
        let mut findings = Vec::new();
        for ((kind, pc), entry) in entries {
            let span = kernel.code.spans.get(pc).copied().unwrap_or_default();
            let at = kernel.source.locate(span);
            add(
                &mut findings,
                Finding {
                    kind,
                    kernel: kernel.desc.name.clone(),
                    label: label.into(),
                    file: at.file,
                    line: at.line,
                    column: at.column,
                    source: at.source,
                    message: entry.message,
                    workgroup: entry.workgroup,
                    invocation: entry.lane,
                    count: entry.count,
                },
            );
        }
        // Maps iterate in a random order.
        findings.sort_by_key(|f| (f.line, f.column, f.kind));
        findings
    }
}

/// Adds a finding, or counts it with the one of the same kernel, kind and line.
/// A later dispatch of another label only counts: the first one stays.
pub fn add(findings: &mut Vec<Finding>, finding: Finding) {
    let same = |f: &&mut Finding| {
        f.kind == finding.kind
            && f.kernel == finding.kernel
            && f.file == finding.file
            && f.line == finding.line
    };
    match findings.iter_mut().find(same) {
        Some(known) => {
            let count = known.count + finding.count;
            let order =
                |f: &Finding| ([f.workgroup[2], f.workgroup[1], f.workgroup[0]], f.invocation, f.column);
            if known.label == finding.label && order(&finding) < order(known) {
                *known = finding;
            }
            known.count = count;
        }
        None => findings.push(finding),
    }
}
