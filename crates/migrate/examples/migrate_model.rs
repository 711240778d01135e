//! Migrates a model with prompts given as token ids and prints the ledger and the times:
//! `cargo run --example migrate_model -- models/llama emulator /tmp/ledger 8 1,2,3 4,5,6`.

use std::path::Path;
use std::time::Instant;
use tapml_device::Device;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{CpuPlatform, DevicePlatform, Overrides, Platform, Session};
use tapml_graph::{DType, Error, Model, Result, fuse};
use tapml_import::{Checkpoint, ImportOptions};
use tapml_migrate::suite::Suite;
use tapml_migrate::{
    CarveOptions, CheckOptions, MigrateOptions, ModelIdentity, Oracles, Progress, PromptInput, Quiet, Stop,
    carve, check, migrate,
};
use tapml_wgpu::WgpuDevice;

struct Print;

impl Progress for Print {
    fn note(&self, text: &str) {
        println!("  {text}");
    }
}

fn open(word: &str) -> Result<Box<dyn Platform>> {
    let device: Box<dyn Device> = match word {
        "cpu" => return Ok(Box::new(CpuPlatform::new())),
        "emulator" => Box::new(Emulator::new(EmulatorOptions::default())?),
        _ => Box::new(WgpuDevice::open(word, 0, "")?),
    };
    Ok(Box::new(DevicePlatform::new(device, Overrides::default())))
}

/// Times of a plain run, of the same run while it is carved, and the size of what was carved.
fn time_carving(model: &Model, suite: &Suite, prompts: &[PromptInput], steps: u32) -> Result<()> {
    let mut source = CpuPlatform::new();
    let out = std::env::temp_dir().join(format!("tapml-carving-{}", std::process::id()));
    let mut best = [f64::INFINITY; 3];
    for _ in 0..5 {
        let mut session = Session::new(&mut source, model, 512)?;
        let start = Instant::now();
        for prompt in &suite.manifest().prompts {
            session.reset()?;
            session.forward(&prompt.ids)?;
            for id in &prompt.generated[..steps as usize] {
                session.forward(&[*id])?;
            }
        }
        best[0] = best[0].min(start.elapsed().as_secs_f64());
        let decode = |_: &[u32]| String::new();
        let options = CarveOptions {
            out: &out,
            overwrite: true,
            steps,
            self_contained: false,
            context: 0,
            decode: &decode,
        };
        let identity = ModelIdentity::default();
        let carved = carve(&mut source, model, identity, prompts, &options, &Quiet, &Stop::new())?;
        best[1] = best[1].min(carved.running.as_secs_f64());
        best[2] = best[2].min(carved.total.as_secs_f64());
    }
    let size = |e: std::fs::DirEntry| e.metadata().map_or(0, |m| m.len());
    let bytes: u64 = std::fs::read_dir(&out).into_iter().flatten().flatten().map(size).sum();
    let unique = suite.manifest().totals.tensor_bytes;
    println!(
        "plain run {:.3} s, carved run {:.3} s, all of carve {:.3} s; suite {bytes} bytes, {:.4} of its unique tensors",
        best[0],
        best[1],
        best[2],
        bytes as f64 / unique as f64
    );
    let _ = std::fs::remove_dir_all(&out);
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, word, ledger, steps, prompts @ ..] = args.as_slice() else {
        return Err(Error::invalid("usage: MODEL PLATFORM LEDGER STEPS IDS..."));
    };
    let prompts: Vec<PromptInput> = prompts
        .iter()
        .map(|p| PromptInput {
            text: String::new(),
            ids: p.split(',').filter_map(|id| id.parse().ok()).collect(),
            ..PromptInput::default()
        })
        .collect();
    let start = Instant::now();
    // `TAPML_ACTIVATION=f16` stores activations and caches in half precision.
    let activation = std::env::var("TAPML_ACTIVATION").ok().and_then(|name| DType::parse(&name));
    let import = ImportOptions { activation: activation.unwrap_or(DType::F32), ..ImportOptions::default() };
    let checkpoint = Checkpoint::open_with(folder, &import)?;
    let model = checkpoint.model().with_graph(fuse(checkpoint.graph())?)?;
    let import_seconds = start.elapsed().as_secs_f64();
    let mut target = open(word)?;
    let options = MigrateOptions {
        ledger: Path::new(ledger),
        steps: steps.parse().map_err(|_| Error::invalid("STEPS is a number"))?,
        context: checkpoint.context() as u32,
        import_seconds,
        decode: &|ids| format!("{ids:?}"),
    };
    let identity = ModelIdentity { name: folder.clone(), path: folder.clone(), ..ModelIdentity::default() };
    let stop = Stop::new();
    let mut source = CpuPlatform::new();
    let done = migrate(&model, identity, &prompts, &mut source, target.as_mut(), &options, &Print, &stop)?;
    for op in &done.report.ops {
        let worst = op.check.as_ref().and_then(|c| c.worst.as_ref()).map_or(0.0, |w| w.ratio);
        let source = op.check.as_ref().and_then(|c| c.source_ratio).unwrap_or(0.0);
        let (kl, ratio) = op.model.as_ref().map_or((0.0, 0.0), |m| (m.kl.unwrap_or(0.0), m.max_logit_ratio));
        let cases = op.check.as_ref().map_or(0, |c| c.cases);
        println!(
            "{:<14} {:?} {cases} cases, worst {worst:.3}, source {source:.3}, KL {kl:.1e}, logits {ratio:.3}, {:.2} s",
            op.op, op.state, op.seconds
        );
    }
    println!("{:?} {:?}", done.report.verdict, done.report.seconds);
    let suite = Suite::open(&done.suite)?;
    time_carving(&model, &suite, &prompts, options.steps)?;
    let replay = suite.model(Some(&model))?;
    let oracles = Oracles::new(Oracles::BUDGET);
    for turn in ["check", "check again"] {
        let checked =
            check(&suite, &replay, target.as_mut(), &oracles, &CheckOptions::default(), &Quiet, &stop)?;
        println!("{turn}: {} cases in {:.2} s", checked.report.cases, checked.report.seconds);
    }
    Ok(())
}
