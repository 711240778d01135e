//! Devices as platforms: loaded graphs, hybrids with every placement and replay agree with the `cpu` platform.
#![allow(clippy::unwrap_used)]

mod common;

use common::{FUSED, PLAIN, Toy, distance, ids, model};
use std::collections::HashMap;
use tapml_device::null::NullDevice;
use tapml_device::{Device, Features, Limits};
use tapml_emulator::{Checks, Emulator, EmulatorOptions};
use tapml_exec::{
    CHUNK, Call, CpuPlatform, DevicePlatform, Hybrid, HybridSide, Interface, Loaded, NodeEvent, Observer,
    Overrides, Phase, Platform, Session, load_watched,
};
use tapml_graph::{DType, ErrorKind, Graph, Model, Origin, Result, Symbols, Tensor};
use tapml_wgpu::WgpuDevice;

const HALF: Toy = Toy { dtype: DType::F16, ..FUSED };

fn null() -> DevicePlatform {
    let features = Features { f16: true, ..Features::default() };
    DevicePlatform::new(Box::new(NullDevice::new(Limits::WEBGPU, features)), Overrides::default())
}

fn emulator(check: Checks) -> DevicePlatform {
    let device = Emulator::new(EmulatorOptions { check, ..EmulatorOptions::default() }).unwrap();
    DevicePlatform::new(Box::new(device), Overrides::default())
}

fn vulkan() -> Option<DevicePlatform> {
    match WgpuDevice::open("vulkan", 0, "") {
        Ok(device) => Some(DevicePlatform::new(Box::new(device), Overrides::default())),
        Err(e) => {
            tapml_testing::skip("vulkan", &e.to_string());
            None
        }
    }
}

/// The devices that compute on this machine.
fn devices() -> Vec<DevicePlatform> {
    std::iter::once(emulator(Checks::NONE)).chain(vulkan()).collect()
}

fn close(toy: Toy) -> f32 {
    if toy.dtype == DType::F16 { 2e-2 } else { 2e-5 }
}

/// Records every node call of a run.
struct Recorder<'a> {
    graph: &'a Graph,
    calls: Vec<Call>,
    outputs: Vec<Vec<Tensor>>,
}

impl Observer for Recorder<'_> {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        let name = |id| match self.graph.value(id) {
            v if v.origin == Origin::Weight => Some(v.name.clone()),
            _ => None,
        };
        self.calls.push(Call {
            node: event.node.name.clone(),
            op: event.node.op.clone(),
            symbols: event.symbols.clone(),
            inputs: event.inputs.to_vec(),
            input_types: self.graph.input_types(event.node),
            weights: event.node.inputs.iter().map(|&id| name(id)).collect(),
            output_types: event.node.outputs.iter().map(|&id| self.graph.value(id).ty.clone()).collect(),
        });
        self.outputs.push(event.outputs.to_vec());
        Ok(())
    }
}

/// Calls and outputs of a prefill and some decode steps on the `cpu` platform.
fn record(model: &Model, decode: usize) -> (Vec<Call>, Vec<Vec<Tensor>>) {
    record_on(CpuPlatform::new().load(model, &Symbols::np(16, 64)).unwrap(), model, decode)
}

/// As [`record`], on what was loaded somewhere.
fn record_on(mut loaded: Box<dyn Loaded>, model: &Model, decode: usize) -> (Vec<Call>, Vec<Vec<Tensor>>) {
    let interface = Interface::from_graph(model.graph()).unwrap();
    let mut recorder = Recorder { graph: model.graph(), calls: Vec::new(), outputs: Vec::new() };
    let mut run = |n: usize, p: usize| {
        let inputs = interface.inputs(&ids(p + n)[p..]).unwrap();
        loaded.run(&Symbols::np(n as u64, p as u64), &inputs, Some(&mut recorder)).unwrap();
    };
    run(9, 0);
    (0..decode).for_each(|step| run(1, 9 + step));
    (recorder.calls, recorder.outputs)
}

