//! Programs as bytes: round trips, and bytes from a hostile source.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{null, toy_llama};
use proptest::prelude::*;
use tapml_device::Device;
use tapml_graph::{DType, Symbols, Tensor};
use tapml_kernels::{CompileOptions, Instance, Program, ProgramStep, Slice, compile};

fn program() -> Program {
    let device = null(true);
    let options = CompileOptions { poison: true, ..CompileOptions::new(Symbols::np(8, 16)) };
    compile(&toy_llama(DType::F16), device.info(), &options).unwrap()
}

#[test]
fn a_round_trip_gives_the_same_program_and_bytes() {
    let program = program();
    let bytes = program.to_bytes().unwrap();
    let again = Program::from_bytes(&bytes).unwrap();
    assert_eq!(again, program);
    assert_eq!(again.to_bytes().unwrap(), bytes);
    assert_eq!(self::program().to_bytes().unwrap(), bytes, "compiling is deterministic");
}

/// Loads and runs on a device that computes nothing: whatever `from_bytes` lets through must do no harm.
fn try_out(program: &Program) {
    let mut device = null(true);
    let give = |_: &str| Tensor::from_u32(vec![4096], vec![0; 4096]);
    if program.memory().peak() > 1 << 26 {
        return;
    }
    if let Ok(mut instance) = Instance::load(&mut device, program, &give) {
        let ids = Tensor::from_u32(vec![2], vec![1, 2]).unwrap();
        let _ = instance.run(&mut device, &Symbols::np(2, 3), &[("ids", &ids)]);
        let _ = instance.read(&mut device, "logits", &Symbols::np(2, 3));
        let _ = instance.read_state(&mut device, "layer0.k_cache", &Symbols::np(2, 3));
        let _ = instance.unload(&mut device);
    }
}

/// The agent in a browser reads programs too (`web/src/core/program.ts`), and knows one schema.
#[test]
fn browsers_read_the_schema_that_is_written() {
    let agent = include_str!("../../../web/src/core/program.ts");
    let expected = format!("const SCHEMA = {};", tapml_kernels::SCHEMA);
    assert!(agent.contains(&expected), "web/src/core/program.ts lacks `{expected}`");
}

#[test]
fn broken_programs_are_refused() {
    type Break = fn(&mut Program);
    let cases: [(&str, Break); 12] = [
        ("schema", |p| p.schema += 1),
        ("symbols", |p| p.symbols.truncate(1)),
        ("capacity", |p| p.capacity = Symbols::np(u64::MAX, 1)),
        ("buffer too small", |p| p.buffers[0].size = 12),
        ("buffer huge", |p| p.buffers[1].size = 1 << 62),
        ("kernel out of range", |p| each_dispatch(p, |kernel, _| *kernel = 99)),
        ("binding out of range", |p| each_dispatch(p, |_, bindings| bindings[0].buffer = 9999)),
        ("range out of range", |p| each_dispatch(p, |_, bindings| bindings[0].size = 1 << 40)),
        ("offset overflows", |p| each_dispatch(p, |_, bindings| bindings[0].offset = u64::MAX - 255)),
        ("read and written", |p| each_dispatch(p, |_, bindings| bindings[0] = bindings[bindings.len() - 2])),
        ("port too large", |p| p.outputs[0].ty.shape[0] = 1_000_000u64.into()),
        ("state of no buffer", |p| p.states[0].buffer = 12345),
    ];
    for (name, damage) in cases {
        let mut program = program();
        damage(&mut program);
        assert!(program.check().is_err(), "{name}");
        assert!(program.to_bytes().is_err(), "{name}");
        let bytes = serde_json::to_vec(&program).unwrap();
        assert!(Program::from_bytes(&bytes).is_err(), "{name}");
    }
}

fn each_dispatch(program: &mut Program, change: fn(&mut u32, &mut Vec<Slice>)) {
    for step in &mut program.steps {
        if let ProgramStep::Dispatch { kernel, bindings, .. } = step {
            change(kernel, bindings);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cut_or_changed_bytes_never_panic(cut in 0usize..20_000, at in 0usize..20_000, byte in any::<u8>()) {
        let bytes = program().to_bytes().unwrap();
        prop_assert!(Program::from_bytes(&bytes[..cut.min(bytes.len() - 1)]).is_err());
        let mut changed = bytes.clone();
        let index = at * 7919 % changed.len();
        changed[index] = byte;
        if let Ok(program) = Program::from_bytes(&changed) {
            try_out(&program);
        }
    }

    #[test]
    fn numbers_replaced_at_random_never_panic(which in 0usize..5000, value in prop_oneof![
        Just(0u64), Just(1), Just(255), Just(u64::from(u32::MAX)), Just(u64::MAX), any::<u64>()
    ]) {
        let text = String::from_utf8(program().to_bytes().unwrap()).unwrap();
        let starts: Vec<usize> = text
            .char_indices()
            .zip(text.chars().skip(1))
            .filter(|((_, a), b)| matches!(a, ':' | '[' | ',') && b.is_ascii_digit())
            .map(|((i, _), _)| i + 1)
            .collect();
        let start = starts[which % starts.len()];
        let end = start + text[start..].find(|c: char| !c.is_ascii_digit()).unwrap();
        let changed = format!("{}{value}{}", &text[..start], &text[end..]);
        if let Ok(program) = Program::from_bytes(changed.as_bytes()) {
            prop_assert_eq!(program.to_bytes().unwrap(), serde_json::to_vec(&program).unwrap());
            try_out(&program);
        }
    }
}
