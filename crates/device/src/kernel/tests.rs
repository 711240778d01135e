//! Limits and features of kernels, and lines of their sources.

use super::*;
use crate::{AdapterKind, Limits};
use tapml_graph::ErrorKind;

fn info(features: Features) -> DeviceInfo {
    DeviceInfo {
        platform: "test".into(),
        name: "a small device".into(),
        driver: String::new(),
        kind: AdapterKind::Other,
        limits: Limits::WEBGPU,
        features,
    }
}

/// The largest kernel that the default limits allow.
fn largest() -> KernelDesc {
    KernelDesc {
        name: "op/variant".into(),
        source: source("", ""),
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::Read; 8],
        workgroup: [256, 1, 1],
        workgroup_memory: 16 << 10,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

fn source(prelude: &str, text: &str) -> Source {
    Source { language: Language::Wgsl, file: "k.wgsl".into(), prelude: prelude.into(), text: text.into() }
}

/// Asserts that the kernel exceeds this limit by these numbers.
fn exceeds(desc: KernelDesc, limit: &str, asked: u64, offered: u64) {
    let error = desc.check_limits(&info(Features::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let found =
        ["kernel", "limit", "asked", "offered"].map(|name| error.detail(name).unwrap_or("-").to_string());
    assert_eq!(found, ["op/variant", limit, &asked.to_string(), &offered.to_string()], "{error}");
    let text = format!("kernel `op/variant` needs {limit} = {asked}, a small device offers {offered}");
    assert_eq!(error.to_string(), text);
}

#[test]
fn kernels_at_the_limits_are_accepted() {
    for workgroup in [[256, 1, 1], [1, 256, 1], [2, 2, 64], [1, 1, 1]] {
        let desc = KernelDesc { workgroup, ..largest() };
        desc.check_limits(&info(Features::default())).unwrap();
    }
    let mut uniforms = largest();
    uniforms.bindings.extend([BindingKind::Uniform; 4]);
    uniforms.check_limits(&info(Features::default())).unwrap();
}

#[test]
fn each_limit_is_checked() {
    let mut buffers = largest();
    buffers.bindings[3] = BindingKind::ReadWrite;
    buffers.bindings.push(BindingKind::Read);
    exceeds(buffers, "max_storage_buffers", 9, 8);
    let sized = |workgroup| KernelDesc { workgroup, ..largest() };
    exceeds(sized([257, 1, 1]), "max_invocations", 257, 256);
    exceeds(sized([16, 17, 1]), "max_invocations", 272, 256);
    exceeds(sized([1, 1, 65]), "max_workgroup_size.z", 65, 64);
    exceeds(sized([u32::MAX; 3]), "max_invocations", u64::MAX, 256);
    exceeds(KernelDesc { workgroup_memory: 16385, ..largest() }, "max_workgroup_memory", 16385, 16384);
}

#[test]
fn sizes_in_x_and_y_have_limits_of_their_own() {
    let mut device = info(Features::default());
    device.limits.max_workgroup_size = [8, 4, 64];
    for (workgroup, limit) in [([9, 1, 1], "max_workgroup_size.x"), ([1, 5, 1], "max_workgroup_size.y")] {
        let error = KernelDesc { workgroup, ..largest() }.check_limits(&device).unwrap_err();
        assert_eq!(error.detail("limit"), Some(limit));
    }
}

#[test]
fn a_workgroup_of_no_invocations_is_invalid() {
    for axis in 0..3 {
        let mut desc = largest();
        desc.workgroup = [1; 3];
        desc.workgroup[axis] = 0;
        let error = desc.check_limits(&info(Features::default())).unwrap_err();
        assert_eq!((error.kind(), error.detail("kernel")), (ErrorKind::InvalidInput, Some("op/variant")));
    }
}

#[test]
fn features_are_checked() {
    let half = KernelDesc { needs_f16: true, ..largest() };
    let subgroups = KernelDesc { needs_subgroups: true, ..largest() };
    let mut cuda = largest();
    cuda.source.language = Language::Cuda;
    for (desc, feature) in [(&half, "f16"), (&subgroups, "subgroups"), (&cuda, "cuda")] {
        let error = desc.check_limits(&info(Features::default())).unwrap_err();
        assert_eq!((error.kind(), error.detail("feature")), (ErrorKind::Unsupported, Some(feature)));
        assert!(error.to_string().contains("a small device"), "{error}");
    }
    half.check_limits(&info(Features { f16: true, ..Features::default() })).unwrap();
    subgroups.check_limits(&info(Features { subgroups: Some((4, 64)), ..Features::default() })).unwrap();
    cuda.check_limits(&info(Features { cuda: Some(90), ..Features::default() })).unwrap();
}

#[test]
fn lines_count_within_the_text() {
    let source = source("alias A = f32;\nalias B = f32;\n", "fn main() {\n}\n");
    assert_eq!([0, 1, 2, 3, 4].map(|line| source.line_in_text(line)), [None, None, None, Some(1), Some(2)]);
    let line = source.full().lines().position(|l| l == "fn main() {").unwrap() as u32 + 1;
    assert_eq!(source.line_in_text(line), Some(1));
    assert_eq!(self::source("", "x").line_in_text(1), Some(1));
    assert_eq!(self::source("", "x").line_in_text(0), None);
}

#[test]
fn descriptions_round_trip_through_json() {
    let json = serde_json::to_string(&largest()).unwrap();
    assert!(json.contains("\"wgsl\"") && json.contains("\"read\""), "{json}");
    assert_eq!(serde_json::from_str::<KernelDesc>(&json).unwrap(), largest());
    let before = json.replace(",\"overlaps\":false", "");
    assert_ne!(before, json);
    assert_eq!(serde_json::from_str::<KernelDesc>(&before).unwrap(), largest());
}
