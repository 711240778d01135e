//! Whole programs by handle: uploaded once, run with new symbols, equal bit by bit to a local run.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Emulators, Running};
use tapml_device::{Device, ErrorKind};
use tapml_graph::op::{Add, Linear, Silu};
use tapml_graph::{Builder, Bytes, DType, Dim, Graph, Result, Symbol, Symbols, Tensor, TensorType};
use tapml_kernels::{CompileOptions, Instance, Program, ProgramStep, compile};
use tapml_rpc::agent::Config;
use tapml_rpc::{Offer, RemoteProgram};

#[test]
fn session_process() {
    common::session_process();
}

const WIDTH: usize = 700;

/// `silu(x W)` of any number of rows, and a running sum of its first input.
fn graph() -> Graph {
    let mut b = Builder::new("toy");
    let rows = vec![Dim::symbol(Symbol::N), Dim::from(WIDTH)];
    let x = b.input("x", TensorType { dtype: DType::F32, shape: rows }).unwrap();
    let fixed = || TensorType { dtype: DType::F32, shape: vec![Dim::from(1usize), Dim::from(4usize)] };
    let step = b.input("step", fixed()).unwrap();
    let before = b.state("sum", fixed()).unwrap();
    let after = b.node("after", Add {}, &[before, step]).unwrap();
    b.set_state(before, after).unwrap();
    let shape = vec![Dim::from(WIDTH), Dim::from(WIDTH)];
    let w = b.weight("w", TensorType { dtype: DType::F32, shape }).unwrap();
    let linear = b.node("linear", Linear::default(), &[x, w]).unwrap();
    let y = b.node("y", Silu {}, &[linear]).unwrap();
    let total = b.node("total", Silu {}, &[after]).unwrap();
    b.output("y", y);
    b.output("total", total);
    b.finish().unwrap()
}

fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.f32() - 0.5).collect()
}

fn weight(name: &str) -> Result<Tensor> {
    assert_eq!(name, "w");
    Tensor::from_f32(vec![WIDTH, WIDTH], values(WIDTH * WIDTH, 1))
}

fn input(rows: usize) -> [Tensor; 2] {
    let x = Tensor::from_f32(vec![rows, WIDTH], values(rows * WIDTH, rows as u64)).unwrap();
    [x, Tensor::from_f32(vec![1, 4], vec![1.0, 2.0, 3.0, rows as f32]).unwrap()]
}

fn bits(tensor: &Tensor) -> Vec<u8> {
    tensor.bytes().to_vec()
}

#[test]
fn a_program_runs_by_handle_as_it_runs_here() {
    let agent = Running::processes(Config::default());
    let mut local = Emulators.open("emulator", "").unwrap();
    let program = compile(&graph(), local.info(), &CompileOptions::new(Symbols::np(5, 0))).unwrap();
    for round in 0..2 {
        let mut remote = agent.open("emulator", "");
        let mut there = RemoteProgram::load(&mut remote, &program, &weight).unwrap();
        let (sent, held) = remote.saved_bytes();
        assert_eq!(if round == 0 { held } else { sent }, 0, "round {round}: {sent} sent, {held} held");
        let mut here = Instance::load(local.as_mut(), &program, &weight).unwrap();
        for rows in [1, 5, 2] {
            let [x, step] = input(rows);
            let (symbols, inputs) = (Symbols::np(rows as u64, 0), [("x", &x), ("step", &step)]);
            here.run(local.as_mut(), &symbols, &inputs).unwrap();
            let found = there.run(&mut remote, &symbols, &inputs).unwrap();
            assert_eq!(found.len(), 2);
            for (name, tensor) in &found {
                let expected = here.read(local.as_mut(), name, &symbols).unwrap();
                assert_eq!(bits(tensor), bits(&expected), "{name} of {rows} rows");
            }
        }
        // Fixed states start again from zero when asked to.
        there.reset();
        here.zero_states(local.as_mut()).unwrap();
        let [x, step] = input(1);
        let (symbols, inputs) = (Symbols::np(1, 0), [("x", &x), ("step", &step)]);
        here.run(local.as_mut(), &symbols, &inputs).unwrap();
        let total = there.run(&mut remote, &symbols, &inputs).unwrap().pop().unwrap().1;
        assert_eq!(bits(&total), bits(&here.read(local.as_mut(), "total", &symbols).unwrap()));
        there.unload(&mut remote).unwrap();
        here.unload(local.as_mut()).unwrap();
        remote.wait().unwrap();
    }
}

