//! A small call that shows the fault: few rows and columns of a large one, so that many hypotheses can be evaluated.
//!
//! A cut is checked before it is used: evaluated as it is, it must give the exact values of the rows and columns that it keeps. A
//! wrong guess about the operator's structure therefore costs time only.

use crate::output_view::{Out, OutputView, Prediction};
use tapml_exec::Call;
use tapml_graph::{Dim, Op, Result, Symbol, Symbols};
use tapml_reference::{Array, Value, eval};

/// Rows and columns that are kept if there are many.
/// Rows that are kept of an operator that works row by row.
const ROWS: usize = 5;
/// Columns that are kept of a wide output.
const COLUMNS: usize = 48;
/// Rows that are kept of an operator whose rows depend on those before them.
const ENDS: usize = 3;
/// An output with fewer columns keeps all of them.
const SAMPLED_COLUMNS: usize = 96;

/// A call whose outputs are those of the whole call, or some rows and columns of them.
///
/// Values are those of the reference: floats in `f64`, indices in `u32`.
pub(crate) struct Subsample {
    /// The operator of the call.
    pub op: Op,
    /// Sizes and positions of the cut, which may differ from those of the call.
    pub symbols: Symbols,
    /// The inputs of the cut.
    pub inputs: Vec<Value<f64>>,
    /// The inputs of the whole call.
    pub whole: Vec<Value<f64>>,
    /// For each input the rows that were kept, if not all.
    pub kept: Vec<Option<Vec<usize>>>,
    /// What was observed and what is exact, in the rows and columns that were kept.
    pub view: OutputView,
    /// Rough count of multiplications of one evaluation.
    pub work: usize,
}

impl Subsample {
    /// The call cut down as far as its evaluation still gives the exact values.
    ///
    /// A call of an operator of others stays whole: nothing is known of its rows, and its evaluation takes tensors as they are.
    pub fn new(call: &Call, full: &OutputView) -> Result<Subsample> {
        if let Op::Foreign(_) = call.op {
            return Ok(Subsample::of_foreign(call, full));
        }
        let inputs: Vec<Value<f64>> = call.inputs.iter().map(Value::from_tensor).collect::<Result<_>>()?;
        let kept = vec![None; inputs.len()];
        let (op, symbols, all) = (call.op.clone(), call.symbols.clone(), inputs.clone());
        let whole = Subsample { op, symbols, inputs, whole: all, kept, view: full.clone(), work: 0 };
        // Rows first: the check of a cut of columns then evaluates few of them.
        let rows = whole.with_rows(call).or_else(|| whole.at_an_end(call)).unwrap_or(whole);
        let mut cut = rows.with_columns(call).unwrap_or(rows);
        cut.work = cut.estimate();
        Ok(cut)
    }

    /// Its inputs are taken from the call as they are, so none are converted here.
    fn of_foreign(call: &Call, full: &OutputView) -> Subsample {
        /// Multiplications of a compiled evaluation that take as long as one of those that the work is counted in.
        const FASTER: usize = 32;
        // Outputs times terms is the number of multiplications of a sum per output.
        let outputs: usize = full.outs.iter().map(|out| out.exact.len()).sum();
        let inputs: usize = call.inputs.iter().map(|input| input.len()).sum();
        let work =
            (outputs.saturating_mul(tapml_migrate::terms(call).max(1)).saturating_add(inputs)) / FASTER;
        let (op, symbols) = (call.op.clone(), call.symbols.clone());
        Subsample {
            op,
            symbols,
            inputs: Vec::new(),
            whole: Vec::new(),
            kept: Vec::new(),
            view: full.clone(),
            work,
        }
    }

    /// What the operator gives for these inputs; `None` if it refuses them or gives other sizes.
    pub fn eval(&self, op: &Op, symbols: &Symbols, inputs: &[Value<f64>]) -> Option<Prediction> {
        let outputs = eval(op, symbols, inputs).ok()?;
        let values: Prediction = outputs.iter().map(numbers).collect();
        // Other attributes may change the shape of the output; then there is nothing to compare.
        let fits = values.len() == self.view.outs.len()
            && values.iter().zip(&self.view.outs).all(|(v, out)| v.len() == out.exact.len());
        fits.then_some(values)
    }

