//! The oracle of verdicts: an operator in `f64` on recorded inputs, and how far its exact result moves when the
//! activations are disturbed by a few roundings.
//!
//! The disturbance measures what no formula of an operator tells: how the errors of inputs are amplified or cancel. It is
//! random but reproducible: a number of a copy depends on the seed, the input, the copy and its place alone.

use crate::deviation::{arrays, widen};
use crate::eval::{Jump, disturb_constants, eval, jumps, moves_only};
use crate::fused::{inner_deviation, jumps_within};
use crate::random::Uniform;
use crate::value::{Array, Value};
use rayon::prelude::*;
use tapml_graph::{Dim, Error, Op, Result, Symbols, TensorType};

/// Exact outputs of an operator and their sensitivity.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// The outputs in `f64`, indices among them.
    pub exact: Vec<Array<f64>>,
    /// For each output element the largest `|disturbed − exact|` over all copies; infinite where a disturbed result is
    /// NaN or infinite and the exact one is finite.
    ///
    /// A choice, such as that of experts, does not move but jumps, and few copies rarely see it. Where a relative
    /// disturbance of `r` lets another choice win, an index counts as moved by `min(1, amplitude / r)`, and a number that
    /// changes by `c` with the choice deviates by at least `c · min(1, amplitude / r)`.
    pub deviation: Vec<Array<f64>>,
    /// For a fused operator whose inner values have fewer digits than f32, the largest change of each output element when
    /// they are rounded, whether a kernel does so or not; empty for any other.
    pub inner: Vec<Array<f64>>,
}

/// Rows of one batch of copies: enough to amortise reading the weights, few enough to stay in the cache.
const BATCH_ROWS: usize = 512;

/// Evaluates `op` in `f64`, and again on `copies` sets of inputs in which every number that is no weight is multiplied
/// by `1 + amplitude·U(−1, 1)`, reproducibly from `seed`. Numbers that an operator computes from its attributes alone
/// (the frequencies of `rope_angles`) are disturbed likewise. Operators that only move data have no deviation: a copy
/// rounds nothing.
///
/// `is_weight` says for each input whether it is a weight. The copies of a row-wise operator are evaluated together as
/// further rows, so that weights are read once.
pub fn oracle(
    op: &Op,
    symbols: &Symbols,
    inputs: &[Value<f64>],
    is_weight: &[bool],
    amplitude: f64,
    copies: usize,
    seed: u64,
) -> Result<Oracle> {
    if is_weight.len() != inputs.len() {
        let (have, want) = (is_weight.len(), inputs.len());
        return Err(Error::invalid(format!("`{}` has {want} inputs, {have} weight flags", op.name())));
    }
    let noise = Noise { is_weight, amplitude, seed };
    // A copy moves with its input and rounds nothing of its own.
    if moves_only(op) || copies == 0 {
        let exact = arrays(eval(op, symbols, inputs)?)?;
        let deviation = exact.iter().map(zeros_like).collect::<Result<_>>()?;
        return Ok(Oracle { exact, deviation, inner: Vec::new() });
    }
    let mut oracle = match noise.batch(op, inputs) {
        Some(rows) => noise.by_rows(op, symbols, inputs, rows, copies)?,
        None => noise.by_copy(op, symbols, inputs, copies)?,
    };
    if let Op::Fused(fused) = op {
        let moved: Vec<Vec<Value<f64>>> =
            (0..copies).map(|copy| noise.inputs(inputs, copy)).collect::<Result<_>>()?;
        let jumps = jumps_within(fused, symbols, inputs, &moved, amplitude)?;
        for (deviation, jump) in oracle.deviation.iter_mut().zip(jumps) {
            if let Some(jump) = jump {
                *deviation = with_jumps(deviation, jump)?;
            }
        }
        let inner = inner_deviation(fused, symbols, inputs, &oracle.exact, copies, seed)?;
        oracle.inner = inner.unwrap_or_default();
        return Ok(oracle);
    }
    for (deviation, jump) in
        oracle.deviation.iter_mut().zip(jumps(op, inputs, amplitude)?.unwrap_or_default())
    {
        *deviation = with_jumps(deviation, jump)?;
    }
    Ok(oracle)
}

/// See [`Oracle::deviation`].
/// A number deviates by the larger of both: it moves while the choice stays, and jumps with it.
fn with_jumps(deviation: &Array<f64>, jump: Jump) -> Result<Array<f64>> {
    let values = match jump {
        Jump::Indices(jumps) => jumps,
        Jump::Numbers(jumps) => deviation.values().iter().zip(jumps).map(|(d, j)| d.max(j)).collect(),
    };
    Array::new(deviation.shape().to_vec(), values)
}

