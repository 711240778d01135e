//! A matched filter for attributes that a kernel has lost, where no element is off by more than rounding may be.
//!
//! What the loss of an attribute would do is known: the operator in f64 with the attribute left out, minus the exact
//! result, `d`. The residual `r` of what a platform gave is projected on it, over all elements of a row, each in units of
//! its allowed error `a`:
//!
//! ```text
//! A = Σ d²/a²      B = Σ r·d/a²      c = Σ_rows B / Σ_rows A
//! ```
//!
//! A kernel that has the attribute gives `c = 0` up to noise, one that lost it `c = 1`, and the noise of thousands of
//! elements averages out where that of one does not. This is the matched filter of signal detection (Turin, "An
//! Introduction to Matched Filters", IRE Trans. Inf. Theory 6 (1960)). Elements of a row share errors, such as that of
//! the row's norm, so the standard error of `c` is taken from how the rows scatter:
//! `s² = m/(m − 1) · Σ A²(B/A − c)² / (Σ A)²`, over `m` rows.
//!
//! Only rows count in which the loss moves elements by at least [`SHOWS`] roundings in the root mean square: what moves
//! less may be a bias of a function that the platform computes within its limits. The attribute counts as lost if `c` is 1
//! within [`NEAR`] and at least [`ERRORS`] of its standard errors.
//!
//! Rounding to nearest can be lost, too: a result that is cut is off by no more than one in its last place, and half of
//! that, always toward zero, in the mean. So `d` is minus half a unit in the last place of each result of 16 bits, and in a
//! second signal what results when the values within a fused operator move so. Errors to either side give `c = 0`. How much
//! of either shows depends on which stores are cut, so that any `c` above [`CUT`] counts which noise reaches with probability
//! [`CHANCE`]: its standard errors follow Student's distribution, of which `P(T > t) < (1 + t²/ν)^(−(ν − 1)/2)` for `t ≥ 1` and
//! `ν ≥ 2` (its density is below 0.4 of the same to the power `−(ν + 1)/2`; times `x / t` it can be integrated), with `ν` one
//! less than the effective number of rows.

mod lost;

pub use lost::{CUT, Lost, NEAR};

use crate::attributes::left_out;
use crate::verdict::{Allowed, Exact, Precision};
use lost::ROUNDING;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tapml_exec::Call;
use tapml_graph::{DType, Op, Result, Tensor};
use tapml_reference::{Value, cut_within, eval};

/// Roundings, in units of the sensitivity, by which a loss must move a row's elements.
pub const SHOWS: f64 = 2.0;

/// Probability with which noise alone makes results seem cut.
pub const CHANCE: f64 = 1e-9;
/// Standard errors that `c` must have: a normal deviate exceeds 8 with probability 10⁻¹⁵.
pub const ERRORS: f64 = 8.0;
/// Rows, weighted by what the loss moves, that are needed for a standard error.
const ROWS: f64 = 4.0;
/// A loss that moves an element by so many times its allowed error cannot be overlooked by the verdicts of elements.
const PLAIN: f64 = 4.0;
/// Calls of an operator that are looked at: their number bounds the cost.
const CALLS: usize = 24;

impl Lost {
    /// Whether it counts.
    fn counts(&self) -> bool {
        let (most, errors) = if self.is_rounding() {
            (f64::INFINITY, student(self.effective - 1.0))
        } else {
            (1.0 + NEAR, ERRORS)
        };
        (self.least_factor()..=most).contains(&self.share) && self.share >= errors * self.error
    }
}

/// Sums of one row.
#[derive(Clone, Copy)]
struct RowSums {
    /// The name of its call.
    call: usize,
    /// `A` of the row.
    size: f64,
    /// `B` of the row.
    projection: f64,
}

/// What is known of one attribute of operators with the same attributes.
#[derive(Default)]
struct Signal {
    /// Of all calls, in the order in which they came.
    rows: Vec<RowSums>,
    /// Whether elements alone tell its loss.
    plain: bool,
}

/// The allowed errors of an output, and what was observed.
type FoundErrors = (Allowed, Vec<f64>);

/// Collects the calls of one kind of operator, from any thread.
#[derive(Default)]
pub struct Filter {
    /// By the operator's attributes and the name of what is left out.
    signals: Mutex<BTreeMap<(String, String), Signal>>,
}

