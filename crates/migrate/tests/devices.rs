//! Whole paths on devices: the bundled model moves to the emulator, and wrong kernels of a user's are found there.
#![allow(clippy::unwrap_used)]

mod common;

use common::decode;
use std::path::{Path, PathBuf};
use tapml_device::Device;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{CpuPlatform, DevicePlatform, Overrides};
use tapml_graph::{Model, fuse};
use tapml_import::Checkpoint;
use tapml_migrate::ledger::OpState;
use tapml_migrate::report::{OpCheck, Outcome};
use tapml_migrate::suite::Suite;
use tapml_migrate::{
    CarveOptions, CheckOptions, MigrateOptions, ModelIdentity, Oracles, PromptInput, Quiet, Stop, carve,
    check, migrate,
};
use tapml_wgpu::WgpuDevice;

/// "The lamp in the window went out, and" as the bundled tokenizer has it, shortened.
const IDS: [u32; 6] = [0, 355, 628, 910, 2331, 1155];

fn prompts() -> Vec<PromptInput> {
    vec![PromptInput { text: "a prompt".into(), ids: IDS.to_vec(), image: None, most_steps: None }]
}

fn identity() -> ModelIdentity {
    ModelIdentity { name: "llama".into(), ..ModelIdentity::default() }
}

/// The built-in kernel of `rms_norm` with one piece of text replaced.
fn rms_norm_with(dir: &Path, from: &str, to: &str) -> Overrides {
    let source = tapml_testing::root().join("crates/kernels/src/kernel/rms_norm/portable.wgsl");
    let text = std::fs::read_to_string(source).unwrap();
    assert!(text.contains(from), "{from}");
    let file = dir.join("mine.wgsl");
    std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
    let mut overrides = Overrides::default();
    overrides.add(&format!("rms_norm={}", file.display())).unwrap();
    overrides
}

fn emulator(options: &str, overrides: Overrides) -> DevicePlatform {
    DevicePlatform::new(Box::new(Emulator::new(EmulatorOptions::parse(options).unwrap()).unwrap()), overrides)
}

/// A suite of the bundled model, its operators one by one.
fn carve_model(dir: &Path) -> (PathBuf, Model) {
    let model = Checkpoint::open(tapml_testing::model("llama")).unwrap().model().clone();
    let out = dir.join("suite");
    let options = CarveOptions {
        out: &out,
        overwrite: false,
        steps: 1,
        self_contained: false,
        context: 512,
        decode: &decode,
    };
    carve(&mut CpuPlatform::new(), &model, identity(), &prompts(), &options, &Quiet, &Stop::new()).unwrap();
    (out, model)
}

#[test]
fn wrong_kernels_of_a_user_are_found_and_right_ones_pass() {
    let dir = tempfile::tempdir().unwrap();
    let (path, model) = carve_model(dir.path());
    let suite = Suite::open(&path).unwrap();
    let model = suite.model(Some(&model)).unwrap();
    let oracles = Oracles::new(1 << 26);
    let only = CheckOptions { ops: vec!["rms_norm".into()], ..CheckOptions::default() };
    let run = |options: &str, from: &str, to: &str| -> OpCheck {
        let mut platform = emulator(options, rms_norm_with(dir.path(), from, to));
        let checked = check(&suite, &model, &mut platform, &oracles, &only, &Quiet, &Stop::new()).unwrap();
        checked.report.ops.into_iter().next().unwrap()
    };
    let right = run("", "// y = x *", "// y is x times");
    assert!(right.passes() && right.cases == 2 * 17, "{right:?}");
    let wrong = [
        ("f32(K) + EPS", "f32(K) + EPS * 0.1"),
        ("/ f32(K) +", "/ f32(K - 1u) +"),
        ("j < end; j += TEAM) {\n        let v", "j + 1u < end; j += TEAM) {\n        let v"),
        ("* factor *", "* factor * 1.0005 *"),
        ("fma(v, v, squares)", "f32(i32(v * v * 2048.0)) / 2048.0 + squares"),
    ];
    for (from, to) in wrong {
        let found = run("", from, to);
        assert!(!found.passes() && found.failed > 0, "{to}: {found:?}");
    }
    // Right numbers by luck: the missing barrier is seen only by a device that checks.
    let stale = "    sums[lane] = squares;\n    let stale = sums[(lane + 1u) % 256u];\n    let factor";
    let racy = run("check=all", "    let factor", stale);
    assert!(!racy.passes() && !racy.findings.is_empty(), "{racy:?}");
}

#[test]
fn the_bundled_model_moves_to_the_emulator_except_for_a_wrong_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(tapml_testing::model("llama")).unwrap();
    let model = checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap();
    let ledger = dir.path().join("ledger");
    let run = |overrides: Overrides| {
        let options =
            MigrateOptions { ledger: &ledger, steps: 1, context: 512, import_seconds: 0.0, decode: &decode };
        let (mut source, mut target) = (CpuPlatform::new(), emulator("", overrides));
        migrate(&model, identity(), &prompts(), &mut source, &mut target, &options, &Quiet, &Stop::new())
            .unwrap()
            .report
    };
    let wrong = run(rms_norm_with(dir.path(), "f32(K) + EPS", "f32(K) + EPS * 0.1"));
    assert_eq!(wrong.verdict, Outcome::Rejected);
    for op in &wrong.ops {
        let expected = match op.op.as_str() {
            "rms_norm" => OpState::Rejected,
            // No program is deployed that would choose a token.
            "argmax" => OpState::Pending,
            _ => OpState::Accepted,
        };
        assert_eq!(op.state, expected, "{}: {:?}", op.op, op.reason);
    }
    // The kernel is mended: its own checks are made again, and those of hybrid models that now hold it too.
    let right = run(Overrides::default());
    assert_eq!(
        right.verdict,
        Outcome::Accepted,
        "{:?}",
        right.ops.iter().map(|o| &o.reason).collect::<Vec<_>>()
    );
    assert!(right.texts.iter().all(|t| t.target.as_ref() == Some(&t.source)), "{:?}", right.texts);
    assert_eq!(right.coverage.checked, right.coverage.calls);
    let logits =
        right.ops.iter().filter_map(|o| o.model.as_ref()).map(|m| m.max_logit_ratio).fold(0.0, f64::max);
    assert!(logits > 0.01, "the limits are of the size of what is seen: {logits}");
}

#[test]
fn the_bundled_model_passes_alone_on_vulkan() {
    let device: Box<dyn Device> = match WgpuDevice::open("vulkan", 0, "") {
        Ok(device) => Box::new(device),
        Err(error) => return tapml_testing::skip("vulkan", &error.to_string()),
    };
    let dir = tempfile::tempdir().unwrap();
    let (path, model) = carve_model(dir.path());
    let suite = Suite::open(&path).unwrap();
    let model = suite.model(Some(&model)).unwrap();
    let mut platform = DevicePlatform::new(device, Overrides::default());
    let oracles = Oracles::new(0);
    let checked =
        check(&suite, &model, &mut platform, &oracles, &CheckOptions::default(), &Quiet, &Stop::new())
            .unwrap();
    let failures: Vec<_> = checked.report.ops.iter().flat_map(|o| &o.failures).collect();
    assert!(checked.report.passes(), "{failures:#?}");
    let kinds = suite.graph().op_kinds();
    let own = |op: &&OpCheck| kinds.iter().any(|(kind, _)| *kind == op.op);
    let recorded = checked.report.ops.iter().filter(own).map(|op| op.cases);
    assert_eq!(recorded.sum::<u64>(), suite.cases().count() as u64);
}
