//! The residual of one output as a distribution: scale, bias, size, and shifts of single columns.
//!
//! The formulas are those of the module above; sums run over all elements of one output. Elements that are
//! not finite, and results below twice the smallest normal number, have a residual of 0.

use super::bound::Allowed;
use super::constants::VerdictConstants;
use super::criterion::Criterion;
use super::exact::Exact;
use tapml_graph::DType;

/// Columns are tested if there are at least this many rows; fewer say no more than the elements do.
const MIN_ROWS: usize = 4;

/// The largest allowed error is at least this many variances of the error, squared: 4 standard deviations.
const SPREAD: f64 = 16.0;

/// Residuals against the correctly rounded result, of the elements where all numbers are finite.
pub struct Residual<'a> {
    /// The bounds of single elements.
    allowed: &'a Allowed,
    exact: &'a Exact,
    /// Residual of each element; 0 where it is left out.
    residual: Vec<f64>,
    /// Spacing of the storage dtype at each element; 0 where it is left out.
    ulp: Vec<f64>,
    /// Allowed error while computing; 0 where the element is left out.
    noise: Vec<f64>,
}

/// Sums of Bernstein's inequality.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// `Σ w r`.
    observed: f64,
    /// `Σ |w| A`.
    shared: f64,
    /// `Σ w² v`.
    variance: f64,
    /// `max |w| (ulp + A)`.
    jump: f64,
}

impl Sums {
    /// Adds one element.
    fn add(&mut self, weight: f64, residual: f64, noise: f64, ulp: f64) {
        self.observed += weight * residual;
        self.shared += weight.abs() * noise;
        self.variance += weight * weight * (ulp * noise.min(ulp) + noise * noise / SPREAD);
        self.jump = self.jump.max(weight.abs() * (ulp + noise));
    }

    /// What a correct kernel exceeds with probability `2·exp(−λ)` at most.
    fn limit(&self, shared: f64, lambda: f64) -> f64 {
        shared * self.shared + (2.0 * lambda * self.variance).sqrt() + 2.0 / 3.0 * lambda * self.jump
    }

    /// Observed over limit; 0 where `λ` is infinite, which turns the tests off.
    fn ratio(&self, shared: f64, lambda: f64) -> f64 {
        let limit = self.limit(shared, lambda);
        let observed = self.observed.abs();
        if observed > 0.0 && limit.is_finite() { observed / limit } else { 0.0 }
    }
}

impl<'a> Residual<'a> {
    /// The residual of what a platform gave, against the rounded exact result.
    pub fn new(exact: &'a Exact, observed: &[f64], dtype: DType, allowed: &'a Allowed) -> Residual<'a> {
        let mut out = Residual {
            allowed,
            exact,
            residual: vec![0.0; observed.len()],
            ulp: vec![0.0; observed.len()],
            noise: vec![0.0; observed.len()],
        };
        for (i, &value) in observed.iter().enumerate() {
            let rounded = allowed.rounded[i];
            // Indices have no residual: they are the same or another.
            if allowed.indices() {
                continue;
            }
            if value.is_finite() && rounded.is_finite() && allowed.computing[i].is_finite() {
                out.residual[i] = value - rounded;
                out.ulp[i] = 2.0 * dtype.unit_roundoff() * rounded.abs().max(dtype.min_normal());
                // Below the smallest normal number a device may flush to zero: a shift that says nothing.
                if rounded.abs() < 2.0 * dtype.min_normal() {
                    out.residual[i] = 0.0;
                }
                out.noise[i] = allowed.computing[i];
            }
        }
        out
    }

    /// Slope of observed on exact values, minus 1.
    pub fn slope(&self) -> f64 {
        let pairs = self.residual.iter().zip(&self.exact.values).filter(|(_, y)| y.is_finite());
        let (xy, xx) = pairs.fold((0.0, 0.0), |(xy, xx), (r, y)| (xy + r * y, xx + y * y));
        if xx > 0.0 { xy / xx } else { 0.0 }
    }

    /// Observed over allowed of every test.
    pub fn tests(&self, constants: &VerdictConstants) -> [(f64, Criterion); 4] {
        let VerdictConstants { shared, lambda, .. } = *constants;
        let [scale, bias, squares] = self.totals(shared);
        [
            (scale.ratio(shared, lambda), Criterion::Scale),
            (bias.ratio(shared, lambda), Criterion::Bias),
            // The root, so that the ratio is one of errors and not of their squares.
            (squares.ratio(shared, lambda).sqrt(), Criterion::Spread),
            (self.columns(shared, lambda), Criterion::Column),
        ]
    }

    /// Sums over all elements: weighted with the values, plain, and of the squares.
    fn totals(&self, shared: f64) -> [Sums; 3] {
        let (mut scale, mut bias) = (Sums::default(), Sums::default());
        let mut squares = Sums::default();
        for (i, &r) in self.residual.iter().enumerate() {
            let (noise, ulp, y) = (self.noise[i], self.ulp[i], self.allowed.rounded[i]);
            if !y.is_finite() {
                continue;
            }
            scale.add(y, r, noise, ulp);
            bias.add(1.0, r, noise, ulp);
            squares.observed += r * r;
            squares.shared += noise * noise + ulp * noise.min(ulp) / shared;
            squares.variance += ulp.powi(3) * noise.min(ulp) + noise.powi(4) / SPREAD;
            squares.jump = squares.jump.max((ulp + noise).powi(2));
        }
        [scale, bias, squares]
    }

    /// The largest ratio of a column.
    fn columns(&self, shared: f64, lambda: f64) -> f64 {
        let (sums, lambda) = self.column_sums(lambda);
        sums.iter().map(|s| s.ratio(shared, lambda)).fold(0.0, f64::max)
    }

    /// The sum of each column, if there are enough rows, and the `λ` that goes with them.
    fn column_sums(&self, lambda: f64) -> (Vec<Sums>, f64) {
        let width = self.exact.row_len.max(1);
        if self.residual.len() < MIN_ROWS * width {
            return (Vec::new(), lambda);
        }
        let mut sums = vec![Sums::default(); width];
        for (i, &r) in self.residual.iter().enumerate() {
            sums[i % width].add(1.0, r, self.noise[i], self.ulp[i]);
        }
        // So many tests at once: the probability of a false alarm is shared among them.
        (sums, lambda + (width as f64).ln())
    }
}

