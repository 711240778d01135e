//! The tests by which a verdict is made.

use serde::{Deserialize, Serialize};

/// The test that came closest to its limit, or exceeded it most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// One element.
    Element,
    /// Another index than the exact one, where no rounding reaches it.
    Choice,
    /// NaN or infinity where the exact result has none, or none where it has one.
    NonFinite,
    /// All elements are too large or too small by one factor.
    Scale,
    /// All elements are shifted.
    Bias,
    /// The residual as a whole is too large.
    Spread,
    /// One column is shifted in all rows.
    Column,
    /// The results of many calls together show that an attribute is left out.
    Attribute,
    /// The results of many calls together show that they are cut instead of rounded to the nearest.
    Rounding,
}

impl Criterion {
    /// The criterion in plain words.
    pub fn name(self) -> &'static str {
        match self {
            Criterion::Element => "single element",
            Criterion::Choice => "another choice",
            Criterion::NonFinite => "NaN or infinity",
            Criterion::Scale => "scale of all elements",
            Criterion::Bias => "shift of all elements",
            Criterion::Spread => "size of all residuals",
            Criterion::Column => "shift of one column",
            Criterion::Attribute => "an attribute left out",
            Criterion::Rounding => "results cut instead of rounded",
        }
    }
}
