//! Norms and element-wise operators against their formulas, and their refusals.

use crate::common::{assert_close, matrix, numbers, random, run, vector};
use tapml_graph::op::{
    Activation, Add, Broadcast, Clamp, Gelu, GeluForm, LayerNorm, Lerp, Mul, PositionForm, PositionScale,
    Relu, ReluSquared, RmsNorm, Scale, Sigmoid, Silu, Softcap, Softplus, Tanh,
};
use tapml_graph::{DType, ErrorKind, Op, Symbols, TensorType};
use tapml_reference::Value;

#[test]
fn norm_of_a_constant_row_is_its_sign_times_the_weight() {
    let inputs = [matrix::<f64>(2, 3, &[5.0, 5.0, 5.0, -0.5, -0.5, -0.5]), vector(&[1.0, 2.0, 3.0])];
    let found = numbers(&run(RmsNorm::new(0.0), &Symbols::np(2, 0), &inputs));
    assert_close(&found, &[1.0, 2.0, 3.0, -1.0, -2.0, -3.0], 1e-15);
}

#[test]
fn norms_of_groups_are_norms_of_their_parts() {
    let (n, heads, d) = (3, 4, 5);
    let x = random(1, n * heads * d);
    let (shared, own, bias) = (random(2, d), random(3, heads * d), random(4, heads * d));
    let symbols = Symbols::np(n as u64, 0);
    let one = Symbols::np(1, 0);
    let (rms, layer) = (
        RmsNorm { eps: 1e-3, offset: 1.0, group: Some(d as u32) },
        LayerNorm { group: Some(d as u32), ..LayerNorm::new(1e-3) },
    );
    let whole = matrix::<f64>(n, heads * d, &x);
    let parts = |alone: &dyn Fn(&[f64], usize) -> Value<f64>| -> Vec<f64> {
        x.chunks(d).enumerate().flat_map(|(run, part)| numbers(&alone(part, run % heads))).collect()
    };
    let head = |values: &[f64], h: usize| vector::<f64>(&values[h * d..(h + 1) * d]);
    let found = numbers(&run(rms.clone(), &symbols, &[whole.clone(), vector(&shared)]));
    let alone = RmsNorm { group: None, ..rms.clone() };
    assert_eq!(found, parts(&|x, _| run(alone.clone(), &one, &[matrix(1, d, x), vector(&shared)])));
    let expected = parts(&|x, h| run(alone.clone(), &one, &[matrix(1, d, x), head(&own, h)]));
    for weight in [vector(&own), matrix(heads, d, &own)] {
        assert_eq!(numbers(&run(rms.clone(), &symbols, &[whole.clone(), weight])), expected);
    }
    let alone = LayerNorm::new(1e-3);
    let inputs = [whole, vector(&shared), matrix(heads, d, &bias)];
    let normed = |x: &[f64], h| [matrix(1, d, x), vector(&shared), head(&bias, h)];
    for count in 1..=3 {
        let found = numbers(&run(layer.clone(), &symbols, &inputs[..count]));
        assert_eq!(found, parts(&|x, h| run(alone.clone(), &one, &normed(x, h)[..count])));
    }
}

#[test]
fn an_offset_shifts_the_weight_and_a_missing_weight_is_one() {
    let x = matrix::<f64>(2, 3, &random(1, 6));
    let symbols = Symbols::np(2, 0);
    let ones = run(RmsNorm::new(1e-5), &symbols, &[x.clone(), vector(&[1.0; 3])]);
    assert_eq!(numbers(&run(RmsNorm::new(1e-5), &symbols, std::slice::from_ref(&x))), numbers(&ones));
    let shifted = RmsNorm { offset: 1.0, ..RmsNorm::new(1e-5) };
    let zeros = [x.clone(), vector(&[0.0; 3])];
    assert_eq!(numbers(&run(shifted.clone(), &symbols, &zeros)), numbers(&ones));
    let ty = |columns: u64| TensorType::new(DType::F32, [2, columns]);
    assert!(Op::from(shifted).infer(&[ty(3)]).unwrap_err().to_string().contains("`offset` 1"));
    for (columns, group) in [(3, 2), (3, 0)] {
        let op = Op::from(LayerNorm { group: Some(group), ..LayerNorm::new(1e-5) });
        assert!(op.infer(&[ty(columns)]).unwrap_err().to_string().contains("`group`"), "{group}");
    }
    let op = Op::from(LayerNorm { group: Some(2), ..LayerNorm::new(1e-5) });
    let error = op.infer(&[ty(6), TensorType::new(DType::F32, [2u64, 3])]).unwrap_err().to_string();
    assert!(error.contains("[2], [6] or [3,2], found f32[2,3]"), "{error}");
}