/// Positions of the calls that the filter looks at, of `count`: all, or some at irrational distances, so that they meet
/// every node and every run.
pub fn looked_at(count: usize) -> Vec<usize> {
    if count <= CALLS {
        return (0..count).collect();
    }
    // Multiples of the golden ratio fall evenly, whatever the numbers of runs and nodes.
    let golden = 0.5 * (5f64.sqrt() - 1.0);
    let mut chosen: Vec<usize> =
        (0..CALLS).map(|i| ((i as f64 * golden).fract() * count as f64) as usize).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

impl Filter {
    /// Adds a call whose elements pass: its inputs, its exact results and what the platform gave. `index` names it.
    pub fn add(
        &self,
        (index, call): (usize, &Call),
        inputs: &dyn Fn() -> Result<Vec<Value<f64>>>,
        exact: &[Exact],
        observed: &[Tensor],
        precision: Precision,
    ) -> Result<()> {
        let Call { op, symbols, .. } = call;
        let mut changes: Vec<(String, Option<Op>)> =
            left_out(op).into_iter().map(|(name, without)| (name, Some(without))).collect();
        if matches!(op, Op::Fused(_)) {
            changes.push((ROUNDING[1].to_string(), None));
        }
        let narrow = observed.iter().any(|o| matches!(o.dtype(), DType::F16 | DType::BF16));
        if changes.is_empty() && !narrow {
            return Ok(());
        }
        let both = exact.iter().zip(observed);
        let found: Vec<FoundErrors> =
            both.map(|(e, o)| (Allowed::new(e, o.dtype(), precision, None), o.to_f64())).collect();
        // Each output has stores of its own, so that those of the others would only hide what one shows.
        for output in 0..if narrow { observed.len() } else { 0 } {
            let key = (format!("{} of output {output}", op.attributes()), ROUNDING[0].to_string());
            let outputs = exact.iter().zip(observed).zip(&found).enumerate();
            let cut = outputs.map(|(i, ((exact, observed), (allowed, _)))| {
                (i == output).then(|| cut(exact, &allowed.rounded, observed.dtype()))
            });
            self.put(key, index, exact, &found, precision, cut);
        }
        let mut known: Option<Vec<Value<f64>>> = None;
        for (name, without) in changes {
            let key = (op.attributes().to_string(), name);
            // The verdicts of elements suffice: an evaluation is saved.
            if self.with_signal(&key, |signal| signal.plain) {
                continue;
            }
            // Computed for the first attribute that needs them.
            let inputs = match &mut known {
                Some(known) => known,
                None => known.insert(inputs()?),
            };
            let changed = match &without {
                // An attribute that these inputs do not allow to be left out says nothing.
                Some(without) => eval(without, symbols, inputs).ok(),
                None => cut_within(op, symbols, inputs)?,
            };
            let Some(changed) = changed else { continue };
            let floats = changed.iter().map(|value| match value {
                Value::Float(array) => Some(array.values().to_vec()),
                Value::Uint(_) => None,
            });
            self.put(key, index, exact, &found, precision, floats);
        }
        Ok(())
    }

    /// Adds the rows of a call in which a change to `changed` shows. Outputs without numbers have none.
    /// The lock is held only to add what was computed before.
    fn put(
        &self,
        key: (String, String),
        index: usize,
        exact: &[Exact],
        found: &[FoundErrors],
        precision: Precision,
        changed: impl Iterator<Item = Option<Vec<f64>>>,
    ) {
        let (mut rows, mut plain) = (Vec::new(), false);
        for ((exact, (allowed, observed)), changed) in exact.iter().zip(found).zip(changed) {
            let Some(changed) = changed else { continue };
            if changed.len() == exact.values.len() && !allowed.indices() {
                plain |= rows_of(exact, allowed, observed, &changed, precision, &mut rows);
            }
        }
        rows.iter_mut().for_each(|row: &mut RowSums| row.call = index);
        self.with_signal(&key, |signal| {
            signal.plain |= plain;
            signal.rows.extend(rows);
        });
    }

    /// Holds the lock; `change` must not take long.
    fn with_signal<T>(&self, key: &(String, String), change: impl FnOnce(&mut Signal) -> T) -> T {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        change(signals.entry(key.clone()).or_default())
    }

    /// The attributes that are lost.
    pub fn lost_attributes(&self) -> Vec<Lost> {
        let signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        let found =
            signals.iter().filter(|(_, s)| !s.plain).filter_map(|((_, name), s)| share(name, &s.rows));
        found.filter(Lost::counts).collect()
    }

    /// What the filter measured of every attribute whose loss shows anywhere.
    pub fn measured_attributes(&self) -> Vec<Lost> {
        let signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        signals.iter().filter(|(_, s)| !s.plain).filter_map(|((_, name), s)| share(name, &s.rows)).collect()
    }
}

/// What results would be in the mean if they were cut to the dtype: half a unit in the last place nearer to zero. Numbers
/// that the dtype holds, such as rows that are copied, stay.
fn cut(exact: &Exact, rounded: &[f64], dtype: DType) -> Vec<f64> {
    let half = |y: f64| dtype.unit_roundoff() * 2f64.powf(y.abs().max(dtype.min_normal()).log2().floor());
    let values = exact.values.iter().zip(rounded);
    values.map(|(&y, &rounded)| if y == rounded { y } else { y - y.signum() * half(y) }).collect()
}

/// Adds the rows in which a loss shows; whether elements alone would tell it.
fn rows_of(
    exact: &Exact,
    allowed: &Allowed,
    observed: &[f64],
    changed: &[f64],
    precision: Precision,
    rows: &mut Vec<RowSums>,
) -> bool {
    let width = exact.row_len.max(1);
    let roundings = Allowed::roundings(precision);
    for start in (0..changed.len()).step_by(width) {
        let (mut size, mut projection, mut moved, mut count) = (0.0, 0.0, 0.0, 0.0);
        for i in start..(start + width).min(changed.len()) {
            let (d, r, a) =
                (changed[i] - exact.values[i], observed[i] - exact.values[i], allowed.allowed_at(i));
            if !(d.is_finite() && r.is_finite() && a.is_finite() && a > 0.0) {
                // The loss gives NaN or infinity: verdicts of elements see that.
                if d.is_nan() || d.is_infinite() {
                    return true;
                }
                continue;
            }
            if d.abs() > PLAIN * a {
                return true;
            }
            size += (d / a).powi(2);
            projection += r * d / (a * a);
            moved += (d * roundings / a).powi(2);
            count += 1.0;
        }
        if count > 0.0 && moved >= SHOWS * SHOWS * count {
            rows.push(RowSums { call: 0, size, projection });
        }
    }
    false
}

/// `c` with its standard error; `None` if the rows are too few for one.
fn share(name: &str, rows: &[RowSums]) -> Option<Lost> {
    let size: f64 = rows.iter().map(|r| r.size).sum();
    let squares: f64 = rows.iter().map(|r| r.size * r.size).sum();
    // The effective number of rows is `(Σ A)² / Σ A²`.
    if rows.len() < 2 || size * size < ROWS * squares {
        return None;
    }
    let share = rows.iter().map(|r| r.projection).sum::<f64>() / size;
    let scatter: f64 = rows.iter().map(|r| (r.projection - share * r.size).powi(2)).sum();
    let count = rows.len() as f64;
    let error = (count / (count - 1.0) * scatter).sqrt() / size;
    let most = rows.iter().max_by(|a, b| a.size.total_cmp(&b.size))?;
    let effective = size * size / squares;
    Some(Lost { attribute: name.into(), share, error, rows: rows.len(), effective, call: most.call })
}

/// Standard errors that noise of so many degrees of freedom reaches with probability [`CHANCE`] at most.
fn student(freedom: f64) -> f64 {
    if freedom < 2.0 {
        return f64::INFINITY;
    }
    (freedom * (CHANCE.powf(-2.0 / (freedom - 1.0)) - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows in which the loss moves `size`, of which `seen` shows, with this noise.
    fn rows(count: usize, seen: f64, noise: f64) -> Vec<RowSums> {
        let mut random = fastrand::Rng::with_seed(5);
        let mut row = |call: usize| {
            let size = 1.0 + random.f64();
            RowSums { call, size, projection: size * (seen + noise * (2.0 * random.f64() - 1.0)) }
        };
        (0..count).map(&mut row).collect()
    }

    fn find_lost(rows: Vec<RowSums>) -> Vec<Lost> {
        let filter = Filter::default();
        filter.with_signal(&("{}".into(), "eps".into()), |signal| signal.rows = rows);
        filter.lost_attributes()
    }

    #[test]
    fn a_lost_attribute_is_told_from_noise() {
        let found = find_lost(rows(20, 1.0, 0.3));
        assert_eq!(found.len(), 1);
        assert!((found[0].share - 1.0).abs() < 0.1 && found[0].error < 0.06, "{found:?}");
        assert!(found[0].text().contains("`eps`"));
        assert!(find_lost(rows(20, 0.0, 0.3)).is_empty(), "the attribute is there");
        assert!(find_lost(rows(20, 0.5, 0.1)).is_empty(), "half a loss is something else");
        assert!(find_lost(rows(20, 1.0, 4.0)).is_empty(), "too noisy");
        assert!(find_lost(rows(3, 1.0, 0.01)).is_empty(), "too few rows for a standard error");
        let mut one_row = rows(20, 0.0, 0.3);
        one_row.push(RowSums { call: 20, size: 1e4, projection: 1e4 });
        assert!(find_lost(one_row).is_empty(), "what one row shows");
    }

    #[test]
    fn results_that_are_cut_are_told_from_rounded_ones() {
        let mut random = fastrand::Rng::with_seed(7);
        let values: Vec<f64> = (0..1280).map(|_| 8.0 * (random.f64() - 0.5)).collect();
        let exact =
            [Exact { deviation: vec![1e-8; 1280], values, inner: Vec::new(), row_len: 64, integers: None }];
        let precision = Precision { accumulate: DType::F32, terms: 64 };
        let call = Call {
            node: "norm".into(),
            op: tapml_graph::op::RmsNorm::new(0.0).into(),
            symbols: Default::default(),
            inputs: Vec::new(),
            input_types: Vec::new(),
            weights: Vec::new(),
            output_types: Vec::new(),
        };
        let output = |cut: &dyn Fn(usize) -> bool| {
            let store = |(i, &y): (usize, &f64)| {
                let ulp = 2f64.powf(y.abs().log2().floor() - 10.0);
                if cut(i) { (y / ulp).trunc() * ulp } else { y }
            };
            let observed: Vec<f64> = exact[0].values.iter().enumerate().map(store).collect();
            Tensor::from_f64(DType::F16, vec![20, 64], &observed).unwrap()
        };
        let lost = |observed: &[Tensor]| {
            let filter = Filter::default();
            let exact = vec![exact[0].clone(); observed.len()];
            filter.add((0, &call), &|| Ok(Vec::new()), &exact, observed, precision).unwrap();
            filter.lost_attributes()
        };
        assert!(lost(&[output(&|_| false)]).is_empty(), "rounded to the nearest");
        let half = lost(&[output(&|_| false), output(&|i| i % 64 < 32), output(&|_| false)]);
        assert!(half.len() == 1 && (half[0].share - 0.5).abs() < 0.1, "half of one output: {half:?}");
        let found = lost(&[output(&|_| true)]);
        assert!(
            found.len() == 1 && found[0].is_rounding() && (found[0].share - 1.0).abs() < 0.1,
            "{found:?}"
        );
        assert!(found[0].text().starts_with("as if results were cut"), "{}", found[0].text());
    }

    #[test]
    fn few_rows_take_more_standard_errors() {
        // With three degrees of freedom P(T > t) = 1/2 - (atan(x) + x / (1 + x²)) / π for x = t / √3.
        let tail = |t: f64| {
            let x = t / 3f64.sqrt();
            0.5 - (x.atan() + x / (1.0 + x * x)) / std::f64::consts::PI
        };
        assert!(tail(student(3.0)) < CHANCE);
        assert!(student(1.0).is_infinite() && student(7.0) > student(15.0));
        // The normal distribution's quantile is 6.0.
        assert!((6.0..6.5).contains(&student(1e6)), "{}", student(1e6));
    }

    #[test]
    fn calls_are_chosen_from_all_over() {
        assert_eq!(looked_at(3), [0, 1, 2]);
        let chosen = looked_at(1000);
        assert!(chosen.len() > 20 && chosen.len() <= CALLS, "{chosen:?}");
        let gaps = chosen.windows(2).map(|w| w[1] - w[0]).max().unwrap();
        assert!(gaps < 100 && chosen[0] < 50 && *chosen.last().unwrap() > 900, "{chosen:?}");
        let nodes: std::collections::HashSet<usize> = looked_at(240).iter().map(|i| i % 12).collect();
        assert!(nodes.len() > 8, "{nodes:?}");
    }
}
