//! States of a fixed shape: zero at the start and after a reset, carried over the steps, the same whether tokens come all
//! at once or one by one, on every platform and moved between two.
#![allow(clippy::unwrap_used)]

mod common;

use common::recurrent::recurrent;
use common::{distance, ids};
use std::collections::HashMap;
use tapml_emulator::{Checks, Emulator, EmulatorOptions};
use tapml_exec::{CpuPlatform, DevicePlatform, Hybrid, HybridSide, Interface, Overrides, Platform, Session};
use tapml_graph::{DType, Node, Symbols, Tensor};
use tapml_wgpu::WgpuDevice;

const TOKENS: usize = 12;

fn emulator(check: Checks) -> DevicePlatform {
    let device = Emulator::new(EmulatorOptions { check, ..EmulatorOptions::default() }).unwrap();
    DevicePlatform::new(Box::new(device), Overrides::default())
}

/// Every platform of this machine.
fn platforms() -> Vec<Box<dyn Platform>> {
    let mut all: Vec<Box<dyn Platform>> =
        vec![Box::new(CpuPlatform::new()), Box::new(emulator(Checks::NONE))];
    match WgpuDevice::open("vulkan", 0, "") {
        Ok(device) => all.push(Box::new(DevicePlatform::new(Box::new(device), Overrides::default()))),
        Err(e) => tapml_testing::skip("vulkan", &e.to_string()),
    }
    all
}

fn whole(platform: &mut dyn Platform, dtype: DType) -> Tensor {
    Session::new(platform, &recurrent(dtype), 16).unwrap().forward(&ids(TOKENS)).unwrap()
}

#[test]
fn steps_equal_prefill_on_every_platform_and_a_reset_forgets() {
    let expected = whole(&mut CpuPlatform::new(), DType::F32);
    for mut platform in platforms() {
        let (model, ids) = (recurrent(DType::F32), ids(TOKENS));
        for chunk in [1, 5, 16] {
            let mut session = Session::with_chunk(platform.as_mut(), &model, 16, chunk).unwrap();
            for _ in 0..2 {
                let mut rows = Vec::new();
                for range in [0..4, 4..5, 5..6, 6..TOKENS] {
                    rows.push(session.forward(&ids[range]).unwrap());
                }
                let off = distance(&Tensor::concat_rows(&rows).unwrap(), &expected);
                assert!(off <= 2e-5, "{}, chunks of {chunk}: {off}", platform.word());
                session.reset().unwrap();
            }
        }
    }
    let zeros = whole(&mut CpuPlatform::new(), DType::F32);
    assert_eq!(zeros.bytes()[..], expected.bytes()[..]);
}

#[test]
fn the_state_matters() {
    let mut platform = CpuPlatform::new();
    let model = recurrent(DType::F32);
    let mut session = Session::new(&mut platform, &model, 16).unwrap();
    session.forward(&[1, 2, 3]).unwrap();
    let after = session.forward(&[4]).unwrap();
    session.reset().unwrap();
    let alone = session.forward(&[4]).unwrap();
    assert!(distance(&after, &alone) > 1e-2);
}

#[test]
fn f16_activations_keep_f32_states() {
    let expected = whole(&mut CpuPlatform::new(), DType::F16);
    for mut platform in platforms().into_iter().skip(1) {
        let off = distance(&whole(platform.as_mut(), DType::F16), &expected);
        assert!(off <= 2e-2, "{}: {off}", platform.word());
    }
}

#[test]
fn checks_and_poison_find_nothing() {
    let plain = whole(&mut emulator(Checks::NONE), DType::F32);
    let mut checked = emulator(Checks::ALL);
    assert_eq!(whole(&mut checked, DType::F32).bytes()[..], plain.bytes()[..]);
    let findings = checked.take_findings();
    assert!(findings.is_empty(), "{}", findings[0]);
    for (reuse, poison) in [(true, true), (false, true)] {
        let found = whole(&mut emulator(Checks::NONE).with_memory(reuse, poison), DType::F32);
        assert_eq!(found.bytes()[..], plain.bytes()[..], "reuse {reuse}, poison {poison}");
    }
}

fn steps(hybrid: &mut Hybrid) -> Tensor {
    let ids = ids(TOKENS);
    let rows = [0..5, 5..6, 6..7, 7..TOKENS].map(|range| hybrid.logits(&ids[range]).unwrap());
    Tensor::concat_rows(&rows).unwrap()
}

fn on_target(ops: &[&str]) -> impl Fn(&Node) -> HybridSide {
    move |node| if ops.contains(&node.op.name()) { HybridSide::Target } else { HybridSide::Source }
}

#[test]
fn hybrids_move_states_between_platforms() {
    let model = recurrent(DType::F32);
    let capacity = Symbols::np(8, 15);
    let kinds = model.graph().op_kinds();
    for (index, mut target) in platforms().into_iter().enumerate() {
        let mut source = CpuPlatform::new();
        let target = target.as_mut();
        let mut hybrid =
            Hybrid::new(&model, &mut source, target, &|_| HybridSide::Source, &capacity).unwrap();
        let plain = steps(&mut hybrid);
        for (op, _) in &kinds {
            hybrid.place(&mut source, target, &on_target(&[*op])).unwrap();
            let found = steps(&mut hybrid);
            let off = distance(&found, &plain);
            assert!(off <= 2e-5, "{op} on {}: {off}", target.word());
            // The reference on both sides computes the same bits, wherever a state lies.
            assert!(index > 0 || found.bytes()[..] == plain.bytes()[..], "{op}");
            hybrid.reset().unwrap();
            assert_eq!(steps(&mut hybrid).bytes()[..], found.bytes()[..], "{op}: a reset forgets");
        }
        hybrid.place(&mut source, target, &|_| HybridSide::Target).unwrap();
        assert!(distance(&steps(&mut hybrid), &plain) <= 2e-5);
        assert_eq!(hybrid.segments().count(), 1);
    }
}

#[test]
fn a_step_at_another_place_than_the_state_is_refused() {
    let model = recurrent(DType::F32);
    let interface = Interface::from_graph(model.graph()).unwrap();
    for mut platform in platforms() {
        let mut loaded = platform.load(&model, &Symbols::np(4, 15)).unwrap();
        let mut run = |n: usize, p: u64| {
            let inputs: HashMap<String, Tensor> = interface.inputs(&ids(n)).unwrap();
            loaded.run(&Symbols::np(n as u64, p), &inputs, None).map(drop)
        };
        assert!(run(2, 3).unwrap_err().to_string().contains("p is 3"), "{}", platform.word());
        run(2, 0).unwrap();
        assert!(run(2, 0).unwrap_err().to_string().contains("p is 0"), "{}", platform.word());
        run(1, 2).unwrap();
    }
}
