//! The mutation operators: one row each. A row finds every place of one kernel where its fault can be made.

mod arithmetic;
mod between;
mod constants;
mod indexing;
mod launch;
mod synchronisation;

use crate::mutant::{Edit, Family};
use crate::source::KernelSource;
use std::ops::Range;
use tapml_device::KernelDesc;
use tapml_kernels::Arg;

pub use between::{BETWEEN, Commands, op_of};

/// A kernel of a model as operators see it.
pub struct Kernel<'a> {
    /// Its description, specialised as in the model.
    pub desc: &'a KernelDesc,
    /// What each binding is bound to.
    pub args: &'a [Arg],
    /// Its source.
    pub source: &'a KernelSource,
}

/// An edit with its diff.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The edit.
    pub edit: Edit,
    /// Lines with `-` and `+`.
    pub diff: String,
}

impl Kernel<'_> {
    /// A text edit of this kernel.
    fn text(&self, range: Range<usize>, new: impl Into<String>) -> Found {
        self.text_with(range, new, "")
    }

    /// A text edit that calls a function appended to the source.
    fn text_with(&self, range: Range<usize>, new: impl Into<String>, append: &str) -> Found {
        let new = new.into();
        let diff = self.source.diff(&range, &new);
        let old = self.source.full[range.clone()].to_string();
        let edit = Edit::Text { start: range.start, end: range.end, old, new, append: append.into() };
        Found { edit, diff }
    }

    /// The text of a range.
    fn at(&self, range: &Range<usize>) -> &str {
        &self.source.full[range.clone()]
    }

    /// The value of a specialisation constant.
    fn constant(&self, name: &str) -> Option<f64> {
        self.desc.constants.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
    }
}

/// One mutation operator for kernels.
pub struct Operator {
    /// Its name in ids and reports.
    pub name: &'static str,
    /// The family of its mutants; faults of kernels that append to caches count as [`Family::State`].
    pub family: Family,
    /// Names of the causes that a diagnosis may give.
    pub causes: &'static [&'static str],
    /// Finds every place in a kernel.
    pub find: fn(&Kernel<'_>) -> Vec<Found>,
}

/// All mutation operators for kernels.
pub const OPERATORS: &[Operator] = &[
    row("wrong-sign", Family::Arithmetic, &["wrong_sign"], arithmetic::wrong_sign),
    row(
        "swapped-operands",
        Family::Arithmetic,
        &["swapped_operands", "wrong_sign"],
        arithmetic::swapped_operands,
    ),
    row(
        "dropped-factor",
        Family::Arithmetic,
        &["missing_scale", "wrong_scale", "wrong_constant"],
        arithmetic::dropped_factor,
    ),
    row("dropped-term", Family::Arithmetic, &["missing_bias", "wrong_constant"], arithmetic::dropped_term),
    row("rough-exp", Family::Arithmetic, &["approximate_function"], arithmetic::rough_exp),
    row(
        "overflowing-exp",
        Family::Arithmetic,
        &["approximate_function", "non_finite"],
        arithmetic::overflowing_exp,
    ),
    row(
        "overflowing-tanh",
        Family::Arithmetic,
        &["approximate_function", "non_finite"],
        arithmetic::overflowing_tanh,
    ),
    row("rough-root", Family::Arithmetic, &["approximate_function"], arithmetic::rough_root),
    row("f16-sum", Family::Arithmetic, &["low_precision"], arithmetic::f16_sum),
    row("bf16-sum", Family::Arithmetic, &["low_precision"], arithmetic::bf16_sum),
    row("through-integer", Family::Arithmetic, &["integer_conversion"], arithmetic::through_integer),
    row(
        "truncated-store",
        Family::Arithmetic,
        &["rounding_mode", "low_precision"],
        arithmetic::truncated_store,
    ),
    row("wrong-constant", Family::Arithmetic, &["wrong_constant"], constants::values),
    row("wrong-flag", Family::Arithmetic, &["wrong_attribute"], constants::flags),
    row("wrong-base", Family::Arithmetic, &["wrong_rope_base"], launch::wrong_base),
    row("swapped-inputs", Family::Arithmetic, &["swapped_inputs"], launch::swapped_inputs),
    row("wrong-size", Family::Indexing, &["wrong_stride", "tail_dropped"], constants::sizes),
    row("bound", Family::Indexing, &["off_by_one", "mask_off_by_one"], indexing::bound),
    row("tail-dropped", Family::Indexing, &["tail_dropped"], indexing::tail_dropped),
    row("first-skipped", Family::Indexing, &["first_dropped", "tail_dropped"], indexing::first_skipped),
    row("offset", Family::Indexing, &["off_by_one"], indexing::offset),
    row("offset-ignored", Family::Indexing, &["wrong_offset"], indexing::offset_ignored),
    row("stride", Family::Indexing, &["wrong_stride"], indexing::stride),
    row("division", Family::Indexing, &["transposed", "wrong_head"], indexing::division),
    row("swapped-rows", Family::Indexing, &["swapped_rows"], indexing::swapped_rows),
    row("swapped-axes", Family::Indexing, &["transposed"], indexing::swapped_axes),
    row("position", Family::Indexing, &["position_off_by_one"], indexing::position),
    row("last-workgroup", Family::Indexing, &["tail_dropped"], launch::last_workgroup),
    row("no-barrier", Family::Synchronisation, &["missing_barrier"], synchronisation::no_barrier),
    row("no-store", Family::Synchronisation, &["uninitialised_memory"], synchronisation::no_store),
    row("racing-lanes", Family::Synchronisation, &["race"], synchronisation::racing_lanes),
    row("racing-groups", Family::Synchronisation, &["race", "unwritten"], synchronisation::racing_groups),
];

const fn row(
    name: &'static str,
    family: Family,
    causes: &'static [&'static str],
    find: fn(&Kernel<'_>) -> Vec<Found>,
) -> Operator {
    Operator { name, family, causes, find }
}
