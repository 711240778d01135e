//! Inputs and attributes that do not fit: an error that says what is wrong, and neither a panic nor an allocation without
//! bound.
#![allow(clippy::unwrap_used)]

use serde_json::{Map, Value, json};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, ErrorKind, Tensor};

/// A tensor of the numbers 0, 1, 2, …
fn count_up(dtype: DType, shape: &[usize]) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product()).map(|i: usize| (i % 7) as f64).collect();
    Tensor::from_f64(dtype, shape.to_vec(), &values).unwrap()
}

fn f(shape: &[usize]) -> Option<Tensor> {
    Some(count_up(DType::F32, shape))
}

fn ints(values: &[i64]) -> Option<Tensor> {
    Some(Tensor::from_i64(DType::I64, vec![values.len()], values).unwrap())
}

fn evaluate(
    kind: &str,
    attributes: Value,
    inputs: &[Option<Tensor>],
) -> tapml_graph::Result<Vec<Option<Tensor>>> {
    let attributes: Map<String, Value> = attributes.as_object().cloned().unwrap_or_default();
    let places = inputs.iter().map(Option::is_some).collect();
    let op = Foreign::new(kind, attributes, places, vec![DeclaredType::Unknown])?;
    let results = [false, true].map(|wide| tapml_onnx::evaluate(&op, inputs, wide));
    let [single, double] = results;
    assert_eq!(single.is_ok(), double.is_ok(), "{kind} in both precisions");
    single
}

/// Expects an error that holds this text.
fn refuse(kind: &str, attributes: Value, inputs: &[Option<Tensor>], told: &str) {
    let error = evaluate(kind, attributes.clone(), inputs).map(|_| ()).unwrap_err();
    assert!(error.kind() != ErrorKind::Bug, "{kind} {attributes}: {error}");
    assert!(error.to_string().contains(told), "{kind} {attributes}: {error}");
}

#[test]
fn convolutions_refuse_what_does_not_fit() {
    let (x, w) = (f(&[1, 2, 5, 5]), f(&[3, 2, 3, 3]));
    let both = || [x.clone(), w.clone()];
    for kind in ["onnx.Conv@11", "onnx.ConvTranspose@11"] {
        let w = if kind == "onnx.Conv@11" { w.clone() } else { f(&[2, 3, 3, 3]) };
        let both = || [x.clone(), w.clone()];
        refuse(kind, json!({}), &[f(&[]), f(&[])], "rank");
        refuse(kind, json!({}), &[f(&[2, 5]), w.clone()], "rank");
        refuse(kind, json!({"strides": [0, 1]}), &both(), "`strides`");
        refuse(kind, json!({"strides": [1]}), &both(), "expected 2 integers");
        refuse(kind, json!({"dilations": [1, i64::MAX]}), &both(), "`dilations`");
        refuse(kind, json!({"dilations": [1, 1 << 30]}), &both(), "too large");
        refuse(kind, json!({"pads": [-1, 0, 0, 0]}), &both(), "`pads`");
        refuse(kind, json!({"group": 0}), &both(), "`group`");
        refuse(kind, json!({"group": 3}), &both(), "`group`");
        refuse(kind, json!({"group": "one"}), &both(), "expected an integer");
        refuse(kind, json!({"kernel_shape": [2, 2]}), &both(), "`kernel_shape`");
        refuse(kind, json!({"auto_pad": "SOME"}), &both(), "`auto_pad`");
        refuse(kind, json!({"unheard_of": 1}), &both(), "not served");
        refuse(kind, json!({}), &[x.clone(), w.clone(), f(&[2])], "bias");
        refuse(kind, json!({}), &[x.clone(), None], "absent");
        refuse(kind, json!({}), &[Some(count_up(DType::I32, &[1, 2, 5, 5])), w.clone()], "floats");
    }
    refuse("onnx.Conv@11", json!({}), &[f(&[1, 2, 2, 2]), w.clone()], "does not fit");
    refuse("onnx.Conv@11", json!({}), &[f(&[1, 4, 5, 5]), w.clone()], "4 channels");
    refuse("onnx.Conv@11", json!({"pads": [1 << 30, 1 << 30, 0, 0]}), &both(), "2^31");
    refuse(
        "onnx.ConvTranspose@11",
        json!({"strides": [1i64 << 31, 1]}),
        &[x.clone(), f(&[2, 3, 3, 3])],
        "too large",
    );
    refuse(
        "onnx.ConvTranspose@11",
        json!({"output_shape": [-4, 5]}),
        &[x.clone(), f(&[2, 3, 3, 3])],
        "`output_shape`",
    );
    refuse("onnx.ConvTranspose@11", json!({"pads": [9, 9, 9, 9]}), &[x, f(&[2, 3, 3, 3])], "larger");
}

