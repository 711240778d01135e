//! Other policies of judging a node call, for comparison: what they would say of the same values.
//!
//! Numbers are those that the named projects use. None of these decides anything in TapML.

use tapml_graph::{DType, Tensor};
use tapml_migrate::verdict::Exact;

/// What a policy may look at.
pub struct PolicyValues<'a> {
    /// The results in f64.
    pub exact: &'a [Exact],
    /// What the source platform computed.
    pub reference: &'a [Tensor],
    /// What the device under test computed.
    pub observed: &'a [Tensor],
}

/// A policy: whether values are accepted.
pub struct Policy {
    /// Its name in tables.
    pub name: &'static str,
    /// Where it is used.
    pub used_by: &'static str,
    /// Whether it accepts one output: exact values, reference, observed, dtype.
    accepts: fn(&[f64], &[f64], &[f64], DType) -> bool,
}

impl Policy {
    /// Whether it accepts all outputs of a call.
    pub fn accepts(&self, values: &PolicyValues<'_>) -> bool {
        let outputs = values.exact.iter().zip(values.reference).zip(values.observed);
        outputs.into_iter().all(|((exact, reference), observed)| {
            let dtype = observed.dtype();
            (self.accepts)(&exact.values, &reference.to_f64(), &observed.to_f64(), dtype)
        })
    }
}

/// The policies that the verdict is compared with.
pub const POLICIES: &[Policy] = &[
    Policy {
        name: "rtol 1e-2, atol 1",
        used_by: "public TapML",
        accepts: |_, reference, observed, _| close(reference, observed, 1e-2, 1.0),
    },
    Policy {
        name: "rtol 1e-2, atol 1e-2",
        used_by: "BackendBench",
        accepts: |_, reference, observed, _| close(reference, observed, 1e-2, 1e-2),
    },
    Policy {
        name: "NMSE 1e-7",
        used_by: "ggml, most operators",
        accepts: |_, reference, observed, _| nmse(reference, observed) <= 1e-7,
    },
    Policy {
        name: "NMSE 5e-4",
        used_by: "ggml, matrix products",
        accepts: |_, reference, observed, _| nmse(reference, observed) <= 5e-4,
    },
    Policy {
        name: "cosine 0.99",
        used_by: "deployment tools",
        accepts: |_, reference, observed, _| cosine(reference, observed) >= 0.99,
    },
    Policy { name: "fp64 RMSE ratio", used_by: "PyTorch `same()`", accepts: rmse_ratio },
];

/// `|b - a| <= atol + rtol |a|` for each element, with NaN and infinities at the same places.
pub fn close(reference: &[f64], observed: &[f64], rtol: f64, atol: f64) -> bool {
    let near = |(&a, &b): (&f64, &f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (b - a).abs() <= atol + rtol * a.abs()
    };
    reference.iter().zip(observed).all(near)
}

/// Mean squared error over mean square, as `test-backend-ops` of ggml.
fn nmse(reference: &[f64], observed: &[f64]) -> f64 {
    let pairs = reference.iter().zip(observed);
    let error: f64 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
    let square: f64 = reference.iter().map(|a| a * a).sum();
    // NaN, which no bound accepts, stays.
    if error == 0.0 { 0.0 } else { error / square }
}

/// The cosine of the angle between two lists; equal lists have 1, also if they are zeros.
fn cosine(reference: &[f64], observed: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let norms = (dot(reference, reference) * dot(observed, observed)).sqrt();
    if reference == observed { 1.0 } else { dot(reference, observed) / norms }
}

/// `torch._dynamo.utils.same` with an fp64 reference: close with 1e-4, or the root mean square error against fp64 at most
/// 2 times (3 for 16-bit results) the reference's own plus a tenth of the tolerance.
fn rmse_ratio(exact: &[f64], reference: &[f64], observed: &[f64], dtype: DType) -> bool {
    const TOLERANCE: f64 = 1e-4;
    let rmse = |found: &[f64]| {
        let sum: f64 = exact.iter().zip(found).map(|(a, b)| (a - b) * (a - b)).sum();
        (sum / exact.len().max(1) as f64).sqrt()
    };
    let factor = if dtype == DType::F32 { 2.0 } else { 3.0 };
    close(reference, observed, TOLERANCE, TOLERANCE)
        || rmse(observed) <= factor * rmse(reference) + TOLERANCE / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(reference: &[f64], observed: &[f64]) -> Vec<bool> {
        POLICIES.iter().map(|p| (p.accepts)(reference, reference, observed, DType::F32)).collect()
    }

    #[test]
    fn policies_accept_what_they_say() {
        let reference: Vec<f64> = (1..=100).map(f64::from).collect();
        let scaled = |factor: f64| reference.iter().map(|v| v * factor).collect::<Vec<f64>>();
        assert_eq!(verdicts(&reference, &reference), [true; 6]);
        assert_eq!(verdicts(&reference, &scaled(1.0 + 1e-5)), [true, true, true, true, true, true]);
        assert_eq!(verdicts(&reference, &scaled(1.001)), [true, true, false, true, true, false]);
        assert_eq!(verdicts(&reference, &scaled(1.011)), [true, false, false, true, true, false]);
        assert_eq!(verdicts(&reference, &scaled(2.0)), [false, false, false, false, true, false]);
        assert_eq!(verdicts(&reference, &scaled(-1.0)), [false; 6]);
        let mut broken = reference.clone();
        broken[7] = f64::NAN;
        assert_eq!(verdicts(&reference, &broken), [false; 6]);
    }
}
