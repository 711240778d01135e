//! What anomalies of a program are explained by, without a device: a graph is evaluated step by step, and the values that one of its
//! nodes found or left are changed as a fault would change them.

use super::faults::explain_anomaly;
use super::group::Group;
use super::program;
use super::scan::{Anomaly, AnomalyKind, Before, Differs, Holds, Wrong};
use super::scene::Scene;
use super::traced::{FILL, TracedValues};
use crate::answers::{Answer, TestGraph, change, numbers, precision, run_right};
use crate::report::FaultKind;
use std::collections::HashMap;
use tapml_exec::{Call, TracedNode};
use tapml_graph::{Bytes, DType, NodeId, Origin, Symbol, Symbols, Tensor, ValueId};
use tapml_migrate::verdict::judge;

const GRAPH: &str = r#"graph test
input x: f32[n,16]
weight w: f32[16,16]
a: f32[n,16] = silu(x)
b: f32[n,16] = linear(a, w)
c: f32[n,16] = add(b, x)
angles: f32[n,16] = rope_angles() {"inv_freq":[1.0,0.5,0.25,0.125,0.0625,0.03125,0.015625,0.0078125],"scale":1.0}
state k: f32[p,16] -> k_cache
k_cache: f32[n+p,16] = append(k, b)
state v: f32[p,16] -> v_cache
v_cache: f32[n+p,16] = append(v, c)
output logits = c
output angles = angles
"#;

/// Elements of a row.
const WIDTH: usize = 16;

/// A step of the graph with the values that all nodes find and leave.
struct Step {
    symbols: Symbols,
    values: HashMap<ValueId, Tensor>,
}

/// Two steps of the graph, of which the second is looked at.
struct TwoSteps {
    subject: TestGraph,
    before: Step,
    now: Step,
}

impl TwoSteps {
    /// A prompt of two rows and then one of three, without a fault.
    fn new() -> TwoSteps {
        let subject = TestGraph::new(GRAPH);
        let before = Step::evaluate(&subject, Symbols::np(2, 0), 1, None);
        let now = Step::evaluate(&subject, Symbols::np(3, 2), 2, Some(&before));
        TwoSteps { subject, before, now }
    }

    /// The right call of a node in the second step.
    fn call(&self, node: &str) -> Call {
        self.now.call(&self.subject, self.subject.node(node))
    }

    /// The second step with this left by a node, after the first.
    fn scene(&self, node: &str, left: &[Tensor]) -> Scene {
        let mut nodes = self.now.trace(&self.subject);
        nodes.iter_mut().find(|traced| traced.node == node).unwrap().outputs = left.to_vec();
        let values = TracedValues { nodes, given: HashMap::new(), fill: Some(FILL) };
        Scene { values, before: self.memory(), after: None }
    }

    /// What the first step left in memory.
    fn memory(&self) -> Before {
        let mut memory = Before::default();
        for (at, node) in self.subject.graph.nodes().iter().enumerate() {
            let tensors = |ids: &[ValueId]| ids.iter().map(|id| self.before.values[id].clone()).collect();
            memory.outputs.insert(NodeId(at as u32), tensors(&node.outputs));
            memory.read.extend(node.inputs.iter().map(|id| (*id, self.before.values[id].clone())));
        }
        memory.symbols = Some(self.before.symbols.clone());
        memory
    }

    /// What explains that a node left this, where calls alone give what `target` does.
    fn explain(&self, node: &str, left: &[Tensor], target: &Answer<'_>) -> Group {
        self.explain_in(&self.scene(node, left), node, left, target)
    }

    fn explain_in(&self, scene: &Scene, node: &str, left: &[Tensor], target: &Answer<'_>) -> Group {
        let what = AnomalyKind::Wrong(Box::new(self.wrong(node, left)));
        self.explain_kind(Some(scene), node, what, target).unwrap()
    }

    /// What explains an anomaly of a node.
    fn explain_kind(
        &self,
        scene: Option<&Scene>,
        node: &str,
        what: AnomalyKind,
        target: &Answer<'_>,
    ) -> Option<Group> {
        let anomaly = Anomaly { step: "p1.s0".into(), node: self.subject.node(node), what };
        self.subject
            .conclude(target, |facts, outcomes| explain_anomaly(facts, scene, &anomaly, false, outcomes))
    }

    /// The verdict on what a node left.
    fn wrong(&self, node: &str, left: &[Tensor]) -> Wrong {
        let call = self.call(node);
        let exact = self.subject.oracles.exact(&call, 0).unwrap();
        let precision = precision(&call);
        let judgement = judge(&exact, left, precision, None).unwrap();
        assert!(!judgement.passes(), "{node} is right");
        Wrong { call, observed: left.to_vec(), exact, precision, judgement }
    }
}