#[test]
fn pools_and_sizes_of_images_are_bounded() {
    let x = || f(&[1, 2, 4, 4]);
    for kind in ["onnx.MaxPool@12", "onnx.AveragePool@19", "onnx.LpPool@18"] {
        refuse(kind, json!({}), &[x()], "`kernel_shape`");
        refuse(kind, json!({"kernel_shape": [5, 5]}), &[x()], "does not fit");
        refuse(kind, json!({"kernel_shape": [0, 1]}), &[x()], "`kernel_shape`");
        refuse(kind, json!({"kernel_shape": [2]}), &[x()], "`kernel_shape`");
        refuse(kind, json!({"kernel_shape": [2, 2]}), &[f(&[4])], "batch and channels");
        refuse(kind, json!({"kernel_shape": [1, 1], "pads": [1 << 30, 1 << 30, 0, 0]}), &[x()], "2^31");
    }
    refuse("onnx.MaxUnpool@11", json!({"kernel_shape": [2, 2]}), &[x(), ints(&[99; 32])], "index");
    refuse("onnx.GlobalAveragePool@1", json!({}), &[f(&[1, 2, 0])], "empty");
    let scales = |values: &[f32]| Some(Tensor::from_f32(vec![values.len()], values.to_vec()).unwrap());
    let resize = |scales, sizes, told| refuse("onnx.Resize@18", json!({}), &[x(), None, scales, sizes], told);
    resize(scales(&[1.0, 1.0, 1e9, 1e9]), None, "scale");
    resize(scales(&[1.0, 1.0, 1e4, 1e4]), None, "2^31");
    resize(scales(&[1.0, 1.0, 1.0, 1e8]), None, "2^26");
    resize(scales(&[1.0, 1.0, -1.0, 1.0]), None, "scale");
    resize(scales(&[1.0, 1.0, f32::NAN, 1.0]), None, "scale");
    resize(scales(&[1.0, 1.0]), None, "2 scales for 4 axes");
    resize(None, ints(&[1, 2, -4, 4]), "`sizes`");
    resize(None, ints(&[1, 2, 1 << 20, 1 << 20]), "2^31");
    resize(None, None, "either");
    refuse(
        "onnx.Resize@18",
        json!({"mode": "linear"}),
        &[f(&[1, 0]), None, None, ints(&[1, 4])],
        "no elements",
    );
    let tiny = scales(&[1.0, 1e-9]);
    let given = evaluate(
        "onnx.Resize@18",
        json!({"mode": "linear", "antialias": 1}),
        &[f(&[1, 4]), None, tiny, None],
    );
    assert_eq!(given.unwrap()[0].as_ref().unwrap().shape(), [1, 0]);
    refuse("onnx.Resize@18", json!({"mode": "spline"}), &[x(), None, scales(&[1.0; 4]), None], "`spline`");
}

