//! Devices whose connection is lost and that open again: results have the same bits wherever it was, findings are complete,
//! and work that loses its device each time ends with the loss.
#![allow(clippy::unwrap_used)]

mod common;

use common::silu::{silu, silu_kernel};
use common::{FUSED, PLAIN, ids, model};
use std::sync::{Arc, Mutex};
use tapml_device::{
    BufferId, Command, Device, Error, ErrorKind, Finding, KernelDesc, KernelId, ListId, Result,
};
use tapml_emulator::{Checks, Emulator, EmulatorOptions};
use tapml_exec::{Call, DevicePlatform, Interface, LoadOptions, Overrides, Platform, Session};
use tapml_graph::Symbols;

/// What a [`Far`] device is to do, and has done.
#[derive(Default)]
struct Plan {
    calls: usize,
    /// The calls at which it is lost.
    cuts: Vec<usize>,
    lost: bool,
    reopened: usize,
}

/// An emulator that is lost as its plan says, with all that is on it, and opens again.
struct Far {
    device: Emulator,
    options: EmulatorOptions,
    plan: Arc<Mutex<Plan>>,
}

impl Far {
    fn call(&mut self) -> Result<&mut Emulator> {
        let mut plan = self.plan.lock().unwrap();
        plan.calls += 1;
        plan.lost |= plan.cuts.contains(&plan.calls);
        let lost = || Error::new(ErrorKind::DeviceLost, "the way is gone");
        if plan.lost { Err(lost()) } else { Ok(&mut self.device) }
    }
}

macro_rules! calls {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)+) => {
        $(fn $name(&mut self, $($arg: $ty),*) -> Result<$out> { self.call()?.$name($($arg),*) })+
    };
}

impl Device for Far {
    tapml_device::forward!(device: info, memory);
    calls! {
        create_buffer(label: &str, size: u64) -> BufferId;
        destroy_buffer(buffer: BufferId) -> ();
        write(buffer: BufferId, offset: u64, data: &[u8]) -> ();
        read(buffer: BufferId, offset: u64, out: &mut [u8]) -> ();
        create_kernel(desc: &KernelDesc) -> KernelId;
        destroy_kernel(kernel: KernelId) -> ();
        record(commands: &[Command]) -> ListId;
        replay(list: ListId, symbols: &Symbols) -> ();
        destroy_list(list: ListId) -> ();
        wait() -> ();
    }
    fn take_findings(&mut self) -> Vec<Finding> {
        self.call().map_or(Vec::new(), |device| device.take_findings())
    }
    fn reopens(&self) -> bool {
        true
    }
    fn reopen(&mut self, lost: Error) -> Result<()> {
        assert_eq!(lost.kind(), ErrorKind::DeviceLost);
        let mut plan = self.plan.lock().unwrap();
        self.device = Emulator::new(self.options)?;
        // No handle is given twice.
        while self.device.create_buffer("used up", 4)?.0 < plan.calls as u64 {}
        (plan.lost, plan.reopened) = (false, plan.reopened + 1);
        Ok(())
    }
}

fn open_far(
    options: EmulatorOptions,
    overrides: Overrides,
    plan: Plan,
) -> (DevicePlatform, Arc<Mutex<Plan>>) {
    let plan = Arc::new(Mutex::new(plan));
    let device = Emulator::new(options).unwrap();
    let device = Far { device, options, plan: plan.clone() };
    (DevicePlatform::new(Box::new(device), overrides), plan)
}

/// Does the work once without a loss, and once with a loss at each call of the device (every `stride` of them); all give the
/// same.
fn same_wherever_lost<T: PartialEq>(stride: usize, work: &dyn Fn(Plan) -> (T, Arc<Mutex<Plan>>)) {
    let (expected, plan) = work(Plan::default());
    let calls = plan.lock().unwrap().calls;
    for cut in (1..=calls).step_by(stride) {
        let (found, plan) = work(Plan { cuts: vec![cut], ..Plan::default() });
        assert!(found == expected, "lost at call {cut} of {calls}");
        assert!(plan.lock().unwrap().reopened <= 1, "lost at call {cut} of {calls}");
    }
    // The second loss comes while things are brought back after the first, or soon after.
    let (found, plan) = work(Plan { cuts: vec![calls / 2, calls / 2 + calls / 3], ..Plan::default() });
    assert!(found == expected && plan.lock().unwrap().reopened == 2, "lost twice");
}

