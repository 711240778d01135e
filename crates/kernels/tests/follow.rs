//! Generation that feeds itself on the device gives the tokens that a host would have chosen step by step.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{devices, toy_llama, weights};
use tapml_device::Device;
use tapml_graph::{DType, ErrorKind, NEXT_TOKEN, Symbols, Tensor};
use tapml_kernels::{CompileOptions, Instance, KernelCache, OutputRows, Phase, ProgramStep, compile};

const PROMPT: [u32; 4] = [3, 14, 15, 9];
const COUNT: u64 = 5;

fn ids_tensor(ids: &[u32]) -> Tensor {
    Tensor::from_u32(vec![ids.len()], ids.to_vec()).unwrap()
}

/// The first place of the greatest number of the last row.
fn greatest(logits: &Tensor) -> u32 {
    let width = logits.shape()[1];
    let values = logits.to_f64();
    let row = &values[values.len() - width..];
    (0..width).fold(0, |best, at| if row[at] > row[best] { at } else { best }) as u32
}

#[test]
fn the_choice_is_a_launch_of_the_program() {
    let graph = toy_llama(DType::F32).greedy().unwrap().unwrap();
    let device = common::emulator("");
    let program = compile(&graph, device.info(), &CompileOptions::new(Symbols::np(8, 40))).unwrap();
    let rows = |phase: Phase| -> Vec<&str> {
        let steps = program.steps.iter().filter(|step| step.runs_in(phase));
        let chosen = steps.filter_map(|step| match step {
            ProgramStep::Dispatch { node, row, .. } if node == NEXT_TOKEN => Some(row.as_str()),
            _ => None,
        });
        chosen.collect()
    };
    // The copy of what was found before is left out: the state grows in place.
    assert_eq!(rows(Phase::Decode), ["argmax/portable"; 2]);
    assert_eq!(rows(Phase::Prefill), ["argmax/portable"; 2]);
}

#[test]
fn logits_that_are_no_numbers_are_told_with_their_position() {
    let graph = toy_llama(DType::F32).greedy().unwrap().unwrap();
    let mut weights = weights(&graph);
    let head = weights.keys().find(|name| name.contains("head")).cloned();
    let head = head.or_else(|| weights.keys().find(|name| name.contains("embed")).cloned()).unwrap();
    let shape = weights[&head].shape().to_vec();
    let (dtype, mut values) = (weights[&head].dtype(), weights[&head].to_f64());
    let width = shape[1];
    values[17 * width..18 * width].fill(f64::INFINITY);
    weights.insert(head, Tensor::from_f64(dtype, shape, &values).unwrap());
    let mut device = common::emulator("");
    let options = CompileOptions::new(Symbols::np(8, 40));
    let program = compile(&graph, device.info(), &options).unwrap();
    let give = |name: &str| Ok(weights[name].clone());
    let mut cache = KernelCache::new();
    let mut instance = Instance::load_with(&mut device, &mut cache, &program, &give).unwrap();
    let error = instance.generate_greedily(&mut device, &mut cache, (0, 3), 4).unwrap_err();
    assert!(error.to_string().contains("the logits at position 0 some are not finite"), "{error}");
}

#[test]
fn followed_tokens_are_those_that_a_host_would_choose() {
    for act in [DType::F32, DType::F16] {
        let plain = toy_llama(act);
        let graph = plain.greedy().unwrap().unwrap();
        let weights = weights(&graph);
        let give = |name: &str| Ok(weights[name].clone());
        for mut device in devices() {
            let device = device.as_mut();
            if act == DType::F16 && !device.info().features.f16 {
                continue;
            }
            let options = CompileOptions::new(Symbols::np(8, 40));
            let program = compile(&graph, device.info(), &options).unwrap();
            let mut cache = KernelCache::new();
            let mut instance = Instance::load_with(device, &mut cache, &program, &give).unwrap();
            let prompt = |instance: &mut Instance, device: &mut dyn Device| {
                let symbols = Symbols::np(PROMPT.len() as u64, 0);
                let logits = instance
                    .step(device, &symbols, &[("ids", &ids_tensor(&PROMPT))], &[OutputRows::whole("logits")])
                    .unwrap();
                greatest(&logits[0])
            };
            let mut token = prompt(&mut instance, device);
            let first = token;
            let mut expected = Vec::new();
            for p in PROMPT.len() as u64..PROMPT.len() as u64 + COUNT {
                let symbols = Symbols::np(1, p);
                let logits = instance
                    .step(device, &symbols, &[("ids", &ids_tensor(&[token]))], &[OutputRows::whole("logits")])
                    .unwrap();
                token = greatest(&logits[0]);
                expected.push(token);
            }
            // Twice: what following needs is made once, and leaves other runs as they were.
            for _ in 0..2 {
                assert_eq!(prompt(&mut instance, device), first);
                let at = (PROMPT.len() as u64, first);
                let tokens = instance.generate_greedily(device, &mut cache, at, COUNT).unwrap();
                assert_eq!(tokens, expected, "{act} on {}", device.info().name);
            }
            let beyond = instance.generate_greedily(device, &mut cache, (38, first), COUNT).unwrap_err();
            assert_eq!(beyond.kind(), ErrorKind::InvalidInput);
            assert!(device.take_findings().is_empty());
            instance.unload(device).unwrap();
            let program = compile(&plain, device.info(), &options).unwrap();
            let mut alone = Instance::load_with(device, &mut cache, &program, &give).unwrap();
            let refused = alone.generate_greedily(device, &mut cache, (0, 3), 1).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "the program chooses no token");
            alone.unload(device).unwrap();
            cache.clear(device).unwrap();
            assert_eq!(device.memory().0, 0, "everything is freed");
        }
    }
}
