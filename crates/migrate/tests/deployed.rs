//! Every launch of every trained model is of a row of the kernel list whose calls a suite holds, recorded or composed, on
//! every kind of device.
#![allow(clippy::unwrap_used)]

mod common;

use common::{decode, identity};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tapml_device::null::NullDevice;
use tapml_device::{Features, Limits};
use tapml_exec::{CpuPlatform, DevicePlatform, LoadOptions, Overrides, Platform};
use tapml_graph::{DType, Model, fuse};
use tapml_import::quantize::quantize;
use tapml_import::{Checkpoint, ImportOptions};
use tapml_kernels::any_device;
use tapml_migrate::suite::Suite;
use tapml_migrate::{CarveOptions, PromptInput, Quiet, Stop, carve, composed_suites};

const MODELS: [&str; 6] = ["phi", "gpt_neox", "gpt_bigcode", "starcoder2", "gemma2", "qwen2_moe"];
/// Dtype of activations, and of weights where they are packed.
const FORMS: [(DType, Option<&str>); 5] = [
    (DType::F32, None),
    (DType::F16, None),
    (DType::F16, Some("q4")),
    (DType::F16, Some("q8")),
    (DType::F16, Some("fp8")),
];

/// Changes what a device offers.
type Change = fn(&mut Features);

/// Devices that take different rows of the list: any, one through WebGPU, one through Vulkan, one with OpenCL, and chips of
/// three generations with CUDA.
fn devices() -> Vec<(&'static str, NullDevice)> {
    let any = any_device();
    let features = |change: Change| {
        let mut features = any.features.clone();
        change(&mut features);
        features
    };
    let large = Limits {
        max_workgroup_memory: 227 << 10,
        max_invocations: 1024,
        max_storage_buffers: 64,
        max_workgroup_size: [1024, 1024, 64],
        ..any.limits.clone()
    };
    let vulkan: Change = |f| {
        (f.subgroups, f.matrices, f.device_barriers) = (Some((32, 32)), true, true);
    };
    let all: [(&str, &Limits, Change); 7] = [
        ("any", &any.limits, |_| {}),
        ("webgpu", &any.limits, |f| f.subgroups = Some((32, 32))),
        ("vulkan", &large, vulkan),
        ("opencl", &large, |f| f.subgroups = Some((16, 64))),
        ("cuda 8.0", &large, |f| f.cuda = Some(80)),
        ("cuda 9.0", &large, |f| f.cuda = Some(90)),
        ("cuda 10.0", &large, |f| f.cuda = Some(100)),
    ];
    all.map(|(name, limits, change)| (name, NullDevice::new(limits.clone(), features(change)))).into()
}

fn open(dir: &Path, (activation, packed): (DType, Option<&str>)) -> Model {
    let options = ImportOptions { activation, ..ImportOptions::default() };
    let checkpoint = Checkpoint::open_with(dir, &options).unwrap();
    let model = checkpoint.model().with_graph(fuse(checkpoint.graph()).unwrap()).unwrap();
    match packed {
        Some(scheme) => quantize(&model, &scheme.parse().unwrap()).unwrap().0,
        None => model,
    }
}

/// The rows that calls of these suites run on.
fn checked(platform: &dyn Platform, suites: &[&Suite]) -> BTreeSet<String> {
    let rows = suites.iter().flat_map(|suite| {
        suite.cases().filter_map(|case| {
            let node = suite.graph().node(case.node);
            let inputs = suite.graph().input_types(node);
            Some(platform.kernel_for(&node.op, &inputs, suite.phase(case)).ok()?.name)
        })
    });
    rows.collect()
}

/// The launches that no call explains.
fn unexplained(model: &Model, suite: &Suite, platform: &dyn Platform) -> Vec<String> {
    let composed = composed_suites(suite, platform).unwrap();
    let checked = checked(platform, &[suite, &composed[0], &composed[1]]);
    let launched = platform.launches(model.graph(), &LoadOptions::default()).unwrap().unwrap();
    assert!(!launched.is_empty());
    let missing = launched.iter().filter(|launched| !checked.contains(&launched.row));
    missing.map(|launched| format!("{} of {}", launched.row, launched.phase.name())).collect()
}

#[test]
fn every_launch_of_every_trained_model_is_of_a_row_that_calls_check() {
    let bundled = ["llama", "llama_draft"].map(tapml_testing::model);
    let others = MODELS.iter().filter_map(|name| tapml_testing::extra_model(name));
    let mut wrong = Vec::new();
    for dir in bundled.into_iter().chain(others).collect::<Vec<PathBuf>>() {
        for form in FORMS {
            let model = open(&dir, form);
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("suite");
            let options = CarveOptions {
                out: &out,
                overwrite: false,
                steps: 1,
                self_contained: false,
                context: 0,
                decode: &decode,
            };
            let prompt = PromptInput { text: "some".into(), ids: (5..12).collect(), image: None, most_steps: None };
            let mut source = CpuPlatform::new();
            carve(&mut source, &model, identity(), &[prompt], &options, &Quiet, &Stop::new()).unwrap();
            let suite = Suite::open(&out).unwrap();
            for (name, device) in devices() {
                let platform = DevicePlatform::new(Box::new(device), Overrides::default());
                let missing = unexplained(&model, &suite, &platform);
                wrong
                    .extend(missing.iter().map(|row| format!("{} {form:?} on {name}: {row}", dir.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "launches that no call checks:\n{}", wrong.join("\n"));
}
