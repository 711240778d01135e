//! Operators of others: a platform that ignores an attribute or an input, or reads its inputs otherwise, is told by what it does
//! and by when it shows.
#![allow(clippy::unwrap_used)]

use tapml_cause::{Cause, Earlier, Evidence, Explanation, explain_foreign};
use tapml_exec::Call;
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, Op, Symbols, Tensor};
use tapml_migrate::verdict::Precision;
use tapml_migrate::{Oracles, tensor_type};
use tapml_reference::foreign::evaluate;

/// An operator of this kind with these attributes and inputs, run in `f32`.
fn run(kind: &str, attributes: &serde_json::Value, inputs: &[Option<Tensor>]) -> (Foreign, Vec<Tensor>) {
    let places = inputs.iter().map(Option::is_some).collect();
    let op = Foreign::new(kind, attributes.as_object().unwrap().clone(), places, vec![DeclaredType::Unknown])
        .unwrap();
    let given: Vec<Tensor> = inputs.iter().flatten().cloned().collect();
    let outputs = evaluate(&op, &given).unwrap();
    let declared = outputs.iter().map(|output| DeclaredType::As(tensor_type(output))).collect();
    (op.with_outputs(declared).unwrap(), outputs)
}

/// What is said of a platform that gives `observed` in each of its repeats.
fn explain_case(
    kind: &str,
    attributes: serde_json::Value,
    inputs: &[Option<Tensor>],
    observed: &[Vec<Tensor>],
    earlier: Option<(&Call, &[Tensor])>,
) -> Explanation {
    let call = call(kind, &attributes, inputs);
    let oracles = Oracles::new(0);
    let exact = oracles.exact(&call, 1).unwrap();
    let precision = Precision { accumulate: DType::F32, terms: tapml_migrate::terms(&call) };
    let earlier =
        earlier.map(|(call, recorded)| Earlier { name: "before", call, observed: &[], recorded, made: true });
    let earlier: Vec<Earlier<'_>> = earlier.into_iter().collect();
    let evidence = Evidence {
        call: &call,
        exact: &exact,
        observed,
        precision,
        earlier: &earlier,
        findings: &[],
        after: None,
    };
    explain_foreign(&evidence, &oracles).unwrap()
}

fn call(kind: &str, attributes: &serde_json::Value, inputs: &[Option<Tensor>]) -> Call {
    let (op, outputs) = run(kind, attributes, inputs);
    let inputs: Vec<Tensor> = inputs.iter().flatten().cloned().collect();
    Call {
        node: "it".into(),
        op: Op::Foreign(op),
        symbols: Symbols::default(),
        input_types: inputs.iter().map(tensor_type).collect(),
        weights: vec![None; inputs.len()],
        inputs,
        output_types: outputs.iter().map(tensor_type).collect(),
    }
}

fn floats(shape: &[usize], seed: usize) -> Option<Tensor> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 1013) as f32 / 506.5 - 1.0;
    let values = (0..shape.iter().product()).map(value).collect();
    Some(Tensor::from_f32(shape.to_vec(), values).unwrap())
}

fn integers(values: &[i64]) -> Option<Tensor> {
    Some(Tensor::from_i64(DType::I64, vec![values.len()], values).unwrap())
}

#[test]
fn what_is_ignored_is_named() {
    let image = [floats(&[1, 4, 8, 8], 1), floats(&[4, 4, 3, 3], 2)];
    let with_bias = [image[0].clone(), image[1].clone(), floats(&[4], 3)];
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let lines = floats(&[6, 8], 4);
    for (kind, own, inputs, wrong, without, cause, rule) in [
        (
            "onnx.Conv@11",
            r#"{"strides": [2, 2]}"#,
            &image[..],
            "{}",
            None,
            Cause::WrongAttribute,
            "`strides` is [2,2]",
        ),
        (
            "onnx.Conv@11",
            r#"{"pads": [1, 1, 0, 0]}"#,
            &image,
            r#"{"pads": [0, 0, 1, 1]}"#,
            None,
            Cause::WrongAttribute,
            "`pads` is [1,1,0,0]",
        ),
        (
            "onnx.Conv@11",
            r#"{"auto_pad": "SAME_LOWER", "strides": [2, 2]}"#,
            &image,
            r#"{"auto_pad": "SAME_UPPER", "strides": [2, 2]}"#,
            None,
            Cause::WrongAttribute,
            r#"`auto_pad` is "SAME_LOWER""#,
        ),
        ("onnx.Conv@11", "{}", &with_bias, "{}", Some(2), Cause::InputIgnored, "the input `B` is given"),
        (
            "onnx.LeakyRelu@16",
            r#"{"alpha": 0.3}"#,
            std::slice::from_ref(&lines),
            "{}",
            None,
            Cause::WrongAttribute,
            "`alpha` is 0.3",
        ),
        (
            "onnx.Transpose@13",
            r#"{"perm": [1, 2, 0]}"#,
            &[floats(&[4, 4, 4], 5)],
            r#"{"perm": [2, 0, 1]}"#,
            None,
            Cause::WrongAttribute,
            "`perm` is [1,2,0]",
        ),
        (
            "onnx.Softmax@13",
            r#"{"axis": 0}"#,
            &[floats(&[8, 8], 6)],
            "{}",
            None,
            Cause::WrongAttribute,
            "`axis` is 0",
        ),
        (
            "aten.gelu.default",
            "{}",
            std::slice::from_ref(&lines),
            r#"{"approximate": "tanh"}"#,
            None,
            Cause::WrongAttribute,
            "`approximate` is absent",
        ),
        (
            "aten.avg_pool2d.default",
            r#"{"kernel_size": [2, 2], "padding": [1, 1]}"#,
            &image[..1],
            r#"{"kernel_size": [2, 2], "padding": [1, 1], "count_include_pad": false}"#,
            None,
            Cause::WrongAttribute,
            "`count_include_pad` is absent",
        ),
        (
            "aten.upsample_bilinear2d.vec",
            r#"{"output_size": [13, 13], "align_corners": true}"#,
            &image[..1],
            r#"{"output_size": [13, 13], "align_corners": false}"#,
            None,
            Cause::WrongAttribute,
            "`align_corners` is true",
        ),
        (
            "aten.linear.default",
            "{}",
            &[lines.clone(), floats(&[5, 8], 7), floats(&[5], 8)],
            "{}",
            Some(2),
            Cause::InputIgnored,
            "the input `bias` is given",
        ),
    ] {
        let mut given = inputs.to_vec();
        if let Some(place) = without {
            given[place] = None;
        }
        let (_, observed) = run(kind, &json(wrong), &given);
        let fitted = fit_tensor(&observed[0], &run(kind, &json(own), inputs).1[0]);
        let found = explain_case(kind, json(own), inputs, &[vec![fitted]], None);
        assert_eq!(
            (found.cause, found.rule.as_deref()),
            (cause, Some(rule)),
            "{kind} {own}: {}",
            found.evidence
        );
    }
}

