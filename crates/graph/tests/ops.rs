//! What must hold of every operator of the table.

use serde_json::{Value, json};
use std::collections::HashSet;
use tapml_graph::op::{Activation, Fill, OPS};
use tapml_graph::{Graph, Op, Origin, Symbols};

#[test]
fn names_are_unique_snake_case_and_samples_enough() {
    let mut names = HashSet::new();
    for op in OPS {
        assert!(names.insert(op.name), "{} is listed twice", op.name);
        let snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(
            op.name.starts_with(|c: char| c.is_ascii_lowercase()) && op.name.chars().all(snake),
            "{}",
            op.name
        );
        let samples = (op.samples)();
        assert!(samples.len() >= 3, "{} has {} samples", op.name, samples.len());
        let titles: HashSet<&str> = samples.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(titles.len(), samples.len(), "samples of {} share a name", op.name);
        assert!(
            samples.iter().all(|s| s.op.name() == op.name),
            "a sample of {} is of another operator",
            op.name
        );
    }
}

#[test]
fn samples_infer_and_bind_and_make_values_of_their_types() {
    for (op, sample) in OPS.iter().flat_map(|o| (o.samples)().into_iter().map(move |s| (o, s))) {
        let at = format!("{} {}", op.name, sample.name);
        let types = sample.op.infer(&sample.types()).expect(&at);
        assert!(!types.is_empty(), "{at}");
        let bound = sample.op.infer_bound(&sample.types(), &sample.symbols).expect(&at);
        for (ty, bound) in types.iter().zip(&bound) {
            assert_eq!(ty.bind(&sample.symbols).expect(&at), *bound, "{at}");
        }
        for (tensor, input) in sample.tensors(1).expect(&at).iter().zip(&sample.inputs) {
            assert_eq!(tensor.shape(), input.ty.sizes(&sample.symbols).expect(&at), "{at}");
            let finite = tensor.to_f64().iter().all(|v| v.is_finite());
            assert_eq!(finite, !matches!(input.fill, Fill::NotFinite(_)), "{at}");
        }
    }
}

#[test]
fn inference_does_not_depend_on_when_symbols_are_bound() {
    for (op, sample) in OPS.iter().flat_map(|o| (o.samples)().into_iter().map(move |s| (o, s))) {
        // Growing operators tie sizes to symbols by name; the others must infer the same from constants.
        if sample.types().iter().any(|t| t.shape.iter().any(|d| d.symbols().any(|s| s.name() == "p"))) {
            continue;
        }
        if sample.inputs.is_empty() {
            continue;
        }
        let symbols: &Symbols = &sample.symbols;
        let bound: Vec<_> = sample.types().iter().map(|t| t.bind(symbols).unwrap()).collect();
        let late = sample.op.infer_bound(&sample.types(), symbols).unwrap();
        assert_eq!(sample.op.infer(&bound).unwrap(), late, "{} {}", op.name, sample.name);
    }
}

#[test]
fn attributes_round_trip_and_unknown_ones_are_refused() {
    for (op, sample) in OPS.iter().flat_map(|o| (o.samples)().into_iter().map(move |s| (o, s))) {
        let at = format!("{} {}", op.name, sample.name);
        let attributes = sample.op.attributes();
        assert_eq!(Op::parse(op.name, attributes.clone()).expect(&at), sample.op, "{at}");
        assert_eq!(Op::parse_text(op.name, &sample.op.attributes_text()).expect(&at), sample.op, "{at}");
        let Value::Object(mut more) = attributes else { panic!("{at}: attributes are no object") };
        more.insert("surprise".into(), json!(1));
        let error = Op::parse(op.name, Value::Object(more.clone())).expect_err(&at).to_string();
        assert!(error.contains(op.name) && error.contains("surprise"), "{error}");
        let error = Op::parse_text(op.name, &Value::Object(more).to_string()).expect_err(&at).to_string();
        assert!(
            error.contains(op.name) && error.contains("surprise") && !error.contains(" column "),
            "{error}"
        );
    }
}

#[test]
fn activations_are_operators_that_map_elements() {
    for activation in Activation::ALL {
        let op = activation.op();
        assert_eq!(Activation::from_op(&op), Some(activation));
        let name = serde_json::to_value(activation).unwrap();
        assert!(name.as_str().unwrap().starts_with(op.name()), "{name}");
        let x = [tapml_graph::TensorType::new(tapml_graph::DType::F16, [3u64, 5])];
        assert_eq!(op.infer(&x).unwrap(), x);
    }
    assert_eq!(Activation::from_op(&tapml_graph::op::Add {}.into()), None);
}

#[test]
fn definitions_have_the_signature_of_their_operator() {
    let mut defined = 0;
    for (op, sample) in OPS.iter().flat_map(|o| (o.samples)().into_iter().map(move |s| (o, s))) {
        let at = format!("{} {}", op.name, sample.name);
        let Some(definition) = sample.op.definition(&sample.types()) else { continue };
        let definition: Graph = definition.expect(&at);
        defined += 1;
        let inputs: Vec<_> = definition.inputs().map(|(_, v)| v.ty.clone()).collect();
        let outputs: Vec<_> =
            definition.outputs().iter().map(|o| definition.value(o.value).ty.clone()).collect();
        assert_eq!(inputs, sample.types(), "{at}");
        assert_eq!(outputs, sample.op.infer(&sample.types()).expect(&at), "{at}");
        assert!(definition.states().is_empty(), "{at}: a definition holds no state");
        assert!(
            definition.values().iter().all(|v| v.origin != Origin::Weight),
            "{at}: a definition holds no weight"
        );
        assert!(definition.nodes().iter().all(|n| n.op.name() != op.name), "{at}: defined by itself");
    }
    assert!(defined >= 6, "{defined} samples of fused operators");
}

#[test]
fn wrong_inputs_are_refused_with_the_operators_name() {
    for (op, sample) in OPS.iter().flat_map(|o| (o.samples)().into_iter().map(move |s| (o, s))) {
        let mut types = sample.types();
        let extra = tapml_graph::TensorType::new(tapml_graph::DType::U8, [3u64, 5, 7]);
        types.extend([extra.clone(), extra.clone()]);
        let error = sample.op.infer(&types).expect_err(op.name).to_string();
        assert!(error.starts_with(op.name), "{error}");
        for i in 0..sample.inputs.len() {
            let mut types = sample.types();
            types[i] = extra.clone();
            let error = sample.op.infer(&types).expect_err(&format!("{} input {i}", op.name)).to_string();
            assert!(error.starts_with(op.name), "{error}");
        }
    }
}