/// Zeros of the same shape.
fn zeros_like(array: &Array<f64>) -> Result<Array<f64>> {
    Array::new(array.shape().to_vec(), vec![0.0; array.len()])
}

/// Rows `start..start+count` of indices, followed by as many copies.
fn repeat(ids: &Array<u32>, start: usize, count: usize, copies: usize) -> Result<Value<f64>> {
    let columns = ids.row_len();
    let rows = &ids.values()[start * columns..(start + count) * columns];
    let shape = [&[count * (copies + 1)], &ids.shape()[1..]].concat();
    Value::indices(shape, rows.repeat(copies + 1))
}

/// How inputs are disturbed.
struct Noise<'a> {
    /// Whether each input is a weight, which stays as it is.
    is_weight: &'a [bool],
    amplitude: f64,
    /// What decides the random numbers.
    seed: u64,
}

impl Noise<'_> {
    /// Writes elements `from..` of copy `copy` of input `input`.
    /// The numbers of a copy do not depend on how it is cut into pieces.
    fn disturb(&self, input: usize, copy: usize, from: usize, values: &[f64], into: &mut [f64]) {
        let stream = Uniform::new(self.seed, &[input as u64, copy as u64]);
        let mut rest = into.iter_mut().zip(values);
        for piece in stream.pieces(from, values.len()) {
            for (&noise, (into, &value)) in piece.iter().zip(&mut rest) {
                *into = value * (1.0 + self.amplitude * noise);
            }
        }
    }

    /// Whether input `i` is to be disturbed.
    fn moves(&self, i: usize, input: &Value<f64>) -> bool {
        !self.is_weight[i] && matches!(input, Value::Float(_))
    }

    /// Whether input `i` has a row for each row of the outputs, if the operator is row-wise.
    fn has_rows(&self, i: usize, input: &Value<f64>) -> bool {
        !self.is_weight[i] && !input.shape().is_empty()
    }

    /// The rows of a row-wise operator whose copies can be evaluated as further rows: inference must agree that only
    /// the count of rows changes, which it does not if an input without rows is no weight.
    fn batch(&self, op: &Op, inputs: &[Value<f64>]) -> Option<usize> {
        let rows = *inputs.first()?.shape().first()?;
        let types = |rows: usize| {
            let of_input = |(i, input): (usize, &Value<f64>)| {
                let mut ty = input.ty();
                if self.has_rows(i, input) {
                    *ty.shape.first_mut()? = Dim::from(rows);
                }
                Some(ty)
            };
            let inputs: Vec<TensorType> = inputs.iter().enumerate().map(of_input).collect::<Option<_>>()?;
            op.infer(&inputs).ok()
        };
        let same = |inputs: &[TensorType], rows: usize| {
            let first = Dim::from(rows);
            inputs.iter().all(|ty| ty.shape.len() == 2 && ty.shape[0] == first)
        };
        let is_matrix = |v: &Value<f64>| matches!(v, Value::Uint(_)) || v.shape().len() == 2;
        let fits = |v: &Value<f64>| v.shape().first() == Some(&rows) && is_matrix(v);
        let all_rows = inputs.iter().enumerate().all(|(i, v)| !self.has_rows(i, v) || fits(v));
        // One row more than there are must change the outputs by one row, and nothing else.
        let (now, more) = (types(rows)?, types(rows + 1)?);
        let columns =
            |types: &[TensorType]| types.iter().map(|ty| ty.shape[1..].to_vec()).collect::<Vec<_>>();
        let grows = same(&now, rows) && same(&more, rows + 1) && columns(&now) == columns(&more);
        (op.row_wise() && rows > 0 && all_rows && grows).then_some(rows)
    }

    /// Blocks of rows, each with all its copies below it, in one evaluation per block.
    ///
    /// Results are those of [`Noise::by_copy`]: a row-wise operator sees no other rows.
    fn by_rows(
        &self,
        op: &Op,
        symbols: &Symbols,
        inputs: &[Value<f64>],
        rows: usize,
        copies: usize,
    ) -> Result<Oracle> {
        // Each row comes with its copies.
        let most = (BATCH_ROWS / (copies + 1)).max(1);
        // Blocks of nearly equal size, none above the most.
        let block = rows.div_ceil(rows.div_ceil(most));
        let mut joined: Vec<(Vec<usize>, Vec<f64>, Vec<f64>)> = Vec::new();
        for start in (0..rows).step_by(block) {
            let count = block.min(rows - start);
            let stacked: Vec<Value<f64>> = inputs
                .iter()
                .enumerate()
                .map(|(i, input)| match input {
                    _ if !self.has_rows(i, input) => Ok(input.clone()),
                    Value::Float(array) => self.stack(i, array, start, count, copies),
                    Value::Uint(ids) => repeat(ids, start, count, copies),
                })
                .collect::<Result<_>>()?;
            let outputs = arrays(eval(op, symbols, &stacked)?)?;
            for (k, output) in outputs.iter().enumerate() {
                let len = count * output.row_len();
                let (exact, moved) = output.values().split_at(len);
                let mut deviation = vec![0.0; len];
                // Each copy of the block lies below the one before.
                moved.chunks_exact(len.max(1)).for_each(|moved| widen(&mut deviation, exact, moved));
                if joined.len() == k {
                    let shape = [&[rows], &output.shape()[1..]].concat();
                    joined.push((shape, Vec::new(), Vec::new()));
                }
                joined[k].1.extend_from_slice(exact);
                joined[k].2.extend(deviation);
            }
        }
        let mut oracle = Oracle { exact: Vec::new(), deviation: Vec::new(), inner: Vec::new() };
        for (shape, exact, deviation) in joined {
            oracle.exact.push(Array::new(shape.clone(), exact)?);
            oracle.deviation.push(Array::new(shape, deviation)?);
        }
        Ok(oracle)
    }

    /// Rows `start..start+count` of an input, followed by its disturbed copies.
    fn stack(
        &self,
        i: usize,
        input: &Array<f64>,
        start: usize,
        count: usize,
        copies: usize,
    ) -> Result<Value<f64>> {
        let columns = input.row_len();
        let (from, len) = (start * columns, count * columns);
        let values = &input.values()[from..from + len];
        let mut stacked = vec![0.0; len * (copies + 1)];
        let (exact, rest) = stacked.split_at_mut(len);
        exact.copy_from_slice(values);
        for (copy, into) in rest.chunks_exact_mut(len.max(1)).enumerate() {
            self.disturb(i, copy, from, values, into);
        }
        Value::float(vec![count * (copies + 1), columns], stacked)
    }

    /// One evaluation per copy.
    fn by_copy(&self, op: &Op, symbols: &Symbols, inputs: &[Value<f64>], copies: usize) -> Result<Oracle> {
        let exact = arrays(eval(op, symbols, inputs)?)?;
        let moved: Vec<Vec<Array<f64>>> = (0..copies)
            .into_par_iter()
            .map(|copy| arrays(self.copy(op, symbols, inputs, copy)?))
            .collect::<Result<_>>()?;
        let mut deviation = Vec::new();
        for (k, exact) in exact.iter().enumerate() {
            let mut largest = vec![0.0; exact.len()];
            moved.iter().for_each(|outputs| widen(&mut largest, exact.values(), outputs[k].values()));
            deviation.push(Array::new(exact.shape().to_vec(), largest)?);
        }
        Ok(Oracle { exact, deviation, inner: Vec::new() })
    }

    /// The disturbed inputs of a copy.
    fn inputs(&self, inputs: &[Value<f64>], copy: usize) -> Result<Vec<Value<f64>>> {
        let disturbed = |(i, input): (usize, &Value<f64>)| {
            if !self.moves(i, input) {
                return Ok(input.clone());
            }
            let array = input.as_float()?;
            let mut values = vec![0.0; array.len()];
            self.disturb(i, copy, 0, array.values(), &mut values);
            Value::float(array.shape().to_vec(), values)
        };
        inputs.iter().enumerate().map(disturbed).collect()
    }

    fn copy(
        &self,
        op: &Op,
        symbols: &Symbols,
        inputs: &[Value<f64>],
        copy: usize,
    ) -> Result<Vec<Value<f64>>> {
        let inputs = self.inputs(inputs, copy)?;
        // Constants are a stream of their own: no operator has so many inputs.
        let stream = Uniform::new(self.seed, &[u64::MAX, copy as u64]);
        let mut index = 0;
        // Frequencies and the like are computed by platforms, too, with errors of their own.
        let own = disturb_constants(op, &mut || {
            index += 1;
            1.0 + self.amplitude * stream.value_at(index)
        });
        eval(own.as_ref().unwrap_or(op), symbols, &inputs)
    }
}
