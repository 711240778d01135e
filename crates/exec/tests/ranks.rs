//! Several ranks together give what one platform gives, and one that fails ends the step with its number and its place.
#![allow(clippy::unwrap_used)]

mod common;

use common::{FUSED, PLAIN, SPARSE, Toy, distance, ids, model};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tapml_device::Finding;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::Call;
use tapml_exec::{
    CpuPlatform, DevicePlatform, KernelChoice, LoadOptions, Loaded, Observer, Overrides, PagedLimits,
    PagedSession, PagedStep, Phase, Platform, PlatformInfo, RanksPlatform, Session, Sink,
};
use tapml_graph::paged::PageLayout;
use tapml_graph::{Error, ErrorKind, Model, Op, Result, Symbols, Tensor, TensorType};
use tapml_import::{Checkpoint, ImportOptions, LogitRows};

fn cpus(count: usize) -> RanksPlatform {
    let rank = || Box::new(CpuPlatform::new()) as Box<dyn Platform>;
    RanksPlatform::new((0..count).map(|_| rank()).collect()).unwrap()
}

fn emulators(count: usize) -> RanksPlatform {
    let rank = || {
        let device = Emulator::new(EmulatorOptions::default()).unwrap();
        Box::new(DevicePlatform::new(Box::new(device), Overrides::default())) as Box<dyn Platform>
    };
    RanksPlatform::new((0..count).map(|_| rank()).collect()).unwrap()
}

/// Logits of a prompt in two pieces and of steps behind it.
fn logits(platform: &mut dyn Platform, model: &Model) -> Vec<Tensor> {
    let mut session = Session::with_chunk(platform, model, 32, 16).unwrap();
    [&ids(9)[..], &ids(4), &ids(1), &ids(2)[1..]].map(|ids| session.forward(ids).unwrap()).to_vec()
}

/// As far apart as sums of so few terms in another order can be.
fn assert_close(found: &[Tensor], expected: &[Tensor], what: &str) {
    for (found, expected) in found.iter().zip(expected) {
        let far = distance(found, expected);
        assert!(far < 2e-5, "{what}: {far:e}");
    }
}

#[test]
fn ranks_on_the_processor_give_what_one_gives_and_the_same_bits_each_time() {
    for toy in [PLAIN, FUSED, SPARSE, Toy { last_row: true, ..SPARSE }] {
        let model = model(toy);
        let one = logits(&mut CpuPlatform::new(), &model);
        for ranks in [2, 4] {
            let found = logits(&mut cpus(ranks), &model);
            assert_close(&found, &one, &format!("{ranks} ranks"));
            let again = logits(&mut cpus(ranks), &model);
            assert!(found.iter().zip(&again).all(|(a, b)| a.bytes()[..] == b.bytes()[..]));
            // The graph of all ranks on one platform has the same sums in the same order.
            let all = model.with_graph(model.graph().shard(ranks as u32).unwrap()).unwrap();
            let together = logits(&mut CpuPlatform::new(), &all);
            assert!(
                found.iter().zip(&together).all(|(a, b)| a.bytes()[..] == b.bytes()[..]),
                "{ranks} ranks"
            );
        }
    }
}

#[test]
fn ranks_on_emulators_give_what_one_gives() {
    for toy in [FUSED, SPARSE] {
        let model = model(Toy { last_row: true, ..toy });
        let one = logits(&mut CpuPlatform::new(), &model);
        assert_close(&logits(&mut emulators(2), &model), &one, "two emulators");
        let all = model.with_graph(model.graph().shard(2).unwrap()).unwrap();
        let device = Emulator::new(EmulatorOptions::default()).unwrap();
        let mut platform = DevicePlatform::new(Box::new(device), Overrides::default());
        assert_close(&logits(&mut platform, &all), &one, "both ranks on one emulator");
    }
}

#[test]
fn steps_of_several_texts_run_on_ranks() {
    let model = model(FUSED);
    let layout = PageLayout { page: 4, pages: 8, texts: 2, blocks: 3, wanted: None, states: 0 };
    let limits = PagedLimits { layout, rows: 8, wanted: 4 };
    let step = || PagedStep {
        ids: vec![3, 5, 7, 11, 2],
        positions: vec![0, 1, 2, 0, 1],
        texts: vec![0, 0, 0, 1, 1],
        slots: vec![8, 9, 10, 0, 1],
        lengths: vec![3, 3, 3, 2, 2],
        pages: vec![2, 3, 4, 0, 1, 5],
        wanted: vec![2, 4],
        full: std::iter::once(0..2).collect(),
        ..PagedStep::default()
    };
    let run = |platform: &mut dyn Platform| {
        let mut session = PagedSession::new(platform, &model, limits).unwrap();
        session.run(step()).unwrap().full.remove(0)
    };
    let one = run(&mut CpuPlatform::new());
    assert_close(&[run(&mut cpus(2)), run(&mut emulators(2))], &[one.clone(), one], "pages");
}

/// Tokens that are the most likely ones, one after another.
fn greedy(platform: &mut dyn Platform, model: &Model, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut session = Session::new(platform, model, prompt.len() + count).unwrap();
    let (mut tokens, mut fed) = (Vec::new(), prompt.to_vec());
    for _ in 0..count {
        let logits = session.forward(&fed).unwrap();
        let values = logits.to_f32();
        let best = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap();
        tokens.push(best as u32);
        fed = vec![best as u32];
    }
    tokens
}

