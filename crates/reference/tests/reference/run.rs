//! The interpreter of graphs: states, observers, refusals.

use crate::common::{matrix, numbers, random};
use std::collections::HashMap;
use tapml_graph::op::{Append, Attention, LastRow, Linear, RmsNorm};
use tapml_graph::{Builder, DType, Dim, Graph, Result, Symbol, Symbols, TensorType};
use tapml_reference::{Real, Value, empty_states, run_graph};

const WIDTH: usize = 8;

/// One attention layer with a cache.
fn layer() -> Result<Graph> {
    let ty = |rows: Dim, columns: usize| TensorType::new(DType::F32, [rows, Dim::from(columns)]);
    let mut b = Builder::new("layer");
    let x = b.input("x", ty(Symbol::N.into(), WIDTH))?;
    let norm = b.weight("norm", TensorType::new(DType::F32, [WIDTH]))?;
    let square = ty(Dim::from(WIDTH), WIDTH);
    let cache_k = b.state("cache.k", ty(Symbol::P.into(), WIDTH))?;
    let cache_v = b.state("cache.v", ty(Symbol::P.into(), WIDTH))?;
    let h = b.node("h", RmsNorm::new(1e-5), &[x, norm])?;
    let mut projected = Vec::new();
    for name in ["q", "k", "v"] {
        let w = b.weight(format!("{name}.weight"), square.clone())?;
        projected.push(b.node(name, Linear::default(), &[h, w])?);
    }
    let k = b.node("k.all", Append {}, &[cache_k, projected[1]])?;
    let v = b.node("v.all", Append {}, &[cache_v, projected[2]])?;
    b.set_state(cache_k, k)?;
    b.set_state(cache_v, v)?;
    let op = Attention::causal(2, 2, 4, 0.5);
    let y = b.node("y", op, &[projected[0], k, v])?;
    let last = b.node("last", LastRow {}, &[y])?;
    b.output("y", y);
    b.output("last", last);
    b.finish()
}

fn weight<T: Real>(name: &str) -> Result<Value<T>> {
    match name {
        "norm" => Ok(crate::common::vector(&random(9, WIDTH))),
        _ => Ok(matrix(WIDTH, WIDTH, &random(name.as_bytes()[0], WIDTH * WIDTH))),
    }
}

fn inputs<T: Real>(x: &[f64]) -> HashMap<String, Value<T>> {
    HashMap::from([("x".to_string(), matrix(x.len() / WIDTH, WIDTH, x))])
}

#[test]
fn step_by_step_equals_all_at_once() {
    let graph = layer().unwrap();
    let x = random(3, 6 * WIDTH);
    let states = empty_states(&graph).unwrap();
    let at_once =
        run_graph::<f64>(&graph, &Symbols::np(6, 0), &inputs(&x), &weight, states.clone(), None).unwrap();
    let mut states = states;
    for (p, row) in x.chunks(WIDTH).enumerate() {
        let step = run_graph(&graph, &Symbols::np(1, p as u64), &inputs(row), &weight, states, None).unwrap();
        let expected = &numbers(at_once.output("y").unwrap())[p * WIDTH..(p + 1) * WIDTH];
        crate::common::assert_close(&numbers(step.output("last").unwrap()), expected, 1e-13);
        states = step.states;
    }
    assert_eq!(states[0].shape(), [6, WIDTH]);
    crate::common::assert_close(&numbers(&states[1]), &numbers(&at_once.states[1]), 1e-13);
}

#[test]
fn the_observer_sees_every_node_in_order_and_can_stop_the_run() {
    let graph = layer().unwrap();
    let x = random(3, 2 * WIDTH);
    let mut seen = Vec::new();
    let mut observe = |node: &tapml_graph::Node, before: &[Value<f32>], after: &[Value<f32>]| {
        assert_eq!((before.len(), after.len()), (node.inputs.len(), node.outputs.len()));
        seen.push(node.name.clone());
        Ok(())
    };
    let states = empty_states(&graph).unwrap();
    run_graph(&graph, &Symbols::np(2, 0), &inputs(&x), &weight, states.clone(), Some(&mut observe)).unwrap();
    assert_eq!(seen, graph.nodes().iter().map(|n| n.name.clone()).collect::<Vec<_>>());
    let mut stop = |_: &tapml_graph::Node, _: &[Value<f32>], _: &[Value<f32>]| {
        Err(tapml_graph::Error::new(tapml_graph::ErrorKind::Interrupted, "stop"))
    };
    let error =
        run_graph(&graph, &Symbols::np(2, 0), &inputs(&x), &weight, states, Some(&mut stop)).unwrap_err();
    assert_eq!(error.to_string(), "node `h`: stop");
}

#[test]
fn missing_and_misshaped_values_are_refused_by_name() {
    let graph = layer().unwrap();
    let symbols = Symbols::np(2, 0);
    let x = inputs::<f32>(&random(3, 2 * WIDTH));
    let states = || empty_states(&graph).unwrap();
    let fail = |symbols: &Symbols, inputs: &HashMap<String, Value<f32>>, states| {
        run_graph(&graph, symbols, inputs, &weight, states, None).unwrap_err().to_string()
    };
    assert!(fail(&symbols, &HashMap::new(), states()).contains("`x`"));
    assert!(fail(&Symbols::np(3, 0), &x, states()).contains("`x` must have shape [3, 8], found [2, 8]"));
    assert!(fail(&Symbols::np(2, 1), &x, states()).contains("`cache.k`"));
    assert!(fail(&symbols, &x, Vec::new()).contains("2 states"));
    let no_weight = |name: &str| Err(tapml_graph::Error::invalid(format!("weight `{name}` is missing")));
    let error = run_graph::<f32>(&graph, &symbols, &x, &no_weight, states(), None).unwrap_err().to_string();
    assert_eq!(error, "node `h`: weight `norm` is missing");
}
