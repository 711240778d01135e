//! The text in Apple's language that naga writes for every kernel, which wgpu hands to Metal: a line with its digest for
//! each, and two texts as they are. There is no compiler of it outside Apple's tools: what changes is seen here, whether it
//! compiles is not. `TAPML_BLESS=1` writes the files.
#![allow(clippy::unwrap_used)]

mod common;

use naga::back::msl::{BindTarget, EntryPointResources, Options, PipelineOptions, write_string};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::{AddressSpace, ResourceBinding, ShaderStage, StorageAccess};
use tapml_device::KernelDesc;
use tapml_graph::DType;

/// What wgpu would hand over: buffers in the order of the bindings and the lengths of arrays behind them, indices kept
/// inside arrays.
fn msl(desc: &KernelDesc) -> String {
    let (module, text) = tapml_wgsl::compile(desc, &common::device(), "no MSL is written for", |module| {
        let naga = &module.naga;
        let mut resources = EntryPointResources {
            sizes_buffer: Some(desc.bindings.len() as u8),
            ..EntryPointResources::default()
        };
        for (_, variable) in naga.global_variables.iter() {
            let Some(ResourceBinding { group, binding }) = variable.binding else { continue };
            let mutable = matches!(variable.space,
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE));
            let target = BindTarget { buffer: Some(binding as u8), mutable, ..BindTarget::default() };
            resources.resources.insert(ResourceBinding { group, binding }, target);
        }
        let restrict = BoundsCheckPolicy::Restrict;
        let options = Options {
            lang_version: (3, 0),
            fake_missing_bindings: false,
            per_entry_point_map: [(desc.entry.clone(), resources)].into(),
            bounds_check_policies: BoundsCheckPolicies {
                index: restrict,
                buffer: restrict,
                ..Default::default()
            },
            ..Options::default()
        };
        let entry = PipelineOptions {
            entry_point: Some((ShaderStage::Compute, desc.entry.clone())),
            ..PipelineOptions::default()
        };
        write_string(naga, &module.info, &options, &entry).map_err(|e| tapml_wgsl::Fail::new(e.to_string()))
    })
    .unwrap_or_else(|e| panic!("{e}"));
    let (text, info) = text;
    let name = info.entry_point_names.first().unwrap().as_ref().unwrap();
    assert_eq!(module.naga.entry_points.len(), 1, "{}", desc.name);
    assert!(text.contains(&format!("kernel void {name}(")), "{text}");
    text
}

fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_string()
}

const TABLE: &str = "crates/cfamily/tests/golden/msl.txt";

/// One line for each kernel: its name, activations and the digest of what naga is given; then lines and digest of the text
/// for Metal.
fn table() -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for desc in common::all() {
        let text = msl(&desc);
        let activations = if desc.needs_f16 { "f16" } else { "f32" };
        let given = digest(&format!("{}{:?}", desc.source.full(), desc.constants));
        let key = format!("{} {activations} {given}", desc.name);
        rows.push((key, format!("{} {}", text.lines().count(), digest(&text))));
    }
    rows
}

/// The text of a kernel that is as it was when the table was written is too. Kernels change more often than the table is
/// written, but half of them must be in it.
#[test]
fn texts_of_unchanged_kernels_are_unchanged() {
    let rows = table();
    let all: String = rows.iter().map(|(key, text)| format!("{key} {text}\n")).collect();
    if std::env::var_os("TAPML_BLESS").is_some() {
        tapml_testing::expect_file(TABLE, &all);
    }
    let stored = std::fs::read_to_string(tapml_testing::root().join(TABLE)).unwrap();
    let (mut same, mut changed) = (0, Vec::new());
    for (key, text) in &rows {
        match stored.lines().find_map(|line| line.strip_prefix(key.as_str())) {
            Some(old) if old.trim() == text => same += 1,
            Some(old) => changed.push(format!("{key}: {text}, it was{old}")),
            None => println!("not in the table: {key}"),
        }
    }
    assert!(changed.is_empty(), "naga writes other texts for Metal:\n{}", changed.join("\n"));
    let enough = rows.len() / 2;
    assert!(
        same >= enough,
        "{TABLE} knows {same} of {} kernels as they are; TAPML_BLESS=1 writes it",
        rows.len()
    );
}

#[test]
fn texts_for_metal_are_as_stored() {
    let norm = common::built_in("rms_norm", DType::F16);
    for (name, desc) in [("rms_norm", &norm), ("features", &common::features())] {
        tapml_testing::expect_file(&format!("crates/cfamily/tests/golden/{name}.metal"), &msl(desc));
    }
}
