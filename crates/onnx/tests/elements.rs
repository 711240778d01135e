//! What ONNX's own tests leave open: earlier versions, numbers at the edges of their dtypes, NaN, truths, nothing at all.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, Result, Tensor};

fn run(kind: &str, attributes: Value, inputs: &[Tensor], wide: bool) -> Result<Tensor> {
    let attributes = attributes.as_object().cloned().unwrap_or_default();
    let op = Foreign::new(kind, attributes, vec![true; inputs.len()], vec![DeclaredType::Unknown])?;
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    Ok(tapml_onnx::evaluate(&op, &inputs, wide)?.remove(0).unwrap())
}

fn floats(values: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, vec![values.len()], values).unwrap()
}

fn ints(dtype: DType, values: &[i64]) -> Tensor {
    Tensor::from_i64(dtype, vec![values.len()], values).unwrap()
}

/// The elements that are expected of a call, in both precisions; NaN is the same as NaN.
fn expect(kind: &str, attributes: Value, inputs: &[Tensor], dtype: DType, expected: &[f64]) {
    for wide in [false, true] {
        let result = run(kind, attributes.clone(), inputs, wide).unwrap();
        let stored = if wide && dtype.is_float() { DType::F64 } else { dtype };
        assert_eq!(result.dtype(), stored, "{kind}");
        let (found, text) = (result.to_f64(), format!("{kind} {attributes}: {:?}", result.to_f64()));
        let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(same), "{text}");
    }
}

fn refuse(kind: &str, attributes: Value, inputs: &[Tensor], told: &str) {
    let error = run(kind, attributes, inputs, false).unwrap_err().to_string();
    assert!(error.contains(told), "{kind}: {error}");
}

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

#[test]
fn integers_wrap_in_their_width() {
    let bytes = |values: &[i64]| ints(DType::I8, values);
    expect("onnx.Mul@14", json!({}), &[bytes(&[100, -128]), bytes(&[3, -1])], DType::I8, &[44.0, -128.0]);
    expect("onnx.Sub@14", json!({}), &[bytes(&[-128]), bytes(&[1])], DType::I8, &[127.0]);
    expect("onnx.Neg@13", json!({}), &[bytes(&[-128, 5])], DType::I8, &[-128.0, -5.0]);
    expect(
        "onnx.Div@14",
        json!({}),
        &[bytes(&[-7, 7, -128]), bytes(&[2, -2, -1])],
        DType::I8,
        &[-3.0, -3.0, -128.0],
    );
    expect("onnx.Mod@13", json!({}), &[bytes(&[-7, 7]), bytes(&[3, -3])], DType::I8, &[2.0, -2.0]);
    expect(
        "onnx.Pow@15",
        json!({}),
        &[bytes(&[2, -1, 1, 3]), bytes(&[8, -3, -9, -1])],
        DType::I8,
        &[0.0, -1.0, 1.0, 0.0],
    );
    let huge = ints(DType::U64, &[i64::MAX]);
    let square = run("onnx.Mul@14", json!({}), &[huge.clone(), huge], false).unwrap();
    assert_eq!(square.bytes().as_ref(), 1u64.to_le_bytes(), "(2⁶³ − 1)² = 1 modulo 2⁶⁴");
    for kind in ["onnx.Div@14", "onnx.Mod@13"] {
        refuse(kind, json!({}), &[bytes(&[1]), bytes(&[0])], "divided by zero");
    }
    refuse("onnx.Pow@15", json!({}), &[bytes(&[0]), bytes(&[-1])], "negative power");
}