#[test]
fn products_and_norms_refuse_what_does_not_fit() {
    refuse("onnx.MatMul@13", json!({}), &[f(&[2, 3]), f(&[2, 3])], "multiplied");
    refuse("onnx.MatMul@13", json!({}), &[f(&[]), f(&[1])], "multiplied");
    refuse("onnx.MatMul@13", json!({}), &[f(&[1 << 20, 1]), f(&[1, 1 << 20])], "2^31");
    refuse("onnx.Gemm@13", json!({}), &[f(&[2, 3]), f(&[3, 4]), f(&[3])], "broadcast");
    refuse("onnx.Gemm@13", json!({}), &[f(&[2, 3, 1]), f(&[3, 4])], "matrix");
    let u8s = |shape: &[usize]| Some(count_up(DType::U8, shape));
    refuse("onnx.MatMulInteger@10", json!({}), &[u8s(&[2, 3]), u8s(&[3, 2]), u8s(&[3])], "broadcast");
    refuse("onnx.MatMulInteger@10", json!({}), &[f(&[2, 3]), u8s(&[3, 2])], "i8 or u8");
    for kind in ["onnx.LayerNormalization@17", "onnx.RMSNormalization@23"] {
        refuse(kind, json!({"axis": 2}), &[f(&[2, 3]), f(&[3])], "axis 2");
        refuse(kind, json!({"axis": -3}), &[f(&[2, 3]), f(&[3])], "axis -3");
        refuse(kind, json!({}), &[f(&[2, 3]), f(&[4])], "broadcast");
        refuse(kind, json!({"stash_type": 7}), &[f(&[2, 3]), f(&[3])], "stash_type");
    }
    let c = || f(&[3]);
    refuse("onnx.BatchNormalization@15", json!({}), &[f(&[2, 4]), c(), c(), c(), c()], "4 channels");
    refuse("onnx.BatchNormalization@15", json!({}), &[f(&[]), c(), c(), c(), c()], "rank 0");
    refuse("onnx.GroupNormalization@21", json!({"num_groups": 2}), &[f(&[2, 3]), c(), c()], "`num_groups`");
    refuse("onnx.InstanceNormalization@6", json!({}), &[f(&[2, 4, 2]), c(), c()], "4 channels");
    refuse("onnx.LRN@13", json!({"size": 0}), &[f(&[1, 2, 2])], "`size`");
    refuse("onnx.LpNormalization@1", json!({"p": 3}), &[f(&[2])], "`p`");
    refuse("onnx.MeanVarianceNormalization@13", json!({"axes": [0, 0]}), &[f(&[2, 2])], "twice");
    for kind in ["onnx.Softmax@13", "onnx.LogSoftmax@11", "onnx.Hardmax@13"] {
        refuse(kind, json!({"axis": 5}), &[f(&[2, 2])], "axis 5");
    }
}

