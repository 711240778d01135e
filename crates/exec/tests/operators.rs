//! A server of nodes as a platform: what it gives is what the `cpu` gives, it holds what is needed and no more, and what
//! it does not serve stays elsewhere.

#![allow(clippy::unwrap_used)]

mod common;

use common::{FUSED, PLAIN, SPARSE, Toy, ids, model};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use tapml_exec::{
    Call, CpuPlatform, Gave, Hybrid, HybridSide, Interface, LoadOptions, NodeCall, NodeInput, NodeServer,
    OperatorPlatform, Phase, Platform, PlatformInfo, ServedOp, Session,
};
use tapml_graph::op::OPS;
use tapml_graph::{DType, Error, ErrorKind, Result, Symbols, Tensor};
use tapml_reference::run_node;

/// What a server has done, for the test to look at.
#[derive(Default)]
struct Seen {
    held: HashMap<u32, Tensor>,
    puts: usize,
    calls: usize,
    /// Fail from this call on with this kind of error.
    fails: Option<(usize, ErrorKind)>,
    /// Whether a lost server can be opened again, which has happened so often.
    reopens: bool,
    reopened: usize,
}

impl Seen {
    /// Counts a call or a put; fails if it is to.
    fn count(&mut self) -> Result<()> {
        self.calls += 1;
        match self.fails.filter(|(from, _)| self.calls >= *from) {
            Some((_, kind)) => Err(Error::new(kind, "fails as it was told to")),
            None => Ok(()),
        }
    }
}

/// The reference as a server of nodes.
struct Reference {
    info: PlatformInfo,
    ops: Vec<ServedOp>,
    seen: Arc<Mutex<Seen>>,
    next: u32,
}

fn reference(lacks: &[&str], dtypes: &[DType]) -> (OperatorPlatform, Arc<Mutex<Seen>>) {
    let served = |name: &str| ServedOp {
        name: name.into(),
        dtypes: dtypes.to_vec(),
        accumulate: DType::F32,
        version: "1".into(),
    };
    let ops = OPS.iter().filter(|op| !lacks.contains(&op.name)).map(|op| served(op.name)).collect();
    let info = PlatformInfo { platform: "there".into(), device: "d".into(), driver: "1".into() };
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let server = Reference { info, ops, seen: seen.clone(), next: 0 };
    (OperatorPlatform::new(Box::new(server)), seen)
}

impl NodeServer for Reference {
    fn describe(&self) -> &PlatformInfo {
        &self.info
    }

    fn ops(&self) -> &[ServedOp] {
        &self.ops
    }

    fn reopens(&self) -> bool {
        self.seen.lock().unwrap().reopens
    }

    fn reopen(&mut self, lost: Error) -> Result<()> {
        let mut seen = self.seen.lock().unwrap();
        if !seen.reopens {
            return Err(lost);
        }
        seen.held.clear();
        (seen.fails, seen.reopened) = (None, seen.reopened + 1);
        Ok(())
    }

    fn put(&mut self, tensor: &Tensor) -> Result<u32> {
        self.next += 1;
        let mut seen = self.seen.lock().unwrap();
        if seen.reopens {
            seen.count()?;
        }
        seen.puts += 1;
        seen.held.insert(self.next, tensor.clone());
        Ok(self.next)
    }

    fn release(&mut self, handle: u32) -> Result<()> {
        assert!(self.seen.lock().unwrap().held.remove(&handle).is_some(), "freed twice");
        Ok(())
    }

    fn call(&mut self, call: &NodeCall<'_>) -> Result<Vec<Gave>> {
        let mut seen = self.seen.lock().unwrap();
        seen.count()?;
        let input = |given: &NodeInput<'_>| match given {
            NodeInput::Here(tensor) => (*tensor).clone(),
            NodeInput::Held(handle) => seen.held[handle].clone(),
        };
        let inputs: Vec<Tensor> = call.inputs.iter().map(input).collect();
        let dtypes: Vec<DType> = call.outputs.iter().map(|ty| ty.dtype).collect();
        let outputs = run_node(call.op, call.symbols, &inputs, &dtypes)?;
        let mut gave = Vec::new();
        for (tensor, &keep) in outputs.into_iter().zip(&call.keep) {
            gave.push(if keep {
                self.next += 1;
                seen.held.insert(self.next, tensor);
                Gave::Held(self.next)
            } else {
                Gave::Here(tensor)
            });
        }
        Ok(gave)
    }
}

