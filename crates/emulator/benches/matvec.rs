//! Multiply-adds per second of one core on the kernels that a model spends its time in. Items are multiply-adds.

use divan::Bencher;
use divan::counter::ItemsCount;
use tapml_device::{
    Binding, BindingKind, Command, Device, Extent, KernelDesc, Language, ListId, Source, Symbols,
};
use tapml_emulator::{Checks, Emulator, EmulatorOptions};

const ROWS: usize = 512;
const K: usize = 1024;

const MATVEC: &str = "
@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
override K: u32 = 1024u;
const LANES = 256u;
var<workgroup> part: array<f32, LANES>;
@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < K; i += LANES) {
        sum += w[group.x * K + i] * x[i];
    }
    part[lane] = sum;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half >>= 1u) {
        if (lane < half) {
            part[lane] += part[lane + half];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        y[group.x] = part[0];
    }
}
";

/// One invocation per row of a block of rows, weights transposed so that neighbouring lanes read neighbouring words.
const MATVEC_ROWS: &str = "
@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
override K: u32 = 1024u;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0.0;
    for (var i = 0u; i < K; i++) {
        sum += w[i * 512u + id.x] * x[i];
    }
    y[id.x] = sum;
}
";

const MATVEC_BF16: &str = "
@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
override K: u32 = 1024u;
const LANES = 256u;
var<workgroup> part: array<f32, LANES>;
fn weight(i: u32) -> f32 {
    let word = w[i >> 1u];
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, (i & 1u) == 1u));
}
@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < K; i += LANES) {
        sum += weight(group.x * K + i) * x[i];
    }
    part[lane] = sum;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half >>= 1u) {
        if (lane < half) {
            part[lane] += part[lane + half];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        y[group.x] = part[0];
    }
}
";

const MATMUL: &str = "
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
const N = 128u;
const T = 16u;
var<workgroup> left: array<f32, 256>;
var<workgroup> right: array<f32, 256>;
@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) id: vec3<u32>) {
    let row = group.y * T + id.y;
    let column = group.x * T + id.x;
    var sum = 0.0;
    for (var tile = 0u; tile < N; tile += T) {
        left[id.y * T + id.x] = a[row * N + tile + id.x];
        right[id.y * T + id.x] = b[(tile + id.y) * N + column];
        workgroupBarrier();
        for (var k = 0u; k < T; k++) {
            sum += left[id.y * T + k] * right[k * T + id.x];
        }
        workgroupBarrier();
    }
    c[row * N + column] = sum;
}
";

/// A kernel with inputs of ones, recorded on a device of one thread.
struct Case {
    device: Emulator,
    list: ListId,
    work: usize,
}

fn case(
    text: &str,
    workgroup: [u32; 3],
    groups: [u64; 3],
    words: [usize; 3],
    work: usize,
    check: Checks,
) -> Case {
    let options = EmulatorOptions { check, threads: Some(1), ..EmulatorOptions::default() };
    let mut device = Emulator::new(options).expect("options are valid");
    let desc = KernelDesc {
        name: "bench".into(),
        source: Source {
            language: Language::Wgsl,
            file: "bench.wgsl".into(),
            prelude: String::new(),
            text: text.into(),
        },
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::Read, BindingKind::Read, BindingKind::ReadWrite],
        workgroup,
        workgroup_memory: 4096,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    };
    let kernel = device.create_kernel(&desc).expect("the kernel is valid");
    let one = 1.0_f32.to_le_bytes();
    let bindings = words.map(|n| {
        let buffer = device.create_buffer("data", n as u64 * 4).expect("the buffer fits");
        device.write(buffer, 0, &one.repeat(n)).expect("the write fits");
        Binding::whole(buffer)
    });
    let groups = groups.map(Extent::from_dim);
    let command = Command::Dispatch { label: "bench".into(), kernel, bindings: bindings.to_vec(), groups };
    let list = device.record(&[command]).expect("the list is valid");
    Case { device, list, work }
}

impl Case {
    fn bench(mut self, bencher: Bencher<'_, '_>) {
        bencher.counter(ItemsCount::new(self.work)).bench_local(|| {
            self.device.replay(self.list, &Symbols::new()).expect("the kernel runs");
            self.device.take_findings().len()
        });
    }
}

fn matvec(text: &str, check: Checks) -> Case {
    case(text, [256, 1, 1], [ROWS as u64, 1, 1], [ROWS * K, K, ROWS], ROWS * K, check)
}

#[divan::bench]
fn plain(bencher: Bencher<'_, '_>) {
    matvec(MATVEC, Checks::NONE).bench(bencher);
}

#[divan::bench]
fn bench_checked(bencher: Bencher<'_, '_>) {
    matvec(MATVEC, Checks::ALL).bench(bencher);
}

#[divan::bench]
fn row_per_invocation(bencher: Bencher<'_, '_>) {
    case(MATVEC_ROWS, [256, 1, 1], [2, 1, 1], [ROWS * K, K, ROWS], ROWS * K, Checks::NONE).bench(bencher);
}

#[divan::bench]
fn packed_bf16(bencher: Bencher<'_, '_>) {
    matvec(MATVEC_BF16, Checks::NONE).bench(bencher);
}

#[divan::bench]
fn tiled_matmul(bencher: Bencher<'_, '_>) {
    let n = 128;
    case(MATMUL, [16, 16, 1], [8, 8, 1], [n * n; 3], n * n * n, Checks::NONE).bench(bencher);
}

#[divan::bench]
fn tiled_matmul_checked(bencher: Bencher<'_, '_>) {
    let n = 128;
    case(MATMUL, [16, 16, 1], [8, 8, 1], [n * n; 3], n * n * n, Checks::ALL).bench(bencher);
}

fn main() {
    divan::main();
}
