//! A kernel as mutation operators see it, and the edits that they find in it.

use crate::mutant::Edit;
use crate::source::KernelSource;
use std::ops::Range;
use tapml_device::KernelDesc;
use tapml_kernels::Arg;

/// A kernel of a model as operators see it.
pub struct MutatedKernel<'a> {
    /// Its description, specialised as in the model.
    pub desc: &'a KernelDesc,
    /// What each binding is bound to.
    pub args: &'a [Arg],
    /// Its source.
    pub source: &'a KernelSource,
}

/// An edit with its diff.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundEdit {
    /// The edit.
    pub edit: Edit,
    /// Lines with `-` and `+`.
    pub diff: String,
}

impl MutatedKernel<'_> {
    /// A text edit of this kernel.
    pub(super) fn text(&self, range: Range<usize>, new: impl Into<String>) -> FoundEdit {
        self.text_with(range, new, "")
    }

    /// A text edit that calls a function appended to the source.
    pub(super) fn text_with(&self, range: Range<usize>, new: impl Into<String>, append: &str) -> FoundEdit {
        let new = new.into();
        let diff = self.source.diff(&range, &new);
        let old = self.source.full[range.clone()].to_string();
        let edit = Edit::Text { start: range.start, end: range.end, old, new, append: append.into() };
        FoundEdit { edit, diff }
    }

    /// The text of a range.
    pub(super) fn text_at(&self, range: &Range<usize>) -> &str {
        &self.source.full[range.clone()]
    }

    /// What the language calls the workgroup's number along x and y.
    pub(super) fn axes(&self) -> [&'static str; 2] {
        if self.source.is_cuda() { ["blockIdx.x", "blockIdx.y"] } else { ["group.x", "group.y"] }
    }

    /// The value of a specialisation constant.
    pub(super) fn constant(&self, name: &str) -> Option<f64> {
        self.desc.constants.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
    }
}
