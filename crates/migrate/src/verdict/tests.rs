//! Verdicts on small made-up outputs; the study on real operators is `tests/verdicts.rs`.

use super::*;
use proptest::prelude::*;
use tapml_graph::op::{Route, Scores};
use tapml_graph::{DType, Symbols};
use tapml_reference::{Value, oracle};

const F32: Precision = Precision { accumulate: DType::F32, terms: 0 };

fn exact(values: Vec<f64>, row_len: usize) -> Exact {
    let deviation = values.iter().map(|v| v.abs() * AMPLITUDE * 0.8).collect();
    Exact { values, deviation, inner: Vec::new(), row_len, integers: None }
}

fn wave(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919) as f64 * 0.37).sin() * 2.0 + 0.01).collect()
}

fn verdict(exact: &Exact, dtype: DType, observed: &[f64]) -> Judgement {
    let tensor = Tensor::from_f64(dtype, vec![observed.len()], observed).unwrap();
    judge(std::slice::from_ref(exact), &[tensor], F32, None).unwrap()
}

#[test]
fn correct_rounding_passes_in_every_dtype_and_tiny_values_too() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for scale in [1.0, 1e-7, 3e-39] {
            let e = exact(wave(640).iter().map(|v| v * scale).collect(), 64);
            let v = verdict(&e, dtype, &e.values);
            assert!(v.passes(), "{dtype} {scale}: {v:?}");
        }
    }
}

#[test]
fn one_wrong_element_is_found_and_named() {
    let e = exact(wave(640), 64);
    let mut values = e.values.clone();
    values[130] *= 1.0 + 1e-4;
    let v = verdict(&e, DType::F32, &values);
    assert!(!v.passes());
    assert_eq!((v.criterion, v.worst.index), (Criterion::Element, 130));
    let pattern = v.pattern.unwrap();
    assert_eq!(
        (pattern.failed, pattern.columns.as_slice(), pattern.failing_rows.as_slice()),
        (1, &[2][..], &[2][..])
    );
}

#[test]
fn a_small_scale_error_hidden_by_bf16_is_found_in_the_distribution() {
    let e = exact(wave(29 * 320), 320);
    let values: Vec<f64> = e.values.iter().map(|v| v * 1.0005).collect();
    let v = verdict(&e, DType::BF16, &values);
    assert!(v.element_ratio < 1.2 && v.ratio > 3.0, "{v:?}");
    assert!((v.slope - 5e-4).abs() < 2e-4, "{}", v.slope);
}

#[test]
fn nan_and_infinity_must_be_where_the_oracle_has_them() {
    let mut e = exact(wave(64), 64);
    let mut values = e.values.clone();
    values[3] = f64::NAN;
    let v = verdict(&e, DType::F32, &values);
    assert_eq!((v.ratio, v.criterion), (f64::INFINITY, Criterion::NonFinite));
    e.values[3] = f64::NAN;
    assert!(verdict(&e, DType::F32, &values).passes());
    values[3] = 0.0;
    assert!(!verdict(&e, DType::F32, &values).passes());
    // 70000 overflows f16: infinity is right there and wrong in f32.
    let mut e = exact(wave(64), 64);
    e.values[5] = 70_000.0;
    let values = e.values.clone();
    assert!(verdict(&e, DType::F16, &values).passes());
    let mut values = values;
    values[5] = f64::INFINITY;
    assert!(!verdict(&e, DType::F32, &values).passes());
    values[5] = f64::NEG_INFINITY;
    assert!(!verdict(&e, DType::F16, &values).passes());
}

#[test]
fn what_only_moves_data_gets_no_room() {
    let values: Vec<f64> = wave(64).iter().map(|&v| f64::from(v as f32)).collect();
    let e = Exact { deviation: vec![0.0; 64], values, inner: Vec::new(), row_len: 64, integers: None };
    assert!(verdict(&e, DType::F32, &e.values).passes());
    let mut moved = e.values.clone();
    moved[7] = f64::from((moved[7] as f32).next_up().next_up());
    assert!(!verdict(&e, DType::F32, &moved).passes());
}

#[test]
fn a_faulty_source_is_reported_and_excuses_nothing() {
    let e = exact(wave(640), 64);
    let wrong: Vec<f64> = e.values.iter().map(|v| v * 1.01).collect();
    let tensor = Tensor::from_f64(DType::F32, vec![640], &wrong).unwrap();
    let tensors = [tensor];
    let v = judge(std::slice::from_ref(&e), &tensors, F32, Some((&tensors, F32))).unwrap();
    assert!(!v.passes());
    assert!(v.source_ratio.unwrap() > 100.0);
}

proptest! {
    /// Correct values with a few roundings of f32 in them, rounded to any dtype, at any magnitude and shape, pass; one
    /// element far beyond its rounding does not.
    #[test]
    fn roundings_pass_and_a_wrong_element_fails(
        seed: u64, rows in 1usize..12, width in 1usize..40, exponent in -12i32..4, dtype in 0usize..3,
    ) {
        let dtype = [DType::F32, DType::F16, DType::BF16][dtype];
        let mut random = fastrand::Rng::with_seed(seed);
        let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let scale = 10f64.powi(exponent);
        let values: Vec<f64> = (0..rows * width).map(|_| normal() * scale * normal().exp()).collect();
        let deviation = values.iter().map(|v| v.abs() * AMPLITUDE * (0.1 + 0.1 * normal().abs())).collect();
        let exact = Exact { values, deviation, inner: Vec::new(), row_len: width, integers: None };
        let noise = DType::F32.unit_roundoff();
        let mut observed: Vec<f64> = exact.values.iter().map(|v| v * (1.0 + noise * normal())).collect();
        let verdict_of_right = verdict(&exact, dtype, &observed);
        prop_assert!(verdict_of_right.passes(), "{dtype}: {verdict_of_right:?}");
        let at = random.usize(..observed.len());
        let rms = (exact.values.iter().map(|v| v * v).sum::<f64>() / exact.values.len() as f64).sqrt();
        let largest = exact.values.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        observed[at] += 400.0 * dtype.unit_roundoff() * (largest + rms).max(2.0 * dtype.min_normal());
        let verdict_of_wrong = verdict(&exact, dtype, &observed);
        prop_assert!(!verdict_of_wrong.passes(), "{dtype}: {verdict_of_wrong:?}");
    }
}

