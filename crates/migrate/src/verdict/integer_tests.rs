//! Verdicts on integers of operators of others: at ties and near them, indices, conversions.

use super::{AMPLITUDE, Allowed, COPIES, Exact, Precision, judge};
use serde_json::{Value as Json, json};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Bytes, DType, Tensor, TensorType};
use tapml_reference::foreign::{Disturbance, OwnEvaluator, oracle};

const F32: Precision = Precision { accumulate: DType::F32, terms: 1 };

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_f32(vec![values.len()], values.to_vec()).unwrap()
}

fn scalar(dtype: DType, value: f64) -> Tensor {
    Tensor::from_f64(dtype, vec![], &[value]).unwrap()
}

fn integer(dtype: DType, value: i64) -> Tensor {
    Tensor::from_i64(dtype, vec![], &[value]).unwrap()
}

/// The exact outputs of an operator that gives these dtypes and sizes.
fn exact(kind: &str, attributes: Json, inputs: &[Tensor], outputs: &[(DType, &[usize])]) -> Vec<Exact> {
    let attributes = attributes.as_object().unwrap().clone().into_iter().collect();
    let declare =
        |(dtype, shape): &(DType, &[usize])| DeclaredType::As(TensorType::new(*dtype, shape.iter().copied()));
    let declared = outputs.iter().map(declare).collect();
    let op = Foreign::new(kind, attributes, vec![true; inputs.len()], declared).unwrap();
    let reach = Allowed::roundings(F32) * DType::F32.unit_roundoff();
    let disturbance = Disturbance { amplitude: AMPLITUDE, reach, copies: COPIES, seed: 1 };
    let is_weight = vec![false; inputs.len()];
    let found =
        oracle(&OwnEvaluator, &tapml_graph::Op::Foreign(op), inputs, &is_weight, disturbance).unwrap();
    let mut exact = Exact::of_outputs(&found.found);
    exact.iter_mut().zip(found.integers).for_each(|(exact, integers)| exact.integers = integers);
    exact
}

fn passes(exact: &Exact, dtype: DType, observed: &[i64]) -> bool {
    let tensor = Tensor::from_i64(dtype, vec![observed.len()], observed).unwrap();
    judge(std::slice::from_ref(exact), &[tensor], F32, None).unwrap().passes()
}

#[test]
fn a_tie_of_recorded_numbers_has_one_right_integer() {
    let inputs = [floats(&[0.5, 1.5, -2.5, 300.0]), scalar(DType::F32, 1.0), integer(DType::U8, 3)];
    let exact = exact("onnx.QuantizeLinear@13", json!({}), &inputs, &[(DType::U8, &[4])]);
    assert_eq!(exact[0].values, [3.0, 5.0, 1.0, 255.0]);
    assert!(passes(&exact[0], DType::U8, &[3, 5, 1, 255]));
    for wrong in [[4, 5, 1, 255], [3, 4, 1, 255], [3, 5, 0, 255], [3, 5, 1, 254]] {
        assert!(!passes(&exact[0], DType::U8, &wrong), "{wrong:?}");
    }
}

/// A quotient one rounding away from a tie may be rounded to either side of it, and no further.
#[test]
fn beside_a_tie_both_neighbours_are_right() {
    let above = f32::from_bits(2.5f32.to_bits() + 1);
    let inputs = [floats(&[above, 2.51]), scalar(DType::F32, 1.0), integer(DType::I8, -1)];
    let exact = exact("onnx.QuantizeLinear@19", json!({}), &inputs, &[(DType::I8, &[2])]);
    for (first, right) in [(0, false), (1, true), (2, true), (3, false)] {
        assert_eq!(passes(&exact[0], DType::I8, &[first, 2]), right, "{first}");
    }
    assert!(!passes(&exact[0], DType::I8, &[2, 1]), "2.51 is no tie");
}

