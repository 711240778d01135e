//! What an output of integers leaves open: which elements are real numbers that were rounded, and for which the standard has no
//! rule.

use crate::number::integer_bounds;
use tapml_graph::{DType, Result};

/// What each output of an operator leaves open, at the places of its outputs.
pub type OpenOutputs = Result<Vec<Option<Integers>>>;

/// An output of integers, `clamp(round(before) + round(offset), least, most)`, rounded to the even one of two equally near.
#[derive(Clone, Debug, PartialEq)]
pub struct Integers {
    /// The real number of each element; NaN where the standard has no rule.
    pub before: Vec<f64>,
    /// What is added to it: one number for each element, or one for all.
    pub offset: Vec<f64>,
    /// Whether one division or nothing gives `before`. A number that lies exactly between two integers is then told from its
    /// neighbours in every precision, because a division rounds correctly.
    pub ties_decided: bool,
    /// The least integer of the dtype.
    pub least: f64,
    /// The greatest integer of the dtype.
    pub most: f64,
}

impl Integers {
    /// An output of this dtype.
    pub(crate) fn new(before: Vec<f64>, offset: Vec<f64>, dtype: DType) -> Integers {
        let (least, most) = integer_bounds(dtype);
        Integers { before, offset, ties_decided: false, least: least as f64, most: most as f64 }
    }

    /// The same, with ties that every precision tells.
    pub(crate) fn with_decided_ties(self) -> Integers {
        Integers { ties_decided: true, ..self }
    }

    /// The least and the greatest integer that element `i` may be if the real numbers err by `noise` of their own magnitude.
    pub fn range(&self, i: usize, noise: f64) -> (f64, f64) {
        let Some(&before) = self.before.get(i) else { return (self.least, self.most) };
        // Without a rule every integer of the dtype is right.
        if before.is_nan() {
            return (self.least, self.most);
        }
        let offset = self.offset.get(if self.offset.len() == 1 { 0 } else { i }).copied().unwrap_or(0.0);
        // A tie that a single division decides is the same in every precision, so that no neighbour is allowed.
        let (low, high) = if self.ties_decided && (before - before.trunc()).abs() == 0.5 {
            (before.round_ties_even(), before.round_ties_even())
        } else {
            nearest(before, noise)
        };
        // The offset is rounded on its own, as zero points are.
        let (under, over) = nearest(offset, noise);
        let clamp = |value: f64| value.clamp(self.least, self.most);
        (clamp(low + under), clamp(high + over))
    }
}

/// The least and the greatest integer that is nearest to a number within `noise` of the magnitude of `value`.
fn nearest(value: f64, noise: f64) -> (f64, f64) {
    let reach = noise * value.abs();
    // Without noise there is one nearest integer; ties go to the even one.
    if value.is_infinite() || reach == 0.0 {
        return (value.round_ties_even(), value.round_ties_even());
    }
    // Of two equally near both are reached.
    ((value - reach - 0.5).ceil(), (value + reach + 0.5).floor())
}
