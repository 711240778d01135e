//! Each violation is reported with the name of what violates, and all of them at once.

use super::*;
use crate::graph::{Builder, Node, NodeId, State, Value};
use crate::op::{AddRmsNorm, Append, RmsNorm, Silu};
use crate::{DType, Dim};

fn f32s(shape: &str) -> TensorType {
    TensorType { dtype: DType::F32, shape: shape.split(',').map(|d| d.parse().unwrap()).collect() }
}

/// Values: 0 `x`, 1 `cache` (state), 2 `w`, 3 `sum`, 4 `y` (node `norm`), 5 `all` (node `all`), 6 `act` (node `act`).
fn good() -> Graph {
    let mut b = Builder::new("g");
    let x = b.input("x", f32s("n,4")).unwrap();
    let cache = b.state("cache", f32s("p,4")).unwrap();
    let w = b.weight("w", f32s("4")).unwrap();
    let names = ["sum".to_string(), "y".to_string()];
    let pair = b.node_multi("norm", AddRmsNorm::new(0.5), &[x, x, w], &names).unwrap();
    let all = b.node("all", Append {}, &[cache, pair[1]]).unwrap();
    b.set_state(cache, all).unwrap();
    let act = b.node("act", Silu {}, &[pair[0]]).unwrap();
    b.output("act", act);
    b.finish().unwrap()
}

/// Asserts that exactly these violations are found, each given by a part of its text, and that `check` tells them all.
fn finds(break_it: impl FnOnce(&mut Graph), expected: &[&str]) {
    let mut graph = good();
    break_it(&mut graph);
    let found = violations(&graph);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for part in expected {
        assert!(found.iter().any(|text| text.contains(part)), "`{part}` is not in {found:#?}");
    }
    let error = check(&graph).unwrap_err().to_string();
    assert!(error.contains("graph `g`") && found.iter().all(|text| error.contains(text)), "{error}");
}

#[test]
fn a_good_graph_has_no_violations() {
    assert_eq!(violations(&good()), Vec::<String>::new());
}

#[test]
fn duplicate_names() {
    finds(|g| g.values[3].name = "x".into(), &["two values are named `x`"]);
    finds(|g| g.nodes[1].name = "act".into(), &["two nodes are named `act`"]);
    finds(|g| g.outputs.push(g.outputs[0].clone()), &["two outputs are named `act`"]);
    finds(
        |g| g.states.push(g.states[0].clone()),
        &["two states are named `cache`", "state `cache` starts as `cache`, which is another value"],
    );
}

#[test]
fn use_before_definition() {
    finds(|g| g.nodes[0].inputs[1] = ValueId(6), &["node `norm` uses `act` before it is computed"]);
    finds(|g| g.nodes[2].inputs[0] = ValueId(6), &["node `act` uses `act` before it is computed"]);
}

#[test]
fn wrong_types() {
    finds(|g| g.values[6].ty = f32s("n,5"), &["node `act`: `act` is f32[n,5], silu gives f32[n,4]"]);
    finds(
        |g| g.values[2].ty = f32s("5"),
        &["node `norm`: add_rms_norm: the length of `w` must be 4, found 5"],
    );
    finds(|g| g.nodes[2].inputs.clear(), &["node `act`: silu: expected 1 inputs, found 0"]);
    finds(
        |g| g.nodes[0].op = RmsNorm::new(0.5).into(),
        &["node `norm`: rms_norm: expected 1 or 2 inputs, found 3"],
    );
}

#[test]
fn states() {
    finds(
        |g| g.states[0].output = ValueId(6),
        &["state `cache` is f32[p,4] before the run and f32[n,4] after it, expected f32[n+p,4]"],
    );
    // A state that nobody updates: what `Builder::set_state` prevents.
    finds(
        |g| g.states[0].output = ValueId(1),
        &["state `cache` is f32[p,4] before the run and f32[p,4] after it, expected f32[n+p,4]"],
    );
    finds(|g| g.states[0].output = ValueId(99), &["state `cache` names a value that does not exist"]);
    finds(
        |g| g.states[0].input = ValueId(0),
        &[
            "`cache` says that it is state 0, which it is not",
            "state `cache` starts as `x`",
            "state `cache` is f32[n,4]",
        ],
    );
    finds(|g| g.states.clear(), &["`cache` says that it is state 0, which it is not"]);
    finds(
        |g| g.states[0].name = "other".into(),
        &["state `other` starts as `cache`, which is another value"],
    );
}

#[test]
fn a_fixed_state_keeps_its_type() {
    let mut b = Builder::new("g");
    let state = b.state("s", f32s("2,4")).unwrap();
    let next = b.node("next", Silu {}, &[state]).unwrap();
    b.set_state(state, next).unwrap();
    let graph = b.finish().unwrap();
    assert!(!graph.states()[0].grows(&graph) && good().states()[0].grows(&good()));
}

#[test]
fn an_open_state_is_refused_by_the_builder() {
    let mut b = Builder::new("g");
    b.state("cache", f32s("p,4")).unwrap();
    assert!(b.finish().unwrap_err().to_string().contains("state `cache` has no value after the run"));
}

#[test]
fn values_that_do_not_exist() {
    finds(|g| g.outputs[0].value = ValueId(99), &["output `act` names a value that does not exist"]);
    finds(|g| g.nodes[2].inputs[0] = ValueId(99), &["node `act`: no value 99"]);
    finds(
        |g| g.nodes[2].outputs[0] = ValueId(99),
        &["node `act`: no value 99", "`act` says that it is output 0 of node 2, which it is not"],
    );
    finds(|g| drop(g.nodes.pop()), &["`act` says that it is output 0 of node 2, which it is not"]);
}

