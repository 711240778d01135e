//! Shared by the tests: random values and naive loops to compare with.

use proptest::test_runner::{RngAlgorithm, TestRng};
use tapml_graph::{Op, Symbols};
use tapml_reference::{Real, Value, eval};

/// Reproducible numbers in −1..1.
pub fn random(seed: u8, count: usize) -> Vec<f64> {
    use proptest::prelude::Rng;
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    (0..count).map(|_| rng.next_u32() as f64 / 2f64.powi(31) - 1.0).collect()
}

/// A matrix of the given numbers.
pub fn matrix<T: Real>(rows: usize, columns: usize, values: &[f64]) -> Value<T> {
    Value::float(vec![rows, columns], values.iter().map(|&v| T::from_f64(v)).collect()).unwrap()
}

/// A vector of the given numbers.
pub fn vector<T: Real>(values: &[f64]) -> Value<T> {
    Value::float(vec![values.len()], values.iter().map(|&v| T::from_f64(v)).collect()).unwrap()
}

/// The numbers of a value as `f64`.
pub fn numbers<T: Real>(value: &Value<T>) -> Vec<f64> {
    value.as_float().unwrap().values().iter().map(|v| v.to_f64()).collect()
}

/// The only output of an operator.
pub fn run<T: Real>(op: impl Into<Op>, symbols: &Symbols, inputs: &[Value<T>]) -> Value<T> {
    let mut outputs = eval(&op.into(), symbols, inputs).unwrap();
    assert_eq!(outputs.len(), 1);
    outputs.remove(0)
}

/// Fails unless `|found − expected| ≤ bound` everywhere.
pub fn assert_close(found: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= bound, "element {i}: {found}, expected {expected} ± {bound}");
    }
}
