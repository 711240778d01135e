//! How the elements that failed are spread over an output: a first hint at the cause.

use super::bound::Allowed;
use super::exact::Exact;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which elements failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    /// Elements that exceed their allowed error.
    pub failed: usize,
    /// Elements in all.
    pub elements: usize,
    /// Rows with a failed element.
    pub rows: usize,
    /// Rows in all.
    pub all_rows: usize,
    /// Columns that fail, if they are few; empty otherwise.
    pub columns: Vec<usize>,
    /// Rows that fail, if they are few and not all; empty otherwise.
    #[serde(rename = "few_rows")]
    pub failing_rows: Vec<usize>,
    /// One sentence.
    pub text: String,
}

/// More rows or columns say nothing to a reader.
const MOST_LISTED: usize = 8;

impl Pattern {
    /// Of a failure that no single element shows.
    pub(super) fn of_rows(rows: usize, text: String) -> Pattern {
        let (columns, few_rows) = (Vec::new(), Vec::new());
        Pattern { failed: 0, elements: 0, rows, all_rows: rows, columns, failing_rows: few_rows, text }
    }

    /// The pattern of an output whose verdict is known to be a failure.
    pub fn from_failure(exact: &Exact, observed: &[f64], allowed: &Allowed, slope: f64) -> Pattern {
        let width = exact.row_len.max(1);
        let all_rows = observed.len().div_ceil(width);
        let failed: Vec<usize> =
            (0..observed.len()).filter(|&i| allowed.ratio(exact, i, observed[i]) > 1.0).collect();
        let rows: BTreeSet<usize> = failed.iter().map(|i| i / width).collect();
        let columns: BTreeSet<usize> = failed.iter().map(|i| i % width).collect();
        let few = |set: &BTreeSet<usize>, all: usize| {
            if set.len() <= MOST_LISTED && set.len() * 2 <= all {
                set.iter().copied().collect()
            } else {
                Vec::new()
            }
        };
        let mut pattern = Pattern {
            failed: failed.len(),
            elements: observed.len(),
            rows: rows.len(),
            all_rows,
            columns: few(&columns, width),
            failing_rows: few(&rows, all_rows),
            text: String::new(),
        };
        pattern.text = pattern.sentence(slope);
        pattern
    }

    fn sentence(&self, slope: f64) -> String {
        let Pattern { failed, elements, rows, all_rows, .. } = self;
        let scale = if slope.abs() > 1e-4 {
            format!("; on the whole scaled by {:.6}", 1.0 + slope)
        } else {
            String::new()
        };
        let place = match (self.columns.as_slice(), self.failing_rows.as_slice()) {
            _ if *failed == 0 => return format!("no single element, but all together{scale}"),
            ([], []) => format!("spread over {rows} of {all_rows} rows"),
            ([], rows) => format!("only in rows {}", list(rows)),
            (columns, []) => format!("only in columns {} ({rows} of {all_rows} rows)", list(columns)),
            (columns, rows) => format!("only in columns {} of rows {}", list(columns), list(rows)),
        };
        format!("{failed} of {elements} elements, {place}{scale}")
    }
}

fn list(items: &[usize]) -> String {
    items.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
