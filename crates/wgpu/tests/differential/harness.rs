//! Running generated shaders on two devices and comparing every word.

use crate::generate::{INPUTS, ROWS, WIDTH, WORDS};
use proptest::prelude::ProptestConfig;
use proptest::test_runner::{RngSeed, TestRunner};
use tapml_device::{Binding, BindingKind, Command, Device, Extent, KernelDesc, Language, Source};
use tapml_graph::Symbols;

/// Workgroups of a run.
pub const GROUPS: u32 = 3;
/// Words that a run writes.
pub const COUNT: usize = GROUPS as usize * WIDTH as usize * WORDS;
/// Bindings of the shaders.
pub const KINDS: [BindingKind; 3] = [BindingKind::Read, BindingKind::Read, BindingKind::ReadWrite];

/// A text as a kernel.
pub fn desc(text: &str, bindings: &[BindingKind], workgroup: u32) -> KernelDesc {
    KernelDesc {
        name: "differential".into(),
        source: Source {
            language: Language::Wgsl,
            file: "differential.wgsl".into(),
            prelude: String::new(),
            text: text.into(),
        },
        entry: "main".into(),
        constants: Vec::new(),
        bindings: bindings.to_vec(),
        workgroup: [workgroup, 1, 1],
        // More than any of the shaders declares.
        workgroup_memory: 4096,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

/// Runs a kernel with two inputs and `count` words of output. The error says what was refused.
pub fn run(
    device: &mut dyn Device,
    desc: &KernelDesc,
    inputs: [&[u32]; 2],
    groups: u32,
    count: usize,
) -> Result<Vec<u32>, String> {
    let kernel = device.create_kernel(desc).map_err(|e| format!("{}: {e}", device.info().platform))?;
    let mut ids = Vec::new();
    for words in inputs {
        let id = device.create_buffer("input", words.len() as u64 * 4).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        device.write(id, 0, &bytes).unwrap();
        ids.push(id);
    }
    ids.push(device.create_buffer("output", count as u64 * 4).unwrap());
    let dispatch = Command::Dispatch {
        label: "differential".into(),
        kernel,
        bindings: ids.iter().map(|&id| Binding::whole(id)).collect(),
        groups: [u64::from(groups), 1, 1].map(Extent::from_dim),
    };
    let list = device.record(&[dispatch]).unwrap();
    let mut bytes = vec![0; count * 4];
    let done = device.replay(list, &Symbols::new()).and_then(|()| device.read(ids[2], 0, &mut bytes));
    device.destroy_list(list).unwrap();
    device.destroy_kernel(kernel).unwrap();
    ids.into_iter().for_each(|id| device.destroy_buffer(id).unwrap());
    done.map_err(|e| format!("{}: {e}", device.info().platform))?;
    Ok(bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
}

/// Words of all sizes with rows of eighths and words behind them, and multiples of 1/8 in ±64 as the bits of floats. The
/// last word and the last float are 0, as the shaders expect.
pub fn inputs(seed: u64) -> (Vec<u32>, Vec<u32>) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let eighth = |word: u32| ((word % 1025) as f32 / 8.0 - 64.0).to_bits();
    let mut words: Vec<u32> = (1..INPUTS as u32).map(|i| next() >> (i % 4 * 8)).collect();
    let mut eighths: Vec<u32> = (1..INPUTS).map(|_| eighth(next())).collect();
    words.push(0);
    eighths.push(0);
    // Four floats, two vectors of three words, each with a word of padding, and one word with three.
    let rows = (0..ROWS * 16).map(|at| if at % 16 < 4 { eighth(next()) } else { next() >> (at % 4 * 8) });
    words.extend(rows);
    (words, eighths)
}

/// Shaders and inputs come from a fixed seed, so that a run is the same everywhere; `PROPTEST_CASES` and
/// `PROPTEST_RNG_SEED` widen the search.
pub fn runner(cases: u32) -> TestRunner {
    let from_env = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    TestRunner::new(ProptestConfig {
        cases: from_env("PROPTEST_CASES").map_or(cases, |c| c as u32),
        rng_seed: RngSeed::Fixed(from_env("PROPTEST_RNG_SEED").unwrap_or(1)),
        failure_persistence: None,
        max_shrink_iters: 5000,
        max_shrink_time: 20_000,
        ..ProptestConfig::default()
    })
}

/// The place of the first word that differs. Zeros of either sign are equal where a word is a float.
pub fn difference(emulated: &[u32], found: &[u32], device: &str) -> Option<String> {
    let same = |at: usize| {
        let (e, f) = (emulated[at], found[at]);
        e == f || (at % WORDS >= 16 && f32::from_bits(e) == f32::from_bits(f))
    };
    let at = (0..emulated.len()).find(|&at| !same(at))?;
    let (e, f) = (emulated[at], found[at]);
    let floats = format!("{} and {} as floats", f32::from_bits(e), f32::from_bits(f));
    Some(format!(
        "invocation {}, word {}: emulator {e:#x}, {device} {f:#x} ({floats})",
        at / WORDS,
        at % WORDS
    ))
}
