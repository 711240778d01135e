//! What the oracle found for an output, and the precision of who computes it.

use tapml_graph::DType;
use tapml_reference::Oracle;
use tapml_reference::foreign::OpenIntegers;

/// What the oracle found for one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// The exact values.
    pub values: Vec<f64>,
    /// The largest change under disturbances of [`super::AMPLITUDE`].
    pub deviation: Vec<f64>,
    /// The largest change under roundings of the values within a fused operator; empty where there are none.
    pub inner: Vec<f64>,
    /// Elements of a row.
    pub row_len: usize,
    /// What integers of an operator of others leave open.
    pub integers: Option<OpenIntegers>,
}

impl Exact {
    /// What the oracle found for each output.
    pub fn of_outputs(found: &Oracle) -> Vec<Exact> {
        let pairs = found.exact.iter().zip(&found.deviation).enumerate();
        pairs
            .map(|(at, (exact, deviation))| Exact {
                values: exact.values().to_vec(),
                deviation: deviation.values().to_vec(),
                inner: found.inner.get(at).map(|inner| inner.values().to_vec()).unwrap_or_default(),
                row_len: exact.row_len(),
                integers: None,
            })
            .collect()
    }
}

/// What decides a verdict besides the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Dtype in which the kernel accumulates.
    pub accumulate: DType,
    /// Terms of the longest sum.
    pub terms: usize,
}
