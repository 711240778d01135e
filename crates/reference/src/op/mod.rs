//! One file per plain operator: its evaluation, slow and obvious. The maths is in the docs of the operator itself.
//!
//! Shapes have been inferred before an evaluation runs, so that files here index without checks of their own. What depends on
//! values, such as an id outside of a table, is checked. Memory is taken by `reserve` and `zeros`, which fail without a
//! panic.

mod add;
mod all_gather;
mod all_reduce;
mod append;
mod argmax;
mod attention;
mod causal_conv;
mod clamp;
mod columns;
mod combine;
mod concat;
mod dequantize;
mod embedding;
mod exp_sums;
mod expert_linear;
mod gelu;
mod last_row;
mod layer_norm;
mod lerp;
mod linear;
mod merge_rows;
mod merge_squares;
mod mul;
mod paged_append;
mod paged_attention;
mod paged_recurrence;
mod patches;
mod position_scale;
mod positions;
mod recurrence;
mod relu;
mod relu_squared;
mod rms_norm;
mod rope;
mod rope_angles;
mod route;
mod rows;
mod scale;
mod selective_scan;
mod sigmoid;
mod silu;
mod softcap;
mod softplus;
mod take_rows;
mod tanh;
mod token_shift;
mod top_k;
mod wkv;
mod wkv7;
mod wkv_bonus;

pub(crate) use tapml_graph::op::{
    Add, AllGather, AllReduce, Append, Argmax, Attention, Clamp, Columns, Combine, Concat, Dequantize,
    Embedding, ExpSums, ExpertLinear, Gelu, LastRow, LayerNorm, Lerp, Linear, MergeRows, MergeSquares, Mul,
    Patches, PositionScale, Positions, Relu, ReluSquared, RmsNorm, Rope, RopeAngles, Route, Scale, Sigmoid,
    Silu, Softcap, Softplus, Tanh, TopK,
};
pub(crate) use tapml_graph::op::{CausalConv, SelectiveScan, TokenShift, Wkv, Wkv7, WkvBonus};
pub(crate) use tapml_graph::op::{PagedAppend, PagedAttention, PagedRecurrence, TakeRows};

use crate::real::Real;
use crate::split::is_split;
use crate::value::{Value, reserve};
use rayon::prelude::*;
use tapml_graph::{Error, Result};

/// Elements below which a loop is not worth spreading over threads.
const PARALLEL_FROM: usize = 1 << 15;

/// An input seen as rows: a matrix, or a vector as its only row.
struct InputRows<'a, T> {
    /// Count of rows.
    rows: usize,
    /// Elements of a row.
    columns: usize,
    /// All elements, row by row.
    values: &'a [T],
}

impl<'a, T: Real> InputRows<'a, T> {
    /// The rows one after another; none if they are empty.
    fn iter(&self) -> impl Iterator<Item = &'a [T]> + use<'a, T> {
        self.values.chunks_exact(self.columns.max(1))
    }

    /// `len` elements of row `row` from column `first` on.
    #[inline(always)]
    fn part(&self, row: usize, first: usize, len: usize) -> &'a [T] {
        let start = row * self.columns + first;
        &self.values[start..start + len]
    }
}

/// Input `index` of an operator as rows.
///
/// # Errors
/// If the input is missing, holds indices, or has more than two sizes.
fn rows<T: Real>(inputs: &[Value<T>], index: usize) -> Result<InputRows<'_, T>> {
    let missing = || Error::invalid(format!("input {index} is missing"));
    let array = inputs.get(index).ok_or_else(missing)?.as_float()?;
    match *array.shape() {
        [columns] => Ok(InputRows { rows: 1, columns, values: array.values() }),
        [rows, columns] => Ok(InputRows { rows, columns, values: array.values() }),
        _ => Err(Error::invalid(format!("input {index} must be a matrix, found {array:?}"))),
    }
}

/// The elements of input `index`, if it is given.
fn optional<T: Real>(inputs: &[Value<T>], index: usize) -> Result<Option<&[T]>> {
    inputs.get(index).map(|value| Ok(value.as_float()?.values())).transpose()
}

/// What a norm's weight holds for run `index` of the columns of a row, runs being `len` long: all of it if they share it.
fn run_of<T>(weight: &[T], index: usize, len: usize) -> &[T] {
    let start = index * len % weight.len().max(1);
    &weight[start..start + len]
}

/// Fails if an operator at which ranks meet is that of one rank: it does not have the parts of the others.
fn expect_all_ranks(rank: Option<u32>) -> Result<()> {
    rank.map_or(Ok(()), |rank| {
        let text = format!("rank {rank} alone does not know what the other ranks have");
        Err(Error::unsupported(text).with_hint("evaluate the graph of all ranks"))
    })
}

/// One matrix as the list of outputs.
fn single_output<T: Real>(rows: usize, columns: usize, values: Vec<T>) -> Result<Vec<Value<T>>> {
    Ok(vec![Value::float(vec![rows, columns], values)?])
}

/// `f` of each element of the only input.
///
/// Each element is computed by itself, so that threads change nothing.
fn map<T: Real>(inputs: &[Value<T>], f: impl Fn(T) -> T + Send + Sync) -> Result<Vec<Value<T>>> {
    let x = rows(inputs, 0)?;
    let mut values = reserve(x.rows, x.columns)?;
    // These functions take about eight times as long as a sum or product.
    if is_split(x.values.len().saturating_mul(8), PARALLEL_FROM) {
        let items = x.values.par_iter().with_min_len(1024);
        items.map(|&x| f(x)).collect_into_vec(&mut values);
    } else {
        values.extend(x.values.iter().map(|&x| f(x)))
    }
    single_output(x.rows, x.columns, values)
}

/// `f` of each element of the first input and what the second, stretched to it, has in its place.
///
/// The second input has the same shape, or is one row, or one column.
fn zip_map<T: Real>(inputs: &[Value<T>], f: impl Fn(T, T) -> T + Send + Sync) -> Result<Vec<Value<T>>> {
    let (a, b) = (rows(inputs, 0)?, rows(inputs, 1)?);
    let mut values = reserve(a.rows, a.columns)?;
    if a.values.len() != b.values.len() {
        // A vector serves every row, a matrix of one column every column.
        let by_row = b.columns == a.columns;
        for (index, row) in a.iter().enumerate() {
            if by_row {
                values.extend(row.iter().zip(b.values).map(|(&a, &b)| f(a, b)))
            } else {
                values.extend(row.iter().map(|&a| f(a, b.values[index])))
            }
        }
        return single_output(a.rows, a.columns, values);
    }
    if is_split(a.values.len(), PARALLEL_FROM) {
        a.values.par_iter().zip(b.values).map(|(&a, &b)| f(a, b)).collect_into_vec(&mut values)
    } else {
        values.extend(a.values.iter().zip(b.values).map(|(&a, &b)| f(a, b)))
    }
    single_output(a.rows, a.columns, values)
}
