//! Operators of ONNX Runtime for language models: values of small calls, computed with NumPy in f64 from their definitions, by
//! formulas that gave what ONNX Runtime 1.32.0 gives.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Bytes, DType, Tensor};

/// Numbers from -2 to 2.
fn array(shape: &[usize], seed: usize) -> Option<Tensor> {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((i * 7919 + seed * 31) % 101) as f64 / 25.0 - 2.0).collect();
    Some(Tensor::from_f64(DType::F64, shape.to_vec(), &values).unwrap())
}

fn bytes(shape: &[usize], seed: usize) -> Option<Tensor> {
    let count: usize = shape.iter().product();
    let values: Vec<u8> = (0..count).map(|i| ((i * 7919 + seed * 31) % 256) as u8).collect();
    Some(Tensor::new(DType::U8, shape.to_vec(), Bytes::new(values)).unwrap())
}

fn ints(shape: &[usize], values: &[i64]) -> Option<Tensor> {
    Some(Tensor::from_i64(DType::I32, shape.to_vec(), values).unwrap())
}

fn run(kind: &str, attributes: Value, inputs: &[Option<Tensor>], outputs: usize) -> Vec<Vec<f64>> {
    let attributes = attributes.as_object().cloned().unwrap_or_default();
    let places = inputs.iter().map(Option::is_some).collect();
    let op = Foreign::new(kind, attributes, places, vec![DeclaredType::Unknown; outputs]).unwrap();
    let found = tapml_onnx::evaluate(&op, inputs, true).unwrap();
    found.into_iter().map(|tensor| tensor.unwrap().to_f64()).collect()
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 2e-12 * (1.0 + expected.abs()), "{found} for {expected}");
    }
}

const GROUPED: &str = "com.microsoft.GroupQueryAttention@1";

fn eval_grouped(attributes: Value, inputs: Vec<Option<Tensor>>) -> Vec<Vec<f64>> {
    let mut all = json!({"num_heads": 2, "kv_num_heads": 1});
    let own = all.as_object_mut().unwrap();
    own.extend(attributes.as_object().unwrap().clone());
    run(GROUPED, all, &inputs, 3)
}

/// Two queries behind three cached keys, of heads of four elements.
fn step(last: i64, total: i64) -> Vec<Option<Tensor>> {
    let own = [array(&[1, 2, 8], 1), array(&[1, 2, 4], 2), array(&[1, 2, 4], 3)];
    let cached = [array(&[1, 1, 3, 4], 4), array(&[1, 1, 3, 4], 5)];
    own.into_iter().chain(cached).chain([ints(&[1], &[last]), ints(&[], &[total])]).collect()
}

#[test]
fn grouped_queries_see_the_cache_and_themselves() {
    let found = eval_grouped(json!({}), step(4, 5));
    assert_close(
        &found[0],
        &[
            0.521547442606,
            0.687618210719,
            -0.172348334655,
            -0.072381789281,
            -1.206349826921,
            0.237937024065,
            1.852913587221,
            -0.522062975935,
            0.823503507558,
            -0.192482510748,
            0.11025575216,
            -0.952482510748,
            -0.010012124821,
            0.306103041813,
            0.748647837011,
            -0.453896958187,
        ],
    );
}

#[test]
fn grouped_queries_are_turned_capped_and_windowed() {
    let mut inputs = step(3, 4);
    inputs.extend([array(&[8, 2], 6), array(&[8, 2], 7)]);
    let attributes = json!({"do_rotary": 1, "local_window_size": 2, "softcap": 1.5, "scale": 0.25});
    let found = eval_grouped(attributes, inputs);
    assert_close(
        &found[0],
        &[
            -0.880166997263,
            0.130441661484,
            1.770441661484,
            -0.629558338516,
            -0.743339634148,
            0.087794171682,
            1.727794171682,
            -0.672205828318,
            1.138831218153,
            0.283516664641,
            0.378831218153,
            -0.476483335359,
            0.980908809114,
            0.545335395416,
            0.220908809114,
            -0.214664604584,
        ],
    );
    assert_close(
        &found[1],
        &[
            -1.08, 0.56, -1.84, -0.2, 1.44, -0.96, 0.68, -1.72, 0.256, -1.1776, 0.5712, 4.5248, 1.5632,
            0.776, 1.2096, 1.0784,
        ],
    );
}