/// The verdict on these experts and weights, for one row of logits with biases, in f32.
fn judge_route(op: &Route, logits: &[f32], bias: &[f32], experts: &[u32], weights: &[f32]) -> Judgement {
    let (count, k) = (logits.len(), experts.len());
    let logits = Tensor::from_f32(vec![1, count], logits.to_vec()).unwrap();
    let bias = Tensor::from_f32(vec![count], bias.to_vec()).unwrap();
    let inputs = [&logits, &bias].map(|t| Value::from_tensor(t).unwrap());
    let symbols = Symbols::np(1, 0);
    let found = oracle(&op.clone().into(), &symbols, &inputs, &[false, true], AMPLITUDE, COPIES, 1).unwrap();
    let exact: Vec<Exact> = found
        .exact
        .iter()
        .zip(&found.deviation)
        .map(|(e, d)| Exact {
            values: e.values().to_vec(),
            deviation: d.values().to_vec(),
            inner: Vec::new(),
            row_len: k,
            integers: None,
        })
        .collect();
    let experts = Tensor::from_u32(vec![1, k], experts.to_vec()).unwrap();
    let weights = Tensor::from_f32(vec![1, k], weights.to_vec()).unwrap();
    judge(&exact, &[experts, weights], F32, None).unwrap()
}

fn sigmoid(l: f32) -> f32 {
    1.0 / (1.0 + (-l).exp())
}

const SIGMOID: Route = Route { k: 2, scores: Scores::Sigmoid, normalize: false, scale: 1.0, groups: None };

#[test]
fn a_choice_that_rounding_decides_passes_either_way() {
    // Sums with the bias that differ by less than a rounding: expert 1 wins in f64, either may win in f32.
    let logits = [0.5, 0.25, 2.0, -3.0];
    let gap = sigmoid(0.5) - sigmoid(0.25);
    let bias = [0.0, gap + 2e-8, 0.0, 0.0];
    let exact = f64::from(sigmoid(0.25)) + f64::from(bias[1]) - f64::from(sigmoid(0.5));
    assert!(exact.abs() < 1e-7, "{exact}");
    let [a, b, best] = [0.5, 0.25, 2.0].map(sigmoid);
    for (expert, weight) in [(0, a), (1, b)] {
        let v = judge_route(&SIGMOID, &logits, &bias, &[2, expert], &[best, weight]);
        assert!(v.passes() && v.undecided == 1, "{expert}: {v:?}");
    }
    // What is decided stays decided in the same row, and the weight must be that of one of both.
    let v = judge_route(&SIGMOID, &logits, &bias, &[3, 1], &[best, b]);
    assert_eq!((v.passes(), v.criterion, v.worst.output), (false, Criterion::Choice, 0));
    let v = judge_route(&SIGMOID, &logits, &bias, &[2, 1], &[best, 0.1]);
    assert!(!v.passes() && v.worst.output == 1, "{v:?}");
}

#[test]
fn a_wrong_choice_is_found_however_near_it_is_beyond_rounding() {
    let bias = [0.0; 4];
    // A thousandth apart, which no rounding of f32 explains.
    let logits = [1.0, 1.001, 2.0, -3.0];
    let [a, b, best] = [1.0, 1.001, 2.0].map(sigmoid);
    let v = judge_route(&SIGMOID, &logits, &bias, &[2, 1], &[best, b]);
    assert!(v.passes() && v.undecided == 0, "{v:?}");
    let v = judge_route(&SIGMOID, &logits, &bias, &[2, 0], &[best, a]);
    assert_eq!((v.passes(), v.criterion), (false, Criterion::Choice));
    assert!(v.ratio > 100.0 && v.ratio.is_finite(), "{v:?}");
    assert_eq!((v.worst.exact, v.worst.observed, v.worst.index), (1.0, 0.0, 1));
    // The right experts in the wrong order are a wrong choice too.
    let v = judge_route(&SIGMOID, &logits, &bias, &[1, 2], &[b, best]);
    assert_eq!(v.pattern.unwrap().failed, 2);
    // Of exact ties the lower index comes first.
    let (logits, half) = ([0.0, 0.0, 0.0, -3.0], sigmoid(0.0));
    assert!(judge_route(&SIGMOID, &logits, &bias, &[0, 1], &[half, half]).passes());
    assert!(!judge_route(&SIGMOID, &logits, &bias, &[0, 2], &[half, half]).passes());
}

#[test]
fn indices_without_a_choice_must_be_equal() {
    let e = Exact {
        values: vec![3.0, 7.0],
        deviation: vec![0.0; 2],
        inner: Vec::new(),
        row_len: 1,
        integers: None,
    };
    let verdict = |indices: Vec<u32>| {
        let tensor = Tensor::from_u32(vec![2], indices).unwrap();
        judge(std::slice::from_ref(&e), &[tensor], F32, None).unwrap()
    };
    assert!(verdict(vec![3, 7]).passes());
    let v = verdict(vec![3, 8]);
    assert_eq!((v.ratio, v.criterion, v.worst.index), (f64::INFINITY, Criterion::Choice, 1));
}
