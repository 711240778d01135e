//! Sizes along which the work of a kernel changes, and the sides of the borders between.

use crate::kernel::settings::SKINNY_ROWS;
use tapml_graph::{Dim, Symbol, Symbols};

/// A size at which the work of a kernel changes.
///
/// A step length comes from the grid of a launch or from an [`Axis`] that a planner declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Border {
    /// The work is done in steps of this length: tiles, parts, blocks of invocations.
    Steps(u64),
    /// Sizes up to this one are treated in one way, larger ones in another: windows, few rows.
    Limit(u64),
}

/// A border along a size of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What the size counts, in words: `rows`, `keys`.
    pub what: &'static str,
    /// The size.
    pub size: Dim,
    /// Where the work changes.
    pub border: Border,
    /// The border is there for sizes above this one only.
    /// 0 if it is there for all sizes.
    pub above: u64,
}

/// On which side of a border a size is.
///
/// Of steps there are three sides: a partial step alone, whole steps, and whole steps with a partial one behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BorderSide {
    /// Less than one step; or up to the limit.
    Below,
    /// Whole steps.
    Whole,
    /// More than one step and a rest; or beyond the limit.
    Above,
}

impl Axis {
    /// Steps of this length.
    pub fn steps(what: &'static str, size: Dim, length: u64) -> Axis {
        Axis { what, size, border: Border::Steps(length), above: 0 }
    }

    /// The same border, for sizes above this one only: smaller ones are treated in another way.
    pub fn only_above(self, above: u64) -> Axis {
        Axis { above, ..self }
    }

    /// One way up to the limit, another beyond it.
    pub fn limit(what: &'static str, size: Dim, most: u64) -> Axis {
        Axis { what, size, border: Border::Limit(most), above: 0 }
    }

    /// One row or several.
    pub(crate) fn rows() -> Axis {
        Axis::limit("rows", Dim::symbol(Symbol::N), 1)
    }

    /// Few rows or many, for products that treat them in two ways.
    pub fn skinny_rows(rows: &Dim) -> Axis {
        Axis::limit("rows", rows.clone(), SKINNY_ROWS)
    }

    /// Nothing from runs before, or something: for kernels that read `p` or a state of a fixed size.
    pub fn cached_axis() -> Axis {
        Axis::limit("cached rows", Dim::symbol(Symbol::P), 0)
    }

    /// The sides that a size can be on.
    pub(crate) fn sides(&self) -> &'static [BorderSide] {
        match self.border {
            // Sizes that the border applies to are longer than one step.
            Border::Steps(length) if self.above >= length => &[BorderSide::Whole, BorderSide::Above],
            Border::Steps(_) => &[BorderSide::Below, BorderSide::Whole, BorderSide::Above],
            Border::Limit(_) => &[BorderSide::Below, BorderSide::Above],
        }
    }

    /// The side on which the size is; `None` if there is nothing to do or no border, or if a symbol is not bound.
    pub(crate) fn side(&self, symbols: &Symbols) -> Option<BorderSide> {
        let size = self.size.eval(symbols).ok()?;
        match self.border {
            _ if self.above > 0 && size <= self.above => None,
            Border::Limit(most) => Some(if size <= most { BorderSide::Below } else { BorderSide::Above }),
            Border::Steps(_) if size == 0 => None,
            Border::Steps(length) if size < length => Some(BorderSide::Below),
            Border::Steps(length) if size.is_multiple_of(length) => Some(BorderSide::Whole),
            Border::Steps(_) => Some(BorderSide::Above),
        }
    }

    /// Sizes up to which every side that can be reached is reached: all remainders of the steps stand below it.
    /// Two steps and a little hold a whole step, and every rest behind it.
    pub(crate) fn covering_size(&self) -> u64 {
        let (Border::Steps(border) | Border::Limit(border)) = self.border;
        border.saturating_mul(2).saturating_add(4).saturating_add(self.above)
    }

    /// Whether the rest is none, or half a step at least.
    /// A small rest changes few results: a fault in it would drown in what is right.
    pub(crate) fn shows(&self, symbols: &Symbols) -> bool {
        match (&self.border, self.size.eval(symbols)) {
            (Border::Steps(length), Ok(size)) => {
                size < *length || size % length == 0 || size % length >= length / 2
            }
            _ => true,
        }
    }
}
