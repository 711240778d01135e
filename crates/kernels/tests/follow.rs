//! Generation that feeds itself on the device gives the tokens that a host would have chosen step by step.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{devices, toy_llama, weights};
use tapml_graph::{DType, ErrorKind, Symbols, Tensor};
use tapml_kernels::{CompileOptions, Instance, KernelCache, compile};

const PROMPT: [u32; 4] = [3, 14, 15, 9];
const COUNT: u64 = 5;

fn given(ids: &[u32]) -> Tensor {
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
fn followed_tokens_are_those_that_a_host_would_choose() {
    for act in [DType::F32, DType::F16] {
        let graph = toy_llama(act);
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
            let prompt = |instance: &mut Instance, device: &mut dyn tapml_device::Device| {
                let symbols = Symbols::np(PROMPT.len() as u64, 0);
                let logits =
                    instance.step(device, &symbols, &[("ids", &given(&PROMPT))], &["logits"]).unwrap();
                greatest(&logits[0])
            };
            let mut token = prompt(&mut instance, device);
            let first = token;
            let mut expected = Vec::new();
            for p in PROMPT.len() as u64..PROMPT.len() as u64 + COUNT {
                let symbols = Symbols::np(1, p);
                let logits =
                    instance.step(device, &symbols, &[("ids", &given(&[token]))], &["logits"]).unwrap();
                token = greatest(&logits[0]);
                expected.push(token);
            }
            // Twice: what following needs is made once, and leaves other runs as they were.
            for _ in 0..2 {
                assert_eq!(prompt(&mut instance, device), first);
                let at = (PROMPT.len() as u64, first);
                let tokens = instance.follow(device, &mut cache, at, COUNT).unwrap();
                assert_eq!(tokens, expected, "{act} on {}", device.info().name);
            }
            let beyond = instance.follow(device, &mut cache, (38, first), COUNT).unwrap_err();
            assert_eq!(beyond.kind(), ErrorKind::InvalidInput);
            assert!(device.take_findings().is_empty());
            instance.unload(device).unwrap();
            cache.clear(device).unwrap();
            assert_eq!(device.memory().0, 0, "everything is freed");
        }
    }
}