#[test]
fn packed_queries_with_neighbours_as_pairs_a_bias_and_sinks() {
    let parts = step(3, 4);
    let rows = |at: usize, width: usize, row: usize| {
        parts[at].as_ref().unwrap().to_f64()[row * width..(row + 1) * width].to_vec()
    };
    let packed: Vec<f64> =
        (0..2).flat_map(|row| [rows(0, 8, row), rows(1, 4, row), rows(2, 4, row)].concat()).collect();
    let packed = Some(Tensor::from_f64(DType::F64, vec![1, 2, 16], &packed).unwrap());
    let mut inputs = vec![packed, None, None];
    inputs.extend(parts[3..].iter().cloned());
    inputs.extend([array(&[8, 2], 6), array(&[8, 2], 7), None, array(&[1, 2, 2, 4], 8), array(&[2], 9)]);
    let found = eval_grouped(json!({"do_rotary": 1, "rotary_interleaved": 1}), inputs);
    assert_close(
        &found[0],
        &[
            0.1233319257,
            1.126830175078,
            -0.291767995966,
            0.595554589782,
            -0.20658778295,
            1.350320361219,
            0.047467713894,
            0.616007287004,
            0.069550767502,
            1.144533021883,
            -0.241007416934,
            0.617075378303,
            1.706826272159,
            -0.67550762842,
            0.961943233252,
            -1.434511811894,
        ],
    );
}

#[test]
fn positions_can_be_given_and_attention_can_look_ahead() {
    let mut inputs = step(2, 3);
    inputs.extend([array(&[8, 2], 6), array(&[8, 2], 7), ints(&[1, 2], &[5, 2])]);
    let found = eval_grouped(json!({"do_rotary": 1, "smooth_softmax": 1, "causal": 0}), inputs);
    assert_close(
        &found[0],
        &[
            0.201102940196,
            1.628626760735,
            -0.519560559459,
            0.907963261079,
            0.234739270063,
            1.760044039078,
            -0.517513754535,
            1.00779101448,
            0.87717948044,
            0.617342473142,
            0.149114705131,
            -0.110722302167,
            0.452219268222,
            1.242942316297,
            -0.272833138207,
            0.517889909868,
        ],
    );
    assert_close(
        &found[1],
        &[-1.08, 0.56, -1.84, -0.2, 0.4624, 0.8064, -1.016, -1.9552, 2.1408, 0.7072, -0.9488, -1.0112],
    );
}

#[test]
fn several_heads_with_biases_and_masks() {
    let kind = "com.microsoft.MultiHeadAttention@1";
    let own = || [array(&[2, 2, 4], 1), array(&[2, 3, 4], 2), array(&[2, 3, 6], 3)];
    let inputs = [&own()[..], &[array(&[14], 4), ints(&[2], &[3, 1])]].concat();
    let found = run(kind, json!({"num_heads": 2, "mask_filter_value": -3.0}), &inputs, 1);
    assert_close(
        &found[0],
        &[
            -0.602347384489,
            2.603684895445,
            -2.122347384489,
            1.071467468296,
            0.311467468296,
            -0.340306703227,
            1.047074176182,
            0.859645752205,
            -0.472925823818,
            -0.161949877229,
            -0.921949877229,
            0.618388337556,
            -1.144519999386,
            2.0997748792,
            -2.663939593217,
            0.591293189007,
            -0.16980293481,
            -0.928706810993,
            -0.827113210442,
            1.687505452501,
            -2.342866050046,
            0.774700407679,
            -0.423763300383,
            -0.745299592321,
        ],
    );
    let mask = ints(&[2, 3], &[1, 0, 1, 1, 1, 0]);
    let inputs = [&own()[..], &[None, mask, array(&[1, 2, 2, 3], 5)]].concat();
    let found = run(kind, json!({"num_heads": 2, "scale": 0.5}), &inputs, 1);
    assert_close(
        &found[0],
        &[
            1.547457641527,
            -0.852542358473,
            0.787457641527,
            -1.520159077007,
            0.119840922993,
            1.759840922993,
            1.485913678602,
            -0.914086321398,
            0.725913678602,
            -1.890437879397,
            -0.250437879397,
            1.389562120603,
            -0.187328875816,
            -0.59641486542,
            -0.947328875816,
            -0.165299437358,
            1.395046998396,
            -0.925299437358,
            -0.808324975516,
            0.208057354646,
            -1.568324975516,
            1.539962236092,
            -0.814041987664,
            0.779962236092,
        ],
    );
    let own = [array(&[1, 2, 4], 1), array(&[1, 2, 4], 2), array(&[1, 2, 4], 3)];
    let cached = [array(&[1, 2, 1, 2], 4), array(&[1, 2, 1, 2], 5)];
    let inputs = [&own[..], &[None, None, None], &cached].concat();
    let found = run(kind, json!({"num_heads": 2, "unidirectional": 1}), &inputs, 3);
    assert_close(
        &found[0],
        &[
            0.291962859102,
            1.590212890658,
            -0.325583557776,
            0.603748220055,
            1.586513111107,
            -0.463228461583,
            -0.203719453788,
            0.448930694945,
        ],
    );
    assert_close(&found[1], &[-1.08, 0.56, 0.48, -1.92, -1.04, 0.6, -1.84, -0.2, -0.28, 1.36, -1.8, -0.16]);
}

