//! Verdicts on long sums of operators of PyTorch: in another order, of equal terms, and wrong by one of them.

use super::{AMPLITUDE, Allowed, COPIES, Criterion, Exact, Judgement, Precision, judge};
use serde_json::{Value as Json, json};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, Op, Tensor, TensorType};
use tapml_reference::foreign::{Disturbance, OwnEvaluator, evaluate, oracle, terms};

/// One call of an operator of PyTorch in f32.
struct Sample {
    op: Foreign,
    inputs: Vec<Tensor>,
    shape: Vec<usize>,
}

impl Sample {
    fn new(kind: &str, attributes: Json, inputs: Vec<Tensor>, shape: &[usize]) -> Sample {
        let attributes = attributes.as_object().unwrap().clone();
        let declared = vec![DeclaredType::As(TensorType::new(DType::F32, shape.iter().copied()))];
        let op = Foreign::new(kind, attributes, vec![true; inputs.len()], declared).unwrap();
        Sample { op, inputs, shape: shape.to_vec() }
    }

    /// What a verdict says of these results, of sums formed one after the other.
    fn judge(&self, observed: &[f32]) -> Judgement {
        let types: Vec<TensorType> =
            self.inputs.iter().map(|t| TensorType::new(t.dtype(), t.shape().iter().copied())).collect();
        let op = Op::Foreign(self.op.clone());
        let terms = usize::try_from(terms(&op, &types)).unwrap();
        let precision = Precision { accumulate: DType::F32, terms };
        let reach = Allowed::roundings(precision) * DType::F32.unit_roundoff();
        let disturbance = Disturbance { amplitude: AMPLITUDE, reach, copies: COPIES, seed: 1 };
        let is_weight = vec![false; self.inputs.len()];
        let found = oracle(&OwnEvaluator, &op, &self.inputs, &is_weight, disturbance).unwrap();
        let observed = Tensor::from_f32(self.shape.clone(), observed.to_vec()).unwrap();
        judge(&Exact::of_outputs(&found.found), &[observed], precision, None).unwrap()
    }
}

const TERMS: usize = 8192;

/// `rows` rows of numbers of either sign, all in 1..2 by their magnitude.
fn numbers(rows: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (1.0 + (state >> 9) as f32 / 8_388_608.0) * if state & 64 == 0 { 1.0 } else { -1.0 }
    };
    (0..rows * TERMS).map(|_| next()).collect()
}

/// The sum of all positive terms first, then of all negative ones, each rounded to f32.
fn sum_by_sign(terms: &[f32]) -> f32 {
    let of = |positive: bool| terms.iter().filter(move |term| (**term > 0.0) == positive);
    of(true).chain(of(false)).fold(0.0, |sum, term| sum + term)
}

/// Columns of a matrix beside which a row is one column of ones.
fn products(kind: &str, more: Vec<Tensor>, columns: usize) -> (Sample, Vec<Vec<f32>>) {
    let (a, b) = (numbers(1, 7), numbers(columns, 11));
    let column = |j: usize| (0..TERMS).map(|k| a[k] * b[k * columns + j]).collect();
    let terms = (0..columns).map(column).collect();
    let (row, matrix) = (vec![1, TERMS], vec![TERMS, columns]);
    let given = [Tensor::from_f32(row, a).unwrap(), Tensor::from_f32(matrix, b.clone()).unwrap()];
    let inputs = more.into_iter().chain(given).collect();
    (Sample::new(kind, json!({}), inputs, &[1, columns]), terms)
}

#[test]
fn a_product_may_add_its_terms_in_any_order() {
    const COLUMNS: usize = 32;
    let bias = Tensor::from_f32(vec![COLUMNS], vec![0.0; COLUMNS]).unwrap();
    for (kind, more) in [("aten.mm.default", vec![]), ("aten.addmm.default", vec![bias])] {
        let (sample, terms) = products(kind, more, COLUMNS);
        let right: Vec<f32> = terms.iter().map(|terms| sum_by_sign(terms)).collect();
        let judged = sample.judge(&right);
        assert!(judged.passes(), "{kind}: {judged:?}");
        // The last term of each sum is left out.
        let short: Vec<f32> = terms.iter().map(|terms| sum_by_sign(&terms[..TERMS - 1])).collect();
        let judged = sample.judge(&short);
        assert!(!judged.passes(), "{kind}: {judged:?}");
    }
}

#[test]
fn a_mean_of_equal_terms_may_round_them_alike() {
    let x = Tensor::from_f32(vec![1, TERMS], vec![1.375_327_2; TERMS]).unwrap();
    let sample = Sample::new("aten.mean.dim", json!({"dim": [1]}), vec![x.clone()], &[1]);
    let serial = evaluate(&sample.op, &[x]).unwrap()[0].to_f64()[0] as f32;
    assert!((f64::from(serial) - 1.375_327_2).abs() > 20.0 * 6e-8, "{serial}");
    assert!(sample.judge(&[serial]).passes());
    // One term more or less than the divisor counts.
    let wrong = serial * TERMS as f32 / (TERMS - 1) as f32;
    let judged = sample.judge(&[wrong]);
    assert!(!judged.passes() && judged.criterion == Criterion::Element, "{judged:?}");
}

/// `linear` has a product between two changes of shape; its allowance is that of the product.
#[test]
fn a_product_between_changes_of_shape_is_allowed_the_same() {
    const COLUMNS: usize = 32;
    let (a, b) = (numbers(1, 7), numbers(COLUMNS, 11));
    let terms: Vec<Vec<f32>> =
        b.chunks(TERMS).map(|row| row.iter().zip(&a).map(|(b, a)| a * b).collect()).collect();
    let x = Tensor::from_f32(vec![1, 1, TERMS], a).unwrap();
    let weight = Tensor::from_f32(vec![COLUMNS, TERMS], b).unwrap();
    let sample = Sample::new("aten.linear.default", json!({}), vec![x, weight], &[1, 1, COLUMNS]);
    let right: Vec<f32> = terms.iter().map(|terms| sum_by_sign(terms)).collect();
    let judged = sample.judge(&right);
    assert!(judged.passes(), "{judged:?}");
    let short: Vec<f32> = terms.iter().map(|terms| sum_by_sign(&terms[..TERMS - 1])).collect();
    assert!(!sample.judge(&short).passes());
}
