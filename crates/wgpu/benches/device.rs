//! Costs of the device itself on the first Vulkan adapter: recording and replaying small dispatches, moving bytes,
//! compiling a kernel. `cargo bench -p tapml-wgpu`.
#![allow(clippy::unwrap_used)]

use divan::Bencher;
use divan::counter::BytesCount;
use tapml_device::{
    Binding, BindingKind, BufferId, Command, Device, Extent, KernelDesc, KernelId, Language, ListId, Source,
};
use tapml_graph::{Dim, Symbol, Symbols};
use tapml_wgpu::WgpuDevice;

const DISPATCHES: usize = 200;

const TEXT: &str = "
@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> factor: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&out) { out[id.x] = source[id.x] * factor[id.x % 64u] + 1.0; }
}
";

fn main() {
    match tapml_wgpu::adapters("vulkan") {
        Ok(found) => eprintln!("adapter: {} ({})", found[0].name, found[0].driver),
        Err(error) => return eprintln!("skipped: {error}"),
    }
    divan::main();
}

fn open() -> WgpuDevice {
    WgpuDevice::open("vulkan", 0, "").unwrap()
}

fn desc() -> KernelDesc {
    KernelDesc {
        name: "bench/scale".into(),
        source: Source {
            language: Language::Wgsl,
            file: "scale.wgsl".into(),
            prelude: String::new(),
            text: TEXT.into(),
        },
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::Read, BindingKind::Read, BindingKind::ReadWrite],
        workgroup: [64, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

/// Dispatches that each read what the one before wrote, over buffers of 4 KiB, with grids that depend on `n`.
fn commands(kernel: KernelId, buffers: &[BufferId]) -> Vec<Command> {
    (0..DISPATCHES)
        .map(|i| {
            let pick = |at: usize| Binding::whole(buffers[at % buffers.len()]);
            Command::Dispatch {
                label: format!("layer {i}"),
                kernel,
                bindings: vec![pick(i), pick(i + 2), pick(i + 1)],
                groups: [
                    Extent::ceil_div(Dim::symbol(Symbol::N), 64),
                    Extent::from_dim(1u64),
                    Extent::from_dim(1u64),
                ],
            }
        })
        .collect()
}

fn record_list(device: &mut WgpuDevice) -> ListId {
    let kernel = device.create_kernel(&desc()).unwrap();
    let buffers: Vec<_> = (0..16).map(|_| device.create_buffer("words", 4096).unwrap()).collect();
    let list = device.record(&commands(kernel, &buffers)).unwrap();
    device.replay(list, &Symbols::np(64, 0)).unwrap();
    device.wait().unwrap();
    list
}

/// The host's share of a replay: sizes, encoding, submission.
#[divan::bench(sample_count = 200, sample_size = 1)]
fn replay_200_dispatches_until_submitted(bencher: Bencher<'_, '_>) {
    let mut device = open();
    let list = record_list(&mut device);
    let symbols = Symbols::np(64, 0);
    let device = std::cell::RefCell::new(device);
    bencher
        .with_inputs(|| device.borrow_mut().wait().unwrap())
        .bench_local_values(|()| device.borrow_mut().replay(list, &symbols).unwrap());
}

#[divan::bench(sample_count = 50, sample_size = 1)]
fn replay_200_dispatches_until_done(bencher: Bencher<'_, '_>) {
    let mut device = open();
    let list = record_list(&mut device);
    let symbols = Symbols::np(64, 0);
    bencher.bench_local(|| {
        device.replay(list, &symbols).unwrap();
        device.wait().unwrap();
    });
}

#[divan::bench(sample_count = 50, sample_size = 1)]
fn record_200_dispatches(bencher: Bencher<'_, '_>) {
    let mut device = open();
    let kernel = device.create_kernel(&desc()).unwrap();
    let buffers: Vec<_> = (0..16).map(|_| device.create_buffer("words", 4096).unwrap()).collect();
    let commands = commands(kernel, &buffers);
    bencher.bench_local(|| {
        let list = device.record(&commands).unwrap();
        device.destroy_list(list).unwrap();
    });
}

#[divan::bench(sample_count = 50, sample_size = 1)]
fn compile_a_kernel(bencher: Bencher<'_, '_>) {
    let mut device = open();
    let mut number = 0;
    bencher.bench_local(|| {
        // A text of its own each time, so that no driver answers from a cache.
        number += 1;
        let mut desc = desc();
        desc.source.text = desc.source.text.replace("1.0", &format!("{number}.5"));
        device.create_kernel(&desc).unwrap()
    });
}

#[divan::bench(args = [4096, 1 << 20, 64 << 20], sample_count = 20, sample_size = 1)]
fn write_bytes(bencher: Bencher<'_, '_>, bytes: usize) {
    let mut device = open();
    let buffer = device.create_buffer("bytes", bytes as u64).unwrap();
    let data = vec![7; bytes];
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        device.write(buffer, 0, &data).unwrap();
        device.wait().unwrap();
    });
}

