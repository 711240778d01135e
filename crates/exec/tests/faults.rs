//! What goes wrong on a device: kernels that leave elements out, dispatches that fail, memory that runs out, devices
//! that get lost.
#![allow(clippy::unwrap_used)]

mod common;

use common::silu::{silu, silu_kernel};
use common::{PLAIN, ids, model};
use std::collections::HashMap;
use tapml_device::{Command, Device, Error, ErrorKind, FindingKind, ListId, Result};
use tapml_emulator::{Checks, Emulator, EmulatorOptions};
use tapml_exec::{
    Call, CpuPlatform, DevicePlatform, Hybrid, HybridSide, LoadOptions, Overrides, POISON, Phase, Platform,
    Session,
};
use tapml_graph::{Symbols, Tensor};

/// SiLU that leaves the first element out.
fn leaves_out() -> Overrides {
    silu_kernel("if at > 0u && at < count { y[at] = to_act(f32(x[at]) / (1.0 + exp(-f32(x[at])))); }")
}

fn replay(
    platform: &mut DevicePlatform,
    calls: &[Call],
) -> (Result<()>, HashMap<usize, Result<Vec<Tensor>>>) {
    let mut results = HashMap::new();
    let ended = platform.replay(calls, &mut |i, result| assert!(results.insert(i, result).is_none()));
    (ended, results)
}

#[test]
fn elements_that_a_kernel_leaves_out_are_not_numbers() {
    let device = Emulator::new(EmulatorOptions::default()).unwrap();
    let mut platform = DevicePlatform::new(Box::new(device), leaves_out());
    let (_, results) = replay(&mut platform, &[silu("a", 1), silu("b", 2)]);
    for result in results.values() {
        let values = result.as_ref().unwrap()[0].to_f32().into_owned();
        assert!(values[0].is_nan() && values[1..].iter().all(|v| v.is_finite()));
    }
}

#[test]
fn changed_overrides_change_kernels_from_then_on() {
    let device = Emulator::new(EmulatorOptions::default()).unwrap();
    let mut platform = DevicePlatform::new(Box::new(device), Overrides::default());
    let call = silu("a", 1);
    let built_in = platform.kernel_for(&call.op, &call.input_types, Phase::of_run(&call.symbols)).unwrap();
    let first = |platform: &mut DevicePlatform| {
        let (_, results) = replay(platform, std::slice::from_ref(&call));
        results[&0].as_ref().unwrap()[0].to_f32()[0]
    };
    assert!(first(&mut platform).is_finite());
    platform.set_overrides(leaves_out()).unwrap();
    let own = platform.kernel_for(&call.op, &call.input_types, Phase::of_run(&call.symbols)).unwrap();
    assert_eq!(own.name, "silu/silu.wgsl");
    assert_ne!(own.hash, built_in.hash);
    assert!(first(&mut platform).is_nan());
    platform.set_overrides(Overrides::default()).unwrap();
    assert!(first(&mut platform).is_finite());
    assert_eq!(
        platform.kernel_for(&call.op, &call.input_types, Phase::of_run(&call.symbols)).unwrap(),
        built_in
    );
}

#[test]
fn a_loaded_graph_that_reads_what_was_left_out_is_found_by_a_checking_device() {
    let checks =
        EmulatorOptions { check: Checks { uninit: true, ..Checks::NONE }, ..EmulatorOptions::default() };
    let mut platform = DevicePlatform::new(Box::new(Emulator::new(checks).unwrap()), leaves_out());
    platform = platform.with_memory(true, true);
    let model = model(PLAIN);
    Session::new(&mut platform, &model, 8).unwrap().forward(&ids(3)).unwrap();
    let findings = platform.take_findings();
    assert!(findings.iter().all(|f| f.kind == FindingKind::UninitializedRead), "{findings:?}");
    assert!(findings.iter().any(|f| f.label == "0.mul"), "{findings:?}");
}

