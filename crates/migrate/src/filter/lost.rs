//! What the matched filter finds.

use serde::{Deserialize, Serialize};

/// How far `c` may be from 1.
pub const NEAR: f64 = 0.3;
/// Least `c` of results, or of values within a fused operator, that are cut instead of rounded.
pub const CUT: f64 = 0.1;

/// The names of rounding to nearest in the place of an attribute's: of results, and of values within a fused operator.
/// Attributes have no spaces in their names.
pub(super) const ROUNDING: [&str; 2] = ["rounding of results", "rounding of inner values"];

/// An attribute that a kernel has lost, or its rounding to nearest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// Its name.
    pub attribute: String,
    /// `c`: how much of the loss the residual shows.
    pub share: f64,
    /// Its standard error.
    pub error: f64,
    /// Rows in which the loss shows.
    pub rows: usize,
    /// Their effective number, weighted by what shows in each.
    #[serde(skip)]
    pub(super) effective: f64,
    /// The call in which it shows most, as it was named to the filter.
    #[serde(skip)]
    pub call: usize,
}

impl Lost {
    /// Whether values are cut instead of rounded, and no attribute is lost.
    pub fn is_rounding(&self) -> bool {
        ROUNDING.contains(&self.attribute.as_str())
    }

    /// The least `c` that counts.
    pub fn least_factor(&self) -> f64 {
        if self.is_rounding() { CUT } else { 1.0 - NEAR }
    }

    /// One sentence.
    pub fn text(&self) -> String {
        let Lost { attribute, share, error, rows, .. } = self;
        if self.is_rounding() {
            let what = attribute.trim_start_matches("rounding of ");
            return format!(
                "as if {what} were cut instead of rounded to the nearest: over {rows} rows the results are off toward zero by \
                 {share:.2} ± {error:.2} of what that gives in the mean"
            );
        }
        format!(
            "as if `{attribute}` were left out: over {rows} rows the results show {share:.2} ± {error:.2} of what that would change"
        )
    }
}