#[divan::bench(args = [4096, 1 << 20, 64 << 20], sample_count = 20, sample_size = 1)]
fn read_bytes(bencher: Bencher<'_, '_>, bytes: usize) {
    let mut device = open();
    let buffer = device.create_buffer("bytes", bytes as u64).unwrap();
    let mut data = vec![7; bytes];
    bencher.counter(BytesCount::new(bytes)).bench_local(|| device.read(buffer, 0, &mut data).unwrap());
}

const MATVEC: &str = "
@group(0) @binding(0) var<storage, read> weights: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> vector: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
var<workgroup> part: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let columns = arrayLength(&vector);
    var sum = 0.0;
    for (var i = at; i < columns; i += 64u) { sum += dot(weights[row.x * columns + i], vector[i]); }
    part[at] = sum;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if at < half { part[at] += part[at + half]; }
        workgroupBarrier();
    }
    if at == 0u { out[row.x] = part[0]; }
}
";

/// What clamped indices and bounded loops cost: eight products of a 1024 × 1024 matrix and a vector.
#[divan::bench(args = ["checks=on", "checks=off"], sample_count = 30, sample_size = 1)]
fn matrix_vector_products(bencher: Bencher<'_, '_>, options: &str) {
    let mut device = WgpuDevice::open("vulkan", 0, options).unwrap();
    let mut desc = desc();
    desc.source.text = MATVEC.into();
    desc.workgroup_memory = 256;
    let kernel = device.create_kernel(&desc).unwrap();
    let sizes = [4 << 20, 4096, 4096];
    let buffers: Vec<_> = sizes.iter().map(|&s| device.create_buffer("words", s).unwrap()).collect();
    let dispatch = Command::Dispatch {
        label: "product".into(),
        kernel,
        bindings: buffers.iter().map(|&b| Binding::whole(b)).collect(),
        groups: [1024u64, 1, 1].map(Extent::from_dim),
    };
    let list = device.record(&vec![dispatch; 8]).unwrap();
    bencher.bench_local(|| {
        device.replay(list, &Symbols::new()).unwrap();
        device.wait().unwrap();
    });
}

/// One carved case by itself: buffers made, written, a dispatch recorded and run, the result read, all freed.
#[divan::bench(sample_count = 200, sample_size = 1)]
fn a_small_case(bencher: Bencher<'_, '_>) {
    let mut device = open();
    let kernel = device.create_kernel(&desc()).unwrap();
    let data = [0u8; 4096];
    bencher.bench_local(|| {
        let buffers = [0; 3].map(|_| device.create_buffer("words", 4096).unwrap());
        device.write(buffers[0], 0, &data).unwrap();
        device.write(buffers[1], 0, &data).unwrap();
        let dispatch = Command::Dispatch {
            label: "case".into(),
            kernel,
            bindings: buffers.iter().map(|&b| Binding::whole(b)).collect(),
            groups: [16u64, 1, 1].map(Extent::from_dim),
        };
        let list = device.record(&[dispatch]).unwrap();
        device.replay(list, &Symbols::new()).unwrap();
        let mut out = [0u8; 4096];
        device.read(buffers[2], 0, &mut out).unwrap();
        device.destroy_list(list).unwrap();
        buffers.into_iter().for_each(|b| device.destroy_buffer(b).unwrap());
        out
    });
}
