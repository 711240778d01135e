//! The `cpu` platform: steps and whole prompts agree, the observer sees every node once, wrong runs are refused.

#![allow(clippy::unwrap_used)]

mod common;

use common::{FUSED, PLAIN, Toy, distance, ids, model};
use std::collections::{HashMap, HashSet};
use std::time::Instant;
use tapml_exec::{Call, CpuPlatform, Interface, NodeEvent, Observer, Platform, Session};
use tapml_graph::{DType, ErrorKind, Graph, NodeId, Origin, Result, Symbols, Tensor};

#[test]
fn decoding_step_by_step_equals_one_prefill() {
    for toy in [PLAIN, FUSED, Toy { dtype: DType::F16, ..FUSED }] {
        let (model, ids) = (model(toy), ids(13));
        let mut platform = CpuPlatform::new();
        let whole = Session::new(&mut platform, &model, 32).unwrap().forward(&ids).unwrap();
        assert_eq!(whole.shape(), [13, common::VOCAB]);
        let mut session = Session::new(&mut platform, &model, 32).unwrap();
        for (i, id) in ids.iter().enumerate() {
            assert_eq!(session.position(), i);
            let row = session.forward(&[*id]).unwrap();
            let tolerance = if toy.dtype == DType::F32 { 1e-6 } else { 4e-3 };
            assert!(distance(&row, &whole.rows(i, 1).unwrap()) <= tolerance, "row {i}");
        }
        session.reset().unwrap();
        assert_eq!(session.forward(&ids).unwrap().bytes()[..], whole.bytes()[..]);
        let mut chunked = Session::with_chunk(&mut platform, &model, 32, 5).unwrap();
        assert!(distance(&chunked.forward(&ids).unwrap(), &whole) <= 4e-3);
    }
}

#[test]
fn a_graph_of_the_last_row_gives_one_row() {
    let (all, last) = (model(PLAIN), model(Toy { last_row: true, ..PLAIN }));
    let mut platform = CpuPlatform::new();
    let ids = ids(9);
    let rows = Session::new(&mut platform, &all, 16).unwrap().forward(&ids).unwrap();
    let row = Session::with_chunk(&mut platform, &last, 16, 4).unwrap().forward(&ids).unwrap();
    assert!(distance(&row, &rows.rows(8, 1).unwrap()) <= 1e-6);
}

#[test]
fn sessions_refuse_wrong_ids_and_overflow_and_stay_usable() {
    let model = model(PLAIN);
    let mut session = Session::new(&mut CpuPlatform::new(), &model, 6).unwrap();
    let error = session.forward(&[1, common::VOCAB as u32]).unwrap_err();
    assert!(error.to_string().contains("token id 29 at position 1"), "{error}");
    assert!(error.hint().unwrap().contains("0 to 28"));
    assert!(session.forward(&[]).is_err());
    session.forward(&ids(4)).unwrap();
    let error = session.forward(&ids(3)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("do not fit into a context of 6"), "{error}");
    session.forward(&ids(2)).unwrap();
    assert_eq!((session.position(), session.context(), session.vocab()), (6, 6, Some(29)));
    assert!(Session::new(&mut CpuPlatform::new(), &model, 0).is_err());
}

#[test]
fn wrong_runs_are_refused() {
    let model = model(PLAIN);
    let interface = Interface::from_graph(model.graph()).unwrap();
    let mut loaded = CpuPlatform::new().load(&model, &Symbols::np(4, 8)).unwrap();
    let three = interface.inputs(&[1, 2, 3]).unwrap();
    let fails = |result: Result<HashMap<String, Tensor>>, text: &str| {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    };
    fails(loaded.run(&Symbols::np(3, 2), &three, None), "p is 2");
    fails(loaded.run(&Symbols::np(2, 0), &three, None), "expected u32[2], found u32[3]");
    fails(loaded.run(&Symbols::np(3, 0), &HashMap::new(), None), "input `ids` (u32[n]) is missing");
    let mut extra = three.clone();
    extra.insert("mask".into(), three["ids"].clone());
    fails(loaded.run(&Symbols::np(3, 0), &extra, None), "no input `mask`");
    loaded.run(&Symbols::np(3, 0), &three, None).unwrap();
}

/// Checks what it sees and keeps calls for replay.
struct Watch {
    seen: Vec<NodeId>,
    calls: Vec<(Call, Vec<Tensor>)>,
    graph: Graph,
}

impl Observer for Watch {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        assert_eq!(event.node, self.graph.node(event.id));
        self.seen.push(event.id);
        for (&id, tensor) in
            event.node.inputs.iter().chain(&event.node.outputs).zip(event.inputs.iter().chain(event.outputs))
        {
            let ty = &self.graph.value(id).ty;
            assert_eq!((tensor.dtype(), tensor.shape()), (ty.dtype, &ty.sizes(event.symbols).unwrap()[..]));
        }
        if let Some(added) = event.added_rows() {
            assert_eq!(added.bytes()[..], event.inputs[1].bytes()[..]);
            assert_eq!(
                event.outputs[0].rows(0, event.inputs[0].shape()[0]).unwrap().bytes()[..],
                event.inputs[0].bytes()[..]
            );
        }
        let named = |id| match self.graph.value(id) {
            v if v.origin == Origin::Weight => Some(v.name.clone()),
            _ => None,
        };
        let call = Call {
            node: event.node.name.clone(),
            op: event.node.op.clone(),
            symbols: event.symbols.clone(),
            inputs: event.inputs.to_vec(),
            input_types: self.graph.input_types(event.node),
            weights: event.node.inputs.iter().map(|&id| named(id)).collect(),
            output_types: event.node.outputs.iter().map(|&id| self.graph.value(id).ty.clone()).collect(),
        };
        self.calls.push((call, event.outputs.to_vec()));
        Ok(())
    }
}

