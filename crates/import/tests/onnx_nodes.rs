//! ONNX's own node tests, read by TapML's reader: every operator with an evaluation gives what the standard's tests expect,
//! in `f32` and in `f64`. `TAPML_ONNX_NODES` names the folder `onnx/backend/test/data/node` of the Python package
//! onnx 1.21.0, the last one that has it.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use tapml_graph::op::Foreign;
use tapml_graph::{DType, Error, ErrorKind, Result, Tensor};
use tapml_import::onnx::{File, OperatorRunner, read_tensor};

/// The tolerances of ONNX's runner for these tests, `onnx/backend/test/loader`.
const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;

/// Core cases that have to be right, so that none is lost unseen.
const LEAST_RIGHT: usize = 996;

/// Parts of the names of cases that are apart: types that no graph holds, texts, sequences and optional values, random
/// numbers, training, previews, and expansions of functions, which other cases test.
const APART: &[&str] = &[
    "bfloat16",
    "float8",
    "float4",
    "FLOAT8",
    "FLOAT4",
    "int4",
    "INT4",
    "int2",
    "INT2",
    "E8M0",
    "BFLOAT16",
    "e4m3",
    "e5m2",
    "string",
    "strnorm",
    "regex",
    "tfidf",
    "sequence",
    "optional",
    "identity_opt",
    "if_opt",
    "if_seq",
    "loop13_seq",
    "loop16_seq",
    "bernoulli",
    "random",
    "training_dropout",
    "dropout_random",
    "adam",
    "adagrad",
    "momentum",
    "nesterov",
    "_expanded",
    "ai_onnx_ml",
    "gradient",
    "flex",
    "image_decoder",
    "tree_ensemble",
    "label_encoder",
    "array_feature",
];

/// Cases whose expected values are not what the operator's text says, each with the reason. They have to stay wrong.
const DISPUTED: &[(&str, &str)] = &[
    (
        "test_resize_downsample_scales_cubic_align_corners",
        "places follow `input · scale − 1`, which is no whole number; the text says the length of the result, as all runtimes do",
    ),
    ("test_resize_downsample_scales_linear_align_corners", "as the cubic one"),
    ("test_dft_inverse", "expects noise of 1.9e-7 where the sum is 0, beyond the tolerance"),
    ("test_dft_inverse_opset19", "as test_dft_inverse"),
    (
        "test_qlinearmatmul_2D_int8_float16",
        "expects −236 to wrap to 20 where the text says that it saturates",
    ),
    ("test_qlinearmatmul_2D_int8_float32", "as the one in f16"),
    ("test_qlinearmatmul_3D_int8_float16", "as the one of two axes"),
    ("test_qlinearmatmul_3D_int8_float32", "as the one of two axes"),
    (
        "test_dynamicquantizelinear",
        "in f64 alone: −2.5 is −127.5 of the exact scale 5/255, a tie, and less of the scale in f32, which the test expects",
    ),
    (
        "test_attention_4d_with_qk_matmul_softcap",
        "the mask stands before the soft cap, which release 1.23 of the standard names a fault; ONNX Runtime 1.32 has it behind",
    ),
    (
        "test_attention_4d_with_qk_matmul_bias",
        "as the one with a soft cap: `qk_matmul_output_mode` counts the two the other way round",
    ),
    (
        "test_attention_3d_with_past_and_present_qk_matmul_bias",
        "as the one with a soft cap: `qk_matmul_output_mode` counts the two the other way round",
    ),
    (
        "test_attention_3d_with_past_and_present_qk_matmul_softcap",
        "as the one with a soft cap: `qk_matmul_output_mode` counts the two the other way round",
    ),
    (
        "test_attention_4d_with_past_and_present_qk_matmul_bias",
        "as the one with a soft cap: `qk_matmul_output_mode` counts the two the other way round",
    ),
    (
        "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask",
        "as the one with a soft cap: `qk_matmul_output_mode` counts the two the other way round",
    ),
    (
        "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
        "as the one with a soft cap: `qk_matmul_output_mode` counts the two the other way round",
    ),
    (
        "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask",
        "as the one with a soft cap: `qk_matmul_output_mode` counts the two the other way round",
    ),
    (
        "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
        "as the one with a soft cap: `qk_matmul_output_mode` counts the two the other way round",
    ),
];

/// Evaluates each node as it comes.
struct Evaluations {
    wide: bool,
}

impl OperatorRunner for Evaluations {
    fn run(&mut self, _: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        let inputs = op.place_inputs(inputs.iter().map(|(tensor, _)| tensor.clone()));
        Ok(tapml_onnx::evaluate(op, &inputs, self.wide)?.into_iter().flatten().collect())
    }
}

