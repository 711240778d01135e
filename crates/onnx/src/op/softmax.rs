//! Softmax and its relatives: `Softmax`, `LogSoftmax`, `Hardmax`.
//!
//! The greatest element is subtracted first, so that no exponential overflows. The quotient is the same.

use crate::array::{Array, axis, axis_sizes};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use tapml_graph::Result;

/// Sizes before the rows, of a row, and behind it: rows lie along the axis of the attribute.
///
/// Before version 13 the axes from `axis` on are one, and the default is 1. From it on one axis is meant, and the default is −1.
fn rows(call: &Call<'_>, shape: &[usize]) -> Result<[usize; 3]> {
    if call.version() < 13 {
        // An axis equal to the rank leaves rows of one element.
        let at = call.int_or("axis", 1)?;
        let at = if at == shape.len() as i64 { shape.len() } else { axis(at, shape.len())? };
        return Ok([shape[..at].iter().product(), shape[at..].iter().product(), 1]);
    }
    match shape {
        [] => Ok([1, 1, 1]),
        _ => Ok(axis_sizes(shape, axis(call.int_or("axis", -1)?, shape.len())?)),
    }
}

/// Replaces each row along the axis.
fn each_row<T: Real>(call: &Call<'_>, f: impl Fn(&mut [T])) -> Outputs {
    let mut x = call.array::<T>(0)?;
    let [before, size, behind] = rows(call, &x.shape)?;
    let mut row = vec![T::zero(); size];
    for (outer, inner) in (0..before).flat_map(|outer| (0..behind).map(move |inner| (outer, inner))) {
        let place = |at: usize| (outer * size + at) * behind + inner;
        (0..size).for_each(|at| row[at] = x.data[place(at)]);
        f(&mut row);
        (0..size).for_each(|at| x.data[place(at)] = row[at]);
    }
    call.like_first(x)
}

/// `exp(x − max) / Σ exp(x − max)` in place. Rows of −∞ alone give NaN, as their definition does.
pub fn softmax_row<T: Real>(row: &mut [T]) {
    let most = row.iter().copied().fold(T::neg_infinity(), T::max);
    row.iter_mut().for_each(|v| *v = (*v - most).exp());
    let sum = sum_in_halves(row);
    row.iter_mut().for_each(|v| *v = *v / sum);
}

/// The sum, whose error grows with the logarithm of the number of terms: one after the other, thousands of small terms are each
/// rounded to a unit of a large sum.
fn sum_in_halves<T: Real>(terms: &[T]) -> T {
    // Short runs are added in order: the recursion would cost more than the sums.
    if terms.len() <= 8 {
        return terms.iter().copied().sum();
    }
    let (low, high) = terms.split_at(terms.len() / 2);
    sum_in_halves(low) + sum_in_halves(high)
}

/// `x − max − ln Σ exp(x − max)` in place.
pub fn log_softmax_row<T: Real>(row: &mut [T]) {
    let most = row.iter().copied().fold(T::neg_infinity(), T::max);
    let shares: Vec<T> = row.iter().map(|&v| (v - most).exp()).collect();
    let sum = sum_in_halves(&shares).ln();
    row.iter_mut().for_each(|v| *v = *v - most - sum);
}

/// `Softmax`.
pub fn softmax<T: Real>(call: &Call<'_>) -> Outputs {
    each_row::<T>(call, softmax_row)
}

/// `LogSoftmax`.
pub fn log_softmax<T: Real>(call: &Call<'_>) -> Outputs {
    each_row::<T>(call, log_softmax_row)
}

/// `Hardmax`: 1 for the first of the largest, 0 for the others.
pub fn hardmax<T: Real>(call: &Call<'_>) -> Outputs {
    each_row::<T>(call, |row| {
        let mut best = 0;
        for at in 1..row.len() {
            // Strictly greater, so that the first of equal elements wins.
            if row[at] > row[best] {
                best = at;
            }
        }
        row.iter_mut().enumerate().for_each(|(at, v)| *v = if at == best { T::one() } else { T::zero() });
    })
}

/// The elements of a row.
pub fn row_terms(sizes: &InputSizes<'_>) -> CallFacts {
    if sizes.op.version().unwrap_or(crate::call::NEWEST) >= 13 {
        return terms(sizes.size(0, sizes.int("axis", -1)));
    }
    let rank = sizes.shape(0).len();
    terms(axis(sizes.int("axis", 1), rank).map_or(1, |axis| sizes.volume_from(0, axis)))
}

/// Log-probabilities of `[batch, classes, …]` along the classes.
pub fn log_probabilities<T: Real>(x: &Array<T>) -> Array<T> {
    let [before, size, behind] = axis_sizes(&x.shape, 1);
    let mut y = x.clone();
    let mut row = vec![T::zero(); size];
    for (outer, inner) in (0..before).flat_map(|outer| (0..behind).map(move |inner| (outer, inner))) {
        let place = |at: usize| (outer * size + at) * behind + inner;
        (0..size).for_each(|at| row[at] = x.data[place(at)]);
        log_softmax_row(&mut row);
        (0..size).for_each(|at| y.data[place(at)] = row[at]);
    }
    y
}

#[cfg(test)]
mod tests {
    use super::{log_softmax_row, softmax_row};

    #[test]
    fn thousands_of_small_terms_are_not_lost_beside_a_large_one() {
        let row = |small: f64| -> Vec<f64> { std::iter::once(0.0).chain((0..6624).map(|_| small)).collect() };
        // 7 additions in a leaf and 10 above it, each off by half a unit at most, and the rounding of the result.
        let bound = 20.0 * f64::from(f32::EPSILON) / 2.0;
        for small in [-15.8, -14.3] {
            let (mut exact, mut exact_log) = (row(small), row(small));
            softmax_row(&mut exact);
            log_softmax_row(&mut exact_log);
            let mut found: Vec<f32> = row(small).into_iter().map(|v| v as f32).collect();
            let mut found_log = found.clone();
            softmax_row(&mut found);
            log_softmax_row(&mut found_log);
            assert!((f64::from(found[0]) - exact[0]).abs() < bound, "{} for {}", found[0], exact[0]);
            assert!(
                (f64::from(found_log[0]) - exact_log[0]).abs() < 5e-7,
                "{} for {}",
                found_log[0],
                exact_log[0]
            );
        }
    }
}