#[test]
fn sequences_and_sums_by_letters_refuse_what_does_not_fit() {
    let x = || f(&[3, 2, 4]);
    let lstm = |attributes, inputs: &[Option<Tensor>], told| refuse("onnx.LSTM@14", attributes, inputs, told);
    let weights = || [x(), f(&[1, 20, 4]), f(&[1, 20, 5])];
    lstm(json!({"hidden_size": 6}), &weights(), "`hidden_size`");
    lstm(json!({"direction": "bidirectional"}), &weights(), "input 1");
    lstm(json!({"direction": "up"}), &weights(), "`direction`");
    lstm(json!({"activations": ["Sigmoid"]}), &weights(), "`activations`");
    lstm(json!({"activations": ["Sigmoid", "Tanh", "Sine"]}), &weights(), "`Sine`");
    lstm(json!({}), &[x(), f(&[1, 20, 4]), f(&[1, 20, 0])], "hidden_size");
    lstm(json!({}), &[f(&[3, 2]), f(&[1, 20, 4]), f(&[1, 20, 5])], "rank 3");
    let with = |place: usize, tensor: Option<Tensor>| {
        let mut inputs = weights().to_vec();
        inputs.resize(place, None);
        inputs.push(tensor);
        inputs
    };
    lstm(json!({}), &with(3, f(&[1, 20])), "input 3");
    lstm(json!({}), &with(4, ints(&[3, 4])), "lengths");
    lstm(json!({}), &with(4, ints(&[3, -1])), "lengths");
    lstm(json!({}), &with(5, f(&[1, 2, 4])), "input 5");
    lstm(json!({}), &with(7, f(&[1, 5])), "input 7");
    let einsum = |equation: &str, inputs: &[Option<Tensor>], told| {
        refuse("onnx.Einsum@12", json!({"equation": equation}), inputs, told);
    };
    einsum("ij,jk", &[f(&[2, 3])], "operands");
    einsum("ij", &[f(&[2])], "labels");
    einsum("i...j", &[f(&[2])], "axes");
    einsum("i->k", &[f(&[2])], "label");
    einsum("i->ii", &[f(&[2])], "label");
    einsum("i,i", &[f(&[2]), f(&[3])], "sizes 2 and 3");
    einsum("i;j", &[f(&[2])], "expected letters");
    einsum("a,b,c,d->abcd", &[f(&[999]), f(&[999]), f(&[999]), f(&[999])], "2^31");
    let attention =
        |attributes, inputs: &[Option<Tensor>], told| refuse("onnx.Attention@23", attributes, inputs, told);
    let q = || f(&[1, 2, 3, 4]);
    attention(json!({}), &[f(&[1, 3, 8]), f(&[1, 3, 8]), f(&[1, 3, 8])], "heads");
    attention(json!({}), &[q(), f(&[1, 2, 3, 5]), q()], "do not fit");
    attention(json!({}), &[q(), f(&[1, 3, 3, 4]), f(&[1, 3, 3, 4])], "heads");
    attention(json!({}), &[q(), q(), q(), f(&[2, 3, 2, 3])], "broadcast");
    attention(json!({}), &[q(), q(), q(), None, f(&[1, 2, 3]), None], "appended");
    attention(json!({"qk_matmul_output_mode": 9}), &[q(), q(), q()], "output_mode");
    refuse(
        "onnx.RotaryEmbedding@23",
        json!({}),
        &[q(), f(&[9, 2]), f(&[9, 2]), ints(&[0, 1, 9])],
        "position",
    );
    refuse("onnx.RotaryEmbedding@23", json!({}), &[q(), f(&[9, 3]), f(&[9, 3]), ints(&[0, 1, 2])], "angles");
}

