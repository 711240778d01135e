//! What the tests share: carved models, platforms with changed kernels, and a diagnosis of them.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used)]

pub mod faulty;

use std::path::Path;
use tapml_device::Device;
use tapml_diagnose::{DiagnoseOptions, Diagnosis, Fault, FaultKind, Reopen, Subject, diagnose};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{CpuPlatform, DevicePlatform, Overrides, Platform};
use tapml_graph::{DType, Model, fuse};
use tapml_import::Checkpoint;
use tapml_kernels::{BuiltIn, any_device};
use tapml_migrate::suite::Suite;
use tapml_migrate::{CarveOptions, ModelIdentity, Oracles, PromptInput, Quiet, Stop, carve};

/// A model with its suite, in a folder that goes with it.
pub struct Carved {
    pub suite: Suite,
    pub model: Model,
    pub oracles: Oracles,
    _folder: tempfile::TempDir,
}

/// The model in this folder, carved on the CPU with these prompts.
pub fn carve_model(checkpoint: &Path, prompts: &[&[u32]], steps: u32) -> Carved {
    let checkpoint = Checkpoint::open(checkpoint).unwrap();
    let model = checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap();
    carved_model(model, prompts, steps)
}

/// This model, carved on the CPU with these prompts.
pub fn carved_model(model: Model, prompts: &[&[u32]], steps: u32) -> Carved {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("suite");
    let decode = |ids: &[u32]| format!("{ids:?}");
    let options = CarveOptions {
        out: &out,
        overwrite: false,
        steps,
        self_contained: false,
        context: 0,
        decode: &decode,
    };
    let input =
        |ids: &&[u32]| PromptInput { text: String::new(), ids: ids.to_vec(), image: None, most_steps: None };
    let prompts: Vec<PromptInput> = prompts.iter().map(input).collect();
    let identity = ModelIdentity { name: "tiny".into(), ..ModelIdentity::default() };
    carve(&mut CpuPlatform::new(), &model, identity, &prompts, &options, &Quiet, &Stop::new()).unwrap();
    let suite = Suite::open(&out).unwrap();
    let model = suite.model(Some(&model)).unwrap();
    Carved { suite, model, oracles: Oracles::new(64 << 20), _folder: folder }
}

/// The small bundled Llama with two prompts.
pub fn draft() -> Carved {
    let first = [5, 300, 17, 41, 9, 1200, 77, 260, 31, 8, 512];
    carve_model(&tapml_testing::model("llama_draft"), &[&first, &[90, 12, 400]], 2)
}

/// A small checkpoint of `tests/goldens` with two prompts.
pub fn tiny(name: &str) -> Carved {
    carve_model(&tapml_testing::golden(name), &[&[3, 14, 15, 9, 26, 5, 35], &[41, 7, 30]], 2)
}

pub fn emulator(options: &str) -> Box<dyn Device> {
    Box::new(Emulator::new(EmulatorOptions::parse(options).unwrap()).unwrap())
}

/// The text of a built-in kernel with each of these pieces replaced once.
pub fn change_kernel(op: &str, changes: &[(&str, &str)]) -> String {
    let kernel = BuiltIn::find(&format!("{op}/portable"), DType::F32, &any_device()).unwrap();
    let mut text = kernel.desc().unwrap().source.text.clone();
    for (old, new) in changes {
        assert!(text.contains(old), "{op} has no `{old}`");
        text = text.replacen(old, new, 1);
    }
    text
}

/// Built-in kernels but for these, changed as [`changed`] says.
pub fn overrides(kernels: &[(&str, &[(&str, &str)])]) -> Overrides {
    let mut overrides = Overrides::default();
    for (op, changes) in kernels {
        let file = format!("{op}.wgsl");
        overrides.add_text(op, Path::new(&file), &change_kernel(op, changes)).unwrap();
    }
    overrides
}

/// Diagnoses a target with these kernels.
pub fn diagnosed_platform(
    carved: &Carved,
    target: &mut dyn Platform,
    checker: Option<&mut dyn Platform>,
    overrides: &Overrides,
    reopen: Option<&Reopen<'_>>,
    options: &DiagnoseOptions,
) -> Diagnosis {
    let mut source = CpuPlatform::new();
    let Carved { suite, model, oracles, .. } = carved;
    let checker = checker.map(|checker| checker as &mut dyn Platform);
    let subject = Subject { suite, model, oracles, source: &mut source, target, checker, overrides, reopen };
    diagnose(subject, options, &Quiet, &Stop::new()).unwrap()
}

/// Diagnoses a device with these kernels; an emulator with all checks and the same kernels helps.
pub fn diagnose_device(
    carved: &Carved,
    device: Box<dyn Device>,
    overrides: &Overrides,
    options: &DiagnoseOptions,
) -> Diagnosis {
    let mut target = DevicePlatform::new(device, overrides.clone());
    let mut checker = DevicePlatform::new(emulator("check=all"), overrides.clone());
    diagnosed_platform(carved, &mut target, Some(&mut checker), overrides, None, options)
}

/// Two kernels of operators with one wrong sign or number each.
pub fn two_wrong_kernels() -> Overrides {
    overrides(&[
        ("rms_norm", &[("/ f32(K) + EPS", "/ f32(K - 1u) + EPS")]),
        ("rope", &[("b * cosine + a * sine", "b * cosine - a * sine")]),
    ])
}

/// Diagnoses an emulator with right kernels that does this wrong.
pub fn diagnosed_with(carved: &Carved, wrong: faulty::Wrong) -> Diagnosis {
    let device = Box::new(faulty::Faulty::new(emulator(""), wrong));
    diagnose_device(carved, device, &overrides(&[]), &DiagnoseOptions::default())
}

/// The one fault of a diagnosis, which is one between operators.
pub fn only_fault(found: &Diagnosis) -> &Fault {
    let short: Vec<_> = found.faults.iter().map(|f| (&f.cause, &f.nodes, &f.evidence)).collect();
    assert_eq!(found.faults.len(), 1, "{short:#?}");
    assert_eq!(found.faults[0].kind, FaultKind::Between);
    &found.faults[0]
}
