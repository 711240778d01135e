//! What judges an output where there is no TapML and no oracle: exact values, allowed errors and limits of sums, computed ahead of
//! time. Whoever has it only compares, as `web/src/site/verdict.ts` does; a test here compares such a comparison with the verdict.

use super::bound::Allowed;
use super::distribution::SumLimits;
use super::exact::{Exact, Precision};
use tapml_graph::{DType, Tensor};

/// The yardstick of one output. All lists but the columns' limits have an entry for each element.
#[derive(Clone, Debug, PartialEq)]
pub struct Yardstick {
    /// Dtype of the output.
    pub dtype: DType,
    /// Elements of a row.
    pub row_len: usize,
    /// Whether the values are indices, which are right or wrong.
    pub indices: bool,
    /// The exact values.
    pub exact: Vec<f64>,
    /// The allowed errors, rounded up to f32.
    pub allowed: Vec<f32>,
    /// The exact values rounded to the dtype; NaN for elements that do not count in sums.
    pub rounded: Vec<f32>,
    /// What sums over the residuals may come to.
    pub limits: SumLimits,
}

impl Yardstick {
    /// That of an output that is computed in this precision; `source` is what the source gave.
    pub fn new(exact: &Exact, precision: Precision, source: &Tensor) -> Yardstick {
        let dtype = source.dtype();
        let allowed = Allowed::new(exact, dtype, precision, Some(&source.to_f64()));
        let limits = SumLimits::new(exact, dtype, &allowed);
        let counted = allowed.rounded.iter().zip(&limits.counted);
        Yardstick {
            dtype,
            row_len: exact.row_len.max(1),
            indices: allowed.indices(),
            exact: exact.values.clone(),
            allowed: (0..exact.values.len()).map(|i| round_up(allowed.allowed_at(i))).collect(),
            // Floats of outputs have no more digits than f32.
            rounded: counted.map(|(&y, &counts)| if counts { y as f32 } else { f32::NAN }).collect(),
            limits,
        }
    }
}

/// The nearest number in f32 that is not less.
fn round_up(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) < value { near.next_up() } else { near }
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::*;
    use std::slice::from_ref;

    impl Yardstick {
        /// What `judge` of `web/src/site/verdict.ts` finds: observed over allowed, the largest of the elements and of the sums.
        fn ratio(&self, observed: &[f64]) -> f64 {
            let elements = observed.iter().enumerate().map(|(i, &y)| self.element_ratio(i, y));
            let worst = elements.fold(0.0, f64::max);
            if self.indices || worst.is_infinite() {
                return worst;
            }
            let columns = self.limits.columns.len();
            let (mut scale, mut bias, mut squares, mut column) = (0.0, 0.0, 0.0, vec![0.0; columns]);
            for (i, (&y, &rounded)) in observed.iter().zip(&self.rounded).enumerate() {
                let (r, rounded) = (y - f64::from(rounded), f64::from(rounded));
                if rounded.is_nan() || !y.is_finite() {
                    continue;
                }
                (scale, bias, squares) = (scale + rounded * r, bias + r, squares + r * r);
                if columns > 0 {
                    column[i % columns] += r;
                }
            }
            let over =
                |sum: f64, limit: f64| if sum != 0.0 && limit.is_finite() { sum.abs() / limit } else { 0.0 };
            let of_columns = column.iter().zip(&self.limits.columns).map(|(&sum, &limit)| over(sum, limit));
            let sums = [
                over(scale, self.limits.scale),
                over(bias, self.limits.bias),
                over(squares, self.limits.spread).sqrt(),
            ];
            of_columns.chain(sums).fold(worst, f64::max)
        }

        /// Observed over allowed of an element; see [`Allowed::ratio`].
        fn element_ratio(&self, i: usize, observed: f64) -> f64 {
            let (exact, allowed) = (self.exact[i], f64::from(self.allowed[i]));
            if observed == exact {
                return 0.0;
            }
            if self.indices {
                return allowed.recip();
            }
            let rounded =
                if exact.abs() >= overflow_edge(self.dtype) { exact.signum() * f64::INFINITY } else { exact };
            let error = (observed - exact).abs();
            if !observed.is_finite() || !rounded.is_finite() {
                let same = observed == rounded || (observed.is_nan() && rounded.is_nan());
                let edge = exact.is_finite() && observed.is_finite() && error <= allowed;
                let reached = observed.is_infinite()
                    && rounded.is_finite()
                    && (rounded * observed.signum() + allowed).is_infinite();
                return if same || edge || reached { 0.0 } else { f64::INFINITY };
            }
            // Nothing is known of what is allowed where disturbed results are not finite.
            if allowed.is_nan() { 0.0 } else { error / allowed }
        }
    }

    /// Numbers from here on are rounded to infinity: halfway between the largest finite number and the next one.
    fn overflow_edge(dtype: DType) -> f64 {
        match dtype {
            DType::F16 => 65_520.0,
            _ => f64::from(f32::MAX) * (1.0 + dtype.unit_roundoff() / 2.0),
        }
    }

    /// A made-up output of so many columns, computed in f32.
    fn exact(count: usize, row_len: usize) -> Exact {
        let values: Vec<f64> = (0..count).map(|i| ((i * 7919) as f64 * 0.37).sin() * 2.0 + 0.01).collect();
        let deviation = values.iter().map(|v| v.abs() * 1e-7).collect();
        Exact { values, deviation, inner: Vec::new(), row_len, integers: None }
    }

    #[test]
    fn it_says_what_a_verdict_says() {
        let precision = Precision { accumulate: DType::F32, terms: 16 };
        for dtype in [DType::F32, DType::F16] {
            let exact = exact(6 * 40, 40);
            let right = Tensor::from_f64(dtype, vec![6 * 40], &exact.values).unwrap();
            let yardstick = Yardstick::new(&exact, precision, &right);
            let changes: [&dyn Fn(usize, f64) -> f64; 7] = [
                &|_, y| y,
                &|_, y| y * 1.0005,
                &|_, y| y + 1e-5,
                &|i, y| if i == 77 { y * 1.1 } else { y },
                &|i, y| if i % 40 == 3 { y + 1e-3 } else { y },
                &|i, y| if i == 5 { f64::NAN } else { y },
                &|i, y| if i == 5 { f64::INFINITY } else { y },
            ];
            for (at, change) in changes.iter().enumerate() {
                let values: Vec<f64> = exact.values.iter().enumerate().map(|(i, &y)| change(i, y)).collect();
                let observed = Tensor::from_f64(dtype, vec![6 * 40], &values).unwrap();
                let source = Some((from_ref(&right), precision));
                let judged = judge(from_ref(&exact), from_ref(&observed), precision, source).unwrap();
                let found = yardstick.ratio(&observed.to_f64());
                let near = found == judged.ratio || (found / judged.ratio - 1.0).abs() < 1e-6;
                assert!(near, "{dtype} change {at}: {found} against {}", judged.ratio);
                assert_eq!(found > 1.0, at > 0, "{dtype} {at} {found}");
            }
        }
    }
}
