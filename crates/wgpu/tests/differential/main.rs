//! Emulator against Vulkan: random shaders must give the same bits, float functions must keep to the accuracy that the
//! WGSL specification asks for on both.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod floats;
mod generate;

use generate::{INPUTS, WIDTH, WORDS};
use proptest::prelude::{ProptestConfig, any};
use proptest::test_runner::{RngSeed, TestCaseError, TestError, TestRunner};
use std::cell::RefCell;
use tapml_device::{Binding, BindingKind, Command, Device, Extent, KernelDesc, Language, Source};
use tapml_graph::Symbols;

const GROUPS: u32 = 3;

fn desc(text: &str, bindings: &[BindingKind], workgroup: u32) -> KernelDesc {
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
        workgroup_memory: 1024,
        needs_f16: false,
        needs_subgroups: false,
        overlaps: false,
    }
}

/// Runs a kernel with two inputs and `count` words of output. The error says what was refused.
fn run(
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
        groups: [u64::from(groups), 1, 1].map(Extent::of),
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

/// Words of all sizes, and multiples of 1/8 in ±64 as the bits of floats; the last of each is 0, as the shaders expect.
fn inputs(seed: u64) -> (Vec<u32>, Vec<u32>) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let mut words: Vec<u32> = (1..INPUTS as u32).map(|i| next() >> (i % 4 * 8)).collect();
    let mut eighths: Vec<u32> =
        (1..INPUTS).map(|_| ((next() % 1025) as f32 / 8.0 - 64.0).to_bits()).collect();
    words.push(0);
    eighths.push(0);
    (words, eighths)
}

/// Shaders and inputs come from a fixed seed, so that a run is the same everywhere; `PROPTEST_CASES` and
/// `PROPTEST_RNG_SEED` widen the search.
fn runner(cases: u32) -> TestRunner {
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
fn difference(emulated: &[u32], found: &[u32]) -> Option<String> {
    let same = |at: usize| {
        let (e, f) = (emulated[at], found[at]);
        e == f || (at % WORDS >= 16 && f32::from_bits(e) == f32::from_bits(f))
    };
    let at = (0..emulated.len()).find(|&at| !same(at))?;
    let (e, f) = (emulated[at], found[at]);
    let floats = format!("{} and {} as floats", f32::from_bits(e), f32::from_bits(f));
    Some(format!("invocation {}, word {}: emulator {e:#x}, vulkan {f:#x} ({floats})", at / WORDS, at % WORDS))
}

#[test]
fn random_shaders_give_the_same_bits() {
    let Some(vulkan) = common::vulkan("") else { return };
    let f16 = vulkan.info().features.f16;
    let (vulkan, emulator) = (RefCell::new(vulkan), RefCell::new(floats::emulator("")));
    let checking = RefCell::new(floats::emulator("check=all"));
    let count = GROUPS as usize * WIDTH as usize * WORDS;
    let kinds = [BindingKind::Read, BindingKind::Read, BindingKind::ReadWrite];
    let result = runner(32).run(&(generate::shader(f16), any::<u64>()), |(text, seed)| {
        let (words, eighths) = inputs(seed);
        let desc = KernelDesc { needs_f16: f16, ..desc(&text, &kinds, WIDTH) };
        let inputs = [&words[..], &eighths[..]];
        let found = run(&mut *vulkan.borrow_mut(), &desc, inputs, GROUPS, count);
        let emulated = run(&mut *emulator.borrow_mut(), &desc, inputs, GROUPS, count);
        let (found, emulated) =
            found.and_then(|found| Ok((found, emulated?))).map_err(TestCaseError::fail)?;
        if let Some(text) = difference(&emulated, &found) {
            return Err(TestCaseError::fail(text));
        }
        let mut checking = checking.borrow_mut();
        let checked = run(&mut *checking, &desc, inputs, GROUPS, count).map_err(TestCaseError::fail)?;
        match (checked == emulated, &checking.take_findings()[..]) {
            (false, _) => Err(TestCaseError::fail("the emulator computes something else while it checks")),
            (true, []) => Ok(()),
            (true, [first, ..]) => Err(TestCaseError::fail(format!("a shader without defects: {first}"))),
        }
    });
    if let Err(TestError::Fail(why, (text, seed))) = result {
        panic!("{why}\ninputs of seed {seed}\n{text}");
    }
}

#[test]
fn swiftshader_agrees_too() {
    common::on_swiftshader(&[
        "random_shaders_give_the_same_bits",
        "floats::float_functions_are_as_accurate_as_wgsl_asks",
    ]);
}