    /// What the call's operator gives if one input is another.
    pub fn with_input(&self, i: usize, input: Value<f64>) -> Option<Prediction> {
        let mut inputs = self.inputs.clone();
        *inputs.get_mut(i)? = input;
        self.eval(&self.op, &self.symbols, &inputs)
    }

    /// Input `i` with the elements of the whole call's input that `source` names by row and column of its last size;
    /// zeros where it names none.
    pub fn gather(&self, i: usize, source: impl Fn(usize, usize) -> Option<usize>) -> Option<Value<f64>> {
        let whole = self.whole.get(i)?;
        let [rows, columns] = matrix_sizes(whole);
        let kept: Vec<usize> = self.kept[i].clone().unwrap_or_else(|| (0..rows).collect());
        let element = |at: Option<usize>| match whole {
            Value::Float(from) => at.and_then(|at| from.values().get(at)).copied().unwrap_or(0.0),
            Value::Uint(from) => at.and_then(|at| from.values().get(at)).map_or(0.0, |&id| f64::from(id)),
        };
        let values = kept.iter().flat_map(|&r| (0..columns).map(move |c| (r, c)));
        let values: Vec<f64> = values.map(|(r, c)| element(source(r, c))).collect();
        like(&self.inputs[i], values)
    }

    /// The rows of another value that the cut keeps of input `i`.
    /// `None` if there is no such input.
    pub fn take_rows(&self, i: usize, value: &Value<f64>) -> Option<Value<f64>> {
        match self.kept.get(i)? {
            Some(kept) => take_rows(value, kept),
            None => Some(value.clone()),
        }
    }

    /// Row-wise operators may read the largest input for every row; others combine outputs with rows.
    fn estimate(&self) -> usize {
        let rows = self.view.outs.iter().map(Out::rows).max().unwrap_or(1).max(1);
        let largest = self.inputs.iter().map(|v| v.shape().iter().product::<usize>()).max().unwrap_or(0);
        let outputs: usize = self.view.outs.iter().map(|out| out.exact.len()).sum();
        if self.op.row_wise() {
            rows * largest + outputs
        } else {
            (outputs + rows)
                * self.inputs.iter().map(|v| v.shape().first().copied().unwrap_or(1)).max().unwrap_or(1)
        }
    }

    /// Few rows of a row-wise operator.
    /// `None` if there are few rows already, if an input has rows of another symbol, or if the smaller call gives other values.
    fn with_rows(&self, call: &Call) -> Option<Subsample> {
        let out = self.view.outs.first()?;
        let rows = out.rows();
        if rows <= ROWS || !self.view.outs.iter().all(|o| o.rows() == rows) {
            return None;
        }
        // A row is wrong if any output is wrong in it.
        let keep = choose(rows, ROWS, |r| {
            self.view.outs.iter().any(|o| (r * o.width..(r + 1) * o.width).any(|i| o.is_wrong(i)))
        });
        let n = Dim::symbol(Symbol::N);
        let has_rows = |i: usize| call.input_types[i].shape.first() == Some(&n);
        // A size that depends on another symbol would not fit the smaller `n`.
        if call.input_types.iter().any(|t| t.shape.iter().any(|d| d.as_const().is_none() && *d != n)) {
            return None;
        }
        let outs = self.view.outs.iter().map(|o| o.part(&keep, None)).collect();
        self.build_verified(
            &keep,
            &has_rows,
            outs,
            self.symbols.clone().with_symbol(Symbol::N, keep.len() as u64),
        )
    }