impl Step {
    /// Evaluates the graph behind the states of another step.
    fn evaluate(subject: &TestGraph, symbols: Symbols, seed: u32, before: Option<&Step>) -> Step {
        let graph = &subject.graph;
        let mut values = HashMap::new();
        for (i, value) in graph.values().iter().enumerate() {
            let shape = value.ty.sizes(&symbols).unwrap();
            let given = match value.origin {
                Origin::Input => numbers(&shape, seed),
                // Weights are the same in each step.
                Origin::Weight => numbers(&shape, 77),
                Origin::State(state) => match before {
                    Some(before) => before.values[&graph.states()[state as usize].output].clone(),
                    None => numbers(&shape, seed),
                },
                Origin::Node { .. } => continue,
            };
            values.insert(ValueId(i as u32), given);
        }
        let mut step = Step { symbols, values };
        for (i, node) in graph.nodes().iter().enumerate() {
            let outputs = run_right(&step.call(subject, NodeId(i as u32)));
            step.values.extend(node.outputs.iter().copied().zip(outputs));
        }
        step
    }

    fn call(&self, subject: &TestGraph, node: NodeId) -> Call {
        let inputs = subject.graph.node(node).inputs.iter().map(|id| self.values[id].clone()).collect();
        subject.call(node, &self.symbols, inputs)
    }

    fn trace(&self, subject: &TestGraph) -> Vec<TracedNode> {
        let input = |&id: &ValueId| {
            let is_weight = subject.graph.value(id).origin == Origin::Weight;
            (!is_weight).then(|| self.values[&id].clone())
        };
        let nodes = subject.graph.nodes().iter().map(|node| TracedNode {
            node: node.name.clone(),
            inputs: node.inputs.iter().map(input).collect(),
            outputs: node.outputs.iter().map(|id| self.values[id].clone()).collect(),
            out_of_bounds_bytes: vec![0; node.outputs.len()],
        });
        nodes.collect()
    }
}

/// A tensor that nobody wrote.
fn fill_like(like: &Tensor) -> Tensor {
    let bytes = FILL.to_le_bytes().repeat(like.len());
    Tensor::new(like.dtype(), like.shape().to_vec(), Bytes::new(bytes)).unwrap()
}

/// The first rows of one tensor and the others of another.
fn splice(first: &Tensor, rows: usize, others: &Tensor) -> Tensor {
    let at = rows * WIDTH * 4;
    let bytes = [&first.bytes()[..at], &others.bytes()[at..]].concat();
    Tensor::new(first.dtype(), first.shape().to_vec(), Bytes::new(bytes)).unwrap()
}

fn brief(group: &Group) -> (FaultKind, &str, bool) {
    (group.kind, &group.cause, group.certain)
}

#[test]
fn a_node_that_is_wrong_alone_is_a_fault_of_its_operator() {
    let program = TwoSteps::new();
    let negative = |call: &Call| change(run_right(call), |_, v| -v);
    let group = program.explain("b", &negative(&program.call("b")), &negative);
    assert_eq!(brief(&group), (FaultKind::Operator, "wrong_sign", true), "{}", group.evidence);
    assert!(group.evidence.contains("wrong on inputs that no recorded call has"), "{}", group.evidence);
}

#[test]
fn a_node_that_leaves_its_output_as_memory_was_did_not_run() {
    let program = TwoSteps::new();
    let left = [fill_like(&run_right(&program.call("b"))[0])];
    let group = program.explain("b", &left, &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "not_written", true), "{}", group.evidence);
}

#[test]
fn rows_of_the_step_before_or_its_position_are_a_wrong_symbol() {
    let program = TwoSteps::new();
    let right = run_right(&program.call("b")).remove(0);
    let group = program.explain("b", &[splice(&right, 2, &fill_like(&right))], &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "wrong_symbol", true), "{}", group.evidence);
    assert!(group.whole && group.evidence.contains("only the first 2 rows"), "{}", group.evidence);

    let stale = Call { symbols: Symbols::np(3, 0), ..program.call("angles") };
    let group = program.explain("angles", &run_right(&stale), &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "wrong_symbol", true), "{}", group.evidence);
    assert!(group.evidence.contains("p = 0 instead of 2"), "{}", group.evidence);
}

#[test]
fn an_output_of_the_step_before_is_stale() {
    let mut program = TwoSteps::new();
    // Both steps have as many rows, so that an old output may stand where the new one belongs.
    program.before = Step::evaluate(&program.subject, Symbols::np(3, 0), 5, None);
    let old =
        program.before.values[&program.subject.graph.node(program.subject.node("b")).outputs[0]].clone();
    // The old input would give it too; the node did not find that one.
    let mut scene = program.scene("b", std::slice::from_ref(&old));
    scene.before.read.clear();
    let group = program.explain_in(&scene, "b", &[old], &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "stale_data", true), "{}", group.evidence);
}