/// A test on many elements, ready to be made where there is no TapML: an output `y` passes if
/// `|Σ weight · (y − rounded)^power| ≤ limit`.
#[derive(Clone, Debug, PartialEq)]
pub struct SumTest {
    /// What it tells.
    pub criterion: Criterion,
    /// One for each element; 0 where the element is left out.
    pub weights: Vec<f64>,
    /// 1, or 2 for the sum of squares.
    pub power: u32,
    /// The limit.
    pub limit: f64,
}

/// What the sums over the residuals of one output may come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SumLimits {
    /// Of the residuals, each times the rounded exact value.
    pub scale: f64,
    /// Of the residuals.
    pub bias: f64,
    /// Of their squares.
    pub spread: f64,
    /// Of the residuals of each column; empty if there are too few rows.
    pub columns: Vec<f64>,
    /// Whether an element counts in these sums.
    pub counted: Vec<bool>,
}

impl SumLimits {
    /// Those of one output with these allowed errors.
    pub fn new(exact: &Exact, dtype: DType, allowed: &Allowed) -> SumLimits {
        let VerdictConstants { shared, lambda, .. } = VerdictConstants::DECIDING;
        let residual = Residual::new(exact, &allowed.rounded, dtype, allowed);
        let [scale, bias, squares] = residual.totals(shared);
        let counts = |i: usize| residual.ulp[i] > 0.0 && allowed.rounded[i].abs() >= 2.0 * dtype.min_normal();
        let (columns, of_columns) = residual.column_sums(lambda);
        SumLimits {
            scale: scale.limit(shared, lambda),
            bias: bias.limit(shared, lambda),
            spread: squares.limit(shared, lambda),
            columns: columns.iter().map(|sums| sums.limit(shared, of_columns)).collect(),
            counted: (0..allowed.rounded.len()).map(counts).collect(),
        }
    }
}

impl SumTest {
    /// The tests on the distribution of one output with these allowed errors.
    pub fn all(exact: &Exact, dtype: DType, allowed: &Allowed) -> Vec<SumTest> {
        let SumLimits { scale, bias, spread, columns, counted } = SumLimits::new(exact, dtype, allowed);
        let weights = |weight: &dyn Fn(usize) -> f64| {
            counted.iter().enumerate().map(|(i, &counts)| if counts { weight(i) } else { 0.0 }).collect()
        };
        let test = |criterion, weights, power, limit| SumTest { criterion, weights, power, limit };
        let mut tests = vec![
            test(Criterion::Scale, weights(&|i| allowed.rounded[i]), 1, scale),
            test(Criterion::Bias, weights(&|_| 1.0), 1, bias),
            test(Criterion::Spread, weights(&|_| 1.0), 2, spread),
        ];
        for (column, limit) in columns.iter().enumerate() {
            let of_column = |i: usize| f64::from(u8::from(i % columns.len() == column));
            tests.push(test(Criterion::Column, weights(&of_column), 1, *limit));
        }
        tests
    }
}