    /// The last or the first rows of this step, where rows depend on those before them: the last ones as a step after
    /// more cached rows, the first ones as a shorter step.
    /// `None` if neither end has an element that is wrong by far, or if the smaller call gives other values.
    fn at_an_end(&self, call: &Call) -> Option<Subsample> {
        let (n, p) = (self.symbols.get(Symbol::N)? as usize, self.symbols.get(Symbol::P)? as usize);
        if n <= ENDS || call.input_types.is_empty() || !self.view.outs.iter().all(|o| o.rows() == n) {
            return None;
        }
        let own = Dim::symbol(Symbol::N);
        // Both ends are tried, because a fault may show at one of them only.
        let starts = [n - ENDS, 0].map(|start| {
            let keep: Vec<usize> = (start..start + ENDS).collect();
            let shown =
                |o: &Out| (start * o.width..(start + ENDS) * o.width).filter(|&i| o.ratios[i] > 8.0).count();
            (self.view.outs.iter().map(shown).sum::<usize>(), start, keep)
        });
        let [last, first] = &starts;
        // The last rows are preferred: they see the most rows before them.
        let (shown, start, keep) = if last.0 >= 6 || last.0 >= first.0 { last } else { first };
        if *shown == 0 {
            return None;
        }
        let symbols = Symbols::np(ENDS as u64, (p + start) as u64);
        let mut inputs = Vec::new();
        for (value, ty) in self.inputs.iter().zip(&call.input_types) {
            let rows = value.shape().first().copied().unwrap_or(0);
            let dim = ty.shape.first().filter(|d| d.as_const().is_none());
            inputs.push(match dim {
                Some(d) if *d == own => Some(keep.clone()),
                // Keys and values of all rows: the first rows see their own and the cached ones.
                Some(_) if rows == n + p && *start == 0 => Some((0..ENDS + p).collect()),
                _ => None,
            });
        }
        let outs = self.view.outs.iter().map(|o| o.part(keep, None)).collect();
        self.build_checked(inputs, outs, symbols)
    }

    /// Few columns, if they are the rows of weights.
    /// Each output column of such an operator is the product with one row of a weight.
    /// `None` for narrow outputs, for several outputs, and if no choice of weight rows gives the same values.
    fn with_columns(&self, call: &Call) -> Option<Subsample> {
        let out = self.view.outs.first()?;
        if !call.op.row_wise() || self.view.outs.len() != 1 || out.width <= SAMPLED_COLUMNS {
            return None;
        }
        // A column is wrong if any of its rows is.
        let keep = choose(out.width, COLUMNS, |c| (0..out.rows()).any(|r| out.is_wrong(r * out.width + c)));
        let makes_columns =
            |i: usize| self.kept[i].is_none() && self.inputs[i].shape().first() == Some(&out.width);
        let rows: Vec<usize> = (0..out.rows()).collect();
        let outs = vec![out.part(&rows, Some(&keep))];
        self.build_verified(&keep, &makes_columns, outs, self.symbols.clone())
    }

    /// The call with the kept rows of some inputs, if it gives the exact values.
    fn build_verified(
        &self,
        keep: &[usize],
        cuts: &dyn Fn(usize) -> bool,
        outs: Vec<Out>,
        symbols: Symbols,
    ) -> Option<Subsample> {
        let taken = (0..self.inputs.len()).map(|i| cuts(i).then(|| keep.to_vec())).collect();
        self.build_checked(taken, outs, symbols)
    }

    /// The call with these rows of each input, or all of them, if it gives the exact values.
    /// Rows that an earlier cut kept stay kept where `taken` has none for an input.
    fn build_checked(
        &self,
        taken: Vec<Option<Vec<usize>>>,
        outs: Vec<Out>,
        symbols: Symbols,
    ) -> Option<Subsample> {
        let inputs = self.inputs.iter().zip(&taken);
        let inputs: Option<Vec<Value<f64>>> = inputs
            .map(|(v, rows)| rows.as_ref().map_or(Some(v.clone()), |rows| take_rows(v, rows)))
            .collect();
        let kept = taken.into_iter().zip(&self.kept).map(|(new, old)| new.or(old.clone())).collect();
        let (op, view) = (self.op.clone(), OutputView::new(outs));
        let cut = Subsample { op, symbols, inputs: inputs?, whole: self.whole.clone(), kept, view, work: 0 };
        // The check that makes every guess above safe.
        let found = cut.eval(&cut.op, &cut.symbols, &cut.inputs)?;
        let same = found.iter().zip(&cut.view.outs).all(|(found, out)| {
            // The oracle and this evaluation may add up in different orders.
            let close = |(a, b): (&f64, &f64)| {
                a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * b.abs().max(1e-30)
            };
            found.iter().zip(&out.exact).all(close)
        });
        same.then_some(cut)
    }
}

