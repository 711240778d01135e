//! What verdicts are told of operators: whether they round, and how long their sums are.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, TensorType};
use tapml_onnx::{CallFacts, facts};

fn terms(kind: &str, attributes: Value, shapes: &[&[usize]]) -> CallFacts {
    let inputs: Vec<_> =
        shapes.iter().map(|shape| Some(TensorType::new(DType::F32, shape.iter().copied()))).collect();
    let attributes = attributes.as_object().cloned().unwrap_or_default();
    let op = Foreign::new(kind, attributes, vec![true; inputs.len()], vec![DeclaredType::Unknown]).unwrap();
    facts(&op, &inputs).unwrap()
}

#[test]
fn sums_are_as_long_as_the_definition_says() {
    let (x, w): (&[usize], &[usize]) = (&[1, 8, 10, 10], &[16, 4, 3, 3]);
    for (kind, attributes, shapes, expected) in [
        ("onnx.Conv@11", json!({"group": 2}), vec![x, w], 36),
        ("onnx.Conv@11", json!({"group": 2}), vec![x, w, &[16]], 37),
        ("onnx.ConvTranspose@11", json!({"group": 2}), vec![x, &[8, 4, 3, 3]], 36),
        ("onnx.MatMul@13", json!({}), vec![&[2, 5, 7], &[7, 3]], 7),
        ("onnx.MatMul@13", json!({}), vec![&[7], &[7, 3]], 7),
        ("onnx.Gemm@13", json!({"transA": 1}), vec![&[5, 7], &[5, 3], &[3]], 6),
        ("onnx.AveragePool@19", json!({"kernel_shape": [3, 2]}), vec![x], 6),
        ("onnx.GlobalAveragePool@1", json!({}), vec![x], 100),
        ("onnx.Softmax@13", json!({"axis": 1}), vec![x], 8),
        ("onnx.Softmax@11", json!({}), vec![x], 800),
        ("onnx.LayerNormalization@17", json!({"axis": -2}), vec![x, &[10, 10]], 100),
        ("onnx.InstanceNormalization@6", json!({}), vec![x, &[8], &[8]], 100),
        ("onnx.GroupNormalization@21", json!({"num_groups": 4}), vec![x, &[8], &[8]], 200),
        ("onnx.LRN@13", json!({"size": 5}), vec![x], 5),
        ("onnx.LSTM@14", json!({}), vec![&[6, 1, 4], &[1, 20, 4], &[1, 20, 5]], 54),
        ("onnx.Attention@23", json!({}), vec![&[1, 2, 3, 4], &[1, 2, 30, 4], &[1, 2, 30, 4]], 30),
        ("onnx.Einsum@12", json!({"equation": "bij,bjk->ik"}), vec![&[2, 3, 5], &[2, 5, 4]], 10),
        ("onnx.Resize@18", json!({"mode": "linear"}), vec![x], 8),
        (
            "com.microsoft.GroupQueryAttention@1",
            json!({"num_heads": 4, "kv_num_heads": 2}),
            vec![&[1, 5, 64], &[1, 5, 32], &[1, 5, 32], &[1, 2, 30, 16], &[1, 2, 30, 16]],
            35,
        ),
        (
            "com.microsoft.MultiHeadAttention@1",
            json!({"num_heads": 4}),
            vec![&[1, 5, 64], &[1, 9, 64], &[1, 9, 64]],
            16,
        ),
        ("com.microsoft.Attention@1", json!({"num_heads": 4}), vec![&[1, 5, 64], &[64, 96], &[96]], 65),
        ("com.microsoft.MatMulNBits@1", json!({"K": 64, "N": 3}), vec![&[5, 64]], 64),
        ("com.microsoft.FusedGemm@1", json!({"transA": 1}), vec![&[5, 7], &[5, 3], &[3]], 6),
        ("com.microsoft.FusedConv@1", json!({"group": 2}), vec![x, w, &[16], &[1, 16, 8, 8]], 38),
    ] {
        assert_eq!(
            terms(kind, attributes.clone(), &shapes),
            CallFacts { exact: false, terms: expected },
            "{kind} {attributes}"
        );
    }
}

#[test]
fn what_moves_or_chooses_is_exact() {
    let x: &[usize] = &[1, 8, 10, 10];
    for (kind, attributes) in [
        ("onnx.Relu@14", json!({})),
        ("onnx.Transpose@13", json!({})),
        ("onnx.MaxPool@12", json!({"kernel_shape": [3, 3]})),
        ("onnx.GlobalMaxPool@1", json!({})),
        ("onnx.Resize@18", json!({})),
        ("onnx.Hardmax@13", json!({})),
    ] {
        assert_eq!(terms(kind, attributes, &[x]), CallFacts { exact: true, terms: 1 }, "{kind}");
    }
    assert_eq!(terms("onnx.Add@14", json!({}), &[x, x]), CallFacts { exact: false, terms: 1 });
}

#[test]
fn operators_and_versions_without_an_evaluation_have_no_facts() {
    for kind in
        ["onnx.Unheard@1", "onnx.Resize@9", "onnx.Upsample@10", "elsewhere.Conv@11", "com.microsoft.Conv@1"]
    {
        let op = Foreign::new(kind, Default::default(), vec![true], vec![DeclaredType::Unknown]).unwrap();
        assert_eq!(facts(&op, &[None]), None, "{kind}");
        let error = tapml_onnx::evaluate(&op, &[None], true).unwrap_err();
        assert!(error.to_string().contains("no evaluation"), "{error}");
    }
    let names: Vec<&str> = tapml_onnx::names().collect();
    assert!(names.contains(&"Conv") && names.contains(&"SkipLayerNormalization"));
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(names.len(), distinct.len());
}