#[test]
fn images_and_signals_refuse_what_does_not_fit() {
    let x = || f(&[1, 2, 4, 4]);
    refuse("onnx.GridSample@20", json!({}), &[x(), f(&[1, 3, 3, 3])], "grid");
    refuse("onnx.GridSample@20", json!({}), &[f(&[1, 2, 0, 4]), f(&[1, 3, 3, 2])], "grid");
    refuse("onnx.GridSample@20", json!({"padding_mode": "none"}), &[x(), f(&[1, 3, 3, 2])], "`none`");
    for odd in [f32::NAN, f32::INFINITY, -3e38] {
        for padding in ["zeros", "border", "reflection"] {
            let grid = Some(Tensor::from_f32(vec![1, 1, 1, 2], vec![odd, 0.0]).unwrap());
            for mode in ["nearest", "linear", "cubic"] {
                evaluate(
                    "onnx.GridSample@20",
                    json!({"mode": mode, "padding_mode": padding}),
                    &[x(), grid.clone()],
                )
                .unwrap();
            }
        }
    }
    refuse("onnx.AffineGrid@20", json!({}), &[f(&[1, 2, 3]), ints(&[1, 1, 1 << 20, 1 << 20])], "2^31");
    refuse("onnx.AffineGrid@20", json!({}), &[f(&[1, 2, 3]), ints(&[1, 1, -1, 4])], "size of -1");
    let roi = |values: [f32; 4]| Some(Tensor::from_f32(vec![1, 4], values.to_vec()).unwrap());
    refuse("onnx.RoiAlign@16", json!({}), &[x(), roi([0.0, 0.0, 1e30, 1e30]), ints(&[0])], "samples");
    refuse("onnx.RoiAlign@16", json!({}), &[x(), roi([f32::NAN; 4]), ints(&[0])], "samples");
    refuse("onnx.RoiAlign@16", json!({}), &[x(), roi([0.0; 4]), ints(&[1])], "batch");
    refuse(
        "onnx.RoiAlign@16",
        json!({"output_height": 1 << 20, "output_width": 1 << 20}),
        &[x(), roi([0.0; 4]), ints(&[0])],
        "2^31",
    );
    refuse("onnx.NonMaxSuppression@11", json!({}), &[f(&[1, 3, 4]), f(&[1, 1, 2])], "boxes");
    refuse("onnx.Col2Im@18", json!({}), &[f(&[1, 4, 9]), ints(&[5, 5]), ints(&[2, 2])], "columns");
    refuse("onnx.Col2Im@18", json!({}), &[f(&[1, 4, 9]), ints(&[1 << 20, 1 << 20]), ints(&[2, 2])], "2^31");
    refuse("onnx.CenterCropPad@18", json!({}), &[x(), ints(&[1, 2, 1 << 20, 1 << 20])], "2^31");
    refuse("onnx.CenterCropPad@18", json!({}), &[x(), ints(&[1, 2, -1, 4])], "size of -1");
    refuse("onnx.DeformConv@19", json!({}), &[x(), f(&[1, 2, 2, 2]), f(&[1, 4, 3, 3])], "offsets");
    refuse("onnx.DFT@20", json!({}), &[f(&[1, 4, 3])], "last axis");
    refuse("onnx.DFT@20", json!({}), &[f(&[1, 4, 1]), ints(&[0])], "size");
    refuse("onnx.DFT@20", json!({}), &[f(&[1, 4, 1]), ints(&[4]), ints(&[2])], "real and imaginary");
    refuse("onnx.STFT@17", json!({}), &[f(&[1, 8, 1]), ints(&[0])], "size");
    refuse("onnx.STFT@17", json!({}), &[f(&[1, 8, 1]), ints(&[1]), f(&[9])], "does not fit");
    refuse("onnx.HannWindow@17", json!({}), &[ints(&[1 << 40])], "size");
    refuse("onnx.HannWindow@17", json!({"output_datatype": 8}), &[ints(&[4])], "type 8");
    let classes = |value: i64| Some(Tensor::from_i64(DType::I64, vec![1], &[value]).unwrap());
    for kind in ["onnx.NegativeLogLikelihoodLoss@13", "onnx.SoftmaxCrossEntropyLoss@13"] {
        refuse(kind, json!({}), &[f(&[1, 3]), classes(3)], "classes");
        refuse(kind, json!({}), &[f(&[1, 3]), classes(-1)], "classes");
        refuse(kind, json!({}), &[f(&[3]), classes(0)], "classes");
        refuse(kind, json!({"reduction": "most"}), &[f(&[1, 3]), classes(0)], "`most`");
    }
    refuse("onnx.Reshape@14", json!({}), &[x(), ints(&[-1, -1])], "reshaped");
    refuse("onnx.Reshape@14", json!({}), &[f(&[0, 3]), ints(&[0, -1])], "reshaped");
    refuse("onnx.Reshape@14", json!({}), &[x(), ints(&[i64::MAX, 2])], "2^31");
    refuse("onnx.Transpose@13", json!({"perm": [0, 0]}), &[f(&[2, 2])], "`perm`");
}