#[test]
fn what_was_left_out_holds_the_word_that_memory_is_filled_with() {
    let model = model(PLAIN);
    let silu = model.graph().nodes().iter().find(|n| n.op.name() == "silu").unwrap();
    let input = &model.graph().value(silu.inputs[0]).name;
    for fill in [None, Some(12345678.0f32.to_bits())] {
        let device = Emulator::new(EmulatorOptions::default()).unwrap();
        let mut target = DevicePlatform::new(Box::new(device), leaves_out());
        let trace = [silu.name.clone()].into();
        let options = LoadOptions { poison: Some(true), fill, trace, ..LoadOptions::default() };
        let on_target = |node: &tapml_graph::Node| {
            if node.name == silu.name { HybridSide::Target } else { HybridSide::Source }
        };
        let (source, capacity) = (&mut CpuPlatform::new(), Symbols::np(8, 8));
        let mut whole =
            Hybrid::with_options(&model, source, &mut target, &on_target, &capacity, options).unwrap();
        whole.run(&ids(3)).unwrap();
        let traced = whole.traced_nodes().unwrap();
        assert_eq!(traced[0].outputs[0].to_f32()[0].to_bits(), fill.unwrap_or(POISON));
        // The rows that three tokens do not need were left alone.
        assert_eq!(traced[0].out_of_bounds_bytes, [0]);
        let found = traced[0].inputs[0].as_ref().unwrap();
        assert_eq!(whole.crossing_value(input).unwrap().bytes()[..], found.bytes()[..]);
    }
}

/// What a [`Flaky`] device refuses.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Lists with a dispatch of this label.
    Label(&'static str),
    /// Lists of more than this many dispatches, for lack of memory.
    Longer(usize),
    /// Everything from the first list with a dispatch of this label on.
    Lost(&'static str),
}

/// An emulator that refuses some lists.
struct Flaky {
    device: Emulator,
    fault: Fault,
}

impl Device for Flaky {
    tapml_device::forward!(device: info, create_buffer, destroy_buffer, write, read, create_kernel,
        destroy_kernel, replay, destroy_list, wait, take_findings, memory);

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        let labels = commands.iter().filter_map(|c| match c {
            Command::Dispatch { label, .. } => Some(label.as_str()),
            _ => None,
        });
        let labels: Vec<&str> = labels.collect();
        match self.fault {
            Fault::Label(bad) if labels.contains(&bad) => Err(Error::invalid("refused")),
            Fault::Longer(most) if labels.len() > most => Err(Error::new(ErrorKind::OutOfMemory, "too many")),
            Fault::Lost(bad) if labels.contains(&bad) => Err(Error::new(ErrorKind::DeviceLost, "gone")),
            _ => self.device.record(commands),
        }
    }
}

fn flaky(fault: Fault) -> DevicePlatform {
    let device = Flaky { device: Emulator::new(EmulatorOptions::default()).unwrap(), fault };
    DevicePlatform::new(Box::new(device), Overrides::default())
}

fn calls() -> Vec<Call> {
    (0..21).map(|i| silu(if i == 13 { "bad" } else { "good" }, i)).collect()
}

#[test]
fn a_call_that_fails_on_the_device_fails_alone() {
    let mut platform = flaky(Fault::Label("bad"));
    let before = platform.memory().0;
    let (ended, results) = replay(&mut platform, &calls());
    ended.unwrap();
    assert_eq!(results.len(), 21);
    for (i, result) in &results {
        assert_eq!(result.is_err(), *i == 13);
    }
    assert_eq!(results[&13].as_ref().unwrap_err().to_string(), "node `bad`: refused");
    assert_eq!(platform.memory().0, before, "buffers of failed batches stay");
}

#[test]
fn batches_shrink_to_what_memory_allows() {
    let (ended, results) = replay(&mut flaky(Fault::Longer(3)), &calls());
    ended.unwrap();
    assert!(results.len() == 21 && results.values().all(Result::is_ok));
    let (ended, results) = replay(&mut flaky(Fault::Longer(0)), &calls());
    ended.unwrap();
    assert!(results.values().all(|r| r.as_ref().is_err_and(|e| e.kind() == ErrorKind::OutOfMemory)));
}

#[test]
fn a_lost_device_ends_the_replay() {
    let (ended, results) = replay(&mut flaky(Fault::Lost("bad")), &calls());
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::DeviceLost);
    assert!(results.values().all(Result::is_ok));
}
