//! Kernels as people write them by hand, right and wrong ones: what is near is not stated as the cause, sums of all terms one
//! after the other are told as such, and where weights and activations explain the same, both are named.
#![allow(clippy::unwrap_used)]

mod common;

use common::kernels::{Bug, linear};
use common::{Case, args, brief, samples};
use tapml_cause::{Cause, Explanation};
use tapml_exec::Call;
use tapml_graph::op::Linear;
use tapml_graph::{DType, Dim, Op, Symbol, Symbols, Tensor, TensorType};
use tapml_migrate::verdict::Precision;

/// Terms of a sum as long as those of small trained models.
const TERMS: usize = 768;
/// Terms at the end of each sum that are all alike, whose roundings add up instead of cancelling.
const ALIKE: usize = 128;

/// A product of matrices whose kernel declares a tree: runs of 32, and then the runs.
fn product(rows: usize, outputs: usize) -> Case {
    let mut random = fastrand::Rng::with_seed(11);
    let mut matrix = |rows: usize, spread: f64| {
        let mut values = Vec::new();
        for row in 0..rows {
            let last = 0.4 + 0.11 * row as f64 / rows as f64;
            values.extend((0..TERMS - ALIKE).map(|_| 0.4 + spread * random.f64()));
            values.extend([last; ALIKE]);
        }
        Tensor::from_f64(DType::F32, vec![rows, TERMS], &values).unwrap()
    };
    let inputs = vec![matrix(rows, 0.3), matrix(outputs, 0.2)];
    let types = [
        TensorType::new(DType::F32, [Dim::from(Symbol::N), Dim::from(TERMS)]),
        TensorType::new(DType::F32, [outputs, TERMS]),
    ];
    let call = Call {
        node: "down_proj".into(),
        op: Linear::default().into(),
        symbols: Symbols::np(rows as u64, 0),
        inputs,
        output_types: vec![TensorType::new(DType::F32, [Dim::from(Symbol::N), Dim::from(outputs)])],
        input_types: types.to_vec(),
        weights: vec![None, Some("down_proj.weight".into())],
    };
    let mut case = Case::new("product".into(), call);
    case.precision = Precision { accumulate: DType::F32, terms: 32 + TERMS.div_ceil(32) };
    case
}

/// The products summed in this order.
fn sum_products(case: &Case, sum: impl Fn(&mut dyn Iterator<Item = f32>) -> f32) -> Vec<Tensor> {
    let (_, inputs) = args(case);
    let rows = inputs[0].chunks(TERMS);
    let outputs = || inputs[1].chunks(TERMS);
    let dot = |x: &[f32], w: &[f32]| sum(&mut x.iter().zip(w).map(|(x, w)| x * w));
    let values: Vec<f32> =
        rows.flat_map(|x| outputs().map(move |w| (x, w))).map(|(x, w)| dot(x, w)).collect();
    vec![Tensor::from_f32(case.correct[0].shape().to_vec(), values).unwrap()]
}

#[test]
fn a_plain_serial_sum_is_a_long_sum_that_the_file_may_declare() {
    let mut case = product(8, 24);
    let serial = sum_products(&case, |terms| terms.fold(0.0, |a, b| a + b));
    let ratio = case.judge(&serial).ratio;
    assert!(ratio > 1.0 && ratio < 4.0, "a little beyond what a tree errs: {ratio}");
    let said = case.explain(serial.clone());
    assert!(said.cause == Cause::LongSum && !said.certain, "{}", brief(&said));
    assert!(said.evidence.contains("// accumulate: f32 serial"), "{}", said.evidence);
    assert!(said.evidence.contains("768 terms"), "{}", said.evidence);
    case.precision.terms = TERMS;
    assert!(!case.fails(&serial), "declared so it is right");
}

#[test]
fn a_serial_sum_that_leaves_a_term_out_is_no_long_sum() {
    let case = product(8, 24);
    let short = sum_products(&case, |terms| terms.skip(1).fold(0.0, |a, b| a + b));
    let said = case.explain(short);
    assert!(said.cause != Cause::LongSum, "{}", brief(&said));
}

/// A term that is left out of a sum is one of the activations or of the weights.
#[test]
fn where_weights_and_activations_explain_the_same_both_are_named() {
    for bug in [Bug::LastDropped, Bug::FirstSkipped] {
        let short = of_linear(|_, inputs, k| {
            linear(&inputs[0], &inputs[1], inputs.get(2).map(Vec::as_slice), k, bug)
        });
        for (case, said) in &short {
            assert!([Cause::TailDropped, Cause::OffByOne].contains(&said.cause), "{}", brief(said));
            let both = said.evidence.contains("input 0") && said.evidence.contains("input 1");
            assert!(both, "{}: {}", case.name, said.evidence);
        }
    }
}

/// Every sample of `linear` with f32 results, with these outputs.
fn of_linear(outputs: impl Fn(&Case, &[Vec<f32>], usize) -> Vec<f32>) -> Vec<(Case, Explanation)> {
    let mut said = Vec::new();
    for case in samples() {
        let (op, inputs) = args(&case);
        if !matches!(op, Op::Linear(_)) || case.correct[0].dtype() != DType::F32 {
            continue;
        }
        let values = outputs(&case, &inputs, case.call.inputs[1].shape()[1]);
        let like = &case.correct[0];
        let outputs = vec![Tensor::from_f32(like.shape().to_vec(), values).unwrap()];
        if case.fails(&outputs) && like.len() >= 64 {
            let explained = case.explain(outputs);
            said.push((case, explained));
        }
    }
    assert!(said.len() >= 3, "{} samples", said.len());
    said
}

#[test]
fn sums_in_16_bits_are_named_by_results_that_are_numbers_of_16_bits() {
    let sums = of_linear(|_, inputs, k| {
        linear(&inputs[0], &inputs[1], inputs.get(2).map(Vec::as_slice), k, Bug::F16Sum)
    });
    let named = sums.iter().filter(|(_, said)| said.cause == Cause::F16Accumulation).count();
    let all: Vec<String> =
        sums.iter().map(|(case, said)| format!("{}: {}", case.name, brief(said))).collect();
    assert!(named * 10 >= sums.len() * 8, "{named} of {}: {all:#?}", sums.len());
}

#[test]
fn errors_of_that_size_from_elsewhere_are_unknown_with_the_nearest_candidate_named() {
    let poor = of_linear(|case, _, _| {
        let mut random = fastrand::Rng::with_seed(5);
        // A little wrong in every element, as a poor approximation makes it.
        let mut wrong = |v: &f32| v * (1.0 + 3e-3 * (random.f32() - 0.5));
        case.correct[0].to_f32().iter().map(&mut wrong).collect()
    });
    for (case, said) in &poor {
        assert_eq!(said.cause, Cause::Unknown, "{}: {}", case.name, brief(said));
        assert!(said.evidence.contains("nearest"), "{}", said.evidence);
        assert!(said.fit < 0.6 && !said.certain, "{}", brief(said));
    }
}

#[test]
fn wrong_elements_of_a_sum_are_not_said_to_be_an_index_that_is_off() {
    let unrelated = of_linear(|case, _, _| {
        let mut random = fastrand::Rng::with_seed(9);
        case.correct[0].to_f32().iter().map(|_| random.f32() - 0.5).collect()
    });
    for (case, said) in &unrelated {
        assert_eq!(said.cause, Cause::Unknown, "{}: {}", case.name, brief(said));
        assert!(said.evidence.contains("the nearest candidate"), "{}", said.evidence);
        assert!(said.tested.iter().all(|t| t.fit < 0.6), "{}", brief(said));
    }
}
