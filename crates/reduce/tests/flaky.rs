//! A failure that does not show in every run is reduced all the same, and said to be flaky.
#![allow(clippy::unwrap_used)]

mod common;

use common::{FAULTS, Suites};
use std::time::Duration;
use tapml_device::Finding;
use tapml_exec::{Call, DevicePlatform, KernelChoice, Loaded, NodePlan, Phase, Platform, PlatformInfo, Sink};
use tapml_graph::{Error, ErrorKind, Model, Op, Result, Symbols, TensorType};
use tapml_migrate::{Oracles, Stop};
use tapml_reduce::{ReduceOptions, Reproducer, reduce};

/// Two devices: of so many calls one goes to the wrong one.
struct Flaky {
    wrong: DevicePlatform,
    right: DevicePlatform,
    every: usize,
    calls: usize,
    /// After so many calls the device is lost.
    lost_after: usize,
    /// After so many calls the user asks to stop.
    stop_after: usize,
    stop: Stop,
}

impl Platform for Flaky {
    fn word(&self) -> &str {
        "flaky"
    }

    fn describe(&self) -> PlatformInfo {
        self.wrong.describe()
    }

    fn kernel_for(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<KernelChoice> {
        self.wrong.kernel_for(op, inputs, phase)
    }

    fn plan(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<NodePlan> {
        self.wrong.plan(op, inputs, phase)
    }

    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()> {
        for (i, call) in calls.iter().enumerate() {
            self.calls += 1;
            if self.calls > self.stop_after {
                self.stop.request();
            }
            if self.calls > self.lost_after {
                return Err(Error::new(ErrorKind::DeviceLost, "the device was lost"));
            }
            let side = if self.calls.is_multiple_of(self.every) { &mut self.wrong } else { &mut self.right };
            side.replay(std::slice::from_ref(call), &mut |_, outputs| sink(i, outputs))?;
        }
        Ok(())
    }

    fn load(&mut self, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
        self.right.load(model, capacity)
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }

    fn memory(&self) -> (u64, u64) {
        (0, 0)
    }
}

fn run(every: usize, lost_after: usize) -> Result<Option<(tapml_reduce::Reduced, Flaky)>> {
    run_until(every, lost_after, usize::MAX)
}

fn run_until(
    every: usize,
    lost_after: usize,
    stop_after: usize,
) -> Result<Option<(tapml_reduce::Reduced, Flaky)>> {
    let fault = FAULTS.iter().find(|f| f.name == "wrong head mapping").unwrap();
    let [wrong, right] = [fault.text(), fault.right()].map(|text| fault.platform(&text));
    let mut platform = Flaky { wrong, right, every, calls: 0, lost_after, stop_after, stop: Stop::new() };
    let (_, call, recorded) = Suites::default().first_failing(fault, &mut platform.wrong);
    let options = ReduceOptions { limit: Duration::from_secs(600), simplify: true };
    let stop = platform.stop.clone();
    let found = reduce(call, &recorded, &mut platform, &Oracles::new(0), &options, &stop)?;
    Ok(found.map(|found| (found, platform)))
}

#[test]
fn one_wrong_run_of_three_is_enough() {
    let (found, platform) = run(3, usize::MAX).unwrap().expect("it fails once in three runs");
    assert!(found.smallest.elements() <= 8, "{:?}", found.smallest.call);
    let stability = found.stability;
    assert!(!stability.steady() && (5..8).contains(&stability.failed), "{stability:?}");
    assert!(found.simplified.is_none(), "values are not simplified by chance");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("bug");
    Reproducer::new(&found, "p0.s0.x", &platform).unwrap().write(&out, false).unwrap();
    let readme = std::fs::read_to_string(out.join("README.md")).unwrap();
    assert!(readme.contains(&format!("in {} of 20 runs", stability.failed)), "{readme}");
}

#[test]
fn what_never_fails_in_three_runs_passes() {
    assert!(run(1000, usize::MAX).unwrap().is_none());
}

#[test]
fn a_lost_device_ends_the_search() {
    let error = run(1, 20).err().expect("no call can be run any more");
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
}

#[test]
fn a_search_that_is_stopped_gives_the_smallest_so_far() {
    let (whole, _) = run(1, usize::MAX).unwrap().unwrap();
    let (found, _) = run_until(1, usize::MAX, 10).unwrap().expect("it fails");
    assert!(!found.minimal && found.trials < whole.trials, "{} of {} trials", found.trials, whole.trials);
    assert!(found.smallest.elements() < found.whole.elements());
    assert!(found.simplified.is_none());
}
