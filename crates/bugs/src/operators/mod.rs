//! The mutation operators: one row each. A row finds every place of one kernel where its fault can be made.
//!
//! Causes of a row are those that a diagnosis may name rightly; which of them fits depends on the place.

mod arithmetic;
mod between;
mod constants;
mod indexing;
mod kernel;
mod launch;
mod op_names;
mod quantised;
mod synchronisation;

use crate::mutant::Family;
use tapml_cause::Cause;
use tapml_cause::Cause as C;

pub use between::{BETWEEN, Commands};
pub use kernel::{FoundEdit, MutatedKernel};
pub use op_names::{appends, op_of, writes_cache};

/// One mutation operator for kernels.
pub struct Operator {
    /// Its name in ids and reports.
    pub name: &'static str,
    /// The family of its mutants; faults of kernels that append to caches count as [`Family::State`].
    pub family: Family,
    /// The causes that a diagnosis may give.
    pub causes: &'static [Cause],
    /// Finds every place in a kernel.
    pub find: fn(&MutatedKernel<'_>) -> Vec<FoundEdit>,
}

/// All mutation operators for kernels.
/// Names stand in ids, which are compared between sessions, so they do not change.
pub const OPERATORS: &[Operator] = &[
    row(
        "wrong-sign",
        Family::Arithmetic,
        &[C::WrongSign, C::WrongConstant, C::WrongFormula],
        arithmetic::wrong_sign,
    ),
    row(
        "swapped-operands",
        Family::Arithmetic,
        &[C::SwappedOperands, C::WrongSign, C::WrongFormula],
        arithmetic::swapped_operands,
    ),
    row(
        "dropped-factor",
        Family::Arithmetic,
        &[C::MissingScale, C::WrongScale, C::MissingTerm, C::WrongFormula],
        arithmetic::dropped_factor,
    ),
    row(
        "dropped-term",
        Family::Arithmetic,
        &[C::MissingTerm, C::MissingBias, C::WrongConstant, C::WrongFormula],
        arithmetic::dropped_term,
    ),
    row("rough-exp", Family::Arithmetic, &[C::WrongFormula], arithmetic::rough_exp),
    row("overflowing-exp", Family::Arithmetic, &[C::WrongFormula, C::Overflow], arithmetic::overflowing_exp),
    row(
        "overflowing-tanh",
        Family::Arithmetic,
        &[C::WrongFormula, C::Overflow],
        arithmetic::overflowing_tanh,
    ),
    row("rough-root", Family::Arithmetic, &[C::WrongFormula, C::WrongScale], arithmetic::rough_root),
    row(
        "f16-sum",
        Family::Arithmetic,
        &[C::F16Accumulation, C::ConversionOrder, C::Overflow],
        arithmetic::f16_sum,
    ),
    row(
        "bf16-sum",
        Family::Arithmetic,
        &[C::F16Accumulation, C::ConversionOrder, C::Rounding],
        arithmetic::bf16_sum,
    ),
    row(
        "accumulation",
        Family::Arithmetic,
        &[
            C::MissingTerm,
            C::TailDropped,
            C::WrongFormula,
            C::MissingScale,
            C::WrongScale,
            C::NotWritten,
            C::WrongConstant,
            C::OffByOne,
            C::MissingBias,
        ],
        arithmetic::accumulation,
    ),
    row(
        "through-integer",
        Family::Arithmetic,
        &[C::ConversionOrder, C::WrongFormula, C::WrongCast],
        arithmetic::through_integer,
    ),
    row(
        "truncated-store",
        Family::Arithmetic,
        &[C::Rounding, C::ConversionOrder],
        arithmetic::truncated_store,
    ),
    row(
        "wrong-constant",
        Family::Arithmetic,
        // A constant of a term that is 0 leaves the term out, as `dropped-term` does.
        &[C::WrongConstant, C::WrongScale, C::MissingScale, C::WrongSign, C::MissingTerm],
        constants::values,
    ),
    row(
        "wrong-flag",
        Family::Arithmetic,
        &[
            C::WrongFormula,
            C::MissingBias,
            C::MissingScale,
            C::MissingTerm,
            C::MaskIgnored,
            C::WindowIgnored,
            C::MaskShifted,
            C::WrongStride,
            C::WrongCast,
            C::WrongConstant,
        ],
        constants::flags,
    ),
    row(
        "wrong-base",
        Family::Arithmetic,
        &[C::WrongConstant, C::PositionShifted, C::WrongScale],
        launch::wrong_base,
    ),
    row("swapped-inputs", Family::Arithmetic, &[C::SwappedOperands], launch::swapped_inputs),
    row(
        "wrong-size",
        Family::Indexing,
        &[C::WrongStride, C::TailDropped, C::OffByOne, C::WrongHead, C::WrongSlot, C::Transposed],
        constants::sizes,
    ),
    row(
        "bound",
        Family::Indexing,
        &[C::OffByOne, C::MaskShifted, C::TailDropped, C::OutOfBounds, C::NotWritten],
        indexing::bound,
    ),
    row(
        "tail-dropped",
        Family::Indexing,
        &[C::TailDropped, C::NotWritten, C::MaskShifted, C::OffByOne],
        indexing::tail_dropped,
    ),
    row(
        "first-skipped",
        Family::Indexing,
        &[C::TailDropped, C::OffByOne, C::MissingTerm, C::NotWritten],
        indexing::first_skipped,
    ),
    row(
        "offset",
        Family::Indexing,
        &[
            C::OffByOne,
            C::MaskShifted,
            C::PositionShifted,
            C::RowsSwapped,
            C::ColumnsSwapped,
            C::WrongStride,
            C::WrongHead,
            C::WrongSlot,
            C::StaleData,
            C::OutOfBounds,
            C::TailDropped,
            C::NotWritten,
        ],
        indexing::offset,
    ),
    row(
        "offset-ignored",
        Family::Indexing,
        &[
            C::OffByOne,
            C::WrongStride,
            C::TailDropped,
            C::MissingTerm,
            C::RowsSwapped,
            C::WrongHead,
            C::WrongSlot,
            C::StaleData,
            C::NotWritten,
            C::MaskShifted,
            C::PositionShifted,
            C::Race,
        ],
        indexing::offset_ignored,
    ),
    row(
        "stride",
        Family::Indexing,
        &[
            C::WrongStride,
            C::WrongHead,
            C::OutOfBounds,
            C::Transposed,
            C::WrongSlot,
            C::NotWritten,
            C::OffByOne,
        ],
        indexing::stride,
    ),
    row(
        "division",
        Family::Indexing,
        &[C::Transposed, C::WrongStride, C::WrongHead, C::ColumnsSwapped],
        indexing::division,
    ),
    row(
        "stage",
        Family::Indexing,
        &[
            C::StaleData,
            C::WrongStride,
            C::OffByOne,
            C::Race,
            C::Uninitialised,
            C::OutOfBounds,
            C::RowsSwapped,
        ],
        indexing::stage,
    ),
    row(
        "swapped-rows",
        Family::Indexing,
        &[
            C::RowsSwapped,
            C::ColumnsSwapped,
            C::WrongHead,
            C::WrongStride,
            C::OffByOne,
            C::PositionShifted,
            C::WrongSlot,
        ],
        indexing::swapped_rows,
    ),
    row(
        "swapped-axes",
        Family::Indexing,
        &[C::Transposed, C::WrongHead, C::RowsSwapped, C::NotWritten, C::WrongStride, C::TailDropped],
        indexing::swapped_axes,
    ),
    row(
        "position",
        Family::Indexing,
        &[C::PositionShifted, C::MaskShifted, C::OffByOne, C::WrongSlot],
        indexing::position,
    ),
    row(
        "element-order",
        Family::Indexing,
        &[C::ColumnsSwapped, C::WrongStride, C::OffByOne, C::Transposed],
        quantised::element_order,
    ),
    row(
        "conversion-order",
        Family::Arithmetic,
        &[C::ConversionOrder, C::WrongCast, C::WrongSign, C::F16Accumulation, C::WrongFormula],
        quantised::conversion_order,
    ),
    row(
        "zero-after-scale",
        Family::Arithmetic,
        &[C::ConversionOrder, C::WrongFormula, C::WrongConstant, C::MissingScale, C::WrongScale],
        quantised::zero_after_scale,
    ),
    row(
        "neighbouring-group",
        Family::Indexing,
        &[C::WrongStride, C::OffByOne, C::WrongScale, C::ColumnsSwapped],
        quantised::neighbouring_group,
    ),
    row("last-workgroup", Family::Indexing, &[C::TailDropped, C::NotWritten], launch::last_workgroup),
    row("no-barrier", Family::Synchronisation, &[C::Race], synchronisation::no_barrier),
    row(
        "no-store",
        Family::Synchronisation,
        &[C::Uninitialised, C::MissingTerm, C::StaleData, C::TailDropped, C::NotWritten, C::WrongFormula],
        synchronisation::no_store,
    ),
    row(
        "racing-lanes",
        Family::Synchronisation,
        &[C::Race, C::WrongScale, C::OutOfBounds],
        synchronisation::racing_lanes,
    ),
    row(
        "racing-groups",
        Family::Synchronisation,
        &[C::Race, C::NotWritten, C::RowsSwapped, C::WrongStride],
        synchronisation::racing_groups,
    ),
];

/// One row of the table.
const fn row(
    name: &'static str,
    family: Family,
    causes: &'static [Cause],
    find: fn(&MutatedKernel<'_>) -> Vec<FoundEdit>,
) -> Operator {
    Operator { name, family, causes, find }
}