#[test]
fn symbolic_and_oversized_weights() {
    finds(
        |g| g.values.push(Value { name: "v".into(), ty: f32s("n,4"), origin: Origin::Weight }),
        &["weight `v` has a symbolic size: f32[n,4]"],
    );
    let huge = TensorType::new(DType::F32, [u64::MAX / 2, 3]);
    finds(
        |g| g.values.push(Value { name: "v".into(), ty: huge, origin: Origin::Weight }),
        &["weight `v` exceeds the address space"],
    );
}

#[test]
fn origins_and_order() {
    finds(|g| g.values[6].origin = Origin::Input, &["node `act`: `act` says that it comes from elsewhere"]);
    finds(
        |g| g.nodes[0].outputs.swap(0, 1),
        &[
            "node `norm`: `y` says that it comes from elsewhere",
            "node `norm`: `sum` says that it comes from elsewhere",
            "`sum` says that it is output 0 of node 0, which it is not",
            "`y` says that it is output 1 of node 0, which it is not",
        ],
    );
    finds(
        |g| {
            g.nodes.swap(1, 2);
            g.values[5].origin = Origin::Node { node: NodeId(2), output: 0 };
            g.values[6].origin = Origin::Node { node: NodeId(1), output: 0 };
        },
        &["`all` is not in the order of the nodes", "`act` is not in the order of the nodes"],
    );
    finds(
        |g| g.nodes[0].outputs.truncate(1),
        &[
            "node `norm`: add_rms_norm gives 2 outputs, 1 are named",
            "`y` says that it is output 1 of node 0, which it is not",
        ],
    );
}

#[test]
fn a_leaf_between_outputs_has_no_place_in_the_text() {
    finds(
        |g| {
            // `w` moves between `sum` and `y`.
            g.values.swap(2, 3);
            g.nodes[0].inputs[2] = ValueId(3);
            g.nodes[0].outputs[0] = ValueId(2);
            g.nodes[2].inputs[0] = ValueId(2);
        },
        &["`w` stands between the outputs of node 0"],
    );
}

#[test]
fn states_out_of_order() {
    let mut b = Builder::new("g");
    let ids = ["a", "b"].map(|name| b.state(name, f32s("2")).unwrap());
    for id in ids {
        b.set_state(id, id).unwrap();
    }
    let mut graph = b.finish().unwrap();
    graph.states.swap(0, 1);
    graph.values[0].origin = Origin::State(1);
    graph.values[1].origin = Origin::State(0);
    let found = violations(&graph);
    assert_eq!(found, ["`a` is not in the order of the states", "`b` is not in the order of the states"]);
}

#[test]
fn bounds() {
    let long = "é".repeat(600);
    finds(
        |g| g.nodes[2].name = long.clone(),
        &["the name `éééééééééééééééééééééééééééééééééééééééé…` has 1200 bytes, at most 1024 are allowed"],
    );
    finds(|g| g.name = "g` ".repeat(512), &["has 1536 bytes"]);
    let deep = TensorType::new(DType::F32, [1u64; 9]);
    finds(
        |g| g.values.push(Value { name: "v".into(), ty: deep, origin: Origin::Input }),
        &["`v` has 9 sizes, at most 8 are allowed"],
    );
    finds(
        |g| g.nodes[2].inputs = vec![ValueId(0); 257],
        &["node `act` has 257 inputs, at most 256 are allowed", "node `act`: silu: expected 1 inputs"],
    );
    let many: Vec<Value> = (0..MAX_VALUES)
        .map(|i| Value {
            name: format!("v{i}"),
            ty: TensorType::new(DType::U8, [0u64; 0]),
            origin: Origin::Input,
        })
        .collect();
    finds(|g| g.values.extend(many), &["262151 values, at most 262144 are allowed"]);
}

#[test]
fn attributes_that_json_cannot_hold() {
    for eps in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        finds(
            |g| g.nodes[0].op = AddRmsNorm::new(eps).into(),
            &["node `norm`: the attributes of add_rms_norm hold a number that is not finite"],
        );
    }
}

#[test]
fn several_violations_are_reported_together() {
    finds(
        |g| {
            g.values[6].ty = f32s("n,5");
            g.values[2].ty.shape[0] = Dim::symbol(Symbol::N);
            g.nodes[1].name = "norm".into();
            g.outputs[0].value = ValueId(7);
        },
        &[
            "two nodes are named `norm`",
            "node `norm`: add_rms_norm: the length of `w` must be 4, found n",
            "node `act`: `act` is f32[n,5]",
            "weight `w` has a symbolic size",
            "output `act` names a value that does not exist",
        ],
    );
}

#[test]
fn nodes_that_share_outputs() {
    finds(
        |g| {
            let twin = Node { name: "twin".into(), ..g.nodes[2].clone() };
            g.nodes.push(twin);
        },
        &["node `twin`: `act` says that it comes from elsewhere"],
    );
    finds(
        |g| g.states.push(State { name: "more".into(), input: ValueId(1), output: ValueId(5) }),
        &["state `more` starts as `cache`, which is another value"],
    );
}

#[test]
fn a_flood_of_violations_is_counted() {
    let mut graph = good();
    let bad = |i| Value { name: format!("v{i}"), ty: f32s("n"), origin: Origin::Weight };
    graph.values.extend((0..1000).map(bad));
    assert_eq!(violations(&graph).len(), 1000);
    let error = check(&graph).unwrap_err().to_string();
    assert!(
        error.starts_with("1000 errors in graph `g`:\n") && error.ends_with("\n  and 950 more"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 52);
}