#[test]
fn a_node_that_computes_with_what_is_not_there_yet_ran_too_early() {
    let mut program = TwoSteps::new();
    program.before = Step::evaluate(&program.subject, Symbols::np(3, 0), 5, None);
    let call = program.call("c");
    let [b, x] = [0, 1].map(|k| program.subject.graph.node(program.subject.node("c")).inputs[k]);
    let before = |value| (program.before.values[&value].clone(), "the step before");
    let nothing = (fill_like(&call.inputs[0]), "before anyone wrote it");
    // Nobody computes an input of the graph: it was not copied to the device.
    for (k, (value, what), cause, late) in [
        (0, before(b), "missing_dependency", Some(program.subject.node("b"))),
        (0, nothing, "missing_dependency", Some(program.subject.node("b"))),
        (1, before(x), "missing_copy", None),
    ] {
        let mut early = call.clone();
        early.inputs[k] = value;
        let group = program.explain("c", &run_right(&early), &run_right);
        assert_eq!(brief(&group), (FaultKind::Between, cause, true), "{}", group.evidence);
        assert!(group.evidence.contains(what) && group.late == late, "{}", group.evidence);
    }
}

#[test]
fn another_value_in_the_place_of_an_input_is_a_swap() {
    let program = TwoSteps::new();
    let mut call = program.call("c");
    call.inputs[0] = program.call("b").inputs[0].clone();
    let group = program.explain("c", &run_right(&call), &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "swapped_operands", false), "{}", group.evidence);
    assert!(group.evidence.contains("`a` in the place of `b`"), "{}", group.evidence);
}

#[test]
fn rows_in_the_state_of_another_layer_are_found_in_the_next_step() {
    let program = TwoSteps::new();
    let (call, right) = (program.call("k_cache"), run_right(&program.call("k_cache")));
    // The state keeps its rows, and has zeros behind them.
    let old = call.inputs[0].bytes().len();
    let bytes: Vec<u8> =
        right[0].bytes().iter().enumerate().map(|(i, &b)| if i < old { b } else { 0 }).collect();
    let left = [Tensor::new(DType::F32, right[0].shape().to_vec(), Bytes::new(bytes)).unwrap()];
    let group = program.explain("k_cache", &left, &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "not_written", false), "{}", group.evidence);

    let mut scene = program.scene("k_cache", &left);
    let mut next = program.now.trace(&program.subject);
    let other = next.iter_mut().find(|traced| traced.node == "v_cache").unwrap();
    other.inputs[0] = Some(right[0].clone());
    scene.after = Some(TracedValues { nodes: next, given: HashMap::new(), fill: Some(FILL) });
    let group = program.explain_in(&scene, "k_cache", &left, &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "wrong_layer_state", true), "{}", group.evidence);
    assert!(group.nodes.contains(&program.subject.node("v_cache")));
}

#[test]
fn where_no_bits_tell_hypotheses_about_values_guess() {
    let program = TwoSteps::new();
    let right = run_right(&program.call("b"));
    let rows = [splice(&right[0], 1, &numbers(&[3, WIDTH], 9))];
    let group = program.explain("b", &rows, &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "not_written", false), "{}", group.evidence);
    let group = program.explain("b", &change(right, |_, v| -v), &run_right);
    assert_eq!(brief(&group), (FaultKind::Between, "wrong_sign", false), "{}", group.evidence);
}

#[test]
fn a_node_that_may_be_wrong_alone_is_explained_by_bits_only() {
    let program = TwoSteps::new();
    let twice = |call: &Call| change(run_right(call), |_, v| 2.0 * v);
    let explain = |observed: Vec<Tensor>| {
        let (call, scene) = (program.call("angles"), program.scene("angles", &observed));
        let alone = twice(&call);
        let what = AnomalyKind::Differs(Box::new(Differs { call, observed, alone }));
        program.explain_kind(Some(&scene), "angles", what, &twice)
    };
    let stale = explain(twice(&Call { symbols: Symbols::np(3, 0), ..program.call("angles") })).unwrap();
    assert_eq!(brief(&stale), (FaultKind::Between, "wrong_symbol", true), "{}", stale.evidence);
    let silent = explain(vec![fill_like(&run_right(&program.call("angles"))[0])]).unwrap();
    assert_eq!(brief(&silent), (FaultKind::Between, "not_written", true), "{}", silent.evidence);
    assert!(explain(vec![numbers(&[3, WIDTH], 9)]).is_none());
}

