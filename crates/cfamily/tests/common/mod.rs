//! Kernels to print, and a device that allows everything.
#![allow(clippy::unwrap_used, dead_code)]

mod programs;

use std::collections::HashSet;
use tapml_device::{AdapterKind, BindingKind, DeviceInfo, Features, KernelDesc, Language, Limits, Source};
use tapml_graph::DType;
use tapml_graph::fusion::FUSIONS;
use tapml_graph::op::{OPS, Sample};
use tapml_kernels::{BuiltIn, KERNELS, Phase, plan_variants};

/// A device with every feature and the limits of a desktop card.
pub fn device() -> DeviceInfo {
    DeviceInfo {
        platform: "test".into(),
        name: "test device".into(),
        driver: String::new(),
        kind: AdapterKind::Other,
        limits: Limits {
            max_storage_buffers: 32,
            max_invocations: 1024,
            max_workgroup_memory: 48 << 10,
            ..Limits::WEBGPU
        },
        features: Features {
            f16: true,
            subgroups: Some((32, 32)),
            cuda: None,
            matrices: false,
            device_barriers: true,
            processors: None,
        },
    }
}

/// A Hopper chip.
pub fn hopper() -> DeviceInfo {
    let limits =
        Limits { max_workgroup_memory: 227 << 10, max_workgroup_size: [1024, 1024, 64], ..device().limits };
    DeviceInfo { limits, features: Features { cuda: Some(90), ..device().features }, ..device() }
}

/// The kernels that the samples of all operators take on a device.
pub fn of_samples(info: &DeviceInfo) -> Vec<KernelDesc> {
    let fused = FUSIONS.iter().flat_map(|fusion| (fusion.samples)());
    let samples = OPS.iter().flat_map(|op| (op.samples)()).chain(fused);
    // A device need not serve every sample of a fused operator.
    let plans = samples
        .filter_map(|s| plan_variants(&s.op, &s.types(), Phase::of_run(&s.symbols), info).ok())
        .flatten();
    plans.flat_map(|plan| plan.launches).map(|launch| launch.desc).collect()
}

/// Those that a program with a sparse layer takes on a device with kernels in CUDA C++.
pub fn of_sparse(info: &DeviceInfo) -> Vec<KernelDesc> {
    programs::of_sparse(info)
}

/// What a language covers beyond what the built-in kernels use.
pub const FEATURES: &str = "
struct Pair { left: vec3<f32>, right: f32 }
struct Table { count: atomic<u32>, rows: array<Pair> }
@group(0) @binding(0) var<storage, read_write> table: Table;
@group(0) @binding(1) var<storage, read_write> halves: array<vec4<f16>>;
@group(0) @binding(2) var<uniform> turn: mat3x3<f32>;
var<workgroup> tile: array<f32, 64>;
var<private> seed: u32 = 7u;

fn mixed(p: ptr<function, f32>, by: f32) -> f32 {
    seed = seed * 1664525u + 1013904223u;
    *p += by;
    return *p * f32(seed >> 16u);
}

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
    var own = table.rows[lane].right;
    let turned = turn * table.rows[lane].left;
    for (var i = 0u; i < 4u; i++) {
        if i == 2u { continue; }
        own += mixed(&own, turned[i % 3u]);
    }
    tile[lane] = own;
    workgroupBarrier();
    var words = array<u32, 3>(pack2x16float(turned.xy), pack4x8snorm(vec4<f32>(turned, own)), countOneBits(lane));
    switch lane % 4u {
        case 0u: { words[lane % 3u] = 1u; }
        case 1u, 2u: { words[1] /= lane; }
        default: {}
    }
    let total = subgroupAdd(own) + subgroupShuffleXor(own, 1u);
    if atomicAdd(&table.count, words[0] + words[1] + words[2]) == 0u {
        table.rows[arrayLength(&table.rows) - 1u] = Pair(turned, total);
    }
    halves[lane] = halves[lane] * f16(2.0) + vec4<f16>(vec4<f32>(own));
}
";

/// [`FEATURES`] as a kernel.
pub fn features() -> KernelDesc {
    let source = Source {
        language: Language::Wgsl,
        file: "features.wgsl".into(),
        prelude: String::new(),
        text: FEATURES.into(),
    };
    KernelDesc {
        name: "features".into(),
        source,
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::ReadWrite, BindingKind::ReadWrite, BindingKind::Uniform],
        workgroup: [64, 1, 1],
        workgroup_memory: 256,
        needs_f16: true,
        needs_subgroups: true,
        dependent_launch: false,
    }
}

/// A built-in kernel, such as `rms_norm/portable`.
pub fn built_in(name: &str, dtype: DType) -> KernelDesc {
    BuiltIn::find(name, dtype, &device()).unwrap().desc().unwrap().clone()
}

/// The samples of all operators, as they are and those of TapML's own with every f32 value stored as f16.
fn samples() -> Vec<Sample> {
    let plain: Vec<Sample> = OPS.iter().flat_map(|info| (info.samples)()).collect();
    let mut halves = plain.clone();
    let inputs = halves.iter_mut().flat_map(|sample| &mut sample.inputs);
    inputs.filter(|input| input.ty.dtype == DType::F32).for_each(|input| input.ty.dtype = DType::F16);
    let others = KERNELS.iter().flat_map(|row| row.samples()).filter(|sample| sample.op.is_foreign());
    plain.into_iter().chain(halves).chain(others).collect()
}

/// Every text that is launched: for each operator, variant and kind of activations one kernel, and those beside it; and
/// those that programs join nodes to.
pub fn all() -> Vec<KernelDesc> {
    let info = device();
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for sample in samples() {
        // Some operators have inputs that are f32 whatever the activations are.
        let Ok(plans) = plan_variants(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), &info)
        else {
            continue;
        };
        for desc in plans.into_iter().flat_map(|plan| plan.launches).map(|launch| launch.desc) {
            if seen.insert((desc.source.full(), desc.needs_f16)) {
                all.push(desc);
            }
        }
    }
    let features = Features { subgroups: Some((2, 32)), ..info.features };
    let narrow = DeviceInfo { features, ..info.clone() };
    let apart = Features { device_barriers: false, ..info.features.clone() };
    let elsewhere = DeviceInfo { features: apart, ..info.clone() };
    let joined: Vec<KernelDesc> = [&info, &narrow, &elsewhere].map(programs::of_programs).concat();
    programs::expect_all_parts(&joined);
    for desc in joined {
        if seen.insert((desc.source.full(), desc.needs_f16)) {
            all.push(desc);
        }
    }
    // Rows of a family share texts.
    let launched = |desc: &KernelDesc| seen.contains(&(desc.source.full(), desc.needs_f16));
    let kernels = BuiltIn::all(&info).unwrap();
    let mut own = kernels.iter().filter(|one| one.desc().unwrap().source.language == Language::Wgsl);
    let of_tensor_cores = |name: &str| name.ends_with("_coopmat");
    assert!(own.all(|one| launched(one.desc().unwrap()) || of_tensor_cores(&one.kernel)));
    all
}