#[test]
fn nan_stays_where_the_standard_keeps_it() {
    let x = || floats(&[NAN, -1.0, 3.0]);
    expect("onnx.Max@13", json!({}), &[x(), floats(&[0.0, NAN, 1.0])], DType::F32, &[NAN, NAN, 3.0]);
    expect("onnx.Min@13", json!({}), &[floats(&[0.0, NAN, 1.0]), x()], DType::F32, &[NAN, NAN, 1.0]);
    expect("onnx.ReduceMax@13", json!({}), &[x()], DType::F32, &[NAN]);
    expect("onnx.Clip@6", json!({"min": 0.0, "max": 2.0}), &[x()], DType::F32, &[NAN, 0.0, 2.0]);
    expect("onnx.HardSigmoid@6", json!({"alpha": 1.0, "beta": 0.0}), &[x()], DType::F32, &[NAN, 0.0, 1.0]);
    expect("onnx.Sign@13", json!({}), &[x()], DType::F32, &[NAN, -1.0, 1.0]);
    expect("onnx.ThresholdedRelu@10", json!({}), &[x()], DType::F32, &[NAN, 0.0, 3.0]);
    expect("onnx.ArgMax@13", json!({"axis": 0}), &[floats(&[1.0, NAN, 3.0, NAN])], DType::I64, &[1.0]);
    expect("onnx.Equal@13", json!({}), &[x(), x()], DType::Bool, &[0.0, 1.0, 1.0]);
    expect("onnx.Cast@13", json!({"to": 9}), &[x()], DType::Bool, &[1.0, 1.0, 1.0]);
}

#[test]
fn conversions_round_once_and_saturate() {
    let x = floats(&[2.7, -2.7, 1e20, -1e20, NAN]);
    expect(
        "onnx.Cast@13",
        json!({"to": 6}),
        &[x],
        DType::I32,
        &[2.0, -2.0, 2147483647.0, -2147483648.0, 0.0],
    );
    expect("onnx.Cast@5", json!({"to": "INT8"}), &[ints(DType::I64, &[257, -1])], DType::I8, &[1.0, -1.0]);
    // 2⁵³ + 2²⁹ + 1 lies just above the middle of two floats; rounded to f64 first, it would lie in the middle.
    let odd = ints(DType::I64, &[(1 << 53) + (1 << 29) + 1]);
    let single = run("onnx.Cast@13", json!({"to": 1}), &[odd], false).unwrap();
    assert_eq!(single.to_f64(), [(1u64 << 53) as f64 + (1u64 << 30) as f64]);
    let bits = ints(DType::I32, &[0x3f80_0000, -1]);
    expect("onnx.BitCast@26", json!({"to": 1}), &[bits], DType::F32, &[1.0, NAN]);
    // The oracle is given every float as f64.
    let wide = Tensor::from_f64(DType::F64, vec![1], &[1.0]).unwrap();
    let bits = run("onnx.BitCast@26", json!({"to": 6}), &[wide], true).unwrap();
    assert_eq!((bits.dtype(), bits.to_f64()), (DType::I32, vec![f64::from(0x3f80_0000)]));
    let (scale, zero) = (floats(&[0.5]), ints(DType::U8, &[3]));
    let x = floats(&[0.25, 0.75, 1e9, -1e9]);
    expect("onnx.QuantizeLinear@13", json!({}), &[x, scale, zero], DType::U8, &[3.0, 5.0, 255.0, 0.0]);
    expect("onnx.Round@11", json!({}), &[floats(&[0.5, 1.5, -2.5])], DType::F32, &[0.0, 2.0, -2.0]);
}

#[test]
fn sums_of_nothing_have_their_neutral_value() {
    let none = || Tensor::from_f32(vec![2, 0], Vec::new()).unwrap();
    for (kind, value) in [
        ("onnx.ReduceSum@11", 0.0),
        ("onnx.ReduceProd@13", 1.0),
        ("onnx.ReduceL1@13", 0.0),
        ("onnx.ReduceL2@13", 0.0),
        ("onnx.ReduceLogSumExp@13", -INF),
        ("onnx.ReduceMax@13", -INF),
        ("onnx.ReduceMin@13", INF),
    ] {
        expect(kind, json!({"axes": [1]}), &[none()], DType::F32, &[value; 2]);
    }
    let x = floats(&[-INF, -INF]);
    expect("onnx.ReduceLogSumExp@13", json!({}), &[x], DType::F32, &[-INF]);
    expect("onnx.ReduceLogSumExp@13", json!({}), &[floats(&[1000.0, -INF])], DType::F32, &[1000.0]);
    let best = Tensor::from_f32(vec![0], Vec::new()).unwrap();
    refuse("onnx.ArgMin@13", json!({}), &[best], "no elements");
}