#[test]
fn wrong_programs_and_inputs_are_refused_and_the_session_goes_on() {
    let agent = Running::threads(Config::default());
    let mut remote = agent.open("emulator", "");
    let program = compile(&graph(), remote.info(), &CompileOptions::new(Symbols::np(5, 0))).unwrap();
    let short = |_: &str| Tensor::new(DType::U8, vec![12], Bytes::new(vec![0u8; 12]));
    let error = RemoteProgram::load(&mut remote, &program, &short).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let mut there = RemoteProgram::load(&mut remote, &program, &weight).unwrap();
    let [x, step] = input(3);
    let wrong = Symbols::np(2, 0);
    assert!(there.run(&mut remote, &wrong, &[("x", &x), ("step", &step)]).is_err());
    assert!(there.run(&mut remote, &Symbols::np(3, 0), &[("x", &x)]).is_err());
    let right = there.run(&mut remote, &Symbols::np(3, 0), &[("x", &x), ("step", &step)]).unwrap();
    assert_eq!(right[0].1.shape(), [3, WIDTH]);
    let spoiled = Program { schema: 99, ..program };
    assert!(RemoteProgram::load(&mut remote, &spoiled, &weight).is_err());
}

#[test]
fn programs_count_as_memory_of_their_session() {
    let mut config = Config::default();
    config.settings.memory = 3 << 20;
    let agent = Running::processes(config);
    let mut remote = agent.open("emulator", "");
    let program = compile(&graph(), remote.info(), &CompileOptions::new(Symbols::np(5, 0))).unwrap();
    let size: u64 = program.buffers.iter().map(|b| b.size).sum();
    assert!((1_960_000..3 << 20).contains(&size), "{size}");
    let empty = remote.session_memory().unwrap().unwrap();
    assert_eq!((empty.held, empty.limit), (0, 3 << 20));
    let first = RemoteProgram::load(&mut remote, &program, &weight).unwrap();
    let full = remote.session_memory().unwrap().unwrap();
    assert!((size..size + (512 << 10)).contains(&full.held), "{full:?} of {size}");
    let error = RemoteProgram::load(&mut remote, &program, &weight).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert_eq!(remote.session_memory().unwrap(), Some(full), "what was refused is not held");
    let buffer = remote.create_buffer("too much", 2 << 20).unwrap();
    assert_eq!(remote.wait().unwrap_err().kind(), ErrorKind::OutOfMemory);
    remote.destroy_buffer(buffer).unwrap();
    first.unload(&mut remote).unwrap();
    assert_eq!(remote.session_memory().unwrap(), Some(empty));
    RemoteProgram::load(&mut remote, &program, &weight).unwrap();
}

#[test]
fn a_post_mortem_names_the_kernel_of_a_program() {
    let agent = Running::processes(Config::default());
    for (options, exactly) in [("trace=on", true), ("", false)] {
        let mut remote = agent.open("trap", options);
        let mut program = compile(&graph(), remote.info(), &CompileOptions::new(Symbols::np(5, 0))).unwrap();
        let last = program.steps.iter().rev().find_map(|step| match step {
            ProgramStep::Dispatch { kernel, .. } => Some(*kernel as usize),
            _ => None,
        });
        program.kernels[last.unwrap()].name = "abort".into();
        let mut there = RemoteProgram::load(&mut remote, &program, &weight).unwrap();
        let [x, step] = input(2);
        let run = there.run(&mut remote, &Symbols::np(2, 0), &[("x", &x), ("step", &step)]);
        let lost = run.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
        assert!(lost.detail("running").unwrap().contains("run program 1 with n = 2"), "{lost}");
        assert_eq!(lost.detail("kernel") == Some("abort"), exactly, "{lost}");
        assert!(lost.detail("source").unwrap().contains("@compute"), "{lost}");
        let told = if exactly { "with kernel `abort`" } else { "while running something from `" };
        assert!(lost.to_string().contains(told), "{lost}");
    }
}
