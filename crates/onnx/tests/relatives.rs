//! Operators of ONNX Runtime (`com.microsoft`), for which ONNX has no tests: each is what its plain operators give.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, Tensor};

fn array(shape: &[usize], seed: usize) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|i: usize| ((i * 7919 + seed * 31) % 101) as f64 / 25.0 - 2.0)
        .collect();
    Tensor::from_f64(DType::F64, shape.to_vec(), &values).unwrap()
}

fn run(kind: &str, attributes: Value, inputs: &[Option<&Tensor>], outputs: usize) -> Vec<Tensor> {
    let attributes = attributes.as_object().cloned().unwrap_or_default();
    let inputs: Vec<Option<Tensor>> = inputs.iter().map(|input| input.cloned()).collect();
    let places = inputs.iter().map(Option::is_some).collect();
    let op = Foreign::new(kind, attributes, places, vec![DeclaredType::Unknown; outputs]).unwrap();
    tapml_onnx::evaluate(&op, &inputs, true).unwrap().into_iter().map(Option::unwrap).collect()
}

fn eval_one(kind: &str, attributes: Value, inputs: &[&Tensor]) -> Tensor {
    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|&input| Some(input)).collect();
    run(kind, attributes, &inputs, 1).remove(0)
}

#[track_caller]
fn assert_same(a: &Tensor, b: &Tensor) {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in a.to_f64().into_iter().zip(b.to_f64()) {
        assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{a} for {b}");
    }
}

#[test]
fn skipping_norms_are_sums_and_norms() {
    let (x, skip) = (array(&[2, 3, 8], 1), array(&[2, 3, 8], 2));
    let [gamma, beta, bias] = [3, 4, 5].map(|seed| array(&[8], seed));
    let sum = eval_one("onnx.Add@14", json!({}), &[&eval_one("onnx.Add@14", json!({}), &[&x, &skip]), &bias]);
    let epsilon = json!({"epsilon": 1e-6});
    let inputs = [&x, &skip, &gamma, &beta, &bias].map(Some);
    let given = run("com.microsoft.SkipLayerNormalization@1", epsilon.clone(), &inputs, 4);
    let plain = run("onnx.LayerNormalization@17", epsilon.clone(), &[&sum, &gamma, &beta].map(Some), 3);
    (0..3).for_each(|at| assert_same(&given[at], &plain[at]));
    assert_same(&given[3], &sum);
    let inputs = [&x, &skip, &gamma, &bias].map(Some);
    let given = run("com.microsoft.SkipSimplifiedLayerNormalization@1", epsilon.clone(), &inputs, 4);
    let plain = eval_one("onnx.RMSNormalization@23", epsilon.clone(), &[&sum, &gamma]);
    assert_same(&given[0], &plain);
    assert_same(&given[3], &sum);
    let simplified = run("onnx.SimplifiedLayerNormalization@1", epsilon, &[&sum, &gamma].map(Some), 2);
    assert_same(&simplified[0], &plain);
    assert_same(&simplified[1], &given[2]);
}

#[test]
fn fused_products_are_transposed_products() {
    let (a, b) = (array(&[2, 4, 3], 1), array(&[5, 4], 2));
    let turned = |x: &Tensor, order: &[usize]| eval_one("onnx.Transpose@13", json!({"perm": order}), &[x]);
    let plain = eval_one("onnx.MatMul@13", json!({}), &[&turned(&a, &[0, 2, 1]), &turned(&b, &[1, 0])]);
    let twice = eval_one("onnx.Add@14", json!({}), &[&plain, &plain]);
    let attributes = json!({"alpha": 2.0, "transA": 1, "transB": 1});
    assert_same(&eval_one("com.microsoft.FusedMatMul@1", attributes, &[&a, &b]), &twice);
}

/// Values by Python's `math`, to 15 digits.
#[test]
fn relatives_of_gelu_have_the_values_of_their_definitions() {
    let (x, bias) = (Tensor::from_f64(DType::F64, vec![2], &[0.5, -2.0]).unwrap(), array(&[2], 3));
    let sum = eval_one("onnx.Add@14", json!({}), &[&x, &bias]);
    let values = |of: [f64; 2]| Tensor::from_f64(DType::F64, vec![2], &of).unwrap();
    let exact = values([0.345731230637007, -0.0455002638963584]);
    assert_same(&eval_one("onnx.Gelu@20", json!({}), &[&x]), &exact);
    assert_same(&eval_one("com.microsoft.Gelu@1", json!({}), &[&x]), &exact);
    let by_tanh = values([0.345714009825144, -0.0454023059122249]);
    assert_same(&eval_one("onnx.Gelu@20", json!({"approximate": "tanh"}), &[&x]), &by_tanh);
    assert_same(&eval_one("com.microsoft.FastGelu@1", json!({}), &[&x]), &by_tanh);
    assert_same(
        &eval_one("com.microsoft.QuickGelu@1", json!({}), &[&x]),
        &values([0.35038843660638, -0.0643413768557919]),
    );
    assert_same(
        &eval_one("com.microsoft.BiasGelu@1", json!({}), &[&x, &bias]),
        &eval_one("onnx.Gelu@20", json!({}), &[&sum]),
    );
    let tanh = eval_one("onnx.Gelu@20", json!({"approximate": "tanh"}), &[&sum]);
    assert_same(&eval_one("com.microsoft.FastGelu@1", json!({}), &[&x, &bias]), &tanh);
}

/// Of 1, 2, 3, 4: twice as many, each twice; six tenths of them, the nearest above.
#[test]
fn the_first_resize_takes_the_nearest_above_in_smaller_results() {
    let x = Tensor::from_f64(DType::F64, vec![4], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    for (scale, expected) in [(2.0, vec![1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]), (0.6, vec![1.0, 3.0])] {
        let scales = Tensor::from_f64(DType::F32, vec![1], &[scale]).unwrap();
        assert_eq!(eval_one("onnx.Resize@10", json!({}), &[&x, &scales]).to_f64(), expected);
    }
}

/// Of an image 0, 1, before its border: a cubic through the numbers that its border continues.
#[test]
fn cubic_samples_read_the_border_on() {
    let x = Tensor::from_f64(DType::F64, vec![1, 1, 1, 2], &[0.0, 1.0]).unwrap();
    // At −0.75 the neighbours are 0, 0, 0, 1; Keys' weight of the last, 1.75 away, with a = −0.75.
    let grid = Tensor::from_f64(DType::F64, vec![1, 1, 1, 2], &[-1.25, 0.0]).unwrap();
    let attributes = json!({"mode": "cubic", "padding_mode": "border"});
    let y = eval_one("onnx.GridSample@20", attributes, &[&x, &grid]).to_f64();
    assert!((y[0] + 0.03515625).abs() < 1e-12, "{y:?}");
}