#[test]
fn operators_of_a_runtime_refuse_what_does_not_fit() {
    let kind = "com.microsoft.GroupQueryAttention@1";
    let heads = || json!({"num_heads": 2, "kv_num_heads": 1});
    let own = || [f(&[1, 2, 8]), f(&[1, 2, 4]), f(&[1, 2, 4])];
    let cached = || [f(&[1, 1, 3, 4]), f(&[1, 1, 3, 4])];
    let calls =
        |lengths: &[i64], keys: i64| [&own()[..], &cached()[..], &[ints(lengths), ints(&[keys])]].concat();
    refuse(kind, json!({"num_heads": 2}), &calls(&[4], 5), "kv_num_heads");
    refuse(kind, json!({"num_heads": 2, "kv_num_heads": i64::MAX}), &calls(&[4], 5), "kv_num_heads");
    refuse(kind, json!({"num_heads": 3, "kv_num_heads": 1}), &calls(&[4], 5), "heads");
    refuse(kind, heads(), &calls(&[4, 4], 5), "batch of 1");
    refuse(kind, heads(), &calls(&[5], 5), "`seqlens_k`");
    refuse(kind, heads(), &calls(&[-1], 5), "`seqlens_k`");
    refuse(kind, heads(), &calls(&[i64::MAX], 5), "`seqlens_k`");
    refuse(kind, heads(), &calls(&[0], 5), "prompt of 1 tokens");
    refuse(kind, heads(), &calls(&[7], 8), "3 cached");
    refuse(kind, heads(), &calls(&[4], -1), "total_sequence_length");
    refuse(kind, heads(), &calls(&[4], 1 << 31), "2^31");
    let with = |name: &str, value: Value| {
        let mut all = heads();
        all.as_object_mut().unwrap().insert(name.into(), value);
        all
    };
    refuse(kind, with("do_rotary", json!(1)), &calls(&[4], 5), "absent");
    let turned =
        |rows: usize, pairs: usize| [&calls(&[4], 5)[..], &[f(&[rows, pairs]), f(&[rows, pairs])]].concat();
    refuse(kind, with("do_rotary", json!(1)), &turned(4, 2), "position");
    refuse(kind, with("do_rotary", json!(1)), &turned(5, 3), "angles");
    refuse(kind, with("k_quant_type", json!("PER_TENSOR")), &calls(&[4], 5), "quantized cache");
    refuse(kind, with("sliding_window_cache", json!(1)), &calls(&[4], 5), "sliding_window_cache");
    refuse(kind, with("unheard", json!(1)), &calls(&[4], 5), "`unheard`");
    let wide = [&calls(&[4], 5)[..], &[None, None, None, f(&[3, 2, 2, 5])]].concat();
    refuse(kind, heads(), &wide, "broadcast");
    let kind = "com.microsoft.MultiHeadAttention@1";
    refuse(kind, json!({}), &own(), "num_heads");
    refuse(kind, json!({"num_heads": 2}), &own(), "do not fit");
    let own = || [f(&[1, 2, 8]), f(&[1, 2, 8]), f(&[1, 2, 8])];
    refuse(kind, json!({"num_heads": 2}), &[&own()[..], &[f(&[23])]].concat(), "bias");
    refuse(kind, json!({"num_heads": 2}), &[&own()[..], &[None, ints(&[3; 5])]].concat(), "mask");
    refuse(kind, json!({"num_heads": 2}), &[f(&[1, 2, 2, 3, 4]), None, None], "packed");
    let kind = "com.microsoft.Attention@1";
    refuse(kind, json!({"num_heads": 2}), &[f(&[1, 2, 3]), f(&[4, 12])], "cannot be multiplied");
    refuse(kind, json!({"num_heads": 2}), &[f(&[1, 2, 3]), f(&[3, 13])], "hidden sizes");
    let sizes = json!({"num_heads": 2, "qkv_hidden_sizes": {"ints": [i64::MAX, 4, 4]}});
    refuse(kind, sizes, &[f(&[1, 2, 3]), f(&[3, 12])], "hidden sizes");
    let kind = "com.microsoft.MatMulNBits@1";
    let bytes = |count: usize| Some(count_up(DType::U8, &[count]));
    let sizes = |k: i64, n: i64, block: i64| json!({"K": k, "N": n, "block_size": block});
    refuse(kind, sizes(16, 2, 15), &[f(&[1, 16]), bytes(16), f(&[2])], "block_size");
    refuse(kind, sizes(16, 0, 16), &[f(&[1, 16]), bytes(16), f(&[2])], "`N`");
    refuse(kind, sizes(16, 2, 16), &[f(&[1, 16]), bytes(15), f(&[2])], "15 bytes");
    refuse(kind, sizes(16, 2, 16), &[f(&[1, 15]), bytes(16), f(&[2])], "sums of 16");
    refuse(kind, sizes(16, 2, 16), &[f(&[1, 16]), bytes(16), f(&[3])], "3 scales");
    refuse(kind, sizes(16, 2, 16), &[f(&[1, 16]), bytes(16), f(&[2]), bytes(3)], "3 bytes");
    refuse(kind, sizes(1 << 30, 1 << 30, 16), &[f(&[1, 16]), bytes(16), f(&[2])], "sums of");
    refuse(kind, sizes(16, 1 << 30, 16), &[f(&[1, 16]), bytes(16), f(&[2])], "2^31");
    refuse(kind, sizes(16, 2, 16), &[f(&[1, 16]), bytes(16), f(&[2]), None, ints(&[0; 16])], "g_idx");
    let kind = "com.microsoft.FusedGemm@1";
    refuse(kind, json!({"activation": "Softmax"}), &[f(&[1, 2]), f(&[2, 1])], "`Softmax`");
    refuse(kind, json!({"activation": "LeakyRelu"}), &[f(&[1, 2]), f(&[2, 1])], "no parameter");
    let kind = "com.microsoft.RotaryEmbedding@1";
    refuse(kind, json!({}), &[f(&[1, 2, 2, 4]), ints(&[7]), f(&[8, 2]), f(&[8, 2])], "position");
    refuse(kind, json!({}), &[f(&[1, 2, 2, 4]), ints(&[0; 3]), f(&[8, 2]), f(&[8, 2])], "2 positions");
    refuse(kind, json!({"scale": 2.0}), &[f(&[1, 2, 2, 4]), ints(&[0]), f(&[8, 2]), f(&[8, 2])], "scale");
}

