//! On a real card, where there is one: the conformance suite, kernels in CUDA C++ that overlap, and recovery from faults.
#![allow(clippy::unwrap_used)]

use tapml_cuda::{CudaDevice, adapters};
use tapml_device::conformance::run_all;
use tapml_device::{
    Binding, BindingKind, BufferId, Command, Device, ErrorKind, Extent, KernelDesc, KernelId, Language,
    Source, Symbols,
};
use tapml_graph::{Dim, Symbol};

fn device(options: &str) -> Option<CudaDevice> {
    match CudaDevice::open(0, options) {
        Ok(device) => Some(device),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.hint().is_some(), "{error}");
            tapml_testing::skip("cuda", &error.to_string());
            None
        }
    }
}

#[test]
fn every_card_conforms() {
    let Some(_) = device("") else { return };
    for (index, info) in adapters().unwrap().iter().enumerate() {
        for options in ["", "checks=off", "graphs=off", "sync=on"] {
            let report = run_all(&mut CudaDevice::open(index, options).unwrap()).unwrap();
            assert_eq!(report.counts().failed, 0, "{} ({options}) fails the suite:\n{report}", info.name);
        }
    }
}

fn desc(text: &str, bindings: usize) -> KernelDesc {
    KernelDesc {
        name: "test/cuda".into(),
        source: Source {
            language: Language::Cuda,
            file: "test.cu".into(),
            prelude: "typedef unsigned u32;\n".into(),
            text: text.into(),
        },
        entry: "run".into(),
        constants: vec![("WORDS".into(), 24576.0), ("STEP".into(), 3.0)],
        bindings: vec![BindingKind::ReadWrite; bindings],
        workgroup: [256, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

fn dispatch(label: &str, kernel: KernelId, buffers: &[BufferId], groups: Dim) -> Command {
    Command::Dispatch {
        label: label.into(),
        kernel,
        bindings: buffers.iter().map(|&b| Binding::whole(b)).collect(),
        groups: [Extent::from_dim(groups), Extent::from_dim(1u64), Extent::from_dim(1u64)],
    }
}

fn words(device: &mut CudaDevice, buffer: BufferId, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; 4 * count];
    device.read(buffer, 0, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect()
}

/// Each kernel needs all that the one in front of it wrote, from other blocks too; it reads the weight before it waits.
const OVERLAPPING: &str = r#"
extern "C" __global__ void run(const u32 *weight, const u32 *from, u32 *to) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    u32 add = weight[at % 64];
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    to[at] = from[(at + 777) % all] * 1664525u + add + STEP;
}
"#;

#[test]
fn kernels_that_overlap_see_what_was_written_before_them() {
    let Some(mut device) = device("") else { return };
    let mut text = desc(OVERLAPPING, 3);
    text.dependent_launch = true;
    let kernel = device.create_kernel(&text).unwrap();
    let most = 64 * 256;
    let weight: Vec<u32> = (0..64).map(|i| i * 7 + 1).collect();
    let bytes: Vec<u8> = weight.iter().flat_map(|w| w.to_le_bytes()).collect();
    let w = device.create_buffer("weight", 256).unwrap();
    device.write(w, 0, &bytes).unwrap();
    let pair = ["first", "second"].map(|name| device.create_buffer(name, 4 * most as u64).unwrap());
    let n = || Dim::symbol(Symbol::N);
    let commands: Vec<Command> = (0..100)
        .map(|i| dispatch(&format!("step {i}"), kernel, &[w, pair[i % 2], pair[(i + 1) % 2]], n()))
        .collect();
    let list = device.record(&commands).unwrap();
    let mut expected = vec![0u32; most];
    // The first run of a geometry is single launches, later ones are a graph.
    for (run, groups) in [64u64, 64, 64, 5, 5, 64, 5].into_iter().enumerate() {
        device.replay(list, &Symbols::np(groups, run as u64)).unwrap();
        let all = groups as usize * 256;
        for _ in 0..100 {
            let scaled = |at: usize| expected[(at + 777) % all].wrapping_mul(1_664_525);
            let next: Vec<u32> = (0..all).map(|at| scaled(at).wrapping_add(weight[at % 64] + 3)).collect();
            expected[..all].copy_from_slice(&next);
        }
        assert!(words(&mut device, pair[0], all) == expected[..all], "run {run} of {groups} groups");
    }
}

/// Turns a block's words around through more shared memory than a text may declare.
const SHARED: &str = r#"
extern __shared__ u32 held[];
extern "C" __global__ void run(u32 *x) {
    for (u32 i = threadIdx.x; i < WORDS; i += blockDim.x) held[i] = x[i];
    __syncthreads();
    for (u32 i = threadIdx.x; i < WORDS; i += blockDim.x) x[i] = held[WORDS - 1 - i];
}
"#;

#[test]
fn launches_get_the_shared_memory_that_they_ask_for() {
    let Some(mut device) = device("") else { return };
    let mut text = desc(SHARED, 1);
    text.workgroup_memory = 96 << 10;
    let kernel = device.create_kernel(&text).unwrap();
    let x = device.create_buffer("x", 96 << 10).unwrap();
    let bytes: Vec<u8> = (0..24576u32).flat_map(u32::to_le_bytes).collect();
    device.write(x, 0, &bytes).unwrap();
    let list = device.record(&[dispatch("turn", kernel, &[x], Dim::from(1u64))]).unwrap();
    device.replay(list, &Symbols::new()).unwrap();
    let expected: Vec<u32> = (0..24576).rev().collect();
    assert!(words(&mut device, x, 24576) == expected);
    let seconds =
        device.time_commands(&[dispatch("turn", kernel, &[x], Dim::from(1u64))], &Symbols::new()).unwrap();
    assert!(seconds[0] > 1e-7 && seconds[0] < 1e-2, "{seconds:?}");
}

#[test]
fn a_fault_names_its_kernel_and_the_card_can_be_opened_again() {
    for options in ["", "sync=on"] {
        let Some(mut device) = device(options) else { return };
        let text = "extern \"C\" __global__ void run(u32 *x) { *(volatile u32 *)(x + (1ull << 40)) = STEP; }";
        let kernel = device.create_kernel(&desc(text, 1)).unwrap();
        let x = device.create_buffer("x", 4).unwrap();
        let list = device.record(&[dispatch("astray", kernel, &[x], Dim::from(1u64))]).unwrap();
        let lost = device.replay(list, &Symbols::new()).and_then(|()| device.wait()).unwrap_err();
        assert_eq!(
            (lost.kind(), lost.detail("kernel")),
            (ErrorKind::DeviceLost, Some("test/cuda")),
            "{lost}"
        );
        assert!(lost.to_string().contains("dispatch `astray`"), "{lost}");
        assert_eq!(device.create_buffer("y", 4).unwrap_err().kind(), ErrorKind::DeviceLost);
    }
    let Some(mut device) = device("") else { return };
    let x = device.create_buffer("x", 4).unwrap();
    assert_eq!(words(&mut device, x, 1), [0]);
}

#[test]
fn without_memory_the_rest_goes_on() {
    let Some(mut device) = device("") else { return };
    let most = device.info().limits.max_buffer_size;
    let kept = device.create_buffer("kept", 64).unwrap();
    let first = device.create_buffer("most", most / 2).unwrap();
    let error = device.create_buffer("too much", most / 4 * 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("too much") && error.hint().unwrap().contains("free"), "{error}");
    device.destroy_buffer(first).unwrap();
    device.write(kept, 0, &[7; 64]).unwrap();
    assert_eq!(words(&mut device, kept, 1), [0x0707_0707]);
}