/// The quotient of two f16 may be formed in f16, where more numbers fall on a tie.
#[test]
fn coarse_inputs_widen_what_is_near() {
    let at = |dtype: DType| {
        let x = Tensor::from_f64(dtype, vec![1], &[100.4375]).unwrap();
        let inputs = [x, scalar(dtype, 1.0), integer(DType::U8, 0)];
        exact("onnx.QuantizeLinear@19", json!({}), &inputs, &[(DType::U8, &[1])]).remove(0)
    };
    assert!(passes(&at(DType::F16), DType::U8, &[101]));
    assert!(!passes(&at(DType::F32), DType::U8, &[101]));
    assert!(!passes(&at(DType::F16), DType::U8, &[102]));
}

#[test]
fn a_zero_point_near_a_tie_moves_all_by_one_step() {
    // 255 / 2 = 127.5: the zero point may be 127 or 128.
    let inputs = [floats(&[-1.0, 0.0, 0.3, 1.0])];
    let outputs: [(DType, &[usize]); 3] = [(DType::U8, &[4]), (DType::F32, &[]), (DType::U8, &[])];
    let exact = exact("onnx.DynamicQuantizeLinear@11", json!({}), &inputs, &outputs);
    for (y, right) in [([0, 128, 166, 255], true), ([0, 127, 165, 255], true), ([0, 130, 166, 255], false)] {
        assert_eq!(passes(&exact[0], DType::U8, &y), right, "{y:?}");
    }
    for (zero, right) in [(126, false), (127, true), (128, true), (129, false)] {
        let tensor = integer(DType::U8, zero);
        assert_eq!(judge(&exact[2..], &[tensor], F32, None).unwrap().passes(), right, "{zero}");
    }
}

#[test]
fn a_conversion_is_exact_and_open_where_the_standard_has_no_rule() {
    let inputs = [floats(&[2.5, -2.999_999_8, f32::NAN, 3e9, 7.0])];
    let exact = exact("onnx.Cast@13", json!({"to": 6}), &inputs, &[(DType::I32, &[5])]);
    assert!(passes(&exact[0], DType::I32, &[2, -2, 0, i64::from(i32::MAX), 7]));
    assert!(passes(&exact[0], DType::I32, &[2, -2, i64::from(i32::MIN), i64::from(i32::MIN), 7]));
    for wrong in [[3, -2, 0, 0, 7], [2, -3, 0, 0, 7], [2, -2, 0, 0, 8]] {
        assert!(!passes(&exact[0], DType::I32, &wrong), "{wrong:?}");
    }
}

/// The greatest of recorded numbers is known; sums of integers are exact, however large.
#[test]
fn indices_and_sums_of_integers_are_the_exact_ones() {
    let above = f32::from_bits(1.0f32.to_bits() + 1);
    let inputs = [floats(&[1.0, above, 1.0])];
    let greatest = exact("onnx.ArgMax@13", json!({"axis": 0}), &inputs, &[(DType::I64, &[1])]);
    assert!(passes(&greatest[0], DType::I64, &[1]));
    assert!(!passes(&greatest[0], DType::I64, &[0]));
    let many: Vec<u8> = [1i64 << 40, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
    let many = Tensor::new(DType::I64, vec![2], Bytes::new(many)).unwrap();
    let sums = exact("onnx.Sum@13", json!({}), &[many.clone(), many], &[(DType::I64, &[2])]);
    assert!(passes(&sums[0], DType::I64, &[1 << 41, 6]));
    assert!(!passes(&sums[0], DType::I64, &[(1 << 41) + 1, 6]));
}

/// Where nobody knows what is rounded, right is what a disturbed evaluation gives: `2³` in floats may be just below 8.
#[test]
fn integers_of_unknown_origin_are_those_that_disturbed_evaluations_reach() {
    let bases = Tensor::from_i64(DType::I32, vec![2], &[2, 1]).unwrap();
    let exact = exact("onnx.Pow@15", json!({}), &[bases, floats(&[3.0, 9.0])], &[(DType::I32, &[2])]);
    assert_eq!(exact[0].values, [8.0, 1.0]);
    assert!(passes(&exact[0], DType::I32, &[8, 1]));
    assert!(passes(&exact[0], DType::I32, &[7, 1]));
    for wrong in [[6, 1], [9, 1], [8, 0], [700, 1]] {
        assert!(!passes(&exact[0], DType::I32, &wrong), "{wrong:?}");
    }
}