/// The tensors of a case, `input_0.pb` and so on, in order. An empty file stands for what is absent.
fn tensors(folder: &Path, kind: &str) -> Result<Vec<Tensor>> {
    let path = |at: usize| folder.join(format!("{kind}_{at}.pb"));
    (0..).map(path).take_while(|path| path.exists()).map(|path| Ok(read_tensor(&path)?.1)).collect()
}

/// Runs a case. `Ok(None)` if it is right, else what is wrong.
fn run(folder: &Path, wide: bool) -> Result<Option<String>> {
    let file = File::open(&folder.join("model.onnx"))?;
    let data = folder.join("test_data_set_0");
    let (inputs, expected) = (tensors(&data, "input")?, tensors(&data, "output")?);
    let names = file.outline().inputs.into_iter().map(|input| input.name);
    let inputs: HashMap<String, Tensor> = names.zip(inputs).collect();
    let traced = file.trace(&inputs, &mut Evaluations { wide })?;
    let outputs = traced.model.graph().outputs();
    if outputs.len() != expected.len() {
        return Err(Error::invalid(format!("{} outputs, expected {}", outputs.len(), expected.len())));
    }
    let found = outputs.iter().map(|output| &traced.values[output.value.0 as usize]);
    Ok(found.zip(&expected).enumerate().find_map(|(at, (found, expected))| {
        difference(found, expected, wide).map(|text| format!("output {at}: {text}"))
    }))
}

/// How a tensor differs from the expected one. Floats of a wide evaluation are rounded to the expected dtype first; constants of
/// the model come as they are.
fn difference(found: &Tensor, expected: &Tensor, wide: bool) -> Option<String> {
    let dtype = expected.dtype();
    let widened = wide && dtype.is_float() && found.dtype() == DType::F64;
    if !widened && found.dtype() != dtype || found.shape() != expected.shape() {
        let (a, b) = (found.shape(), expected.shape());
        return Some(format!("{}{a:?} for {}{b:?}", found.dtype(), expected.dtype()));
    }
    if !dtype.is_float() {
        return (found.bytes()[..] != expected.bytes()[..])
            .then(|| format!("{:?} for {:?}", found.to_i64(), expected.to_i64()));
    }
    let rounded = Tensor::from_f64(dtype, found.shape().to_vec(), &found.to_f64()).ok()?;
    let close = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= ATOL + RTOL * b.abs();
    let pairs = rounded.to_f64().into_iter().zip(expected.to_f64()).enumerate();
    let (at, (a, b)) = pairs.into_iter().find(|&(_, (a, b))| !close(a, b))?;
    Some(format!("{a} for {b} at {at}"))
}

#[test]
fn operators_give_what_the_standards_tests_expect() {
    let Some(nodes) = std::env::var_os("TAPML_ONNX_NODES").map(PathBuf::from) else {
        tapml_testing::skip("onnx-nodes", "TAPML_ONNX_NODES names no folder of ONNX's node tests");
        return;
    };
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&nodes)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    let (mut core, mut right, mut wrong) = (0, 0, BTreeMap::new());
    let mut unserved: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        if APART.iter().any(|part| name.contains(part)) {
            continue;
        }
        core += 1;
        let results = [false, true].map(|wide| run(&case, wide));
        if let Some(error) = results
            .iter()
            .filter_map(|result| result.as_ref().err())
            .find(|e| e.kind() == ErrorKind::Unsupported)
        {
            *unserved.entry(error.to_string()).or_default() += 1;
            continue;
        }
        let problems = results.into_iter().zip(["f32", "f64"]).filter_map(|(result, precision)| {
            let problem = result.unwrap_or_else(|error| Some(error.to_string()))?;
            Some(format!("in {precision}: {problem}"))
        });
        match problems.collect::<Vec<String>>() {
            none if none.is_empty() => right += 1,
            problems => {
                wrong.insert(name, problems.join("; "));
            }
        }
    }
    println!("core cases {core}, served {}, right {right}, wrong {}", right + wrong.len(), wrong.len());
    unserved.iter().for_each(|(why, count)| println!("not served: {count} {why}"));
    wrong.iter().for_each(|(name, problem)| println!("wrong: {name}: {problem}"));
    let disputed = |name: &str| DISPUTED.iter().any(|(own, _)| *own == name);
    let faults: Vec<&String> = wrong.keys().filter(|name| !disputed(name)).collect();
    assert!(faults.is_empty(), "wrong: {faults:?}");
    let settled: Vec<&str> =
        DISPUTED.iter().map(|(name, _)| *name).filter(|&name| !wrong.contains_key(name)).collect();
    assert!(settled.is_empty(), "the list says that these are disputed, and they are right: {settled:?}");
    assert!(right >= LEAST_RIGHT, "{right} cases are right, expected {LEAST_RIGHT} at least");
}
