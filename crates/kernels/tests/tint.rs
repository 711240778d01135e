//! Every kernel as Chrome reads it: Dawn's Tint, offline, through `tests/tint/check.mjs`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::process::Command;
use tapml_device::{Device, Features, Limits, null::NullDevice};
use tapml_graph::DType;
use tapml_graph::op::{OPS, Sample};
use tapml_kernels::{Phase, plan_variants};

/// Each distinct source by a file name that tells which it is.
fn sources() -> BTreeMap<String, String> {
    let null = NullDevice::new(
        Limits::WEBGPU,
        Features {
            f16: true,
            subgroups: Some((32, 32)),
            cuda: None,
            matrices: false,
            device_barriers: false,
            processors: None,
        },
    );
    let mut sources = BTreeMap::new();
    for sample in OPS.iter().flat_map(|info| (info.samples)()) {
        let mut halves = sample.clone();
        for (i, input) in halves.inputs.iter_mut().enumerate() {
            if input.ty.dtype == DType::F32 && !(sample.op.name() == "rope" && i == 1) {
                input.ty.dtype = DType::F16;
            }
        }
        // Operators whose states are f32 in any case have no such form.
        let halves = Some(halves).filter(|halves: &Sample| halves.op.infer(&halves.types()).is_ok());
        for sample in std::iter::once(sample).chain(halves) {
            let plans =
                plan_variants(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), null.info())
                    .unwrap();
            for launch in plans.into_iter().flat_map(|plan| plan.launches) {
                let text = launch.desc.source.full();
                let known = sources.values().filter(|known| **known == text).count();
                let name = launch.desc.name.replace('/', "-");
                if known == 0 {
                    sources.insert(format!("{name}-{}.wgsl", sources.len()), text);
                }
            }
        }
    }
    sources
}

#[test]
fn chrome_accepts_every_kernel() {
    let tint = tapml_testing::root().join("tests/tint");
    if !tint.join("node_modules/webgpu").is_dir() {
        return tapml_testing::skip("tint", "the npm packages of tests/tint are not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let sources = sources();
    assert!(sources.len() > 2 * OPS.len() - 3, "{} sources", sources.len());
    for (name, text) in &sources {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let run = Command::new("node").arg(tint.join("check.mjs")).arg(folder.path()).output();
    let run = match run {
        Ok(run) => run,
        Err(e) => return tapml_testing::skip("tint", &format!("node does not start: {e}")),
    };
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(report["checked"], sources.len(), "{out}");
    assert_eq!(report["failed"], 0, "{out}");
}
