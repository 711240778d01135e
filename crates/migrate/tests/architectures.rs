//! Every architecture moves whole: each small checkpoint of `tests/goldens/` is carved, checked and migrated, with its
//! operators fused, to the emulator with all checks and to Vulkan.
#![allow(clippy::unwrap_used)]

mod common;

use common::decode;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tapml_device::Device;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{CpuPlatform, DevicePlatform, Image, NOWHERE, Overrides};
use tapml_graph::fuse;
use tapml_import::safetensors::File;
use tapml_import::{Checkpoint, ImageTokens};
use tapml_migrate::report::{LaunchCount, Outcome};
use tapml_migrate::{MigrateOptions, ModelIdentity, PromptInput, Quiet, Stop, migrate};
use tapml_wgpu::WgpuDevice;

/// Tokens of a prompt that are used: enough to pass the windows and chunks of the small checkpoints.
const LONGEST: usize = 24;

fn checkpoints() -> Vec<PathBuf> {
    let mut folders = tapml_testing::goldens();
    folders.retain(|dir| dir.join("config.json").is_file());
    folders
}

/// The prompts of the golden beside a checkpoint but the first, the shortest, cut short; with the golden's image if they
/// have tokens for one.
fn prompts(dir: &Path, image: Option<ImageTokens>) -> Vec<PromptInput> {
    let golden = File::open(&dir.join("golden.safetensors")).unwrap();
    let names = (1..).map(|i| format!("p{i}.input_ids"));
    let tensors = names.map_while(|name| golden.tensor(&name).ok());
    let ids = tensors.map(|t| t.to_f64().iter().take(LONGEST).map(|&id| id as u32).collect::<Vec<u32>>());
    let image_of = |ids: &[u32]| {
        let image = image.filter(|image| ids.contains(&image.id))?;
        let parts = golden.tensor("parts").map_or([1, 1], |t| [0, 1].map(|i| t.to_f64()[i] as u32));
        let mut rows = image.rows(parts).unwrap().into_iter();
        let slot = |&id: &u32| if id == image.id { rows.next().unwrap() } else { NOWHERE };
        Some(Image { pixels: golden.tensor("pixels").unwrap(), slots: ids.iter().map(slot).collect() })
    };
    ids.map(|ids| PromptInput { text: decode(&ids), image: image_of(&ids), ids, most_steps: None }).collect()
}

/// Fails with what was not accepted.
fn migrates(dir: &Path, device: Box<dyn Device>) -> Result<(), String> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let checkpoint = Checkpoint::open(dir).map_err(|e| e.to_string())?;
    let fused = fuse(checkpoint.graph()).map_err(|e| e.to_string())?;
    let model = checkpoint.model().with_graph(fused).map_err(|e| e.to_string())?;
    let ledger = tempfile::tempdir().map_err(|e| e.to_string())?;
    let options = MigrateOptions {
        ledger: ledger.path(),
        steps: 2,
        context: 128,
        import_seconds: 0.0,
        decode: &decode,
    };
    let identity = ModelIdentity { name, ..ModelIdentity::default() };
    let (mut source, mut target) = (CpuPlatform::new(), DevicePlatform::new(device, Overrides::default()));
    let (prompts, stop) = (prompts(dir, checkpoint.image()), Stop::new());
    let done = migrate(&model, identity, &prompts, &mut source, &mut target, &options, &Quiet, &stop);
    let report = done.map_err(|e| e.to_string())?.report;
    let coverage = &report.coverage;
    let launched = |count: &LaunchCount| count.of > 0 && count.of == count.checked;
    let whole = coverage.calls == coverage.checked
        && coverage.skipped.is_empty()
        && launched(&coverage.launches.prefill)
        && launched(&coverage.launches.decode);
    if report.verdict == Outcome::Accepted && whole {
        Ok(())
    } else {
        let reasons = report.ops.iter().filter_map(|o| Some(format!("{}: {}", o.op, o.reason.as_ref()?)));
        Err(format!("{:?}, {:?}", reasons.collect::<Vec<_>>(), report.coverage))
    }
}

/// Migrates every checkpoint on as many threads as there are cores, each with devices of its own.
fn all_migrate(device: impl Fn() -> Box<dyn Device> + Sync) {
    let (all, next, failed) = (checkpoints(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(dir) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(reason) = migrates(dir, device()) {
                        failed.lock().unwrap().push(format!("{}: {reason}", dir.display()));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), all.len(), failed.join("\n"));
}

#[test]
fn every_architecture_migrates_to_the_emulator() {
    let options = EmulatorOptions::parse("check=all").unwrap();
    all_migrate(|| Box::new(Emulator::new(options).unwrap()));
}

#[test]
fn every_architecture_migrates_to_vulkan() {
    if let Err(error) = WgpuDevice::open("vulkan", 0, "") {
        return tapml_testing::skip("vulkan", &error.to_string());
    }
    all_migrate(|| Box::new(WgpuDevice::open("vulkan", 0, "").unwrap()));
}
