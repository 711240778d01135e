//! Runs of a deployed program before an observer: the results have the same bits as without, and each call that is shown replays
//! to the bits that the program had.
#![allow(clippy::unwrap_used)]

mod common;

use common::{FUSED, SPARSE, ids, model};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{Call, DevicePlatform, Interface, LoadOptions, NodeEvent, Observer, Overrides, Platform};
use tapml_graph::{ErrorKind, Graph, NodeId, Origin, Result, Symbols, Tensor};

/// Records every `stride`-th node of a run.
struct Watch {
    stride: u32,
    seen: Vec<(Call, Vec<Tensor>)>,
}

impl Observer for Watch {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        let (graph, node) = (event.graph, event.node);
        let call = Call {
            node: node.name.clone(),
            op: node.op.clone(),
            symbols: event.symbols.clone(),
            inputs: event.inputs.to_vec(),
            input_types: graph.input_types(node),
            weights: node
                .inputs
                .iter()
                .map(|&id| graph.value(id))
                .map(|value| (value.origin == Origin::Weight).then(|| value.name.clone()))
                .collect(),
            output_types: node.outputs.iter().map(|&id| graph.value(id).ty.clone()).collect(),
        };
        self.seen.push((call, event.outputs.to_vec()));
        Ok(())
    }

    fn watches(&mut self, _graph: &Graph, id: NodeId, _symbols: &Symbols) -> bool {
        self.stride > 0 && id.0.is_multiple_of(self.stride)
    }
}

fn platform(gpu: bool, overrides: Overrides) -> DevicePlatform {
    let options = EmulatorOptions { gpu, ..EmulatorOptions::default() };
    DevicePlatform::new(Box::new(Emulator::new(options).unwrap()), overrides)
}

#[test]
fn an_observed_run_changes_no_bit_and_shows_calls_that_replay() {
    for toy in [FUSED, SPARSE] {
        let model = model(toy);
        let interface = Interface::from_graph(model.graph()).unwrap();
        // Replays plan by the overrides of the platform, which must be those of the program.
        let mut platform = platform(false, Overrides::default().with_row_invariance());
        let load = |platform: &mut DevicePlatform, observable| {
            let options = LoadOptions { row_invariant: true, observable, ..LoadOptions::default() };
            platform.load_with(&model, &Symbols::np(6, 12), &options).unwrap()
        };
        let (mut plain, mut watched) = (load(&mut platform, false), load(&mut platform, true));
        let mut nodes = Vec::new();
        for ((tokens, p), stride) in [(6, 0), (1, 6), (3, 7), (1, 10)].into_iter().zip([1, 1, 3, 0]) {
            let (symbols, inputs) =
                (Symbols::np(tokens, p), interface.inputs(&ids(tokens as usize)).unwrap());
            let expected = plain.run(&symbols, &inputs, None).unwrap();
            let mut watch = Watch { stride, seen: Vec::new() };
            let found = watched.run(&symbols, &inputs, Some(&mut watch)).unwrap();
            assert_eq!(found["logits"].bytes()[..], expected["logits"].bytes()[..], "{symbols:?}");
            let (calls, outputs): (Vec<Call>, Vec<Vec<Tensor>>) = watch.seen.into_iter().unzip();
            nodes.push(calls.len());
            let mut replayed = 0;
            platform
                .replay(&calls, &mut |i, again| {
                    replayed += 1;
                    for (again, shown) in again.unwrap().iter().zip(&outputs[i]) {
                        assert_eq!(again.bytes()[..], shown.bytes()[..], "{} at {symbols:?}", calls[i].node);
                    }
                })
                .unwrap();
            assert_eq!(replayed, calls.len());
        }
        assert!(nodes[0] == nodes[1] && nodes[2] == nodes[0].div_ceil(3) && nodes[3] == 0, "{nodes:?}");
    }
}

#[test]
fn a_program_with_kernels_for_single_rows_shows_no_nodes() {
    let options = LoadOptions { observable: true, ..LoadOptions::default() };
    let error = platform(true, Overrides::default()).load_with(&model(FUSED), &Symbols::np(4, 8), &options);
    let error = error.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
