//! How many bytes a second the memory gives: a kernel that reads a large buffer and does nothing else.
//!
//! The number is a floor for real kernels, measured on the same device in the same run, not a figure from a
//! data sheet.

use std::time::Instant;
use tapml_device::{
    AdapterKind, Binding, BindingKind, BufferId, Command, Device, ErrorKind, Extent, KernelDesc, KernelId,
    Language, Source,
};
use tapml_graph::{Result, Symbols};

/// Every invocation reads [`PER_INVOCATION`] vectors; neighbours read neighbouring ones. The condition, which never holds
/// for zeros, keeps the reads.
const TEXT: &str = "
@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> seen: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = group.x * 4096u + lane;
    var sum = vec4<u32>(0u);
    for (var i = 0u; i < 16u; i++) { sum |= x[start + 256u * i]; }
    if (sum.x | sum.y | sum.z | sum.w) != 0u { seen[0] = 1u; }
}
";
const WIDTH: u64 = 256;
const PER_INVOCATION: u64 = 16;
const GROUP_BYTES: u64 = WIDTH * PER_INVOCATION * 16;
/// Reads in the longer of two lists, whose difference has no submission in it.
const MANY: usize = 9;
// The best counts: other work on the machine can only slow a run down.
const TRIES: usize = 5;

/// Bytes a second of a device.
pub fn of_device(device: &mut dyn Device) -> Result<f64> {
    let limits = &device.info().limits;
    let sized = match (device.info().platform.as_str(), device.info().kind) {
        ("emulator", _) => 1 << 20,
        (_, AdapterKind::Discrete) => 2 << 30,
        (_, AdapterKind::Integrated) => 512 << 20,
        (_, AdapterKind::Cpu | AdapterKind::Other) => 64 << 20,
    };
    // One dimension of workgroups, 64 KiB read by each.
    let most = u64::from(limits.max_groups_per_dim) * GROUP_BYTES;
    let mut bytes = sized.min(limits.max_binding_size).min(limits.max_buffer_size).min(most);
    bytes = bytes / GROUP_BYTES * GROUP_BYTES;
    let kernel = device.create_kernel(&desc())?;
    let measured = loop {
        match measure(device, kernel, bytes) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory && bytes > 2 * GROUP_BYTES => {
                bytes = bytes / 2 / GROUP_BYTES * GROUP_BYTES;
            }
            measured => break measured,
        }
    };
    device.destroy_kernel(kernel).and(measured)
}

/// Buffers of this size, then the time of reading them.
fn measure(device: &mut dyn Device, kernel: KernelId, bytes: u64) -> Result<f64> {
    let x = device.create_buffer("read by the measurement", bytes)?;
    let seen = device.create_buffer("written by the measurement", 4);
    let seconds = seen.and_then(|seen| {
        let seconds = seconds(device, kernel, [x, seen], bytes);
        device.destroy_buffer(seen).and(seconds)
    });
    device.destroy_buffer(x)?;
    Ok(bytes as f64 / seconds?)
}

/// Seconds of one read: the best of several.
fn seconds(device: &mut dyn Device, kernel: KernelId, buffers: [BufferId; 2], bytes: u64) -> Result<f64> {
    let command = Command::Dispatch {
        label: "read".into(),
        kernel,
        bindings: buffers.map(Binding::whole).to_vec(),
        groups: [Extent::from_dim(bytes / GROUP_BYTES), Extent::from_dim(1u64), Extent::from_dim(1u64)],
    };
    let mut time = |count: usize| -> Result<f64> {
        let list = device.record(&vec![command.clone(); count])?;
        let mut best = f64::INFINITY;
        for _ in 0..TRIES {
            device.wait()?;
            let start = Instant::now();
            device.replay(list, &Symbols::new())?;
            device.wait()?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        device.destroy_list(list)?;
        Ok(best)
    };
    let (one, many) = (time(1)?, time(MANY)?);
    // Where submission varies more than reading takes, the whole is the better number.
    let each = (many - one) / (MANY - 1) as f64;
    Ok(if each > 0.0 { each } else { many / MANY as f64 })
}

/// The kernel of [`TEXT`].
fn desc() -> KernelDesc {
    KernelDesc {
        name: "speed/read".into(),
        source: Source {
            language: Language::Wgsl,
            file: "read.wgsl".into(),
            prelude: String::new(),
            text: TEXT.into(),
        },
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::Read, BindingKind::ReadWrite],
        workgroup: [WIDTH as u32, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

/// Bytes a second that this machine's processors read together.
pub fn of_host() -> f64 {
    // 256 MiB, beyond the caches of usual processors.
    const WORDS: usize = 32 << 20;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let words = vec![1u64; WORDS];
    let read = || {
        let start = Instant::now();
        let sum: u64 = std::thread::scope(|scope| {
            let parts = words.chunks(WORDS.div_ceil(threads));
            let parts: Vec<_> = parts
                .map(|part| scope.spawn(move || part.iter().fold(0u64, |sum, &word| sum.wrapping_add(word))))
                .collect();
            parts.into_iter().map(|part| part.join().unwrap_or(0)).sum()
        });
        (start.elapsed().as_secs_f64(), std::hint::black_box(sum))
    };
    let best = (0..TRIES).map(|_| read().0).fold(f64::INFINITY, f64::min);
    (WORDS * 8) as f64 / best
}
