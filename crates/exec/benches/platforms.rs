//! What running, watching, splitting and replaying `models/llama` costs on each platform of this machine.
//! `cargo bench -p tapml-exec [-- WORD…]` with words of platforms (`cpu`, `emulator`, `vulkan`); all if none is given.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{
    Call, CpuPlatform, DevicePlatform, Hybrid, HybridSide, Interface, NodeEvent, Observer, Overrides,
    Platform, Session,
};
use tapml_graph::op::OPS;
use tapml_graph::{Graph, Model, Origin, Result, Symbols, Tensor};
use tapml_import::Checkpoint;
use tapml_wgpu::WgpuDevice;

const PROMPT: usize = 32;
const STEPS: usize = 16;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |word: &str| words.is_empty() || words.iter().any(|w| w == word);
    let model = Checkpoint::open(tapml_testing::model("llama"))?.model().clone();
    let ids: Vec<u32> = (0..(PROMPT + STEPS) as u32).map(|i| 5 + i * 37 % 4000).collect();
    if wanted("cpu") {
        println!("cpu");
        session(&mut CpuPlatform::new(), &model, &ids)?;
        bench_watching(&model, &ids)?;
    }
    for word in ["emulator", "vulkan"].into_iter().filter(|w| wanted(w)) {
        println!("{word}");
        let Some(mut platform) = open(word)? else { continue };
        session(&mut platform, &model, &ids)?;
        hybrids(&mut platform, &model, &ids)?;
        replays(&mut platform, &model, &ids)?;
    }
    Ok(())
}

fn open(word: &str) -> Result<Option<DevicePlatform>> {
    Ok(Some(match word {
        "emulator" => {
            DevicePlatform::new(Box::new(Emulator::new(EmulatorOptions::default())?), Overrides::default())
        }
        _ => match WgpuDevice::open(word, 0, "") {
            Ok(device) => DevicePlatform::new(Box::new(device), Overrides::default()),
            Err(e) => {
                println!("  not here: {e}");
                return Ok(None);
            }
        },
    }))
}

fn time_call<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let value = f()?;
    Ok((value, start.elapsed()))
}

fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

fn session(platform: &mut dyn Platform, model: &Model, ids: &[u32]) -> Result<()> {
    let (mut session, load) = time_call(|| Session::new(platform, model, ids.len()))?;
    session.forward(&ids[..PROMPT])?;
    session.reset()?;
    let (_, prefill) = time_call(|| session.forward(&ids[..PROMPT]).map(black_box))?;
    let (_, decode) =
        time_call(|| ids[PROMPT..].iter().try_for_each(|&id| session.forward(&[id]).map(drop)))?;
    let (prefill, decode) = (rate(PROMPT, prefill), rate(STEPS, decode));
    println!("  load {load:.1?}, prefill {prefill:.0} tokens/s, decode {decode:.1} tokens/s");
    Ok(())
}

/// Keeps what a carver needs: every output, of growing states the new rows.
struct Carver {
    kept: Vec<Tensor>,
}

impl Observer for Carver {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        match event.added_rows() {
            // The rows themselves, copied: a view would make the cache move.
            Some(rows) => self.kept.push(Tensor::concat_rows(&[rows])?),
            None => self.kept.extend_from_slice(event.outputs),
        }
        Ok(())
    }
}

fn bench_watching(model: &Model, ids: &[u32]) -> Result<()> {
    let interface = Interface::from_graph(model.graph())?;
    let mut loaded = CpuPlatform::new().load(model, &Symbols::new())?;
    let mut run = |watch: bool| {
        loaded.reset()?;
        let mut carver = Carver { kept: Vec::new() };
        let start = Instant::now();
        for p in 0..ids.len() {
            let observer: Option<&mut dyn Observer> = if watch { Some(&mut carver) } else { None };
            loaded.run(&Symbols::np(1, p as u64), &interface.inputs(&ids[p..p + 1])?, observer)?;
        }
        Ok::<_, tapml_graph::Error>(start.elapsed())
    };
    // The best of several, taken in turns: other work on the machine only ever adds.
    let (mut plain, mut watched) = (Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        plain = plain.min(run(false)?);
        watched = watched.min(run(true)?);
    }
    println!(
        "  {} decode steps: {plain:.1?}; watched: {watched:.1?}, {:.2} times that",
        ids.len(),
        watched.as_secs_f64() / plain.as_secs_f64()
    );
    Ok(())
}