#[test]
fn memory_that_is_not_as_it_was_left_names_the_cause_without_an_experiment() {
    let program = TwoSteps::new();
    let never = |call: &Call| -> Vec<Tensor> { panic!("{} is run", call.node) };
    let (a, b, c) = (program.subject.node("a"), program.subject.node("b"), program.subject.node("c"));
    let changed = |holds| AnomalyKind::Changed { value: ValueId(2), producer: a, holds };
    let given = |holds| AnomalyKind::Given { value: ValueId(0), holds };
    let state = |holds| AnomalyKind::State { state: 0, holds };
    for (what, cause, certain) in [
        (given(Holds::Rounded(DType::F16)), "wrong_cast", true),
        (given(Holds::Before), "missing_copy", true),
        (given(Holds::Other), "missing_copy", false),
        (changed(Holds::Output(c)), "buffer_reused", true),
        (changed(Holds::Output(a)), "buffer_reused", false),
        (changed(Holds::Before), "missing_dependency", true),
        (changed(Holds::Nothing), "missing_dependency", true),
        (changed(Holds::Other), "buffer_reused", false),
        (state(Holds::Kept), "state_not_reset", true),
        (state(Holds::NotEmpty), "state_not_reset", false),
        (state(Holds::State(1)), "wrong_layer_state", true),
        (state(Holds::Before), "missing_copy", true),
        (state(Holds::Other), "wrong_slot", false),
    ] {
        let group = program.explain_kind(None, "b", what.clone(), &never).unwrap();
        assert_eq!(brief(&group), (FaultKind::Between, cause, certain), "{what:?}: {}", group.evidence);
        assert!(group.nodes.contains(&b));
    }
    let beyond = AnomalyKind::Overrun { output: 0, bytes: 64 };
    let group = program.explain_kind(None, "b", beyond, &never).unwrap();
    assert_eq!(brief(&group), (FaultKind::Operator, "out_of_bounds", true), "{}", group.evidence);
}

#[test]
fn many_nodes_that_run_late_are_one_fault() {
    let program = TwoSteps::new();
    let late = |late: u32| {
        let what = AnomalyKind::Changed { value: ValueId(2), producer: NodeId(late), holds: Holds::Before };
        program.explain_kind(None, "b", what, &run_right).unwrap()
    };
    let causes = |count| super::faults::merge(Vec::new(), (0..count).map(late).collect()).len();
    assert_eq!((causes(1), causes(2), causes(4), causes(5)), (1, 2, 4, 1));
}

#[test]
fn what_all_nodes_have_in_common_is_a_fault_of_the_program() {
    let program = TwoSteps::new();
    let anomalies = |nodes: &[&str]| -> Vec<Anomaly> {
        let anomaly = |name: &&str| {
            let right = run_right(&program.call(name));
            let what = AnomalyKind::Wrong(Box::new(program.wrong(name, &change(right, |_, v| -v))));
            Anomaly { step: "p1.s0".into(), node: program.subject.node(name), what }
        };
        nodes.iter().map(anomaly).collect()
    };
    let facts = program.subject.facts();

    let mut scene = program.scene("a", &[]);
    assert!(program::of_all_nodes(facts, &scene, &mut anomalies(&["b", "c"])).is_empty());
    for traced in &mut scene.values.nodes {
        let narrow = |t: Tensor| Tensor::from_f64(DType::F16, t.shape().to_vec(), &t.to_f64()).unwrap();
        let wide = |t: Tensor| Tensor::from_f64(DType::F32, t.shape().to_vec(), &t.to_f64()).unwrap();
        traced.outputs = traced.outputs.drain(..).map(|t| wide(narrow(t))).collect();
    }
    let mut found = anomalies(&["b", "c"]);
    let groups = program::of_all_nodes(facts, &scene, &mut found);
    assert_eq!(brief(&groups[0]), (FaultKind::Between, "wrong_cast", true), "{}", groups[0].evidence);
    assert!(found.is_empty() && groups[0].count == 2);

    scene.values.nodes.iter_mut().for_each(|t| t.outputs = t.outputs.iter().map(fill_like).collect());
    let groups = program::of_all_nodes(facts, &scene, &mut anomalies(&["b", "c"]));
    assert_eq!(brief(&groups[0]), (FaultKind::Between, "wrong_symbol", false), "{}", groups[0].evidence);

    // One node computes with another position; of the others those that depend on it have nothing of their own to say.
    let mut found = anomalies(&["angles", "b", "v_cache"]);
    let stale = Symbols::np(program.now.symbols.get(Symbol::N).unwrap(), 0);
    let group = program::uniform_group(facts, &mut found, 0, (&program.now.symbols, &stale));
    assert_eq!(brief(&group), (FaultKind::Between, "wrong_symbol", true), "{}", group.evidence);
    assert_eq!(group.count, 2);
    assert_eq!(found.iter().map(|a| a.node).collect::<Vec<_>>(), [program.subject.node("b")]);
}
