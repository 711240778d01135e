//! Which outputs of a run a caller wants.

use std::ops::Range;
use tapml_graph::{Error, Result, Tensor};

/// An output of a run, or some of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRows<'a> {
    /// The output.
    pub name: &'a str,
    /// Its rows; all if absent.
    pub rows: Option<Range<usize>>,
}

impl<'a> OutputRows<'a> {
    /// A whole output.
    pub fn whole(name: &'a str) -> OutputRows<'a> {
        OutputRows { name, rows: None }
    }

    /// One row of an output.
    pub fn single(name: &'a str, row: usize) -> OutputRows<'a> {
        OutputRows { name, rows: Some(row..row.saturating_add(1)) }
    }

    /// These rows of an output that is there in full.
    ///
    /// # Errors
    /// If it has fewer rows.
    pub fn slice(&self, whole: &Tensor) -> Result<Tensor> {
        let Some(Range { start, end }) = self.rows else { return Ok(whole.clone()) };
        let rows = end.checked_sub(start).and_then(|count| whole.rows(start, count));
        rows.ok_or_else(|| self.range_error(whole.shape()))
    }

    pub(crate) fn range_error(&self, shape: &[usize]) -> Error {
        let OutputRows { name, rows } = self;
        Error::invalid(format!("rows {rows:?} of output `{name}`, which has sizes {shape:?}"))
    }
}