/// Rows and columns of a value as a matrix; columns are its last size.
/// A scalar is a matrix of one element.
pub(crate) fn matrix_sizes(value: &Value<f64>) -> [usize; 2] {
    let columns = value.shape().last().copied().unwrap_or(1);
    let rest = value.shape().len().saturating_sub(1);
    [value.shape()[..rest].iter().product(), columns]
}

/// The numbers of a value; indices as numbers.
pub(crate) fn numbers(value: &Value<f64>) -> Vec<f64> {
    match value {
        Value::Float(array) => array.values().to_vec(),
        Value::Uint(ids) => ids.values().iter().map(|&id| f64::from(id)).collect(),
    }
}

/// A value of the same kind and shape with other numbers.
/// `None` if the numbers do not fill the shape. Numbers become indices by truncation.
pub(crate) fn like(value: &Value<f64>, numbers: Vec<f64>) -> Option<Value<f64>> {
    let shape = value.shape().to_vec();
    match value {
        Value::Float(_) => Value::float(shape, numbers).ok(),
        Value::Uint(_) => Value::indices(shape, numbers.iter().map(|&v| v as u32).collect()).ok(),
    }
}

/// Some rows of a value, along its first size; `None` if it has not so many.
fn take_rows(value: &Value<f64>, keep: &[usize]) -> Option<Value<f64>> {
    let width: usize = value.shape().iter().skip(1).product();
    let all = numbers(value);
    let rows = keep.iter().map(|row| all.get(row * width..(row + 1) * width));
    let kept: Vec<f64> = rows.collect::<Option<Vec<&[f64]>>>()?.concat();
    let mut shape = value.shape().to_vec();
    *shape.first_mut()? = keep.len();
    match value {
        Value::Float(_) => Some(Value::Float(Array::new(shape, kept).ok()?)),
        Value::Uint(_) => Value::indices(shape, kept.iter().map(|&v| v as u32).collect()).ok(),
    }
}

/// At most `count` of `0..all`, ascending: two thirds of them wrong ones if there are so many, the last among them, and
/// right ones for the rest; each kind evenly spread.
fn choose(all: usize, count: usize, is_wrong: impl Fn(usize) -> bool) -> Vec<usize> {
    let (wrong, right): (Vec<usize>, Vec<usize>) = (0..all).partition(|&i| is_wrong(i));
    let spread = |items: &[usize], count: usize| -> Vec<usize> {
        match items.len() {
            0 => Vec::new(),
            n if n <= count => items.to_vec(),
            n => (0..count).map(|i| items[i * (n - 1) / count.saturating_sub(1).max(1)]).collect(),
        }
    };
    // Right elements are kept too, so that a hypothesis must leave them right.
    let of_right = right.len().min(count - wrong.len().min(count * 2 / 3));
    let mut kept = spread(&wrong, count - of_right);
    kept.extend(spread(&right, of_right));
    kept.sort_unstable();
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_and_right_ones_are_chosen() {
        assert_eq!(choose(100, 6, |i| i >= 50), [0, 49, 50, 66, 82, 99]);
        assert_eq!(choose(100, 6, |_| true), [0, 19, 39, 59, 79, 99]);
        assert_eq!(choose(100, 6, |i| i == 99), [0, 24, 49, 73, 98, 99]);
        assert_eq!(choose(3, 6, |i| i == 1), [0, 1, 2]);
    }
}