#[test]
fn trained_models_write_the_same_text_on_two_and_four_ranks() {
    let options = ImportOptions { logits: LogitRows::Last, ..ImportOptions::default() };
    // Grouped queries and tied embeddings; experts; a fused projection of each head, biases, and untied embeddings.
    let bundled = ["llama", "llama_draft"].map(tapml_testing::model);
    let extra = ["qwen2_moe", "gemma2", "gpt_neox", "starcoder2", "phi"].map(tapml_testing::extra_model);
    for folder in bundled.into_iter().chain(extra.into_iter().flatten()) {
        let checkpoint = Checkpoint::open_with(&folder, &options).unwrap();
        let model = checkpoint.model();
        let prompt: Vec<u32> = (0..12).map(|i| 40 + i * 97 % 900).collect();
        let one = greedy(&mut CpuPlatform::new(), model, &prompt, 12);
        for ranks in [2, 4] {
            if model.graph().shard(ranks).is_err() {
                // 6 heads do not divide by 4.
                assert!(ranks == 4 && !folder.ends_with("llama"), "{}", folder.display());
                continue;
            }
            let found = greedy(&mut cpus(ranks as usize), model, &prompt, 12);
            assert_eq!(found, one, "{} on {ranks} ranks", folder.display());
        }
    }
}

/// How a rank fails.
#[derive(Clone, Copy)]
enum Fault {
    Error,
    Panic,
    /// For longer than anybody waits.
    Hang,
}

/// The processor, which fails at a step that begins at this position.
struct Failing {
    cpu: CpuPlatform,
    fault: Fault,
    position: u64,
}

struct FailingLoaded {
    loaded: Box<dyn Loaded>,
    fault: Fault,
    position: u64,
}

impl Loaded for FailingLoaded {
    fn run(
        &mut self,
        symbols: &Symbols,
        inputs: &HashMap<String, Tensor>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<HashMap<String, Tensor>> {
        if symbols.get(tapml_graph::Symbol::P) == Some(self.position) {
            match self.fault {
                Fault::Error => return Err(Error::new(ErrorKind::DeviceLost, "the device fell off the bus")),
                Fault::Panic => panic!("a driver gave up"),
                Fault::Hang => std::thread::sleep(Duration::from_secs(14)),
            }
        }
        self.loaded.run(symbols, inputs, observer)
    }

    fn reset(&mut self) -> Result<()> {
        self.loaded.reset()
    }
}

impl Platform for Failing {
    fn word(&self) -> &str {
        "failing"
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
        let loaded = self.cpu.load(model, capacity)?;
        Ok(Box::new(FailingLoaded { loaded, fault: self.fault, position: self.position }))
    }

    fn load_with(&mut self, model: &Model, capacity: &Symbols, _: &LoadOptions) -> Result<Box<dyn Loaded>> {
        self.load(model, capacity)
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }

    fn memory(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// The error of a step with a rank 1 that fails in it, and the session.
fn failed_step(fault: Fault) -> (Error, Session) {
    let failing = Failing { cpu: CpuPlatform::new(), fault, position: 3 };
    let ranks: Vec<Box<dyn Platform>> = vec![Box::new(CpuPlatform::new()), Box::new(failing)];
    let mut platform = RanksPlatform::new(ranks).unwrap();
    let mut session = Session::new(&mut platform, &model(FUSED), 16).unwrap();
    session.forward(&ids(3)).unwrap();
    let began = Instant::now();
    let error = session.forward(&ids(2)).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    (error, session)
}

#[test]
fn a_rank_that_fails_ends_the_step_with_its_number_and_place() {
    let (error, mut session) = failed_step(Fault::Error);
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    let text = error.to_string();
    assert!(text.contains("rank 1 on its way to `0.o.all_reduce`"), "{text}");
    assert!(text.contains("fell off the bus"), "{text}");
    // The others are at their places again, and the text can be computed from its beginning.
    assert!(session.forward(&ids(1)).unwrap_err().hint().unwrap().contains("reset"));
    session.reset().unwrap();
    assert_eq!(session.forward(&ids(2)).unwrap().shape()[0], 2);
}

#[test]
fn a_rank_that_panics_is_an_error() {
    let (error, _) = failed_step(Fault::Panic);
    assert_eq!(error.kind(), ErrorKind::Bug);
    assert!(error.to_string().contains("rank 1"), "{error}");
    assert!(
        error.to_string().contains("it panicked: a driver gave up")
            && error.to_string().contains("0.o.all_reduce"),
        "{error}"
    );
}

#[test]
fn a_rank_that_hangs_is_told_by_the_others_within_ten_seconds() {
    let (error, _session) = failed_step(Fault::Hang);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("rank 1 has not come to `0.o.all_reduce`"), "{error}");
}

#[test]
fn what_ranks_cannot_do_is_said() {
    let error = RanksPlatform::new(vec![Box::new(CpuPlatform::new())]).err().unwrap().to_string();
    assert!(error.contains("expected 2 ranks or more, found 1"), "{error}");
    let three = Session::new(&mut cpus(3), &model(FUSED), 16).err().unwrap();
    assert_eq!(three.kind(), ErrorKind::Unsupported);
    assert!(three.to_string().contains("node `0.o`") && three.to_string().contains("3 ranks"), "{three}");
    let two = model(FUSED).with_graph(model(FUSED).graph().shard(2).unwrap()).unwrap();
    let error = Session::new(&mut cpus(4), &two, 16).err().unwrap().to_string();
    assert!(error.contains("shared out among 2 ranks, and there are 4"), "{error}");
}