#[test]
fn silu_has_its_known_values_and_limits() {
    let inputs = [matrix::<f64>(1, 4, &[0.0, 1.0, -1000.0, 1000.0])];
    let found = numbers(&run(Silu {}, &Symbols::np(1, 0), &inputs));
    assert_close(&found, &[0.0, 0.731_058_578_630_004_9, 0.0, 1000.0], 1e-15);
}

#[test]
fn activations_have_their_known_values_and_limits() {
    let inputs = [matrix::<f64>(1, 5, &[0.0, 1.0, -2.0, -1000.0, 1000.0])];
    let found = |op: Op| numbers(&run(op, &Symbols::np(1, 0), &inputs));
    let (e, f) = (1f64.exp(), 2f64.exp());
    assert_eq!(found(Relu {}.into()), [0.0, 1.0, 0.0, 0.0, 1000.0]);
    assert_eq!(found(ReluSquared {}.into()), [0.0, 1.0, 0.0, 0.0, 1e6]);
    assert_close(&found(Sigmoid {}.into()), &[0.5, e / (1.0 + e), 1.0 / (1.0 + f), 0.0, 1.0], 1e-15);
    let (a, b) = ((e * e - 1.0) / (e * e + 1.0), (f * f - 1.0) / (f * f + 1.0));
    assert_close(&found(Tanh {}.into()), &[0.0, a, -b, -1.0, 1.0], 1e-15);
    let softplus = [2f64.ln(), (1.0 + e).ln(), (1.0 + 1.0 / f).ln(), 0.0, 1000.0];
    assert_close(&found(Softplus {}.into()), &softplus, 1e-15);
    assert_eq!(found(Scale { factor: -0.5 }.into()), [0.0, -0.5, 1.0, 500.0, -500.0]);
    assert_close(&found(Softcap { cap: 2.0 }.into())[2..], &[-2.0 * a, -2.0, 2.0], 1e-15);
    assert_eq!(found(Clamp { min: Some(-3.0), max: Some(0.5) }.into()), [0.0, 0.5, -2.0, -3.0, 0.5]);
    assert_eq!(found(Clamp { min: Some(-3.0), max: None }.into()), [0.0, 1.0, -2.0, -3.0, 1000.0]);
    for op in [
        Clamp::default().into(),
        Clamp { min: Some(1.0), max: Some(0.0) }.into(),
        Softcap { cap: 0.0 }.into(),
    ] {
        let op: Op = op;
        assert_eq!(
            op.infer(&[TensorType::new(DType::F32, [1u64, 5])]).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
}

#[test]
fn activations_keep_nan() {
    let nan = [matrix::<f32>(1, 1, &[f64::NAN])];
    let bounds = Clamp { min: Some(-1.0), max: Some(1.0) };
    let ops =
        Activation::ALL.map(Activation::op).into_iter().chain([bounds.into(), Softcap { cap: 1.0 }.into()]);
    for op in ops {
        assert!(numbers(&run(op.clone(), &Symbols::np(1, 0), &nan))[0].is_nan(), "{op:?}");
    }
}

#[test]
fn layer_norm_is_the_formula_and_ignores_a_shift_of_the_row() {
    let x = [1.0, 2.0, 3.0, 6.0];
    let (weight, bias) = ([1.0, 2.0, -1.0, 0.5], [0.0, 10.0, 0.25, -1.0]);
    // Mean 3, variance 14/4.
    let expected: Vec<f64> =
        (0..4).map(|j| (x[j] - 3.0) / (3.5f64 + 0.5).sqrt() * weight[j] + bias[j]).collect();
    let rows: Vec<f64> = x.iter().copied().chain(x.map(|v| v + 1000.0)).collect();
    let inputs = [matrix::<f64>(2, 4, &rows), vector(&weight), vector(&bias)];
    let found = numbers(&run(LayerNorm::new(0.5), &Symbols::np(2, 0), &inputs));
    assert_close(&found, &[expected.clone(), expected.clone()].concat(), 1e-12);
    let plain = numbers(&run(LayerNorm::new(0.5), &Symbols::np(2, 0), &inputs[..2]));
    let without: Vec<f64> = expected.iter().zip(bias).map(|(y, b)| y - b).collect();
    assert_close(&plain, &[without.clone(), without].concat(), 1e-12);
}

#[test]
fn gelu_has_its_known_values_and_limits() {
    let inputs = [matrix::<f64>(1, 6, &[0.0, 1.0, -1.0, -10.0, -1e30, 1e30])];
    let gelu = |approximate| numbers(&run(Gelu { approximate }, &Symbols::np(1, 0), &inputs));
    let exact = gelu(GeluForm::None);
    let at_ten = -7.619_853_024_160_495e-23;
    assert_close(
        &exact,
        &[0.0, 0.841_344_746_068_542_9, -0.158_655_253_931_457_05, at_ten, 0.0, 1e30],
        1e-15,
    );
    assert!((exact[3] / at_ten - 1.0).abs() < 1e-12, "{}", exact[3]);
    let tanh = gelu(GeluForm::Tanh);
    let z = (2.0 / std::f64::consts::PI).sqrt() * 1.044715;
    assert_close(&tanh[..3], &[0.0, 0.5 + 0.5 * z.tanh(), -0.5 + 0.5 * z.tanh()], 1e-15);
    assert!(tanh[3] < 0.0 && tanh[3] > -1e-30, "{}", tanh[3]);
    assert_eq!(tanh[4..], [0.0, 1e30]);
    let quick = gelu(GeluForm::Quick);
    let logistic = 1.0 / (1.0 + (-1.702f64).exp());
    assert_close(&quick[..3], &[0.0, logistic, logistic - 1.0], 1e-15);
    assert_eq!(quick[4..], [0.0, 1e30]);
}

#[test]
fn second_operands_stretch_to_the_first() {
    let a = matrix::<f64>(2, 3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let apply = |op: Op, b: Value<f64>| numbers(&run(op, &Symbols::np(2, 0), &[a.clone(), b]));
    let (row, column) = (vector(&[1.0, 0.5, 2.0]), matrix(2, 1, &[10.0, -1.0]));
    assert_eq!(apply(Add {}.into(), row.clone()), [2.0, 2.5, 5.0, 5.0, 5.5, 8.0]);
    assert_eq!(apply(Mul {}.into(), row), [1.0, 1.0, 6.0, 4.0, 2.5, 12.0]);
    assert_eq!(apply(Add {}.into(), column.clone()), [11.0, 12.0, 13.0, 3.0, 4.0, 5.0]);
    assert_eq!(apply(Mul {}.into(), column), [10.0, 20.0, 30.0, -4.0, -5.0, -6.0]);
    let ty = |dtype, shape: &[u64]| TensorType::new(dtype, shape.iter().copied());
    let of = |b| Broadcast::from_types(&ty(DType::F16, &[2, 3]), &b);
    assert_eq!(of(ty(DType::F16, &[2, 3])).unwrap(), Broadcast::Whole);
    assert_eq!(of(ty(DType::BF16, &[3])).unwrap(), Broadcast::Row);
    assert_eq!(of(ty(DType::F16, &[2, 1])).unwrap(), Broadcast::Column);
    for b in [ty(DType::F32, &[2, 3]), ty(DType::F32, &[2, 1]), ty(DType::F16, &[2]), ty(DType::F16, &[1, 3])]
    {
        let error = of(b).unwrap_err().to_string();
        assert!(error.contains("f16[2,3], a float vector of 3 or f16[2,1], found"), "{error}");
    }
}

#[test]
fn lerp_is_between_its_ends() {
    let (a, b) = (matrix::<f64>(2, 2, &[1.0, 2.0, 3.0, 4.0]), matrix(2, 2, &[5.0, 2.0, -1.0, 8.0]));
    let lerp = |t| numbers(&run(Lerp {}, &Symbols::np(2, 0), &[a.clone(), b.clone(), t]));
    assert_eq!(lerp(vector(&[0.5, 1.0])), [3.0, 2.0, 1.0, 8.0]);
    assert_eq!(lerp(matrix(2, 2, &[0.0, 0.5, 1.0, 0.25])), [1.0, 2.0, -1.0, 5.0]);
}

#[test]
fn positions_scale_rows_as_published() {
    let x = matrix::<f64>(4, 1, &[1.0, 2.0, 1.0, -1.0]);
    let scaled =
        |form, p| numbers(&run(PositionScale { form }, &Symbols::np(4, p), std::slice::from_ref(&x)));
    // floor((t + 1) / 4) is 1, 1, 2, 2 for t = 5, 6, 7, 8.
    let (one, two) = (1.0 + 0.1f32 as f64 * 2f64.ln(), 1.0 + 0.1f32 as f64 * 3f64.ln());
    let llama4 = PositionForm::Llama4 { beta: 0.1, floor: 4, shift: 1 };
    assert_close(&scaled(llama4, 5), &[one, 2.0 * one, two, -two], 1e-15);
    let ministral = PositionForm::Llama4 { beta: 0.1, floor: 4, shift: 0 };
    assert_close(&scaled(ministral, 5), &[one, 2.0 * one, one, -two], 1e-15);
    let log = |t: f64| (t + 1.0).ln() / 8f64.ln();
    assert_close(&scaled(PositionForm::LogN { train: 8 }, 6), &[1.0, 2.0, log(8.0), -log(9.0)], 1e-15);
    for form in [PositionForm::LogN { train: 1 }, PositionForm::Llama4 { beta: 0.1, floor: 0, shift: 0 }] {
        let op = Op::from(PositionScale { form });
        assert!(op.infer(&[TensorType::new(DType::F32, [4u64, 1])]).is_err(), "{form:?}");
    }
}
