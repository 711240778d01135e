//! What a checking device reports about a kernel's run: races, bounds, uninitialised reads and the like.
//!
//! Findings are data and serialise, so that a device elsewhere can send them. Their names in JSON are
//! stable.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The sort of defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// An index outside its array, vector or buffer. WebGPU clamps it silently.
    OutOfBounds,
    /// A read of memory that nobody wrote.
    UninitializedRead,
    /// Two invocations of one workgroup touch the same memory between barriers, at least one writing non-atomically.
    RaceInWorkgroup,
    /// Two workgroups of one dispatch touch the same memory, at least one writing non-atomically.
    RaceAcrossWorkgroups,
    /// A barrier, or an operation that must be uniform, in divergent control flow.
    DivergentBarrier,
    /// The first NaN or infinity born from finite operands.
    NonFinite,
    /// A limit of the device or profile is exceeded.
    LimitExceeded,
}

impl FindingKind {
    /// The kind in plain words.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::OutOfBounds => "out of bounds",
            FindingKind::UninitializedRead => "uninitialized read",
            FindingKind::RaceInWorkgroup => "data race within a workgroup",
            FindingKind::RaceAcrossWorkgroups => "data race across workgroups",
            FindingKind::DivergentBarrier => "barrier in divergent control flow",
            FindingKind::NonFinite => "first non-finite value",
            FindingKind::LimitExceeded => "limit exceeded",
        }
    }
}

/// One defect, at one place of the source. Repeats at the same place are counted, not listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The sort of defect.
    pub kind: FindingKind,
    /// Name of the kernel.
    pub kernel: String,
    /// Label of the dispatch in which it was first seen.
    pub label: String,
    /// Source file of the kernel, as in [`crate::Source::file`].
    pub file: String,
    /// Line in that file, from 1; 0 if unknown.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
    /// The source line's text, trimmed.
    pub source: String,
    /// A sentence with the numbers: index and length, the two invocations, the operands.
    pub message: String,
    /// Workgroup of the first occurrence.
    pub workgroup: [u32; 3],
    /// Local invocation index of the first occurrence.
    pub invocation: u32,
    /// How many times it occurred at this place.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        // A place of 0 is unknown and is left out.
        for place in [self.line, self.column].into_iter().take_while(|&p| p > 0) {
            write!(f, ":{place}")?;
        }
        write!(f, ": {}: {}", self.kind.name(), self.message)?;
        let [x, y, z] = self.workgroup;
        write!(f, " (workgroup {x},{y},{z}, invocation {}, {} time", self.invocation, self.count)?;
        f.write_str(if self.count == 1 { ")" } else { "s)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        Finding {
            kind: FindingKind::OutOfBounds,
            kernel: "linear/portable".into(),
            label: "lm_head".into(),
            file: "linear.wgsl".into(),
            line: 12,
            column: 5,
            source: "out[i] = sum;".into(),
            message: "index 40 of 40 elements".into(),
            workgroup: [1, 0, 2],
            invocation: 3,
            count: 1,
        }
    }

    #[test]
    fn displays_place_kind_message_and_count() {
        let text = "linear.wgsl:12:5: out of bounds: index 40 of 40 elements (workgroup 1,0,2, invocation 3, 1 time)";
        assert_eq!(finding().to_string(), text);
        let many = Finding { count: 7, ..finding() };
        assert!(many.to_string().ends_with("invocation 3, 7 times)"));
    }

    #[test]
    fn unknown_places_are_left_out() {
        let line_only = Finding { column: 0, ..finding() };
        assert!(line_only.to_string().starts_with("linear.wgsl:12: out of bounds"));
        let nowhere = Finding { line: 0, ..finding() };
        assert!(nowhere.to_string().starts_with("linear.wgsl: out of bounds"));
    }
}
