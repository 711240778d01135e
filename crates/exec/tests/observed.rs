//! Runs of a deployed program before an observer: the results have the same bits as without, and each call that is shown replays
//! to the bits that the program had.
#![allow(clippy::unwrap_used)]

mod common;

use common::{FUSED, SPARSE, ids, model};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{
    Call, CpuPlatform, DevicePlatform, Interface, LoadOptions, NodeEvent, Observer, Overrides, PagedLimits,
    PagedSession, PagedStep, Platform,
};
use tapml_graph::paged::PageLayout;
use tapml_graph::{ErrorKind, Graph, NodeId, Origin, Result, Symbols, Tensor};

/// Records every `stride`-th node of a run.
struct Watch {
    stride: u32,
    pool_bytes: Option<u64>,
    seen: Vec<(Call, Vec<Tensor>)>,
}

impl Observer for Watch {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        let (graph, node) = (event.graph, event.node);
        let mut input_types = graph.input_types(node);
        if let Some(pools) = node.op.pools(&graph.input_types(graph.node(event.id))) {
            let rows = event.inputs[pools.inputs[0]].shape()[0];
            pools.narrow_types(&mut input_types, rows / pools.part);
        }
        let call = Call {
            node: node.name.clone(),
            op: node.op.clone(),
            symbols: event.symbols.clone(),
            inputs: event.inputs.to_vec(),
            output_types: node.op.infer(&input_types).unwrap(),
            input_types,
            weights: node
                .inputs
                .iter()
                .map(|&id| graph.value(id))
                .map(|value| (value.origin == Origin::Weight).then(|| value.name.clone()))
                .collect(),
        };
        self.seen.push((call, event.outputs.to_vec()));
        Ok(())
    }

    fn watches(&mut self, _graph: &Graph, id: NodeId, _symbols: &Symbols) -> bool {
        self.stride > 0 && id.0.is_multiple_of(self.stride)
    }

    fn pool_bytes(&self) -> Option<u64> {
        self.pool_bytes
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
            let mut watch = Watch { stride, pool_bytes: None, seen: Vec::new() };
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
fn pools_are_shown_as_the_parts_that_a_call_names() {
    let layout = PageLayout { page: 2, pages: 500, texts: 3, blocks: 4, wanted: None, states: 1 };
    let limits = PagedLimits { layout, rows: 6, wanted: 3 };
    // Two texts that share their first page, as those of a common prompt do.
    let step = PagedStep {
        ids: ids(3),
        positions: vec![2, 3, 2],
        texts: vec![0, 0, 2],
        slots: vec![980, 981, 14],
        pages: vec![100, 490, 0, 0, 0, 0, 0, 0, 100, 7, 0, 0],
        wanted: vec![1],
        ..PagedStep::default()
    };
    let model = model(FUSED);
    let device = platform(false, Overrides::default().with_row_invariance());
    let platforms: [Box<dyn Platform>; 2] = [Box::new(CpuPlatform::new()), Box::new(device)];
    for mut platform in platforms {
        let mut session = PagedSession::observable(platform.as_mut(), &model, limits).unwrap();
        // Pages that are not zero.
        let first = PagedStep { positions: vec![0, 1, 0], slots: vec![200, 201, 999], ..step.clone() };
        session.run(PagedStep { texts: vec![0, 0, 9], ..first }).unwrap();
        let mut watch = |pool_bytes| {
            let mut watch = Watch { stride: 1, pool_bytes, seen: Vec::new() };
            session.run_observed(step.clone(), Some(&mut watch)).unwrap();
            watch.seen
        };
        let (whole, few) = (watch(None), watch(Some(1 << 20)));
        assert_eq!(whole.len(), few.len());
        let is_paged = |call: &Call| call.op.pools(&call.input_types).is_some();
        let mut paged = 0;
        for ((whole, _), (call, outputs)) in whole.iter().zip(&few) {
            call.check().unwrap();
            if let Some(pools) = call.op.pools(&call.input_types) {
                paged += 1;
                // Pages 0, 7, 100 and 490, or three rows.
                let rows = if call.op.name().ends_with("paged_append") { 3 } else { 8 };
                let (few, all) = (&call.inputs[pools.inputs[0]], &whole.inputs[pools.inputs[0]]);
                assert_eq!((few.shape()[0], all.shape()[0]), (rows, 1000), "{}", call.node);
            }
            let mut again = None;
            platform.replay(std::slice::from_ref(call), &mut |_, outputs| again = Some(outputs)).unwrap();
            for (again, shown) in again.unwrap().unwrap().iter().zip(outputs) {
                assert_eq!(again.bytes()[..], shown.bytes()[..], "{}", call.node);
            }
        }
        let none = watch(Some(0));
        assert!(paged >= 4 && none.len() + paged == few.len(), "{paged} of {} and {}", few.len(), none.len());
        assert!(!none.iter().any(|(call, _)| is_paged(call)));
    }
}

#[test]
fn a_program_with_kernels_for_single_rows_shows_no_nodes() {
    let options = LoadOptions { observable: true, ..LoadOptions::default() };
    let error = platform(true, Overrides::default()).load_with(&model(FUSED), &Symbols::np(4, 8), &options);
    let error = error.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
