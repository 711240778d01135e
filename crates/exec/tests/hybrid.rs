//! Hybrids of two platforms on the host: any placement computes what the source alone does, faults of the target show.

#![allow(clippy::unwrap_used)]

mod common;

use common::{FUSED, PLAIN, SPARSE, Toy, distance, ids, model};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tapml_device::Finding;
use tapml_exec::{
    Call, CpuPlatform, Hybrid, HybridSide, KernelChoice, Loaded, Observer, Phase, Platform, PlatformInfo,
    Session, Sink,
};
use tapml_graph::op::OPS;
use tapml_graph::{DType, Error, ErrorKind, Model, Node, Op, Result, Symbols, Tensor, TensorType};

/// The reference under another name, which counts what it loads, lacks one operator and disturbs another.
#[derive(Default)]
struct Fake {
    cpu: CpuPlatform,
    loads: usize,
    lacks: &'static str,
    wrong: &'static str,
    breaks: bool,
    /// How many graphs it may hold at once, and how many it does.
    room: Option<usize>,
    held: Arc<AtomicUsize>,
}

/// Counts as held while it lives.
struct Counted(Box<dyn Loaded>, Arc<AtomicUsize>);

impl Loaded for Counted {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        self.0.run(symbols, inputs, observer)
    }

    fn reset(&mut self) -> Result<()> {
        self.0.reset()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Disturbed(Box<dyn Loaded>);

/// Fails at its third run.
struct Breaks(Box<dyn Loaded>, usize);

impl Loaded for Breaks {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        self.1 += 1;
        match self.1 {
            3 => Err(Error::new(ErrorKind::OutOfMemory, "broken")),
            _ => self.0.run(symbols, inputs, observer),
        }
    }

    fn reset(&mut self) -> Result<()> {
        self.0.reset()
    }
}

impl Loaded for Disturbed {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        let outputs = self.0.run(symbols, inputs, observer)?;
        let disturb = |tensor: Tensor| {
            let values = tensor.to_f32().iter().map(|v| v * 1.01).collect();
            Tensor::from_f32_as(tensor.dtype(), tensor.shape().to_vec(), values)
        };
        outputs.into_iter().map(|(name, tensor)| Ok((name, disturb(tensor)?))).collect()
    }

    fn reset(&mut self) -> Result<()> {
        self.0.reset()
    }
}

impl Platform for Fake {
    fn word(&self) -> &str {
        "fake"
    }

    fn describe(&self) -> PlatformInfo {
        self.cpu.describe()
    }

    fn kernel_for(&self, op: &Op, inputs: &[TensorType], phase: Phase) -> Result<KernelChoice> {
        self.cpu.kernel_for(op, inputs, phase)
    }

    fn replay(&mut self, calls: &[Call], sink: &mut Sink<'_>) -> Result<()> {
        self.cpu.replay(calls, sink)
    }

    fn load(&mut self, model: &Model, capacity: &Symbols) -> Result<Box<dyn Loaded>> {
        let has = |name: &str| model.graph().nodes().iter().any(|n| n.op.name() == name);
        if has(self.lacks) {
            return Err(Error::unsupported(format!("no kernel for `{}`", self.lacks)));
        }
        if self.room.is_some_and(|room| self.held.load(Ordering::Relaxed) >= room) {
            return Err(Error::new(ErrorKind::OutOfMemory, "no room"));
        }
        self.loads += 1;
        self.held.fetch_add(1, Ordering::Relaxed);
        let loaded = Box::new(Counted(self.cpu.load(model, capacity)?, self.held.clone()));
        Ok(if has(self.wrong) {
            Box::new(Disturbed(loaded))
        } else if self.breaks {
            Box::new(Breaks(loaded, 0))
        } else {
            loaded as Box<dyn Loaded>
        })
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }

    fn memory(&self) -> (u64, u64) {
        (0, 0)
    }
}

fn on_target(ops: &[&str]) -> impl Fn(&Node) -> HybridSide {
    move |node| if ops.contains(&node.op.name()) { HybridSide::Target } else { HybridSide::Source }
}

