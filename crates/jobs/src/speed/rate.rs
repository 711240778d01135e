//! The median of runs.

use serde::Serialize;

/// A number that was measured several times, such as tokens a second: the median, the least and the greatest.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rate {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Rate {
    // The median: one disturbed run must not move the number.
    pub(super) fn from_runs(runs: &[f64]) -> Rate {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
        let (half, count) = (sorted.len() / 2, sorted.len());
        let median =
            if count.is_multiple_of(2) && count > 0 { (at(half - 1) + at(half)) / 2.0 } else { at(half) };
        Rate { median, min: at(0), max: at(count.saturating_sub(1)) }
    }
}