/// Values as a platform hands them on that plans its buffers from the declared types.
fn fit_tensor(found: &Tensor, like: &Tensor) -> Tensor {
    let (own, shape) = (found.shape(), like.shape());
    let values = found.to_f64();
    let at = |flat: usize| {
        let (mut rest, mut from, mut stride) = (flat, 0, 1);
        for (&size, &own) in shape.iter().zip(own).rev() {
            let place = rest % size;
            rest /= size;
            if place >= own {
                return 0.0;
            }
            from += place * stride;
            stride *= own;
        }
        values[from]
    };
    let values: Vec<f64> = (0..like.len()).map(at).collect();
    Tensor::from_f64(like.dtype(), shape.to_vec(), &values).unwrap()
}

#[test]
fn other_readings_of_inputs_are_named() {
    let product = [floats(&[6, 64], 1), floats(&[64, 7], 2)];
    let narrow = |t: &Option<Tensor>| {
        let t = t.as_ref().unwrap();
        let values = Tensor::from_f64(DType::BF16, t.shape().to_vec(), &t.to_f64()).unwrap().to_f64();
        Some(Tensor::from_f64(DType::F32, t.shape().to_vec(), &values).unwrap())
    };
    let none = serde_json::json!({});
    let (_, observed) = run("onnx.MatMul@13", &none, &product.each_ref().map(narrow));
    let found = explain_case("onnx.MatMul@13", none.clone(), &product, &[observed], None);
    assert_eq!(found.cause, Cause::WrongCast, "{}", found.evidence);
    assert!(found.rule.unwrap().contains("bf16"), "{}", found.evidence);

    let large = [integers(&[(1 << 40) + 7, 3, -5]), integers(&[(1 << 35) + 9, 4, (1 << 33) + 2])];
    let wrap = |t: &Option<Tensor>| {
        integers(
            &t.as_ref().unwrap().to_i64().unwrap().iter().map(|&v| i64::from(v as i32)).collect::<Vec<_>>(),
        )
    };
    let (_, observed) = run("onnx.Add@14", &none, &large.each_ref().map(wrap));
    let found = explain_case("onnx.Add@14", none.clone(), &large, &[observed], None);
    assert_eq!(found.cause, Cause::WrongCast, "{}: {:?}", found.evidence, found.tested);

    let with_nan = Some(Tensor::from_f32(vec![4], vec![1.0, f32::NAN, -2.0, 3.0]).unwrap());
    let zero = Some(Tensor::from_f32(vec![4], vec![1.0, 0.0, -2.0, 3.0]).unwrap());
    let (_, observed) = run("onnx.Relu@14", &none, &[zero]);
    let found = explain_case("onnx.Relu@14", none, &[with_nan], &[observed], None);
    assert_eq!(
        (found.cause, found.rule.as_deref()),
        (Cause::NanIgnored, Some("input 0 has a NaN")),
        "{}: {:?}",
        found.evidence,
        found.tested
    );
}

#[test]
fn results_of_the_call_before_are_known() {
    let none = serde_json::json!({});
    let (own, other) = ([floats(&[5, 9], 1)], [floats(&[5, 9], 7)]);
    let (_, left) = run("onnx.Sigmoid@13", &none, &other);
    let (_, right) = run("onnx.Sigmoid@13", &none, &own);
    let before = call("onnx.Sigmoid@13", &none, &other);
    let observed = [right, left.clone()];
    let found = explain_case("onnx.Sigmoid@13", none, &own, &observed, Some((&before, &left)));
    assert_eq!((found.cause, found.rule), (Cause::StaleData, None), "{}", found.evidence);
}
