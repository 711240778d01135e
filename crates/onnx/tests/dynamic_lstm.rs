//! The LSTM of ONNX Runtime with weights of 8 bits: values of a small call, computed with NumPy in f64 from its definition, by a
//! formula that gave what ONNX Runtime 1.32.0 gives, to 1.4e-7.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Bytes, DType, ErrorKind, Result, Tensor};

/// Numbers from -2 to 2.
fn array(shape: &[usize], seed: usize) -> Option<Tensor> {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((i * 7919 + seed * 31) % 101) as f64 / 25.0 - 2.0).collect();
    numbers(shape, &values)
}

fn numbers(shape: &[usize], values: &[f64]) -> Option<Tensor> {
    Some(Tensor::from_f64(DType::F64, shape.to_vec(), values).unwrap())
}

fn weight(shape: &[usize], seed: usize) -> Option<Tensor> {
    let count: usize = shape.iter().product();
    bytes(shape, (0..count).map(|i| ((i * 7919 + seed * 31) % 256) as u8).collect())
}

fn bytes(shape: &[usize], values: Vec<u8>) -> Option<Tensor> {
    Some(Tensor::new(DType::U8, shape.to_vec(), Bytes::new(values)).unwrap())
}

/// The outputs for so many sequences of three steps with three inputs, two hidden units in two directions.
fn run(sequences: usize) -> Result<Vec<Vec<f64>>> {
    let mut inputs = vec![
        array(&[3, sequences, 3], 1),
        weight(&[2, 3, 8], 2),
        weight(&[2, 2, 8], 3),
        array(&[2, 16], 4),
        None,
    ];
    inputs.extend([array(&[2, sequences, 2], 5), array(&[2, sequences, 2], 6), None]);
    inputs.extend([numbers(&[2], &[0.01, 0.02]), bytes(&[2], vec![120, 130])]);
    inputs.extend([numbers(&[2], &[0.015, 0.005]), bytes(&[2], vec![128, 125])]);
    let attributes = json!({"hidden_size": 2, "direction": "bidirectional"}).as_object().cloned().unwrap();
    let places = inputs.iter().map(Option::is_some).collect();
    let kind = "com.microsoft.DynamicQuantizeLSTM@1";
    let op = Foreign::new(kind, attributes, places, vec![DeclaredType::Unknown; 3]).unwrap();
    let found = tapml_onnx::evaluate(&op, &inputs, true)?;
    Ok(found.into_iter().map(|tensor| tensor.unwrap().to_f64()).collect())
}

#[test]
fn inputs_and_states_go_through_bytes() {
    let expected: [&[f64]; 3] = [
        &[
            -0.00822059103555426,
            -0.4318232889882075,
            -0.23052676877854295,
            -0.6126126584383786,
            0.047372369648605875,
            -0.3234870046801085,
            -0.611030221255094,
            -0.6578476543120447,
            0.0034686299351463354,
            -0.2711302487055572,
            -0.11724857230767344,
            -0.057547561459001736,
        ],
        &[0.0034686299351463354, -0.2711302487055572, -0.23052676877854295, -0.6126126584383786],
        &[0.3470519061754239, -0.9572812560258023, -0.23932496693691152, -0.7353538210916865],
    ];
    for (found, expected) in run(1).unwrap().iter().zip(expected) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 2e-12, "{found} for {expected}");
        }
    }
}

/// How many sequences share a scale depends on the runtime's threads.
#[test]
fn several_sequences_are_refused() {
    let error = run(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("2 sequences"), "{error}");
}