#[test]
fn earlier_versions_have_their_own_forms() {
    let grid = || Tensor::from_f64(DType::F32, vec![2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let old = json!({"broadcast": 1, "axis": 0});
    expect(
        "onnx.Mul@6",
        old,
        &[grid(), floats(&[1.0, 10.0])],
        DType::F32,
        &[1.0, 2.0, 3.0, 40.0, 50.0, 60.0],
    );
    expect(
        "onnx.Slice@1",
        json!({"starts": [1], "ends": [9], "axes": [1]}),
        &[grid()],
        DType::F32,
        &[2.0, 3.0, 5.0, 6.0],
    );
    expect("onnx.Squeeze@11", json!({"axes": [0]}), &[floats(&[7.0])], DType::F32, &[7.0]);
    expect(
        "onnx.Pad@2",
        json!({"pads": [1, 1], "value": 9.0}),
        &[floats(&[7.0])],
        DType::F32,
        &[9.0, 7.0, 9.0],
    );
    expect("onnx.TopK@9", json!({"k": 2}), &[floats(&[1.0, 3.0, 3.0])], DType::F32, &[3.0, 3.0]);
    expect("onnx.ReduceSum@11", json!({"axes": [-1]}), &[grid()], DType::F32, &[6.0, 15.0]);
    expect("onnx.Dropout@6", json!({"is_test": 1}), &[floats(&[7.0])], DType::F32, &[7.0]);
    refuse("onnx.Dropout@6", json!({}), &[floats(&[7.0])], "random");
    refuse("onnx.RandomNormalLike@1", json!({}), &[grid()], "random");
}

#[test]
fn what_does_not_fit_is_refused() {
    let x = || floats(&[1.0, 2.0, 3.0]);
    let list = |values: &[i64]| ints(DType::I64, values);
    refuse("onnx.Gather@13", json!({}), &[x(), list(&[3])], "index 3");
    refuse("onnx.GatherElements@13", json!({}), &[x(), list(&[i64::MIN])], "index");
    refuse("onnx.Slice@13", json!({}), &[x(), list(&[0]), list(&[1]), list(&[0]), list(&[0])], "steps of 0");
    refuse("onnx.Slice@13", json!({}), &[x(), list(&[0, 0]), list(&[1, 1]), list(&[0, -1])], "twice");
    refuse("onnx.Concat@13", json!({"axis": 0}), &[x(), list(&[1])], "cannot join");
    refuse("onnx.Split@13", json!({}), &[x(), list(&[2])], "parts");
    refuse("onnx.Pad@13", json!({}), &[x(), list(&[-2, -2])], "padding");
    refuse("onnx.Pad@13", json!({}), &[x(), list(&[1 << 40, 0])], "pads");
    refuse("onnx.Expand@13", json!({}), &[x(), list(&[1 << 30, 3])], "2^31");
    refuse("onnx.ConstantOfShape@9", json!({}), &[list(&[1 << 20, 1 << 20])], "2^31");
    refuse("onnx.Tile@13", json!({}), &[x(), list(&[i64::MAX])], "2^31");
    refuse("onnx.Range@11", json!({}), &[list(&[0]), list(&[1 << 40]), list(&[1])], "2^31");
    refuse("onnx.Range@11", json!({}), &[list(&[0]), list(&[1]), list(&[0])], "steps of 0");
    refuse("onnx.ScatterElements@18", json!({}), &[x(), list(&[0]), list(&[1])], "updates");
    refuse("onnx.TopK@11", json!({}), &[x(), list(&[4])], "first 4");
    refuse("onnx.Cast@13", json!({"to": 8}), &[x()], "element type 8");
    refuse("onnx.Where@16", json!({}), &[ints(DType::Bool, &[1]), x(), list(&[1])], "choice");
    refuse("onnx.Compress@11", json!({}), &[x(), ints(DType::Bool, &[0, 0, 0, 1])], "condition 3");
    refuse("onnx.Det@22", json!({}), &[x()], "square");
}
