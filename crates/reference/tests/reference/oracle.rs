//! The oracle: exact values, sensitivity, and that stacking copies changes nothing.

use crate::common::{matrix, random, vector};
use tapml_graph::op::{Add, Append, Attention, Linear, Mul, OPS, RmsNorm};
use tapml_graph::{Op, Symbols, Tensor};
use tapml_reference::{Oracle, Value, eval, oracle};

const AMPLITUDE: f64 = 2.4e-7;

fn judge(op: impl Into<Op>, n: u64, inputs: &[Value<f64>], weights: &[bool], seed: u64) -> Oracle {
    oracle(&op.into(), &Symbols::np(n, 0), inputs, weights, AMPLITUDE, 8, seed).unwrap()
}

#[test]
fn exact_values_are_those_of_a_plain_evaluation() {
    for info in OPS {
        for sample in (info.samples)() {
            let tensors = sample.tensors(2).unwrap();
            let inputs: Vec<Value<f64>> = tensors.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
            let weights: Vec<bool> = (0..inputs.len()).map(|i| i > 0 && sample.op.row_wise()).collect();
            let judge = oracle(&sample.op, &sample.symbols, &inputs, &weights, AMPLITUDE, 3, 1).unwrap();
            let plain = eval(&sample.op, &sample.symbols, &inputs).unwrap();
            for ((exact, deviation), plain) in judge.exact.iter().zip(&judge.deviation).zip(&plain) {
                assert_eq!((exact.shape(), deviation.shape()), (plain.shape(), plain.shape()));
                let plain = match plain {
                    Value::Float(plain) => plain.values().to_vec(),
                    Value::Uint(plain) => plain.values().iter().map(|&id| f64::from(id)).collect(),
                };
                for (a, b) in exact.values().iter().zip(&plain) {
                    // Stacked rows may go through another kernel, which sums in another order.
                    assert!((a - b).abs() <= 1e-13 * b.abs().max(1.0), "{}: {a} {b}", info.name);
                }
            }
        }
    }
}

#[test]
fn deviation_of_a_product_is_close_to_the_amplitude() {
    let (a, b) = (random(1, 4000), random(2, 4000));
    let found = judge(Mul {}, 40, &[matrix(40, 100, &a), matrix(40, 100, &b)], &[false, true], 3);
    let ratio: Vec<f64> =
        found.deviation[0].values().iter().zip(found.exact[0].values()).map(|(d, y)| d / y.abs()).collect();
    assert!(ratio.iter().all(|&r| r <= 1.001 * AMPLITUDE));
    let mean = ratio.iter().sum::<f64>() / ratio.len() as f64;
    // The mean of the largest of eight uniform magnitudes is 8/9.
    assert!((mean / AMPLITUDE - 8.0 / 9.0).abs() < 0.01, "{mean}");
}

#[test]
fn cancellation_shows_in_the_deviation() {
    let found =
        judge(Add {}, 1, &[matrix(1, 2, &[1.0, 1.0]), matrix(1, 2, &[-1.0, 1e-9])], &[false, false], 1);
    assert_eq!(found.exact[0].values()[0], 0.0);
    assert!(found.deviation[0].values()[0] > 0.3 * AMPLITUDE);
}

#[test]
fn weights_and_copied_data_are_not_disturbed() {
    let (x, w) = (random(1, 6), random(2, 8));
    let found = judge(Linear::default(), 3, &[matrix(3, 2, &x), matrix(4, 2, &w)], &[true, true], 1);
    assert!(found.deviation[0].values().iter().all(|&d| d == 0.0));
    let found = judge(Append {}, 3, &[matrix(0, 2, &[]), matrix(3, 2, &x)], &[false, false], 1);
    assert!(found.deviation[0].values().iter().all(|&d| d == 0.0));
    let angles = (OPS.iter().find(|i| i.name == "rope_angles").unwrap().samples)().remove(1);
    let found = oracle(&angles.op, &angles.symbols, &[], &[], AMPLITUDE, 8, 1).unwrap();
    assert!(found.deviation[0].values().iter().any(|&d| d > 1e-5));
}

#[test]
fn stacked_rows_deviate_like_single_evaluations() {
    let (n, k) = (150, 24);
    let (x, w) = (random(4, n * k), random(5, k));
    let norm = RmsNorm::new(1e-5);
    let stacked = judge(norm.clone(), n as u64, &[matrix(n, k, &x), vector(&w)], &[false, true], 9);
    for row in [0, 77, 149] {
        let one = matrix(1, k, &x[row * k..(row + 1) * k]);
        let alone = judge(norm.clone(), 1, &[one, vector(&w)], &[false, true], 10 + row as u64);
        assert_eq!(&stacked.exact[0].values()[row * k..(row + 1) * k], alone.exact[0].values());
        let rms = |d: &[f64]| (d.iter().map(|v| v * v).sum::<f64>() / d.len() as f64).sqrt();
        let ratio =
            rms(&stacked.deviation[0].values()[row * k..(row + 1) * k]) / rms(alone.deviation[0].values());
        assert!((0.6..1.7).contains(&ratio), "row {row}: {ratio}");
    }
}

#[test]
fn the_seed_decides_and_non_finite_results_count() {
    let op = Attention::causal(1, 1, 2, 1.0);
    let inputs = [matrix(2, 2, &random(1, 4)), matrix(2, 2, &random(2, 4)), matrix(2, 2, &random(3, 4))];
    let run = |seed| judge(op.clone(), 2, &inputs, &[false; 3], seed).deviation[0].values().to_vec();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let edge = [matrix(1, 1, &[f64::MAX]), matrix(1, 1, &[1.0])];
    assert_eq!(judge(Mul {}, 1, &edge, &[false, true], 1).deviation[0].values(), [f64::INFINITY]);
    assert!(oracle(&Mul {}.into(), &Symbols::np(1, 0), &edge, &[false], AMPLITUDE, 8, 1).is_err());
}

/// Rounding to f16 moves a number below 2⁻¹⁴ by up to 2⁻²⁵, however small it is.
#[test]
fn roundings_within_a_fused_operator_have_one_size_below_the_normal_numbers() {
    let fusion = tapml_graph::fusion::find("moe_combine").unwrap();
    let sample = (fusion.samples)().remove(0);
    let tensors = sample.tensors(3).unwrap();
    let judged = |factor: f64| {
        let value = |(i, t): (usize, &Tensor)| {
            // Results of the experts and of the dense layer; not the weights and the gate beside them.
            let factor = if t.shape()[1] >= 64 { factor } else { 1.0 };
            let values = t.to_f64().iter().map(|v| v * factor).collect();
            assert!(i < 4);
            Value::float(t.shape().to_vec(), values).unwrap()
        };
        let inputs: Vec<Value<f64>> = tensors.iter().enumerate().map(value).collect();
        oracle(&sample.op, &sample.symbols, &inputs, &vec![false; inputs.len()], AMPLITUDE, 8, 1).unwrap()
    };
    let largest = |oracle: &Oracle| oracle.inner[0].values().iter().fold(0.0f64, |a, &b| a.max(b));
    let (tiny, tinier) = (largest(&judged(1e-6)), largest(&judged(1e-8)));
    let step = (-25f64).exp2();
    assert!(tiny > step && tiny < 3.0 * step, "{tiny}");
    assert!((tinier / tiny - 1.0).abs() < 0.05, "{tinier} {tiny}");
    // Zeros are exact.
    assert_eq!(largest(&judged(0.0)), 0.0);
}