#[test]
fn a_watched_device_shows_every_node_as_the_cpu_does() {
    for toy in [PLAIN, FUSED] {
        let model = model(toy);
        let (expected, expected_outputs) = record(&model, 1);
        for mut platform in devices() {
            let loaded = load_watched(&mut platform, &model, &Symbols::np(16, 64)).unwrap();
            let (found, outputs) = record_on(loaded, &model, 1);
            assert_eq!(found.len(), expected.len());
            for ((a, b), (x, y)) in found.iter().zip(&expected).zip(outputs.iter().zip(&expected_outputs)) {
                assert_eq!((&a.node, &a.symbols, x.len()), (&b.node, &b.symbols, y.len()));
                for (a, b) in a.inputs.iter().chain(x).zip(b.inputs.iter().chain(y)) {
                    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
                    assert!(distance(a, b) <= close(toy), "{} {}", platform.word(), distance(a, b));
                }
            }
        }
    }
    let model = model(PLAIN);
    let mut plain = emulator(Checks::NONE).load(&model, &Symbols::np(4, 4)).unwrap();
    let mut recorder = Recorder { graph: model.graph(), calls: Vec::new(), outputs: Vec::new() };
    let inputs = Interface::from_graph(model.graph()).unwrap().inputs(&ids(2)).unwrap();
    let error = plain.run(&Symbols::np(2, 0), &inputs, Some(&mut recorder)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn whole_graphs_agree_with_the_cpu_step_by_step() {
    for mut platform in devices() {
        for toy in [PLAIN, FUSED, HALF, Toy { last_row: true, ..PLAIN }] {
            let (model, ids) = (model(toy), ids(12));
            let mut expected = Session::new(&mut CpuPlatform::new(), &model, 16).unwrap();
            let mut found = Session::with_chunk(&mut platform, &model, 16, 7).unwrap();
            for _ in 0..2 {
                for range in [0..8, 8..9, 9..10, 10..12] {
                    let (a, b) =
                        (found.forward(&ids[range.clone()]).unwrap(), expected.forward(&ids[range]).unwrap());
                    assert!(distance(&a, &b) <= close(toy), "{} {}", platform.word(), distance(&a, &b));
                }
                found.reset().unwrap();
                expected.reset().unwrap();
            }
        }
    }
}

#[test]
fn memory_that_is_poisoned_or_not_reused_changes_nothing() {
    let (model, ids) = (model(FUSED), ids(6));
    let run = |platform: DevicePlatform| {
        let mut platform = platform;
        let mut session = Session::new(&mut platform, &model, 8).unwrap();
        let first = session.forward(&ids[..5]).unwrap();
        let second = session.forward(&ids[5..]).unwrap();
        [first.bytes().to_vec(), second.bytes().to_vec()]
    };
    let plain = run(emulator(Checks::NONE));
    for (reuse, poison) in [(true, true), (false, false), (false, true)] {
        assert_eq!(
            run(emulator(Checks::NONE).with_memory(reuse, poison)),
            plain,
            "reuse {reuse}, poison {poison}"
        );
    }
}

#[test]
fn hybrids_with_every_placement_agree_with_the_cpu() {
    let tokens = ids(9);
    for mut target in devices() {
        for toy in [PLAIN, FUSED] {
            let model = model(toy);
            let mut source = CpuPlatform::new();
            let capacity = Symbols::np(8, 15);
            let mut hybrid =
                Hybrid::new(&model, &mut source, &mut target, &|_| HybridSide::Source, &capacity).unwrap();
            let expected = hybrid.logits(&tokens).unwrap();
            let ops: Vec<&str> = model.graph().op_kinds().iter().map(|(name, _)| *name).collect();
            for accepted in 1..=ops.len() {
                for only in [true, false] {
                    let on = if only { &ops[accepted - 1..accepted] } else { &ops[..accepted] };
                    let side = |node: &tapml_graph::Node| {
                        if on.contains(&node.op.name()) { HybridSide::Target } else { HybridSide::Source }
                    };
                    hybrid.place(&mut source, &mut target, &side).unwrap();
                    let found = hybrid.logits(&tokens).unwrap();
                    let off = distance(&found, &expected);
                    assert!(off <= close(toy), "{} {on:?}: {off}", target.word());
                }
            }
            assert_eq!(
                hybrid.segments().collect::<Vec<_>>(),
                [(HybridSide::Target, model.graph().nodes().len())]
            );
        }
    }
}

#[test]
fn replayed_calls_agree_with_the_recorded_outputs() {
    for mut platform in devices() {
        for toy in [PLAIN, FUSED, HALF] {
            let model = model(toy);
            let (calls, outputs) = record(&model, 30);
            let mut seen = vec![false; calls.len()];
            let mut sink = |i: usize, result: Result<Vec<Tensor>>| {
                assert!(!std::mem::replace(&mut seen[i], true));
                let found = result.unwrap();
                assert_eq!(found.len(), outputs[i].len());
                for (a, b) in found.iter().zip(&outputs[i]) {
                    assert!(distance(a, b) <= close(toy), "{}: {}", calls[i].node, distance(a, b));
                }
            };
            platform.replay(&calls, &mut sink).unwrap();
            assert!(seen.iter().all(|&s| s));
        }
    }
}

#[test]
fn checked_replay_and_runs_find_nothing_in_the_built_in_kernels() {
    let model = model(FUSED);
    let mut platform = emulator(Checks::ALL);
    let (calls, _) = record(&model, 2);
    platform.replay(&calls, &mut |_, result| drop(result.unwrap())).unwrap();
    Session::new(&mut platform, &model, 8).unwrap().forward(&ids(5)).unwrap();
    let findings = platform.take_findings();
    assert!(findings.is_empty(), "{}", findings[0]);
}

#[test]
fn errors_of_single_calls_do_not_lose_the_others() {
    let model = model(PLAIN);
    let (mut calls, _) = record(&model, 3);
    let bad = calls.len() / 2;
    calls[bad].inputs.pop();
    let huge = calls.iter().position(|c| c.op.name() == "silu").unwrap();
    calls[huge].symbols = Symbols::np(9, u64::from(u32::MAX) + 1);
    let mut results: HashMap<usize, Result<Vec<Tensor>>> = HashMap::new();
    emulator(Checks::NONE).replay(&calls, &mut |i, result| drop(results.insert(i, result))).unwrap();
    assert_eq!(results.len(), calls.len());
    for (i, result) in &results {
        assert_eq!(result.is_err(), *i == bad || *i == huge, "{i}");
    }
    let error = results[&bad].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains(&calls[bad].node), "{error}");
    let error = results[&huge].as_ref().unwrap_err();
    assert!(error.to_string().contains("0.silu"), "{error}");
}

#[test]
fn unsupported_calls_say_so() {
    let model = model(HALF);
    let device = NullDevice::new(Limits::WEBGPU, Features::default());
    let mut platform = DevicePlatform::new(Box::new(device), Overrides::default());
    let (calls, _) = record(&model, 0);
    let mut unsupported = 0;
    let mut sink = |i: usize, result: Result<Vec<Tensor>>| {
        if let Err(e) = result {
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
            assert!(e.to_string().contains(&calls[i].node), "{e}");
            unsupported += 1;
        }
    };
    platform.replay(&calls, &mut sink).unwrap();
    assert!(unsupported > 0);
    assert_eq!(platform.load(&model, &Symbols::np(4, 8)).err().unwrap().kind(), ErrorKind::Unsupported);
}

#[test]
fn kernels_have_names_and_hashes() {
    let platform = null();
    let graph = model(PLAIN).graph().clone();
    for node in graph.nodes() {
        let choice = platform.kernel_for(&node.op, &graph.input_types(node), Phase::Prefill).unwrap();
        assert!(choice.name.starts_with(node.op.name()), "{}", choice.name);
        assert_eq!(choice.hash.len(), 64);
    }
    assert_eq!((platform.word(), platform.describe().device.as_str()), ("null", "null device"));
}

#[test]
fn a_loaded_graph_refuses_wrong_steps_and_frees_its_memory() {
    let mut platform = null();
    let model = model(PLAIN);
    let interface = Interface::from_graph(model.graph()).unwrap();
    let inputs = interface.inputs(&[1, 2]).unwrap();
    let mut loaded = platform.load(&model, &Symbols::np(4, 8)).unwrap();
    assert!(platform.memory().0 > 0);
    let error = loaded.run(&Symbols::np(2, 1), &inputs, None).unwrap_err();
    assert!(error.to_string().contains("p is 1, but the states hold 0 rows"), "{error}");
    loaded.run(&Symbols::np(2, 0), &inputs, None).unwrap();
    assert!(loaded.run(&Symbols::np(3, 2), &inputs, None).is_err());
    assert!(loaded.run(&Symbols::np(2, 2), &inputs, None).unwrap_err().to_string().contains("undefined"));
    loaded.reset().unwrap();
    loaded.run(&Symbols::np(2, 0), &inputs, None).unwrap();
    struct Nobody;
    impl Observer for Nobody {
        fn node(&mut self, _: &NodeEvent<'_>) -> Result<()> {
            Ok(())
        }
    }
    let watched = loaded.run(&Symbols::np(2, 2), &inputs, Some(&mut Nobody)).unwrap_err();
    assert_eq!(watched.kind(), ErrorKind::Unsupported);
    drop(loaded);
    assert_eq!(platform.memory().0, 0);
}

#[test]
fn a_device_survives_its_platform() {
    let model = model(PLAIN);
    let mut platform: Box<dyn Platform> = Box::new(emulator(Checks::NONE));
    let mut session = Session::new(platform.as_mut(), &model, 8).unwrap();
    drop(platform);
    assert_eq!(session.forward(&[1, 2, 3]).unwrap().shape(), [3, common::VOCAB]);
    let _: &dyn Fn(Box<dyn Device>) -> DevicePlatform =
        &|device| DevicePlatform::new(device, Overrides::default());
}

#[test]
fn prompts_take_longer_runs_where_tensor_cores_want_them() {
    for (cuda, chunk) in [(None, CHUNK), (Some(90), 512)] {
        let features = Features { f16: true, cuda, ..Features::default() };
        let device = NullDevice::new(Limits::WEBGPU, features);
        assert_eq!(DevicePlatform::new(Box::new(device), Overrides::default()).chunk(), chunk);
    }
}