#[test]
fn steps_are_those_of_the_cpu_and_nothing_is_held_beyond_them() {
    for toy in [PLAIN, FUSED, SPARSE, Toy { dtype: DType::F16, ..FUSED }] {
        let model = model(toy);
        let weights = model.graph().weights().count();
        let (mut there, seen) = reference(&[], &DType::ALL);
        let mut cpu = CpuPlatform::new();
        let mut a = Session::new(&mut there, &model, 32).unwrap();
        let mut b = Session::new(&mut cpu, &model, 32).unwrap();
        for step in [&ids(5)[..], &[1], &[2, 3]] {
            assert_eq!(a.forward(step).unwrap().bytes()[..], b.forward(step).unwrap().bytes()[..]);
        }
        // A state of keys and one of values for each layer.
        assert_eq!(seen.lock().unwrap().held.len(), weights + model.graph().states().len());
        a.reset().unwrap();
        b.reset().unwrap();
        assert_eq!(a.forward(&[4]).unwrap().bytes()[..], b.forward(&[4]).unwrap().bytes()[..]);
        // Weights are put once, however many load them.
        drop(Session::new(&mut there, &model, 8).unwrap());
        assert_eq!(seen.lock().unwrap().puts, weights);
        drop(there);
        a.forward(&[4]).unwrap();
        drop(a);
        assert_eq!(seen.lock().unwrap().held.len(), 0);
    }
}

#[test]
fn what_is_not_served_stays_on_the_source() {
    let model = model(FUSED);
    let lacks = ["attention", "add_rms_norm"];
    let (mut there, seen) = reference(&lacks, &DType::ALL);
    let error = there.load(&model, &Symbols::np(4, 8)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("`there` does not serve `a"), "{error}");
    let mut cpu = CpuPlatform::new();
    let right = Session::new(&mut cpu, &model, 16).unwrap().forward(&ids(6)).unwrap();
    let served = |node: &tapml_graph::Node| {
        if lacks.contains(&node.op.name()) { HybridSide::Source } else { HybridSide::Target }
    };
    let mut hybrid = Hybrid::new(&model, &mut cpu, &mut there, &served, &Symbols::np(6, 16)).unwrap();
    assert_eq!(hybrid.logits(&ids(6)).unwrap().bytes()[..], right.bytes()[..]);
    assert!(seen.lock().unwrap().calls > 0);
}

#[test]
fn dtypes_that_are_not_served_are_named() {
    let (there, _) = reference(&[], &[DType::F32, DType::U32]);
    let model = model(FUSED);
    let node = model.graph().nodes().iter().find(|node| node.op.name() == "linear").unwrap();
    let error = there.kernel_for(&node.op, &model.graph().input_types(node), Phase::Prefill).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("serves `linear` on f32, u32, not on bf16"), "{error}");
}

#[test]
fn traced_nodes_show_their_values_also_those_of_states() {
    let model = model(FUSED);
    let names: HashSet<String> = model.graph().nodes().iter().map(|node| node.name.clone()).collect();
    let options = LoadOptions { trace: names, ..LoadOptions::default() };
    let interface = Interface::from_graph(model.graph()).unwrap();
    let (mut there, _) = reference(&[], &DType::ALL);
    let mut loaded = there.load_with(&model, &Symbols::np(4, 8), &options).unwrap();
    assert!(loaded.traced_nodes().is_err());
    for (tokens, p) in [(3, 0), (2, 3)] {
        let inputs = interface.inputs(&ids(tokens)).unwrap();
        loaded.run(&Symbols::np(tokens as u64, p), &inputs, None).unwrap();
        let traced = loaded.traced_nodes().unwrap();
        assert_eq!(traced.len(), model.graph().nodes().len());
        for (node, trace) in model.graph().nodes().iter().zip(&traced) {
            let dtypes: Vec<DType> = node.outputs.iter().map(|&v| model.graph().value(v).ty.dtype).collect();
            let weight = |&v: &tapml_graph::ValueId| model.weight(&model.graph().value(v).name);
            let inputs = node.inputs.iter().zip(&trace.inputs);
            let inputs = inputs.map(|(v, seen)| seen.clone().map_or_else(|| weight(v), Ok));
            let inputs = inputs.collect::<Result<Vec<Tensor>>>().unwrap();
            let again = run_node(&node.op, &Symbols::np(tokens as u64, p), &inputs, &dtypes).unwrap();
            for (again, seen) in again.iter().zip(&trace.outputs) {
                assert_eq!(again.bytes()[..], seen.bytes()[..], "{}", node.name);
            }
        }
    }
}

