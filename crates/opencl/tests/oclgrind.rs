//! Every built-in kernel at a small sample of its operator under Oclgrind, which runs OpenCL work item by work item and
//! reports accesses outside of memory, reads of what nobody wrote, and races. Its reports, which never are a call's status,
//! go to a file: there must be none. The devices that a process sees are chosen before it starts, hence one of its own.
#![allow(clippy::unwrap_used)]

mod common;

use common::run;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tapml_device::{Binding, BindingKind, Command as Launch, Device, KernelDesc, Language, Source};
use tapml_graph::op::{OPS, Sample};
use tapml_graph::{DType, Extent};
use tapml_kernels::{Overrides, Phase, plan_node};
use tapml_opencl::OpenClDevice;

/// Says to a process of this test what it is to run.
const PART: &str = "TAPML_OCLGRIND_PART";
/// Where Debian keeps the library, unless the variable names another.
const LIBRARY: &str = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";

/// Oclgrind's library, if it is here.
fn library() -> Option<PathBuf> {
    let named = std::env::var_os("TAPML_OCLGRIND").map(PathBuf::from);
    Some(named.unwrap_or_else(|| LIBRARY.into())).filter(|library| library.is_file())
}

/// Runs the test `name` of this file under Oclgrind; its reports.
fn reports(library: &Path, name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (vendors, log) = (folder.path().join("vendors"), folder.path().join("log"));
    std::fs::create_dir(&vendors).unwrap();
    std::fs::write(vendors.join("oclgrind.icd"), library.display().to_string()).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(PART, name)
        .env("OCL_ICD_VENDORS", &vendors)
        .envs(["DATA_RACES", "UNINITIALIZED", "CHECK_API"].map(|what| (format!("OCLGRIND_{what}"), "1")))
        .env("OCLGRIND_LOG", &log)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    std::fs::read_to_string(&log).unwrap_or_default()
}

/// Whether this process is the one that runs this part.
fn is_part(name: &str) -> bool {
    std::env::var(PART).is_ok_and(|part| part == name)
}

fn open() -> OpenClDevice {
    let device = OpenClDevice::open(0, "").unwrap();
    assert!(device.info().driver.starts_with("Oclgrind"), "{}", device.info().driver);
    device
}

/// About how many operations a sample takes.
fn work(sample: &Sample) -> usize {
    let sizes = |ty: &tapml_graph::TensorType| ty.sizes(&sample.symbols).unwrap().iter().product::<usize>();
    let outputs = sample.op.infer_bound(&sample.types(), &sample.symbols).unwrap();
    let rows = outputs[0].sizes(&sample.symbols).unwrap().first().copied().unwrap_or(1);
    rows * sample.types().iter().map(sizes).sum::<usize>() + outputs.iter().map(sizes).sum::<usize>()
}

/// Work of a sample that is run only if its kernel has no smaller one: Oclgrind takes seconds for it.
const LARGE: usize = 10_000;

/// For each kernel the sample that takes least, and the one with activations of the other dtype unless it is large.
fn samples(device: &OpenClDevice) -> Vec<(String, Sample)> {
    let mut least: HashMap<(String, bool), Sample> = HashMap::new();
    for sample in OPS.iter().flat_map(|info| (info.samples)()) {
        let types = sample.types();
        let plan = plan_node(
            &sample.op,
            &types,
            Phase::of_run(&sample.symbols),
            device.info(),
            &Overrides::default(),
        )
        .unwrap();
        let half = types.iter().any(|ty| ty.dtype == DType::F16);
        let key = (plan.kernel.clone(), half);
        if least.get(&key).is_none_or(|other| work(&sample) < work(other)) {
            least.insert(key, sample);
        }
    }
    let mut all: Vec<(String, Sample)> = least.into_iter().map(|((name, _), s)| (name, s)).collect();
    all.sort_by_key(|(name, sample)| (name.clone(), work(sample)));
    let smaller: Vec<bool> = (0..all.len()).map(|i| i > 0 && all[i - 1].0 == all[i].0).collect();
    let kept = all.into_iter().zip(smaller).filter(|((_, sample), other)| !other || work(sample) <= LARGE);
    kept.map(|(one, _)| one).collect()
}

#[test]
fn every_kernel_is_clean() {
    const NAME: &str = "every_kernel_is_clean";
    if !is_part(NAME) {
        let Some(library) = library() else {
            return tapml_testing::skip(
                "oclgrind",
                "no Oclgrind (Debian's package oclgrind; TAPML_OCLGRIND)",
            );
        };
        let found = reports(&library, NAME);
        assert!(found.is_empty(), "{found}");
        return;
    }
    let mut device = open();
    for (kernel, sample) in samples(&device) {
        let started = Instant::now();
        let plan = plan_node(
            &sample.op,
            &sample.types(),
            Phase::of_run(&sample.symbols),
            device.info(),
            &Overrides::default(),
        )
        .unwrap();
        let log = std::env::var_os("OCLGRIND_LOG").unwrap();
        let size = || std::fs::metadata(&log).map_or(0, |data| data.len());
        let before = size();
        run(&mut device, &plan, &sample, &sample.tensors(11).unwrap());
        let found = if size() > before { ": see below" } else { "" };
        let seconds = started.elapsed().as_secs_f64();
        println!("{kernel}, {}, {} operations, {seconds:.2} s{found}", sample.name, work(&sample));
    }
}

/// A kernel of 64 invocations on one array of words.
fn kernel(body: &str) -> KernelDesc {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\nvar<workgroup> shared_words: array<u32, 64>;\n\
         @compute @workgroup_size(64)\nfn main(@builtin(local_invocation_index) lane: u32) {{\n{body}\n}}\n"
    );
    KernelDesc {
        name: "faulty".into(),
        source: Source { language: Language::Wgsl, file: "faulty.wgsl".into(), prelude: String::new(), text },
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::ReadWrite],
        workgroup: [64, 1, 1],
        workgroup_memory: 256,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

/// What is right, and what is not: a missing barrier, and an index beyond the array where nothing keeps it inside.
#[test]
fn races_and_stray_accesses_are_reported() {
    const NAME: &str = "races_and_stray_accesses_are_reported";
    if !is_part(NAME) {
        let Some(library) = library() else {
            return tapml_testing::skip(
                "oclgrind",
                "no Oclgrind (Debian's package oclgrind; TAPML_OCLGRIND)",
            );
        };
        let found = reports(&library, NAME);
        assert!(found.contains("data race") && found.contains("Invalid write"), "{found}");
        return;
    }
    let mut device = OpenClDevice::open(0, "checks=off").unwrap();
    for body in ["shared_words[lane] = lane;\ny[lane] = shared_words[lane ^ 1u];", "y[lane + 32u] = lane;"] {
        let buffer = device.create_buffer("y", 256).unwrap();
        let kernel = device.create_kernel(&kernel(body)).unwrap();
        let groups = [1u64, 1, 1].map(Extent::from_dim);
        let bindings = vec![Binding::whole(buffer)];
        let launch = Launch::Dispatch { label: "faulty".into(), kernel, bindings, groups };
        let list = device.record(&[launch]).unwrap();
        device.replay(list, &tapml_graph::Symbols::np(1, 0)).unwrap();
        device.wait().unwrap();
    }
}
