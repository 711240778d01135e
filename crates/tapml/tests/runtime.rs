//! Modules compiled for a device, uploaded and called with tensors of the caller.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use tapml::ErrorKind;
use tapml::device::FindingKind;
use tapml::graph::{DType, Graph, Tensor as Host};
use tapml::import::Checkpoint;
use tapml::runtime::{
    CompileOptions, Device, DeviceTensor, Function, Module, OwnKernel, compile, parse_groups,
};

fn emulator() -> Device {
    Device::open("emulator?check=all").unwrap()
}

fn function(device: &Device, module: Module) -> Function {
    let name = module.name().to_string();
    let library = compile(&[module], device, &CompileOptions::default()).unwrap();
    library.upload(device).unwrap().function(&name).unwrap()
}

fn f32s(device: &Device, shape: &[usize], values: &[f32]) -> DeviceTensor {
    DeviceTensor::new(device, &Host::from_f32(shape.to_vec(), values.to_vec()).unwrap()).unwrap()
}

fn values(tensor: &DeviceTensor) -> Vec<f32> {
    tensor.read().unwrap().to_f32().into_owned()
}

#[test]
fn an_operator_writes_its_destination() {
    let device = emulator();
    let types = ["f32[n,3]".parse().unwrap(), "f32[n,3]".parse().unwrap()];
    let add = function(&device, Module::op("add", json!({}), &types).unwrap());
    for rows in [1, 2, 5] {
        let shape = [rows, 3];
        let numbers: Vec<f32> = (0..rows * 3).map(|i| i as f32).collect();
        let (a, b) = (f32s(&device, &shape, &numbers), f32s(&device, &shape, &vec![0.5; rows * 3]));
        let c = DeviceTensor::allocate(&device, shape.to_vec(), DType::F32).unwrap();
        add.call(&[&a, &b, &c]).unwrap();
        let expected: Vec<f32> = numbers.iter().map(|v| v + 0.5).collect();
        assert_eq!(values(&c), expected);
        let again = add.call_new(&[&c, &b]).unwrap();
        assert_eq!(values(&again[0]), expected.iter().map(|v| v + 0.5).collect::<Vec<_>>());
    }
    assert!(device.take_findings().is_empty());
}

#[test]
fn wrong_arguments_are_refused_before_anything_runs() {
    let device = emulator();
    let types = ["f32[n,3]".parse().unwrap(), "f32[n,3]".parse().unwrap()];
    let add = function(&device, Module::op("add", json!({}), &types).unwrap());
    let a = f32s(&device, &[2, 3], &[1.0; 6]);
    let other = f32s(&device, &[3, 3], &[1.0; 9]);
    let flat = f32s(&device, &[6], &[1.0; 6]);
    let half = DeviceTensor::allocate(&device, vec![2, 3], DType::F16).unwrap();
    let elsewhere = f32s(&emulator(), &[2, 3], &[1.0; 6]);
    let c = DeviceTensor::allocate(&device, vec![2, 3], DType::F32).unwrap();
    for (arguments, said) in [
        (vec![&a], "1 arguments, expected 3"),
        (vec![&a, &other, &c], "must be f32[2, 3]"),
        (vec![&a, &flat, &c], "f32[6]"),
        (vec![&a, &a, &half], "f16[2, 3]"),
        (vec![&a, &elsewhere, &c], "is on"),
        (vec![&a, &c, &c], "given twice"),
    ] {
        let error = add.call(&arguments).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(said), "{error}");
        assert!(error.to_string().contains("function `add`"), "{error}");
    }
    add.call(&[&a, &a, &c]).unwrap();
    assert_eq!(values(&c), [2.0; 6]);
}

#[test]
fn a_graph_keeps_its_states_between_calls() {
    let device = emulator();
    let text = "graph memory\ninput x: f32[n,4]\nstate s: f32[p,4] -> all\n\
                all: f32[n+p,4] = append(s, x)\ndouble: f32[n,4] = add(x, x)\noutput all = all\noutput double = double\n";
    let memory = function(&device, Module::graph(Graph::parse(text).unwrap(), HashMap::new()).unwrap());
    let call = |start: f32, rows: usize| {
        let numbers: Vec<f32> = (0..rows * 4).map(|i| start + i as f32).collect();
        let outputs = memory.call_new(&[&f32s(&device, &[rows, 4], &numbers)]).unwrap();
        assert_eq!(values(&outputs[1]), numbers.iter().map(|v| 2.0 * v).collect::<Vec<_>>());
        values(&outputs[0])
    };
    assert_eq!(call(0.0, 2), (0..8).map(|i| i as f32).collect::<Vec<_>>());
    assert_eq!(memory.position(), Some(2));
    assert_eq!(call(8.0, 1), (0..12).map(|i| i as f32).collect::<Vec<_>>());
    memory.reset().unwrap();
    assert_eq!(call(5.0, 1), [5.0, 6.0, 7.0, 8.0]);
}

const SAXPY: &str = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
override alpha: f32;
@compute @workgroup_size(64) fn saxpy(@builtin(global_invocation_id) id: vec3u) {
    if id.x < arrayLength(&x) { y[id.x] = alpha * x[id.x] + y[id.x]; }
}
";

