//! The outputs of a failing call beside the exact ones: which elements are wrong, and what is allowed for each.
//!
//! Hypotheses predict values in the order of these elements. Allowances are those of the verdict.

use tapml_exec::UNWRITTEN;
use tapml_graph::{DType, Error, Result, Tensor};
use tapml_migrate::verdict::{Allowed, Exact, Precision};

/// The values that a hypothesis predicts: for each output of a view, all its elements in row-major order.
pub(crate) type Prediction = Vec<Vec<f64>>;

/// One output, or some rows and columns of it.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    /// Type that the output is stored in.
    pub dtype: DType,
    /// Elements of a row.
    pub width: usize,
    /// The oracle's result, in row-major order like all lists here.
    pub exact: Vec<f64>,
    /// How far the oracle's disturbances move each element.
    pub deviation: Vec<f64>,
    /// What the platform gave.
    pub observed: Vec<f64>,
    /// Allowed error while computing, of each element.
    pub computing: Vec<f64>,
    /// Observed over allowed error of each element; above 1 is wrong.
    pub ratios: Vec<f64>,
    /// Whether the element holds what memory held before any kernel wrote it.
    pub unwritten: Vec<bool>,
}

impl Out {
    /// Fails if the output has not as many elements as the exact one.
    pub fn new(exact: &Exact, observed: &Tensor, precision: Precision) -> Result<Out> {
        if exact.values.len() != observed.len() || exact.deviation.len() != observed.len() {
            let (want, have) = (exact.values.len(), observed.len());
            return Err(Error::invalid(format!("expected {want} values of the exact output, found {have}")));
        }
        let allowed = Allowed::new(exact, observed.dtype(), precision, None);
        let values = observed.to_f64();
        let ratios = values.iter().enumerate().map(|(i, &v)| allowed.ratio(exact, i, v)).collect();
        Ok(Out {
            dtype: observed.dtype(),
            width: exact.row_len.max(1),
            exact: exact.values.clone(),
            deviation: exact.deviation.clone(),
            observed: values,
            computing: allowed.computing,
            ratios,
            unwritten: unwritten_elements(observed),
        })
    }

    /// The elements of these rows and, if given, of these columns.
    /// Rows and columns may be in any order; the result has them in the order given.
    pub fn part(&self, rows: &[usize], columns: Option<&[usize]>) -> Out {
        let all: Vec<usize> = (0..self.width).collect();
        let columns = columns.unwrap_or(&all);
        let pick = |values: &[f64]| -> Vec<f64> {
            rows.iter().flat_map(|r| columns.iter().map(move |c| values[r * self.width + c])).collect()
        };
        Out {
            dtype: self.dtype,
            width: columns.len().max(1),
            exact: pick(&self.exact),
            deviation: pick(&self.deviation),
            observed: pick(&self.observed),
            computing: pick(&self.computing),
            ratios: pick(&self.ratios),
            unwritten: rows
                .iter()
                .flat_map(|r| columns.iter().map(move |c| self.unwritten[r * self.width + c]))
                .collect(),
        }
    }

    /// Rows of the output as a matrix: all sizes but the last.
    pub fn rows(&self) -> usize {
        self.exact.len() / self.width
    }

    /// Whether an element departs by more than is allowed. One whose ratio is NaN does not count.
    pub fn is_wrong(&self, i: usize) -> bool {
        self.ratios[i] > 1.0
    }

    /// Indices of the wrong elements.
    pub fn wrong(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ratios.len()).filter(|&i| self.is_wrong(i))
    }
}

/// For each element whether it has the bits of memory that nobody wrote.
/// Elements of other types, bf16 among them, are never taken for unwritten.
fn unwritten_elements(tensor: &Tensor) -> Vec<bool> {
    let words = UNWRITTEN.map(u32::to_le_bytes);
    let size = tensor.dtype().size();
    let elements = tensor.bytes().chunks_exact(size);
    match (tensor.dtype(), size) {
        (_, 4) => elements.map(|e| words.iter().any(|w| w[..] == *e)).collect(),
        // The halves of the words; as bf16 they are what any NaN may look like.
        (DType::F16, 2) => {
            elements.enumerate().map(|(i, e)| words.iter().any(|w| w[i % 2 * 2..][..2] == *e)).collect()
        }
        _ => vec![false; tensor.len()],
    }
}

/// All outputs of a call, or some rows and columns of them.
#[derive(Clone, Debug)]
pub(crate) struct OutputView {
    /// In the order of the operator's outputs.
    pub outs: Vec<Out>,
    /// For each output a few elements, wrong ones and right ones, that tell quickly whether a prediction can fit.
    pub probes: Vec<Vec<usize>>,
}

/// Probes of each kind in an output.
/// Enough to reject nearly every wrong prediction before all elements are looked at.
const PROBES: usize = 160;

impl OutputView {
    /// The probes of a view are chosen once, evenly spread.
    pub fn new(outs: Vec<Out>) -> OutputView {
        let probes = outs
            .iter()
            .map(|out| {
                let (wrong, right): (Vec<usize>, Vec<usize>) =
                    (0..out.exact.len()).partition(|&i| out.is_wrong(i));
                let spread = |items: &[usize]| -> Vec<usize> {
                    let step = items.len().div_ceil(PROBES).max(1);
                    items.iter().copied().step_by(step).collect()
                };
                [spread(&wrong), spread(&right)].concat()
            })
            .collect();
        OutputView { outs, probes }
    }

    /// Wrong elements.
    pub fn wrong(&self) -> usize {
        self.outs.iter().map(|out| out.wrong().count()).sum()
    }

    /// Elements that are wrong by much more than rounding could be.
    /// A ratio above 8 is taken for that.
    pub fn strong(&self) -> usize {
        self.outs.iter().map(|out| out.ratios.iter().filter(|&&r| r > 8.0).count()).sum()
    }

    /// The exact values, to be changed into a prediction.
    pub fn exact(&self) -> Prediction {
        self.outs.iter().map(|out| out.exact.clone()).collect()
    }
}
