//! The allowed error of each element, and the worst element.
//!
//! `storage` is `R` and `computing` is `A` of the module above. They are kept apart, because tests on the
//! distribution compare with the rounded result, where `R` does not count.

use super::constants::{AMPLITUDE, INNER, VerdictConstants};
use super::exact::{Exact, Precision};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tapml_graph::{DType, Tensor};
use tapml_reference::foreign::OpenIntegers;

/// One element with the numbers that judge it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedElement {
    /// Which output.
    pub output: usize,
    /// Index in row-major order.
    pub index: usize,
    /// The exact value.
    pub exact: f64,
    /// The platform's value.
    pub observed: f64,
    /// The allowed error.
    pub allowed: f64,
}

/// Allowed errors of the elements of one output.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// From rounding to the storage dtype.
    pub storage: Vec<f64>,
    /// From rounding while computing.
    pub computing: Vec<f64>,
    /// The exact values rounded to the storage dtype.
    pub rounded: Vec<f64>,
    /// Whether the values are indices: any difference counts as 1.
    indices: bool,
    /// Other integers that are right; `None` where `computing` decides.
    open: Option<HashMap<usize, Open>>,
}

/// The integers besides the exact one that are right at one element.
#[derive(Clone, Debug)]
enum Open {
    /// All from the least to the greatest.
    Range(f64, f64),
    /// Some.
    Some(Vec<f64>),
}

impl Open {
    /// Whether this integer is right.
    fn holds(&self, value: f64) -> bool {
        match self {
            Open::Range(least, greatest) => (*least..=*greatest).contains(&value),
            Open::Some(values) => values.contains(&value),
        }
    }

    /// The largest distance of a right integer from the exact one.
    fn reach(&self, exact: f64) -> f64 {
        let distance = |value: &f64| (value - exact).abs();
        match self {
            Open::Range(least, greatest) => distance(least).max(distance(greatest)),
            Open::Some(values) => values.iter().map(distance).fold(0.0, f64::max),
        }
    }
}

impl Allowed {
    /// The allowed errors of an output of `dtype`; see the module above for the formulas.
    pub fn new(exact: &Exact, dtype: DType, precision: Precision, source: Option<&[f64]>) -> Allowed {
        Allowed::with_constants(&VerdictConstants::DECIDING, exact, dtype, precision, source)
    }

    /// As [`Allowed::new`] with these constants.
    pub fn with_constants(
        constants: &VerdictConstants,
        exact: &Exact,
        dtype: DType,
        precision: Precision,
        source: Option<&[f64]>,
    ) -> Allowed {
        let factor = precision.accumulate.unit_roundoff() * roundings(constants, precision);
        if !dtype.is_float() {
            return match &exact.integers {
                Some(integers) => {
                    Allowed::of_integers(exact, integers, precision, roundings(constants, precision))
                }
                None => Allowed::of_indices(exact, factor),
            };
        }
        let storage: Vec<f64> = exact.values.iter().map(|&y| storage(constants.storage, dtype, y)).collect();
        let row_len = exact.row_len.max(1);
        let mut computing = Vec::with_capacity(exact.values.len());
        for (row, (values, deviation)) in
            exact.values.chunks(row_len).zip(exact.deviation.chunks(row_len)).enumerate()
        {
            // A row in which no disturbance moves anything is a copy, and has no floor.
            let moves = deviation.iter().any(|&d| d > 0.0);
            let floor = if moves { rms(values).max(rms(deviation) / AMPLITUDE) } else { 0.0 };
            // One number for the row, as `E` is.
            let noise = source.map_or(0.0, |s| {
                let at = row * row_len..row * row_len + values.len();
                source_noise(values, &s[at.clone()], &storage[at])
            });
            let inner = exact.inner.get(row * row_len..row * row_len + values.len()).unwrap_or(&[]);
            let rounded = rms(inner);
            computing.extend(deviation.iter().zip(values).enumerate().map(|(at, (d, y))| {
                let floor = if moves && y.is_finite() { floor.max(y.abs()) } else { floor };
                let inner = inner.get(at).map_or(0.0, |&inner| INNER * inner.max(rounded));
                let own = factor * (d / AMPLITUDE).max(floor) + inner;
                // The source's noise can double the bound at most.
                own + noise.min(own)
            }));
        }
        Allowed { storage, computing, rounded: round(dtype, &exact.values), indices: false, open: None }
    }

    /// Indices are not rounded: they stay, or jump where the disturbance reaches another choice.
    fn of_indices(exact: &Exact, factor: f64) -> Allowed {
        let inner = |at: usize| exact.inner.get(at).map_or(0.0, |inner| INNER * inner);
        let deviation = exact.deviation.iter().enumerate();
        let computing = deviation.map(|(at, d)| factor * (d / AMPLITUDE) + inner(at)).collect();
        let (storage, rounded) = (vec![0.0; exact.values.len()], exact.values.clone());
        Allowed { storage, computing, rounded, indices: true, open: None }
    }