fn capacity() -> Symbols {
    Symbols::np(16, 31)
}

/// Prefill in two runs, then decode.
fn steps(hybrid: &mut Hybrid) -> Vec<u8> {
    let ids = ids(12);
    let mut bytes = Vec::new();
    for range in [0..5, 5..9, 9..10, 10..11, 11..12] {
        bytes.extend_from_slice(hybrid.logits(&ids[range]).unwrap().bytes());
    }
    bytes
}

#[test]
fn every_placement_by_operator_equals_the_source_bitwise() {
    let half = Toy { dtype: DType::F16, ..FUSED };
    let sparse = Toy { sparse: true, ..PLAIN };
    for toy in [PLAIN, FUSED, half, sparse, SPARSE, Toy { last_row: true, ..PLAIN }] {
        let model = model(toy);
        let (mut source, mut target) = (CpuPlatform::new(), CpuPlatform::new());
        let mut hybrid =
            Hybrid::new(&model, &mut source, &mut target, &|_| HybridSide::Source, &capacity()).unwrap();
        assert_eq!(
            hybrid.segments().collect::<Vec<_>>(),
            [(HybridSide::Source, model.graph().nodes().len())]
        );
        let plain = steps(&mut hybrid);
        for (op, _) in model.graph().op_kinds() {
            hybrid.place(&mut source, &mut target, &on_target(&[op])).unwrap();
            assert!(hybrid.segments().any(|(side, _)| side == HybridSide::Target), "{op}");
            assert!(steps(&mut hybrid) == plain, "{op} on the target changes the logits");
            let nodes: usize = hybrid.segments().map(|(_, nodes)| nodes).sum();
            assert_eq!(nodes, model.graph().nodes().len());
            assert_eq!(hybrid.position(), 12);
        }
        for seed in 1..8u32 {
            let mixed =
                |n: &Node| match n.name.bytes().fold(seed, |h, b| h.wrapping_mul(31) ^ u32::from(b)) >> 7 & 1
                {
                    0 => HybridSide::Source,
                    _ => HybridSide::Target,
                };
            hybrid.place(&mut source, &mut target, &mixed).unwrap();
            assert!(steps(&mut hybrid) == plain, "mixed placement {seed} changes the logits");
        }
        hybrid.place(&mut source, &mut target, &|_| HybridSide::Target).unwrap();
        assert_eq!(hybrid.segments().count(), 1);
        assert!(steps(&mut hybrid) == plain);
    }
}

#[test]
fn a_wrong_target_operator_changes_the_logits() {
    let model = model(PLAIN);
    let mut source = CpuPlatform::new();
    for info in OPS.iter().filter(|o| model.graph().op_kinds().iter().any(|(name, _)| *name == o.name)) {
        let mut target = Fake { wrong: info.name, ..Fake::default() };
        let place = &[info.name];
        let mut hybrid =
            Hybrid::new(&model, &mut source, &mut target, &on_target(place), &capacity()).unwrap();
        let right = Session::new(&mut source, &model, 16).unwrap().forward(&ids(12)).unwrap();
        let wrong = hybrid.logits(&ids(12)).unwrap();
        assert!(distance(&wrong, &right) > 1e-5, "{}", info.name);
    }
}