#[test]
fn attention_of_one_product() {
    let kind = "com.microsoft.Attention@1";
    let x = || array(&[1, 2, 3], 1);
    let inputs = [x(), array(&[3, 12], 2), array(&[12], 3), ints(&[2], &[2, 1])];
    let found = run(kind, json!({"num_heads": 2}), &inputs, 2);
    assert_close(&found[0], &[0.2656, -1.0704, 2.6032, 1.752, 0.2656, -1.0704, 2.6032, 1.752]);
    assert_close(
        &found[1],
        &[
            -3.3616, 2.1232, -3.9248, 2.3344, 0.4976, 2.4272, 1.4832, 0.632, -2.2688, 2.7312, 0.2656,
            -1.0704, 2.0752, 0.4496, 2.6032, 1.752,
        ],
    );
    let attributes = json!({"num_heads": 2, "unidirectional": 1, "qkv_hidden_sizes": {"ints": [4, 4, 6]}});
    let found = run(kind, attributes, &[x(), array(&[3, 14], 2)], 1);
    assert_close(
        &found[0],
        &[
            0.6928,
            1.4672,
            1.7568,
            2.5312,
            -3.32,
            0.5248,
            0.704849117933,
            1.496921157568,
            1.723062469787,
            1.887184038649,
            -3.255598403865,
            1.297619153621,
        ],
    );
    let inputs = [array(&[1, 1, 3], 1), array(&[3, 12], 2), None, None, array(&[2, 1, 2, 2, 2], 4)];
    let found = run(kind, json!({"num_heads": 2}), &inputs, 1);
    assert_close(&found[0], &[-0.430806578965, 1.557016131559, -0.240073911166, -0.150566872587]);
}

#[test]
fn weights_of_a_few_bits() {
    let run = |bits: usize, k: usize, zeros: Option<Tensor>| {
        let blocks = k.div_ceil(16);
        let weights = bytes(&[2, blocks, 2 * bits], 1);
        let inputs = [array(&[2, k], 5), weights, array(&[2, blocks], 2), zeros, None, array(&[2], 6)];
        let attributes = json!({"K": k, "N": 2, "bits": bits, "block_size": 16});
        run("com.microsoft.MatMulNBits@1", attributes, &inputs, 1).remove(0)
    };
    assert_close(&run(4, 20, None), &[-10.216, 2.8608, 6.6608, -10.7264]);
    assert_close(&run(4, 40, bytes(&[2, 2], 3)), &[2.2192, 24.536, 2.4112, 1.1968]);
    assert_close(&run(8, 20, bytes(&[2, 2], 3)), &[-341.512, -564.6576, -628.456, 44.6784]);
    assert_close(&run(2, 20, array(&[2, 2], 4)), &[14.714816, -9.04672, 9.37184, -6.88]);
}

#[test]
fn positions_of_rotary_embeddings_are_counted_from_one_or_given() {
    let kind = "com.microsoft.RotaryEmbedding@1";
    let first = ints(&[1], &[3]);
    let inputs = [array(&[1, 2, 2, 4], 1), first, array(&[8, 2], 6), array(&[8, 2], 7)];
    assert_close(
        &run(kind, json!({}), &inputs, 1)[0],
        &[
            1.216, 0.4288, 1.064, 1.8512, -2.4864, 1.736, -2.344, -0.7936, -0.024, -0.8112, 0.544, 4.6112,
            2.8992, 0.496, -2.768, 0.4464,
        ],
    );
    let positions = ints(&[1, 2], &[5, 1]);
    let inputs = [array(&[1, 2, 8], 1), positions, array(&[8, 1], 6), array(&[8, 1], 7)];
    let attributes = json!({"num_heads": 2, "rotary_embedding_dim": 2, "interleaved": 1});
    assert_close(
        &run(kind, attributes, &inputs, 1)[0],
        &[
            -0.0288, 2.3104, -1.52, 0.12, 1.856, -3.2256, 1.0, -1.4, -0.6912, -1.8224, -0.52, 1.12, 1.1936,
            -0.6672, 2.0, -0.4,
        ],
    );
}

/// The standard's own operator caps scores before it adds a mask.
#[test]
fn scores_are_capped_before_they_are_masked() {
    let own = [array(&[1, 1, 2, 4], 1), array(&[1, 1, 3, 4], 2), array(&[1, 1, 3, 4], 3), array(&[2, 3], 4)];
    let found = run("onnx.Attention@23", json!({"softcap": 0.5}), &own, 1);
    assert_close(
        &found[0],
        &[
            0.257117051657,
            1.623449739224,
            -0.381026746893,
            0.863449739224,
            0.255035296622,
            1.105940671886,
            0.137851896126,
            0.345940671886,
        ],
    );
}

/// A query that sees no key gives zeros.
#[test]
fn nothing_seen_gives_zeros() {
    let hidden = Tensor::new(DType::Bool, vec![2, 3], Bytes::new(vec![1, 0, 1, 0, 0, 0])).unwrap();
    let own = [array(&[1, 1, 2, 4], 1), array(&[1, 1, 3, 4], 2), array(&[1, 1, 3, 4], 3), Some(hidden)];
    let found = run("onnx.Attention@23", json!({}), &own, 1).remove(0);
    assert_eq!(found[4..], [0.0; 4]);
    assert!(found[..4].iter().all(|v| *v != 0.0));
}
