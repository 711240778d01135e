//! The program of one rank: one list, in which kernels meet those of other devices.
#![allow(clippy::unwrap_used)]

use tapml_graph::{ErrorKind, Graph, Symbols};
use tapml_kernels::{CompileOptions, Content, Needs, Phase, ProgramStep, any_device, compile, meeting};

const TEXT: &str = "graph g
input x: f32[n,64]
weight up: f32[128,64]
weight down: f32[64,128]
weight head: f32[96,64]
up.x: f32[n,128] = linear(x, up)
act: f32[n,128] = silu(up.x)
down.x: f32[n,64] = linear(act, down)
logits: f32[n,96] = linear(down.x, head)
output logits = logits
";

#[test]
fn a_rank_is_one_program_whose_kernels_meet_the_others() {
    let words = meeting::words(2).unwrap();
    let graph = Graph::parse(TEXT).unwrap().shard(2).unwrap().rank_graph(1, words).unwrap();
    for row_invariant in [false, true] {
        let mut options = CompileOptions::new(Symbols::np(16, 0));
        if row_invariant {
            options.overrides = options.overrides.with_row_invariance();
        }
        let program = compile(&graph, &Needs::cuda(90).met_by(&any_device()), &options).unwrap();
        for phase in Phase::ALL {
            let rows: Vec<&str> = program
                .steps
                .iter()
                .filter(|step| step.runs_in(phase))
                .filter_map(|step| match step {
                    ProgramStep::Dispatch { row, .. } => Some(row.as_str()),
                    _ => None,
                })
                .collect();
            let met = |name: &str| rows.iter().filter(|row| **row == name).count();
            assert_eq!((met("all_reduce/peer_cuda"), met("all_gather/peer_cuda")), (1, 1), "{rows:?}");
        }
        for name in ["meeting@0", "meeting@1"] {
            let is_memory =
                |content: &Content| matches!(content, Content::Weight { name: found, .. } if found == name);
            let buffer = program.buffers.iter().find(|buffer| is_memory(&buffer.content)).unwrap();
            assert_eq!(buffer.size, 4 * words, "{name}");
        }
    }
}

#[test]
fn memory_of_another_size_is_refused() {
    let words = meeting::words(2).unwrap() - 1;
    let graph = Graph::parse(TEXT).unwrap().shard(2).unwrap().rank_graph(1, words).unwrap();
    let options = CompileOptions::new(Symbols::np(16, 0));
    let error = compile(&graph, &Needs::cuda(90).met_by(&any_device()), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(meeting::words(9), None, "no kernel serves more than 8 ranks");
}
