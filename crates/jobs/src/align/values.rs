//! Another implementation's values, and how far those of a graph are from them.

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use tapml_exec::Image;
use tapml_graph::{Result, Tensor};
use tapml_import::Checkpoint;

/// The worst difference of one value over all prompts.
#[derive(Clone, Debug, Serialize)]
pub struct AlignRow {
    /// Name in the other implementation's file.
    pub name: String,
    /// Name in the graph.
    pub value: String,
    /// Largest difference as a share of the range.
    pub worst: f64,
    /// Where it is.
    pub prompt: usize,
    /// Token.
    pub position: usize,
    /// Element of the token's row.
    pub column: usize,
}

/// Another implementation's values, matched with those of a graph.
pub(super) trait Values {
    /// The file, for messages.
    fn path(&self) -> &Path;
    fn prompts(&self) -> usize;
    /// Token ids, and the image that some of them stand for.
    fn prompt(&self, prompt: usize, checkpoint: &Checkpoint) -> Result<(Vec<u32>, Option<Image>)>;
    /// Values of the graph that are compared, as pairs of a further output and a value.
    fn wanted_values(&self) -> Vec<(String, String)>;
    /// Compares what a run gave.
    /// One prompt: a run over all its tokens with the wanted values as further outputs.
    fn compare(
        &self,
        prompt: usize,
        length: usize,
        found: &BTreeMap<String, Tensor>,
    ) -> Result<Vec<AlignRow>>;
    /// What was not compared, if these rows were; see [`super::AlignReport::unmatched`].
    fn unmatched_values(&self, rows: &[AlignRow]) -> Vec<String>;
    /// What a file lacks in which nothing can be compared.
    fn lacks(&self) -> &'static str;
}

/// The largest difference of a tensor.
#[derive(Default)]
pub(super) struct WorstElement {
    /// As a share of the range of what is expected.
    pub difference: f64,
    pub row: usize,
    pub column: usize,
}

/// The largest difference between what is expected and what was found at these positions.
pub(super) fn worst(expected: &Tensor, found: &Tensor, positions: &[usize]) -> WorstElement {
    let (columns, values, found) = (expected.row_len().max(1), expected.to_f64(), found.to_f64());
    let (low, high) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &v| (a.min(v), b.max(v)));
    // Constant values have no range; any difference then departs.
    let range = (high - low).max(f64::MIN_POSITIVE);
    let mut worst = WorstElement::default();
    for (index, &value) in values.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        // A place that the model's value does not have counts as NaN.
        let other = positions.get(row).and_then(|p| found.get(p * columns + column));
        let difference = other.map_or(f64::NAN, |other| (other - value).abs() / range);
        if difference.is_nan() {
            return WorstElement { difference, row, column };
        }
        if difference > worst.difference {
            worst = WorstElement { difference, row, column };
        }
    }
    worst
}