    /// Integers of an operator of others: the exact ones, and those that its rounding may reach.
    fn of_integers(exact: &Exact, integers: &OpenIntegers, precision: Precision, roundings: f64) -> Allowed {
        let open: HashMap<usize, Open> = match integers {
            OpenIntegers::Rounded { integers, roundoff } => {
                let noise = roundings * precision.accumulate.unit_roundoff().max(*roundoff);
                let ranges = (0..exact.values.len()).map(|i| (i, integers.range(i, noise)));
                let wide = ranges.filter(|(_, (least, greatest))| least < greatest);
                wide.map(|(i, (least, greatest))| (i, Open::Range(least, greatest))).collect()
            }
            OpenIntegers::Reached(found) => {
                found.iter().map(|(&i, values)| (i, Open::Some(values.clone()))).collect()
            }
        };
        let mut computing = vec![0.0; exact.values.len()];
        for (&i, open) in &open {
            computing[i] = open.reach(exact.values[i]);
        }
        let (storage, rounded) = (vec![0.0; exact.values.len()], exact.values.clone());
        Allowed { storage, computing, rounded, indices: true, open: Some(open) }
    }

    /// How many roundings, in units of the sensitivity, a kernel may make.
    pub fn roundings(precision: Precision) -> f64 {
        roundings(&VerdictConstants::DECIDING, precision)
    }

    /// Whether the values are indices.
    pub fn indices(&self) -> bool {
        self.indices
    }

    /// How many indices may be another without being wrong.
    pub fn undecided_count(&self) -> usize {
        if self.indices { self.computing.iter().filter(|&&allowed| allowed >= 1.0).count() } else { 0 }
    }

    /// The allowed error of element `i`.
    pub fn allowed_at(&self, i: usize) -> f64 {
        self.storage[i] + self.computing[i]
    }

    /// Observed over allowed of element `i`. Infinite if one of the two values is not finite where the other is, or if
    /// no error is allowed and there is one.
    pub fn ratio(&self, exact: &Exact, i: usize, observed: f64) -> f64 {
        let (y, rounded) = (exact.values[i], self.rounded[i]);
        if self.indices {
            return match &self.open {
                _ if observed == y => 0.0,
                None => self.allowed_at(i).recip(),
                Some(open) if open.get(&i).is_some_and(|open| open.holds(observed)) => 0.0,
                Some(_) => f64::INFINITY,
            };
        }
        let error = (observed - y).abs();
        if !observed.is_finite() || !rounded.is_finite() {
            let same = observed == rounded || (observed.is_nan() && rounded.is_nan());
            // A value at the edge of the dtype's range may be rounded to either side of it.
            let edge = y.is_finite() && observed.is_finite() && error <= self.allowed_at(i);
            // An exact result near the largest finite number may be rounded to infinity.
            let edge = edge || (observed.is_infinite() && rounded.is_finite() && self.overflows(i, observed));
            return if same || edge { 0.0 } else { f64::INFINITY };
        }
        match (error, self.allowed_at(i)) {
            (0.0, _) => 0.0,
            // Nothing is known of what is allowed, such as where disturbed results are not finite.
            (_, allowed) if allowed.is_nan() => 0.0,
            (error, allowed) => error / allowed,
        }
    }

    /// Whether the allowed error reaches infinity of the observed sign.
    fn overflows(&self, i: usize, observed: f64) -> bool {
        self.computing[i].is_infinite()
            || (self.rounded[i] * observed.signum() + self.allowed_at(i)).is_infinite()
    }

    /// The largest ratio and its element.
    pub fn worst_element(&self, exact: &Exact, observed: &[f64]) -> (f64, JudgedElement) {
        let (mut worst, mut at) = (0.0, 0);
        for (i, &value) in observed.iter().enumerate() {
            let ratio = self.ratio(exact, i, value);
            if ratio > worst {
                (worst, at) = (ratio, i);
            }
        }
        let element = match observed.get(at) {
            Some(&observed) => JudgedElement {
                output: 0,
                index: at,
                exact: exact.values[at],
                observed,
                allowed: self.allowed_at(at),
            },
            None => JudgedElement { output: 0, index: 0, exact: 0.0, observed: 0.0, allowed: 0.0 },
        };
        (worst, element)
    }
}

/// `BASE + CHAIN · √L`.
fn roundings(constants: &VerdictConstants, precision: Precision) -> f64 {
    constants.base + constants.chain * (precision.terms as f64).sqrt()
}

/// `R` of one element.
fn storage(headroom: f64, dtype: DType, y: f64) -> f64 {
    let bound = headroom * dtype.unit_roundoff() * y.abs().max(dtype.min_normal());
    match dtype {
        // A device may flush subnormal numbers of these dtypes to zero.
        DType::F32 | DType::BF16 => {
            bound.max(if y.abs() < 2.0 * dtype.min_normal() { dtype.min_normal() } else { 0.0 })
        }
        _ => bound,
    }
}

/// The values rounded to the dtype.
fn round(dtype: DType, values: &[f64]) -> Vec<f64> {
    Tensor::from_f64(dtype, vec![values.len()], values).map_or_else(|_| values.to_vec(), |t| t.to_f64())
}

/// Of the finite values; 0 if there are none.
fn rms(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|v| v.is_finite());
    let (sum, count) = finite.fold((0.0, 0usize), |(s, c), v| (s + v * v, c + 1));
    (sum / count.max(1) as f64).sqrt()
}

/// RMS of what the source errs beyond rounding to storage.
fn source_noise(exact: &[f64], source: &[f64], storage: &[f64]) -> f64 {
    let beyond: Vec<f64> =
        exact.iter().zip(source).zip(storage).map(|((y, s), r)| ((s - y).abs() - r).max(0.0)).collect();
    rms(&beyond)
}