#[test]
fn sizes_of_zero_give_empty_results() {
    let shape = |kind: &str, attributes, inputs: &[Option<Tensor>]| {
        evaluate(kind, attributes, inputs).unwrap()[0].as_ref().unwrap().shape().to_vec()
    };
    assert_eq!(shape("onnx.Conv@11", json!({}), &[f(&[0, 2, 5, 5]), f(&[3, 2, 3, 3])]), [0, 3, 3, 3]);
    assert_eq!(shape("onnx.MatMul@13", json!({}), &[f(&[0, 3]), f(&[3, 2])]), [0, 2]);
    assert_eq!(
        evaluate("onnx.MatMul@13", json!({}), &[f(&[2, 0]), f(&[0, 2])]).unwrap()[0]
            .as_ref()
            .unwrap()
            .to_f64(),
        [0.0; 4]
    );
    assert_eq!(shape("onnx.MaxPool@12", json!({"kernel_shape": [2, 2]}), &[f(&[0, 2, 4, 4])]), [0, 2, 3, 3]);
    assert_eq!(shape("onnx.Softmax@13", json!({}), &[f(&[2, 0])]), [2, 0]);
    assert_eq!(shape("onnx.LayerNormalization@17", json!({}), &[f(&[2, 0]), f(&[0])]), [2, 0]);
    assert_eq!(
        shape("onnx.LSTM@14", json!({}), &[f(&[0, 2, 4]), f(&[1, 20, 4]), f(&[1, 20, 5])]),
        [0, 1, 2, 5]
    );
    assert_eq!(shape("onnx.Einsum@12", json!({"equation": "ij,jk"}), &[f(&[2, 0]), f(&[0, 3])]), [2, 3]);
    assert_eq!(shape("onnx.Resize@18", json!({}), &[f(&[0, 3]), None, None, ints(&[0, 6])]), [0, 6]);
    assert_eq!(shape("onnx.NonMaxSuppression@11", json!({}), &[f(&[1, 0, 4]), f(&[1, 2, 0])]), [0, 3]);
    assert_eq!(
        shape("onnx.Attention@23", json!({}), &[f(&[1, 2, 0, 4]), f(&[1, 2, 3, 4]), f(&[1, 2, 3, 4])]),
        [1, 2, 0, 4]
    );
}

#[test]
fn a_scan_of_rows_without_elements_is_bounded() {
    let body = json!({"graph": {"inputs": ["a"], "nodes": [], "outer": {}, "outputs": ["a"]}});
    let attributes = json!({"body": body, "num_scan_inputs": 1});
    refuse("onnx.Scan@16", attributes, &[f(&[1 << 31, 0])], "turns");
}