/// Every operator alone on the target, then all up to it.
fn hybrids(target: &mut DevicePlatform, model: &Model, ids: &[u32]) -> Result<()> {
    let mut source = CpuPlatform::new();
    let ops: Vec<&str> = model.graph().op_kinds().iter().map(|(name, _)| *name).collect();
    let capacity = Symbols::np(PROMPT as u64, ids.len() as u64);
    let mut hybrid = Hybrid::new(model, &mut source, target, &|_| HybridSide::Source, &capacity)?;
    for (i, op) in ops.iter().enumerate() {
        let side = |n: &tapml_graph::Node| {
            if ops[..=i].contains(&n.op.name()) { HybridSide::Target } else { HybridSide::Source }
        };
        let (_, place) = time_call(|| hybrid.place(&mut source, target, &side))?;
        let (_, prefill) = time_call(|| hybrid.logits(&ids[..PROMPT]).map(drop))?;
        let (_, decode) =
            time_call(|| ids[PROMPT..].iter().try_for_each(|&id| hybrid.logits(&[id]).map(drop)))?;
        let segments = hybrid.segments().count();
        println!(
            "  hybrid up to {op}: {segments} segments, load {place:.1?}, prefill {prefill:.1?}, a decode step {:.1?}",
            decode / STEPS as u32
        );
    }
    Ok(())
}

struct Recorder<'a> {
    graph: &'a Graph,
    calls: Vec<Call>,
}

impl Observer for Recorder<'_> {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        let name =
            |id| Some(self.graph.value(id)).filter(|v| v.origin == Origin::Weight).map(|v| v.name.clone());
        self.calls.push(Call {
            node: event.node.name.clone(),
            op: event.node.op.clone(),
            symbols: event.symbols.clone(),
            inputs: event.inputs.to_vec(),
            input_types: self.graph.input_types(event.node),
            weights: event.node.inputs.iter().map(|&id| name(id)).collect(),
            output_types: event.node.outputs.iter().map(|&id| self.graph.value(id).ty.clone()).collect(),
        });
        Ok(())
    }
}

fn replays(platform: &mut DevicePlatform, model: &Model, ids: &[u32]) -> Result<()> {
    let interface = Interface::from_graph(model.graph())?;
    let mut loaded = CpuPlatform::new().load(model, &Symbols::new())?;
    let mut recorder = Recorder { graph: model.graph(), calls: Vec::new() };
    loaded.run(&Symbols::np(PROMPT as u64, 0), &interface.inputs(&ids[..PROMPT])?, Some(&mut recorder))?;
    let prefill = recorder.calls.len();
    for p in PROMPT..ids.len() {
        loaded.run(&Symbols::np(1, p as u64), &interface.inputs(&ids[p..=p])?, Some(&mut recorder))?;
    }
    let replay = |platform: &mut DevicePlatform, calls: &[Call]| {
        time_call(|| {
            let mut first = Ok(());
            platform.replay(calls, &mut |_, result| {
                if let (Err(e), true) = (result, first.is_ok()) {
                    first = Err(e);
                }
            })?;
            first
        })
    };
    let (_, all) = replay(platform, &recorder.calls)?;
    println!("  replay of {} calls ({prefill} of prefill): {all:.2?}", recorder.calls.len());
    for op in OPS {
        let calls: Vec<Call> =
            recorder.calls[prefill..].iter().filter(|c| c.op.name() == op.name).cloned().collect();
        if !calls.is_empty() {
            let (_, time) = replay(platform, &calls)?;
            println!(
                "  replay of decode {}: {} cases, {:.0} cases/s",
                op.name,
                calls.len(),
                rate(calls.len(), time)
            );
        }
    }
    Ok(())
}