#[test]
fn a_failed_run_leaves_nothing_behind_and_can_be_begun_again() {
    let model = model(FUSED);
    let weights = model.graph().weights().count();
    let (mut there, seen) = reference(&[], &DType::ALL);
    let interface = Interface::from_graph(model.graph()).unwrap();
    let mut loaded = there.load(&model, &Symbols::np(4, 8)).unwrap();
    let inputs = interface.inputs(&ids(3)).unwrap();
    let wrong = interface.inputs(&ids(2)).unwrap();
    let error = loaded.run(&Symbols::np(3, 0), &wrong, None).unwrap_err();
    assert!(error.to_string().contains("input `ids`: expected u32[3], found u32[2]"), "{error}");
    seen.lock().unwrap().fails = Some((9, ErrorKind::InvalidInput));
    let error = loaded.run(&Symbols::np(3, 0), &inputs, None).unwrap_err();
    assert!(
        error.to_string().contains("node `") && error.to_string().ends_with("as it was told to"),
        "{error}"
    );
    assert_eq!(seen.lock().unwrap().held.len(), weights);
    seen.lock().unwrap().fails = None;
    let error = loaded.run(&Symbols::np(3, 0), &inputs, None).unwrap_err();
    assert!(error.to_string().contains("an undefined number of rows"), "{error}");
    loaded.reset().unwrap();
    loaded.run(&Symbols::np(3, 0), &inputs, None).unwrap();
}

#[test]
fn replay_tells_each_call_and_ends_with_a_lost_server() {
    let sample = |op: &str| {
        let info = OPS.iter().find(|info| info.name == op).unwrap();
        let sample = (info.samples)().remove(0);
        let weights = (0..sample.inputs.len()).map(|i| (i > 0).then(|| format!("{op}.{i}"))).collect();
        Call {
            node: op.into(),
            op: sample.op.clone(),
            symbols: sample.symbols.clone(),
            inputs: sample.tensors(1).unwrap(),
            input_types: sample.types(),
            weights,
            output_types: sample.op.infer(&sample.types()).unwrap(),
        }
    };
    let calls = [sample("linear"), sample("silu"), sample("linear"), sample("add")];
    let (mut there, seen) = reference(&["silu"], &DType::ALL);
    let (mut found, mut expected) = (HashMap::new(), HashMap::new());
    there.replay(&calls, &mut |i, outputs| drop(found.insert(i, outputs))).unwrap();
    CpuPlatform::new().replay(&calls, &mut |i, outputs| drop(expected.insert(i, outputs))).unwrap();
    for i in [0, 2, 3] {
        let (a, b) = (found[&i].as_ref().unwrap(), expected[&i].as_ref().unwrap());
        assert_eq!(a[0].bytes()[..], b[0].bytes()[..]);
    }
    assert_eq!(found[&1].as_ref().unwrap_err().kind(), ErrorKind::Unsupported);
    seen.lock().unwrap().fails = Some((1, ErrorKind::DeviceLost));
    let error = there.replay(&calls, &mut |_, _| panic!("no call can be run")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
}

#[test]
fn a_server_that_is_opened_again_gives_the_same_bits_wherever_it_was_lost() {
    let model = model(FUSED);
    let weights = model.graph().weights().count();
    let work = |fails: usize| {
        let (mut there, seen) = reference(&[], &DType::ALL);
        {
            let mut seen = seen.lock().unwrap();
            (seen.reopens, seen.fails) = (true, Some((fails, ErrorKind::DeviceLost)));
        }
        let mut session = Session::new(&mut there, &model, 32).unwrap();
        let mut logits = Vec::new();
        for step in [&ids(5)[..], &[1], &[2, 3]] {
            logits.push(session.forward(step).unwrap().bytes().to_vec());
        }
        session.reset().unwrap();
        logits.push(session.forward(&[4]).unwrap().bytes().to_vec());
        drop(session);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.held.len(), weights, "lost at {fails}: what is held beyond the weights");
        (logits, seen.calls, seen.reopened)
    };
    let (expected, calls, _) = work(usize::MAX);
    for fails in 1..=calls {
        let (found, _, reopened) = work(fails);
        assert!(found == expected, "lost at {fails} of {calls}");
        assert_eq!(reopened, 1, "lost at {fails} of {calls}");
    }
}
