//! Whole programs: a toy Llama compiled, run with prefill and decode, replayed at other sizes, with memory reused or not.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{devices, emulator, null, tensor_type, toy_llama, weights};
use std::collections::HashMap;
use tapml_device::Device;
use tapml_graph::op::{Add, LastRow, Silu};
use tapml_graph::{Builder, DType, ErrorKind, Graph, Symbols, Tensor};
use tapml_kernels::{CompileOptions, Content, Instance, KernelCache, Program, ProgramStep, compile};
use tapml_reference::{Real, Value, empty_states, run_graph};

/// The steps of a conversation: prefill, decode, more prefill, decode.
const STEPS: [usize; 7] = [5, 1, 1, 9, 1, 17, 2];

fn ids(count: usize, at: usize) -> Tensor {
    let ids = (0..count).map(|i| ((at + i) * 7 + 3) as u32 % common::VOCAB as u32).collect();
    Tensor::from_u32(vec![count], ids).unwrap()
}

fn options() -> CompileOptions {
    CompileOptions::new(Symbols::np(17, 64))
}

fn run_steps(
    device: &mut dyn Device,
    cache: &mut KernelCache,
    program: &Program,
    steps: &[usize],
) -> Vec<(Tensor, Tensor)> {
    let weights = weights(&toy_llama(DType::F32));
    let give = |name: &str| Ok(weights[name].clone());
    let mut instance = Instance::load_with(device, cache, program, &give).unwrap();
    let (mut at, mut results) = (0, Vec::new());
    for &n in steps {
        let symbols = Symbols::np(n as u64, at as u64);
        instance.run(device, &symbols, &[("ids", &ids(n, at))]).unwrap();
        let logits = instance.read(device, "logits", &symbols).unwrap();
        results.push((logits, instance.read(device, "hidden", &symbols).unwrap()));
        at += n;
    }
    let findings = device.take_findings();
    assert!(findings.is_empty(), "{}", findings.iter().map(|f| format!("{f}\n")).collect::<String>());
    instance.unload(device).unwrap();
    assert_eq!(device.memory().0, 0, "everything is freed");
    results
}

fn reference<T: Real>(graph: &Graph) -> Vec<(Vec<f64>, Vec<f64>)> {
    let weights = weights(graph);
    let give = |name: &str| Value::<T>::from_tensor(&weights[name]);
    let (mut at, mut states, mut results) = (0, empty_states(graph).unwrap(), Vec::new());
    for n in STEPS {
        let inputs = HashMap::from([("ids".to_string(), Value::from_tensor(&ids(n, at)).unwrap())]);
        let run =
            run_graph::<T>(graph, &Symbols::np(n as u64, at as u64), &inputs, &give, states, None).unwrap();
        let values = |name| -> Vec<f64> {
            let array = run.output(name).unwrap().as_float().unwrap();
            array.values().iter().map(|v| v.to_f64()).collect()
        };
        results.push((values("logits"), values("hidden")));
        states = run.states;
        at += n;
    }
    results
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), v| (sum + v * v, count + 1));
    (sum / f64::from(count.max(1))).sqrt()
}

