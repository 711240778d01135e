//! The device on a runtime that is no runtime (`stub.rs`): books, transfers, compiling, launches and errors. No kernel
//! computes anything there, and none has run on hardware.

use crate::HipDevice;
use crate::runtime::Hip;
use crate::stub::{self, NotedLaunch};
use tapml_cfamily::device::DriverOptions;
use tapml_device::conformance::{CaseOutcome, cases};
use tapml_device::{Binding, BindingKind, Command, Device, Extent, KernelDesc, Language, Source};
use tapml_graph::{Dim, ErrorKind, Symbol, Symbols};

fn device() -> HipDevice {
    let options = DriverOptions::default();
    let (hip, info) = Hip::open_on(&stub::API, &stub::RTC, 0, options).unwrap();
    HipDevice::new(hip, info, options)
}

fn desc(body: &str) -> KernelDesc {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> data: array<u32>;\n\
         @compute @workgroup_size(64)\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n    {body}\n}}\n"
    );
    let source = Source { language: Language::Wgsl, file: "k.wgsl".into(), prelude: String::new(), text };
    KernelDesc {
        name: "k/portable".into(),
        source,
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::ReadWrite],
        workgroup: [64, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

#[test]
fn conformance_of_what_runs_no_kernel() {
    let mut device = device();
    let mut ran = 0;
    for case in cases() {
        let transfers = case.name.starts_with("buffers_");
        let books = ["lists_symbolic_copies", "lists_copy_errors", "lists_fills", "kernels_missing_features"];
        if transfers || books.contains(&case.name) {
            let outcome = case.run(&mut device).unwrap();
            assert!(!matches!(outcome, CaseOutcome::Failed(_)), "{}: {outcome:?}", case.name);
            ran += 1;
        }
    }
    assert!(ran >= 13, "{ran} cases");
    assert_eq!(device.memory().0, 0);
    drop(device);
    assert_eq!(stub::allocated_bytes(), 0);
}

#[test]
fn a_launch_has_its_groups_and_its_range() {
    let mut device = device();
    let buffer = device.create_buffer("data", 1024).unwrap();
    let kernel = device.create_kernel(&desc("data[id.x] = id.x;")).unwrap();
    let bindings = vec![Binding { buffer, offset: 256, size: 512 }];
    let groups = [Extent::from_dim(Dim::symbol(Symbol::N)), Extent::from_dim(2u64), Extent::from_dim(1u64)];
    let command = Command::Dispatch { label: "k".into(), kernel, bindings, groups };
    let list = device.record(&[command]).unwrap();
    device.replay(list, &Symbols::np(3, 0)).unwrap();
    let start = stub::start();
    let expected = NotedLaunch {
        name: "main_".into(),
        groups: [3, 2, 1],
        workgroup: [64, 1, 1],
        arguments: [start + 256, 512],
    };
    assert_eq!(stub::take_launches(), [expected]);
}

#[test]
fn the_compilers_errors_lead_to_the_wgsl() {
    let mut device = device();
    let error = device.create_kernel(&desc("let refused = id.x + 7u; data[refused] = 1u;")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Compile);
    assert!(error.detail("log").unwrap().contains("the stub refuses this"), "{error}");
    assert_eq!((error.detail("kernel"), error.detail("line")), (Some("k/portable"), Some("4")));
    assert!(error.to_string().contains("k.wgsl:4: "), "{error}");
}

#[test]
fn a_failed_wait_loses_the_device() {
    let mut device = device();
    let buffer = device.create_buffer("data", 16).unwrap();
    stub::fail_to_wait(719);
    let error = device.wait().unwrap_err();
    stub::fail_to_wait(0);
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    assert_eq!(device.read(buffer, 0, &mut [0; 4]).unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn what_does_not_fit_is_refused_and_the_device_goes_on() {
    let mut device = device();
    let limit = device.info().limits.max_buffer_size;
    device.create_buffer("too much", limit + 4).unwrap_err();
    device.create_buffer("enough", 64).unwrap();
}