#[test]
fn segments_are_reused_and_a_failed_placement_keeps_the_old_one() {
    let model = model(PLAIN);
    let (mut source, mut target) = (CpuPlatform::new(), Fake { lacks: "silu", ..Fake::default() });
    let mut hybrid =
        Hybrid::new(&model, &mut source, &mut target, &on_target(&["linear"]), &capacity()).unwrap();
    let plain = steps(&mut hybrid);
    let loads = target.loads;
    let before: Vec<_> = hybrid.segments().collect();
    let error = hybrid.place(&mut source, &mut target, &on_target(&["linear", "silu"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("on fake"), "{error}");
    assert_eq!(hybrid.segments().collect::<Vec<_>>(), before);
    hybrid.reset().unwrap();
    assert!(steps(&mut hybrid) == plain);

    hybrid.place(&mut source, &mut target, &on_target(&["linear", "attention"])).unwrap();
    hybrid.place(&mut source, &mut target, &on_target(&["linear"])).unwrap();
    let all = target.loads;
    hybrid.place(&mut source, &mut target, &on_target(&["linear", "attention"])).unwrap();
    assert_eq!(target.loads, all, "segments of the placement before are loaded again");
    assert!(all > loads);
    assert!(steps(&mut hybrid) == plain);
}

#[test]
fn wrong_steps_are_refused() {
    let model = model(PLAIN);
    let (mut source, mut target) = (CpuPlatform::new(), CpuPlatform::new());
    let small = Symbols::np(4, 7);
    let mut hybrid = Hybrid::new(&model, &mut source, &mut target, &|_| HybridSide::Source, &small).unwrap();
    assert!(hybrid.run(&ids(5)).unwrap_err().to_string().contains("n = 4"));
    assert!(hybrid.run(&[99]).unwrap_err().to_string().contains("outside the vocabulary"));
    assert_eq!(hybrid.logits(&ids(8)).unwrap().shape(), [8, common::VOCAB]);
    assert!(hybrid.run(&[1]).unwrap_err().to_string().contains("context of 8"));
    hybrid.reset().unwrap();
    assert_eq!(hybrid.run(&[1]).unwrap()["logits"].shape(), [1, common::VOCAB]);
}

#[test]
fn a_step_that_fails_leaves_a_state_that_says_so_until_reset() {
    let model = model(PLAIN);
    let (mut source, mut target) = (CpuPlatform::new(), Fake { breaks: true, ..Fake::default() });
    let mut session = Session::new(&mut target, &model, 16).unwrap();
    let mut hybrid =
        Hybrid::new(&model, &mut source, &mut target, &on_target(&["rope_angles"]), &capacity()).unwrap();
    let first = session.forward(&[1]).unwrap();
    hybrid.run(&[1]).unwrap();
    session.forward(&[2]).unwrap();
    hybrid.run(&[2]).unwrap();
    let broken = session.forward(&[3]).unwrap_err();
    assert!(broken.to_string().contains("step of 1 tokens at position 2"), "{broken}");
    let broken = hybrid.run(&[3]).unwrap_err();
    assert!(broken.to_string().contains("target segment: broken"), "{broken}");
    for error in [session.forward(&[3]).unwrap_err(), hybrid.run(&[3]).unwrap_err()] {
        assert!(error.to_string().contains("state is undefined"), "{error}");
        assert!(error.hint().unwrap().contains("reset"));
    }
    session.reset().unwrap();
    hybrid.reset().unwrap();
    assert_eq!(session.forward(&[1]).unwrap().bytes()[..], first.bytes()[..]);
    assert_eq!(hybrid.run(&[1]).unwrap()["logits"].bytes()[..], first.bytes()[..]);
}

#[test]
fn segments_nobody_needs_are_freed_when_memory_runs_out() {
    let model = model(PLAIN);
    let (mut source, mut target) = (CpuPlatform::new(), Fake { room: Some(5), ..Fake::default() });
    let five = on_target(&["rms_norm"]);
    let mut hybrid = Hybrid::new(&model, &mut source, &mut target, &five, &capacity()).unwrap();
    let plain = steps(&mut hybrid);
    for op in ["embedding", "attention", "silu", "rms_norm"] {
        hybrid.place(&mut source, &mut target, &on_target(&[op])).unwrap();
        assert!(steps(&mut hybrid) == plain, "{op}");
    }
    let error = hybrid.place(&mut source, &mut target, &on_target(&["linear"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(hybrid.run(&[1]).unwrap_err().to_string().contains("no placement"));
    hybrid.place(&mut source, &mut target, &five).unwrap();
    assert!(steps(&mut hybrid) == plain);
}