#[test]
fn prefill_and_decode_are_as_exact_as_the_reference_in_f32() {
    let graph = toy_llama(DType::F32);
    let (exact, single) = (reference::<f64>(&graph), reference::<f32>(&graph));
    for mut device in devices() {
        let mut cache = KernelCache::new();
        let program = compile(&graph, device.info(), &options()).unwrap();
        let found = run_steps(device.as_mut(), &mut cache, &program, &STEPS);
        for (step, ((logits, hidden), (exact, single))) in
            found.iter().zip(exact.iter().zip(&single)).enumerate()
        {
            for (found, exact, single) in [(logits, &exact.0, &single.0), (hidden, &exact.1, &single.1)] {
                let values = found.to_f64();
                assert_eq!(values.len(), exact.len());
                // The reference's own error in the same precision sets the scale.
                let scale = rms(single.iter().zip(exact).map(|(a, b)| a - b));
                let error = values.iter().zip(exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                let name = &device.info().name;
                assert!(error <= 16.0 * scale, "step {step} on {name}: error {error:e}, scale {scale:e}");
            }
        }
    }
}

#[test]
fn memory_plans_change_no_bit() {
    for mut device in devices() {
        let mut cache = KernelCache::new();
        for act in [DType::F32, DType::F16] {
            if act == DType::F16 && !device.info().features.f16 {
                tapml_testing::skip("f16", &device.info().name);
                continue;
            }
            let graph = toy_llama(act);
            let mut all = Vec::new();
            for (reuse_memory, poison) in [(true, false), (false, false), (true, true), (false, true)] {
                let options = CompileOptions { reuse_memory, poison, ..options() };
                let program = compile(&graph, device.info(), &options).unwrap();
                let results = run_steps(device.as_mut(), &mut cache, &program, &STEPS);
                all.push((program.memory(), results));
            }
            for (_, results) in &all {
                for ((logits, hidden), (first_logits, first_hidden)) in results.iter().zip(&all[0].1) {
                    assert_eq!(logits.bytes()[..], first_logits.bytes()[..]);
                    assert_eq!(hidden.bytes()[..], first_hidden.bytes()[..]);
                }
            }
            assert!(all[0].0.activations * 2 < all[1].0.activations, "{:?} {:?}", all[0].0, all[1].0);
        }
    }
}

#[test]
fn one_list_serves_any_split_of_the_tokens() {
    let (mut device, mut cache) = (emulator(""), KernelCache::new());
    let graph = toy_llama(DType::F32);
    let program = compile(&graph, device.info(), &options()).unwrap();
    let whole: Vec<f64> = {
        let found = run_steps(&mut device, &mut cache, &program, &[17]);
        found[0].0.to_f64()
    };
    for steps in [&[16, 1][..], &[1, 16], &[1; 17], &[3, 5, 9], &[8, 9]] {
        let found = run_steps(&mut device, &mut cache, &program, steps);
        let logits = found.last().unwrap().0.to_f64();
        let scale = rms(whole.iter().copied());
        for (a, b) in logits.iter().zip(&whole) {
            assert!((a - b).abs() <= 64.0 * DType::F32.unit_roundoff() * scale, "{steps:?}: {a} {b}");
        }
    }
}

#[test]
fn states_can_be_read_and_written() {
    let mut device = emulator("check=all");
    let graph = toy_llama(DType::F32);
    let program = compile(&graph, device.info(), &options()).unwrap();
    let (weights, mut cache) = (weights(&graph), KernelCache::new());
    let give = |name: &str| Ok(weights[name].clone());
    let mut first = Instance::load_with(&mut device, &mut cache, &program, &give).unwrap();
    let mut second = Instance::load_with(&mut device, &mut cache, &program, &give).unwrap();
    assert_eq!(cache.len(), program.kernels.len());
    first.run(&mut device, &Symbols::np(6, 0), &[("ids", &ids(6, 0))]).unwrap();
    for state in &program.states {
        let value = first.read_state(&mut device, &state.name, &Symbols::np(1, 6)).unwrap();
        assert_eq!(value.shape()[0], 6);
        second.write_state(&mut device, &state.name, &value).unwrap();
    }
    let symbols = Symbols::np(1, 6);
    let mut logits = Vec::new();
    for instance in [&mut first, &mut second] {
        instance.run(&mut device, &symbols, &[("ids", &ids(1, 6))]).unwrap();
        logits.push(instance.read(&mut device, "logits", &symbols).unwrap());
    }
    assert_eq!(logits[0].bytes()[..], logits[1].bytes()[..]);
    first.unload(&mut device).unwrap();
    second.unload(&mut device).unwrap();
    cache.clear(&mut device).unwrap();
    assert_eq!(device.memory().0, 0);
}

#[test]
fn growing_states_are_extended_in_place_and_weights_are_shared() {
    let program = compile(&toy_llama(DType::F32), null(false).info(), &options()).unwrap();
    assert!(!program.steps.iter().any(|s| matches!(s, ProgramStep::Copy { .. } | ProgramStep::Fill { .. })));
    assert!(!program.kernels.iter().any(|k| k.name == "append/copy"));
    let states: Vec<u64> =
        program.buffers.iter().filter(|b| b.content == Content::State).map(|b| b.size).collect();
    assert_eq!(states, [(17 + 64) * 12 * 4; 4]);
    let tables = program.buffers.iter().filter(|b| b.name == "embed").count();
    assert_eq!(tables, 1, "the head reads the table of the embedding");
    let context = CompileOptions { context: Some(70), ..options() };
    let program = compile(&toy_llama(DType::F32), null(false).info(), &context).unwrap();
    let state = program.buffers.iter().find(|b| b.content == Content::State).unwrap();
    assert_eq!(state.size, 70 * 12 * 4);
}

/// A fixed state that no operator extends: a running sum.
fn counter() -> Graph {
    let mut b = Builder::new("counter");
    let x = b.input("x", tensor_type(DType::F16, "1,5")).unwrap();
    let before = b.state("sum", tensor_type(DType::F16, "1,5")).unwrap();
    let after = b.node("after", Add {}, &[before, x]).unwrap();
    b.set_state(before, after).unwrap();
    let y = b.node("y", Silu {}, &[after]).unwrap();
    b.output("y", y);
    b.finish().unwrap()
}

#[test]
fn other_states_are_copied_back() {
    for mut device in devices() {
        if !device.info().features.f16 {
            tapml_testing::skip("f16", &device.info().name);
            continue;
        }
        let program = compile(&counter(), device.info(), &CompileOptions::new(Symbols::np(1, 1))).unwrap();
        let none = |name: &str| panic!("no weight `{name}`");
        let mut instance = Instance::load(device.as_mut(), &program, &none).unwrap();
        let x = Tensor::from_f64(DType::F16, vec![1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let symbols = Symbols::np(1, 0);
        for _ in 0..3 {
            instance.run(device.as_mut(), &symbols, &[("x", &x)]).unwrap();
        }
        let sum = instance.read_state(device.as_mut(), "sum", &symbols).unwrap();
        assert_eq!(sum.to_f64(), [3.0, 6.0, 9.0, 12.0, 15.0]);
        instance.unload(device.as_mut()).unwrap();
    }
}

#[test]
fn every_unsupported_node_is_listed() {
    let error = compile(&toy_llama(DType::BF16), null(true).info(), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for node in ["embedding", "layer0.norm", "layer1.gated", "norm"] {
        assert!(error.to_string().contains(&format!("node `{node}`")), "{error}");
    }
}

#[test]
fn values_beyond_the_limits_are_unsupported_with_the_numbers() {
    let mut b = Builder::new("wide");
    let x = b.input("x", tensor_type(DType::F32, "n,1000000")).unwrap();
    let last = b.node("last", LastRow {}, &[x]).unwrap();
    b.output("last", last);
    let error = compile(&b.finish().unwrap(), null(false).info(), &CompileOptions::new(Symbols::np(100, 0)))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.detail("asked"), Some("400000000"));
}

#[test]
fn grids_beyond_the_limits_are_unsupported_when_compiled() {
    let graph = toy_llama(DType::F32);
    let error = compile(&graph, null(false).info(), &CompileOptions::new(Symbols::np(65536, 0))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.detail("limit"), Some("max_groups_per_dim"));
    compile(&graph, null(false).info(), &CompileOptions::new(Symbols::np(65535, 0))).unwrap();
}

#[test]
fn wrong_inputs_are_refused_before_anything_runs() {
    let mut device = emulator("");
    let graph = toy_llama(DType::F32);
    let weights = weights(&graph);
    let program = compile(&graph, device.info(), &CompileOptions { context: Some(70), ..options() }).unwrap();
    let mut instance =
        Instance::load(&mut device, &program, &|name: &str| Ok(weights[name].clone())).unwrap();
    let two = ids(2, 0);
    type Case<'a> = (u64, u64, &'a [(&'a str, &'a Tensor)], &'a str);
    let cases: [Case; 7] = [
        (3, 0, &[("ids", &two)], "must be u32[n]"),
        (2, 0, &[("idx", &two)], "is missing"),
        (2, 0, &[("ids", &two), ("idx", &two)], "no input"),
        (2, 0, &[("ids", &two), ("ids", &two)], "twice"),
        (18, 0, &[("ids", &two)], "compiled for"),
        (2, 65, &[("ids", &two)], "compiled for"),
        (8, 63, &[("ids", &two)], "context"),
    ];
    for (n, p, inputs, text) in cases {
        let error = instance.run(&mut device, &Symbols::np(n, p), inputs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(
        instance
            .read(&mut device, "logit", &Symbols::np(1, 0))
            .unwrap_err()
            .hint()
            .unwrap()
            .contains("logits")
    );
    instance.unload(&mut device).unwrap();
    let short = |name: &str| Ok(weights[name].rows(0, 1).unwrap());
    let error = Instance::load(&mut device, &program, &short).unwrap_err();
    assert!(error.to_string().contains("expected"), "{error}");
    assert_eq!(device.memory().0, 0, "a failed load frees what it took");
}
