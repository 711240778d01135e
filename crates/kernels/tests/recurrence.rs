//! Programs with recurrences: states start as zeros, are advanced in place where nobody else needs them, and any split of
//! the rows into steps gives the same bits.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{devices, null};
use tapml_device::Device;
use tapml_graph::op::{OPS, Sample, Silu};
use tapml_graph::{Builder, DType, Dim, Graph, Symbol, Symbols, Tensor};
use tapml_kernels::{CompileOptions, Instance, KernelCache, Program, ProgramStep, compile};

/// The operators with a state: which input it is. The state after is output 1.
const STATEFUL: [(&str, usize); 5] =
    [("token_shift", 1), ("wkv", 5), ("wkv7", 6), ("causal_conv", 2), ("selective_scan", 6)];

/// Rows in all.
const ROWS: usize = 7;

/// The operator's first sample.
fn sample(op: &str) -> Sample {
    (OPS.iter().find(|info| info.name == op).unwrap().samples)().remove(0)
}

/// The operator as a model: its state is one of the graph's. With `late`, another node reads the state before the step
/// after the operator has run.
fn graph(sample: &Sample, state: usize, late: bool) -> Graph {
    let mut b = Builder::new(sample.op.name());
    let add = |(i, ty)| {
        if i == state { b.state("state", ty).unwrap() } else { b.input(format!("in{i}"), ty).unwrap() }
    };
    let inputs: Vec<_> = sample.types().into_iter().enumerate().map(add).collect();
    let outputs = b.node_multi("call", sample.op.clone(), &inputs, &["y".into(), "after".into()]).unwrap();
    b.set_state(inputs[state], outputs[1]).unwrap();
    b.output("y", outputs[0]);
    if late {
        let read = b.node("late", Silu {}, &[inputs[state]]).unwrap();
        b.output("late", read);
    }
    b.finish().unwrap()
}

/// The outputs of all steps together, and the state at the end.
fn run(
    device: &mut dyn Device,
    cache: &mut KernelCache,
    program: &Program,
    sample: &Sample,
    steps: &[usize],
) -> (Vec<u8>, Tensor) {
    let whole = Sample { symbols: Symbols::np(ROWS as u64, 0), ..sample.clone() };
    let tensors = whole.tensors(3).unwrap();
    let none = |name: &str| panic!("no weight `{name}`");
    let mut instance = Instance::load_with(device, cache, program, &none).unwrap();
    let (mut at, mut y) = (0, Vec::new());
    for &n in steps {
        let symbols = Symbols::np(n as u64, at as u64);
        let by_row = |i: usize| sample.inputs[i].ty.shape[0] == Dim::symbol(Symbol::N);
        let part = |i: usize| if by_row(i) { tensors[i].rows(at, n).unwrap() } else { tensors[i].clone() };
        let names: Vec<String> = (0..tensors.len()).map(|i| format!("in{i}")).collect();
        let given = (0..tensors.len()).filter(|i| program.inputs.iter().any(|p| p.name == names[*i]));
        let given: Vec<(usize, Tensor)> = given.map(|i| (i, part(i))).collect();
        let given: Vec<(&str, &Tensor)> = given.iter().map(|(i, t)| (names[*i].as_str(), t)).collect();
        instance.run(device, &symbols, &given).unwrap();
        y.extend_from_slice(instance.read(device, "y", &symbols).unwrap().bytes());
        at += n;
    }
    let state = instance.read_state(device, "state", &Symbols::np(1, at as u64)).unwrap();
    let findings = device.take_findings();
    assert!(findings.is_empty(), "{}", findings.iter().map(|f| format!("{f}\n")).collect::<String>());
    instance.unload(device).unwrap();
    (y, state)
}

fn options() -> CompileOptions {
    CompileOptions::new(Symbols::np(ROWS as u64, ROWS as u64))
}

#[test]
fn any_split_into_steps_gives_the_same_bits_in_place_or_not() {
    for mut device in devices() {
        let mut cache = KernelCache::new();
        for (op, state) in STATEFUL {
            let sample = sample(op);
            let mut all = Vec::new();
            for (late, poison) in [(false, false), (false, true), (true, true)] {
                let options = CompileOptions { poison, ..options() };
                let program = compile(&graph(&sample, state, late), device.info(), &options).unwrap();
                for steps in [&[ROWS][..], &[1; ROWS], &[3, 1, 2, 1], &[2, 5]] {
                    all.push(run(device.as_mut(), &mut cache, &program, &sample, steps));
                }
            }
            let (y, end) = &all[0];
            assert!(end.to_f64().iter().any(|&v| v != 0.0), "{op}");
            for (i, (other, other_end)) in all.iter().enumerate() {
                assert!(other == y, "{op} on {}: outputs of run {i}", device.info().name);
                assert!(other_end.bytes()[..] == end.bytes()[..], "{op}: state of run {i}");
            }
        }
    }
}

#[test]
fn a_state_is_advanced_in_place_unless_it_is_needed_afterwards() {
    for (op, state) in STATEFUL {
        let sample = sample(op);
        let copies = |program: &Program| {
            let within = program.steps.iter().filter(|s| matches!(s, ProgramStep::Copy { .. })).count();
            (within, program.kernels.iter().filter(|k| k.name == "state/copy").count())
        };
        let program = compile(&graph(&sample, state, false), null(true).info(), &options()).unwrap();
        assert_eq!(copies(&program), (0, 0), "{op}");
        let size = sample.inputs[state].ty.elements().unwrap().as_const().unwrap() * 4;
        assert_eq!(program.memory().states, size, "{op}: one buffer");
        let late = compile(&graph(&sample, state, true), null(true).info(), &options()).unwrap();
        assert_eq!(copies(&late), (1, usize::from(op != "token_shift")), "{op}");
        assert!(late.memory().activations > program.memory().activations, "{op}");
    }
}

#[test]
fn a_state_of_more_rows_than_the_kernel_holds_is_unsupported_with_the_numbers() {
    let types: Vec<_> = ["n,514", "n,514", "n,514", "n,514", "514", "514,257"]
        .map(|shape| common::tensor_type(DType::F32, shape))
        .to_vec();
    let op = tapml_graph::op::Wkv { head_dim: 257 }.into();
    let error = tapml_kernels::plan_node(
        &op,
        &types,
        tapml_kernels::Phase::Prefill,
        null(true).info(),
        &Default::default(),
    )
    .unwrap_err();
    assert_eq!(error.kind(), tapml_graph::ErrorKind::Unsupported);
    assert_eq!((error.detail("asked"), error.detail("offered")), (Some("257"), Some("256")));
}