#[test]
fn sessions_give_the_same_bits_wherever_the_device_was_lost() {
    let model = model(FUSED);
    same_wherever_lost(2, &|plan| {
        let (mut platform, plan) = open_far(EmulatorOptions::default(), Overrides::default(), plan);
        let mut session = Session::greedy(&mut platform, &model, 48, Some(4)).unwrap();
        let mut found = Vec::new();
        for ids in [&ids(6)[..], &[1]] {
            found.push(session.forward(ids).unwrap().bytes().to_vec());
        }
        let tokens = session.generate_greedily(3, 5).unwrap().unwrap();
        found.push(session.forward(&tokens).unwrap().bytes().to_vec());
        session.reset().unwrap();
        found.push(session.forward(&[2, 3]).unwrap().bytes().to_vec());
        ((found, tokens), plan)
    });
}

#[test]
fn traced_values_are_the_same_wherever_the_device_was_lost() {
    let model = model(PLAIN);
    let interface = Interface::from_graph(model.graph()).unwrap();
    let trace = model.graph().nodes().iter().map(|node| node.name.clone()).collect();
    let options = LoadOptions { trace, ..LoadOptions::default() };
    same_wherever_lost(7, &|plan| {
        let (mut platform, plan) = open_far(EmulatorOptions::default(), Overrides::default(), plan);
        let mut loaded = platform.load_with(&model, &Symbols::np(4, 8), &options).unwrap();
        let mut found = Vec::new();
        for (tokens, p) in [(3, 0), (2, 3)] {
            let inputs = interface.inputs(&ids(tokens)).unwrap();
            loaded.run(&Symbols::np(tokens as u64, p), &inputs, None).unwrap();
            let traced = loaded.traced_nodes().unwrap();
            found.extend(traced.iter().flat_map(|node| &node.outputs).map(|t| t.bytes().to_vec()));
        }
        (found, plan)
    });
}

/// SiLU that reads one element behind its own.
fn out_of_bounds_overrides() -> Overrides {
    silu_kernel("if at < count { y[at] = x[at + select(0u, arrayLength(&x), at == 7u)]; }")
}

/// Replays calls; their outputs in their order.
fn replay(platform: &mut DevicePlatform, calls: &[Call]) -> Result<Vec<Vec<u8>>> {
    let mut outputs = vec![None; calls.len()];
    platform.replay(calls, &mut |i, found| {
        assert!(outputs[i].replace(found.unwrap()[0].bytes().to_vec()).is_none(), "call {i} twice");
    })?;
    Ok(outputs.into_iter().map(Option::unwrap).collect())
}

#[test]
fn replays_and_their_findings_are_the_same_wherever_the_device_was_lost() {
    let options =
        EmulatorOptions { check: Checks { bounds: true, ..Checks::NONE }, ..EmulatorOptions::default() };
    // Two batches.
    let calls: Vec<Call> = (0..1003).map(|i| silu("one", i % 7)).collect();
    same_wherever_lost(3, &|plan| {
        let (mut platform, plan) = open_far(options, out_of_bounds_overrides(), plan);
        let outputs = replay(&mut platform, &calls).unwrap();
        let found: u64 = platform.take_findings().iter().map(|finding| finding.count).sum();
        assert_eq!(found, 1003, "findings of all calls, once each");
        platform.set_overrides(Overrides::default()).unwrap();
        let after = replay(&mut platform, &calls[..3]).unwrap();
        ((outputs, after), plan)
    });
}

#[test]
fn a_replay_that_loses_its_device_each_time_ends_with_the_loss() {
    let (mut platform, plan) = open_far(
        EmulatorOptions::default(),
        Overrides::default(),
        Plan { cuts: (1..100).collect(), ..Plan::default() },
    );
    let error = replay(&mut platform, &[silu("a", 1)]).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::DeviceLost, "the way is gone"));
    assert!(error.detail("repeated").is_some_and(|text| text.contains("3 times")), "{error:?}");
    assert_eq!(plan.lock().unwrap().reopened, 2);
}