#[test]
fn the_observer_sees_every_node_once_and_its_calls_replay_bitwise() {
    for toy in [PLAIN, FUSED, Toy { dtype: DType::F16, ..FUSED }] {
        let model = model(toy);
        let interface = Interface::from_graph(model.graph()).unwrap();
        let mut platform = CpuPlatform::new();
        let mut plain = platform.load(&model, &Symbols::np(8, 8)).unwrap();
        let mut watched = platform.load(&model, &Symbols::np(8, 8)).unwrap();
        let mut watch = Watch { seen: Vec::new(), calls: Vec::new(), graph: model.graph().clone() };
        let all: Vec<NodeId> = (0..model.graph().nodes().len() as u32).map(NodeId).collect();
        for (n, p) in [(4, 0), (1, 4), (2, 5)] {
            let (inputs, symbols) =
                (interface.inputs(&ids(p + n)[p..]).unwrap(), Symbols::np(n as u64, p as u64));
            watch.seen.clear();
            let seen = watched.run(&symbols, &inputs, Some(&mut watch)).unwrap();
            let unseen = plain.run(&symbols, &inputs, None).unwrap();
            assert_eq!(common::floats(&seen), common::floats(&unseen));
            assert_eq!(watch.seen, all);
        }
        let (calls, outputs): (Vec<Call>, Vec<Vec<Tensor>>) = watch.calls.into_iter().unzip();
        let mut done = HashSet::new();
        let mut sink = |i: usize, result: Result<Vec<Tensor>>| {
            assert!(done.insert(i));
            for (a, b) in result.unwrap().iter().zip(&outputs[i]) {
                assert_eq!((a.shape(), &a.bytes()[..]), (b.shape(), &b.bytes()[..]), "{}", calls[i].node);
            }
        };
        platform.replay(&calls, &mut sink).unwrap();
        assert_eq!(done.len(), calls.len());
    }
}

/// Keeps every added row and nothing else.
struct Carver(Vec<Tensor>);

impl Observer for Carver {
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
        self.0.extend(event.added_rows());
        Ok(())
    }
}

#[test]
fn growing_states_are_extended_in_place() {
    let model = model(PLAIN);
    let interface = Interface::from_graph(model.graph()).unwrap();
    let mut loaded = CpuPlatform::new().load(&model, &Symbols::np(1, 4096)).unwrap();
    let mut places = HashSet::new();
    struct Place<'a>(&'a mut HashSet<usize>);
    impl Observer for Place<'_> {
        fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
            if event.node.name == "0.keys.append" {
                self.0.insert(event.outputs[0].bytes().as_ptr() as usize);
            }
            Ok(())
        }
    }
    for p in 0..600 {
        let inputs = interface.inputs(&[1]).unwrap();
        loaded.run(&Symbols::np(1, p), &inputs, Some(&mut Place(&mut places))).unwrap();
    }
    assert!(places.len() <= 8, "the cache moved {} times", places.len());
    let mut carver = Carver(Vec::new());
    loaded.run(&Symbols::np(1, 600), &interface.inputs(&[1]).unwrap(), Some(&mut carver)).unwrap();
    assert_eq!(carver.0.len(), 4);
    assert_eq!(carver.0[0].shape(), [1, 8]);
}

#[test]
fn an_observers_error_stops_the_run_and_reset_recovers() {
    struct Stop;
    impl Observer for Stop {
        fn node(&mut self, event: &NodeEvent<'_>) -> Result<()> {
            match event.node.name.as_str() {
                "1.keys.append" => Err(tapml_graph::Error::new(ErrorKind::Interrupted, "stopped")),
                _ => Ok(()),
            }
        }
    }
    let model = model(PLAIN);
    let interface = Interface::from_graph(model.graph()).unwrap();
    let mut loaded = CpuPlatform::new().load(&model, &Symbols::np(4, 4)).unwrap();
    let inputs = interface.inputs(&ids(4)).unwrap();
    let first = loaded.run(&Symbols::np(4, 0), &inputs, None).unwrap();
    loaded.reset().unwrap();
    let error = loaded.run(&Symbols::np(4, 0), &inputs, Some(&mut Stop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    loaded.reset().unwrap();
    let again = loaded.run(&Symbols::np(4, 0), &inputs, None).unwrap();
    assert_eq!(common::floats(&first), common::floats(&again));
}

#[test]
fn a_wrong_call_fails_alone() {
    let sample = tapml_graph::op::OPS.iter().find(|o| o.name == "add").unwrap();
    let sample = &(sample.samples)()[0];
    let input_types = sample.types();
    let good = Call {
        node: "good".into(),
        op: sample.op.clone(),
        symbols: sample.symbols.clone(),
        inputs: sample.tensors(1).unwrap(),
        weights: vec![None; 2],
        output_types: sample.op.infer(&input_types).unwrap(),
        input_types,
    };
    let mut bad = good.clone();
    (bad.node, bad.inputs[1]) = ("bad".into(), bad.inputs[1].rows(0, 1).unwrap());
    let start = Instant::now();
    let mut results = HashMap::new();
    CpuPlatform::new().replay(&[good.clone(), bad, good], &mut |i, r| drop(results.insert(i, r))).unwrap();
    assert!(results[&0].is_ok() && results[&2].is_ok(), "{:?}", start.elapsed());
    let error = results[&1].as_ref().unwrap_err();
    assert!(
        error.to_string().contains("node `bad`: input 1: expected f32[9, 320], found f32[1, 320]"),
        "{error}"
    );
}