#[test]
fn a_kernel_of_ones_own_runs_in_the_order_of_its_bindings() {
    let device = emulator();
    let types = ["f32[n]".parse().unwrap(), "f32[n]".parse().unwrap()];
    let alpha = [("alpha".to_string(), 3.0)];
    for groups in [None, Some(parse_groups(&["n/64".into()]).unwrap())] {
        let kernel = OwnKernel::new("saxpy.wgsl", SAXPY, None, &alpha, &types, groups).unwrap();
        let saxpy = function(&device, Module::kernel(kernel));
        let (y, x) = (f32s(&device, &[100], &[1.0; 100]), f32s(&device, &[100], &[2.0; 100]));
        saxpy.call(&[&y, &x]).unwrap();
        saxpy.call(&[&y, &x]).unwrap();
        assert_eq!(values(&y), [13.0; 100]);
    }
    let error = OwnKernel::new("saxpy.wgsl", SAXPY, None, &alpha, &types[..1], None).unwrap_err();
    assert!(error.hint().unwrap().contains("y, x"), "{error}");
    for bad in ["", "x y", "n/0", "-1"] {
        assert!(parse_groups(&[bad.into()]).is_err(), "{bad}");
    }
}

#[test]
fn zeros_that_were_asked_for_may_be_read_and_those_of_an_output_may_not() {
    let device = emulator();
    let types = ["f32[n]".parse().unwrap(), "f32[n]".parse().unwrap()];
    let kernel = OwnKernel::new("saxpy.wgsl", SAXPY, None, &[("alpha".to_string(), 3.0)], &types, None);
    let saxpy = function(&device, Module::kernel(kernel.unwrap()));
    let x = f32s(&device, &[10], &[2.0; 10]);
    let y = DeviceTensor::allocate(&device, vec![10], DType::F32).unwrap();
    saxpy.call(&[&y, &x]).unwrap();
    assert_eq!(values(&y), [6.0; 10]);
    assert!(device.take_findings().is_empty());
    saxpy.call_new(&[&x]).unwrap();
    device.wait().unwrap();
    let found = device.take_findings();
    assert!(found.iter().any(|f| f.kind == FindingKind::UninitializedRead), "{found:?}");
}

#[test]
fn a_language_model_reads_long_texts_in_parts_and_decodes() {
    let device = Device::open("emulator").unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/llama");
    let checkpoint = Checkpoint::open(folder).unwrap();
    let module = Module::model(checkpoint.model().clone(), Some(checkpoint.context()));
    let options = |step| CompileOptions { step: Some(step), context: Some(12), ..CompileOptions::default() };
    let load = |step| {
        let library = compile(std::slice::from_ref(&module), &device, &options(step)).unwrap();
        assert_eq!(library.functions().collect::<Vec<_>>(), ["prefill", "decode", "forward"]);
        library.upload(&device).unwrap()
    };
    let ids: Vec<u32> = (1..=9).map(|i| i * 37).collect();
    let tensor = |ids: &[u32]| {
        DeviceTensor::new(&device, &Host::from_u32(vec![ids.len()], ids.to_vec()).unwrap()).unwrap()
    };
    let whole = load(16);
    let expected = values(&whole.function("prefill").unwrap().call_new(&[&tensor(&ids)]).unwrap()[0]);
    let columns = expected.len() / ids.len();

    let parts = load(4);
    let (prefill, decode) = (parts.function("prefill").unwrap(), parts.function("decode").unwrap());
    let first = values(&prefill.call_new(&[&tensor(&ids[..8])]).unwrap()[0]);
    let last = values(&decode.call_new(&[&tensor(&ids[8..])]).unwrap()[0]);
    assert_eq!((first.len() + last.len(), decode.position()), (expected.len(), Some(9)));
    for (i, (found, wanted)) in first.iter().chain(&last).zip(&expected).enumerate() {
        assert!((found - wanted).abs() < 1e-3, "{i} of {columns} columns: {found} instead of {wanted}");
    }
    assert!(decode.call_new(&[&tensor(&ids[..2])]).unwrap_err().hint().unwrap().contains("forward"));
    let long = parts.function("forward").unwrap().call_new(&[&tensor(&ids[..4])]).unwrap_err();
    assert!(long.to_string().contains("context of 12"), "{long}");
    assert_eq!(decode.position(), Some(9), "nothing was read");
    let long = prefill.call_new(&[&tensor(&[1; 13])]).unwrap_err();
    assert!(long.to_string().contains("context of 12"), "{long}");
    assert_eq!(decode.position(), Some(9), "nothing was forgotten");
    prefill.call_new(&[&tensor(&ids[..8])]).unwrap();
    assert_eq!(decode.position(), Some(8));
}

#[test]
fn memory_is_given_back() {
    let device = emulator();
    let types = ["f32[1000]".parse().unwrap(), "f32[1000]".parse().unwrap()];
    let add = function(&device, Module::op("add", json!({}), &types).unwrap());
    let before = device.memory().0;
    for _ in 0..50 {
        let a = f32s(&device, &[1000], &[1.0; 1000]);
        drop(add.call_new(&[&a, &a]).unwrap());
    }
    assert_eq!(device.memory().0, before);
    drop(add);
    assert_eq!(device.memory().0, 0);
}

#[test]
fn names_that_do_not_exist_are_answered_with_those_that_do() {
    let device = emulator();
    let types = ["f32[4]".parse().unwrap(), "f32[4]".parse().unwrap()];
    let add = Module::op("add", json!({}), &types).unwrap();
    let twice = compile(&[add.clone(), add.clone()], &device, &CompileOptions::default()).unwrap_err();
    assert!(twice.to_string().contains("two functions are called `add`"));
    let both = [add.clone(), add.with_name("plus").unwrap()];
    let library = compile(&both, &device, &CompileOptions::default()).unwrap();
    let error = library.upload(&device).unwrap().function("minus").unwrap_err();
    assert!(error.hint().unwrap().contains("add, plus"));
    assert!(Device::open("cpu").unwrap_err().hint().is_some());
}
