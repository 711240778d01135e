//! Models of a few nodes, run by operators of this file.
use super::super::File;
use super::super::messages::*;
use super::{OperatorRunner, Traced};
use prost::Message;
use std::collections::HashMap;
use tapml_graph::op::Foreign;
use tapml_graph::{DType, Error, Origin, Result, Tensor as Value};

mod large;
mod opaque;

/// Adds, compares and moves enough for these models; remembers what it was asked.
#[derive(Default)]
struct Small {
    asked: Vec<(String, Vec<bool>)>,
}

impl OperatorRunner for Small {
    fn run(&mut self, _: &str, op: &Foreign, inputs: &[(Value, bool)]) -> Result<Vec<Value>> {
        self.asked.push((op.kind().into(), inputs.iter().map(|(_, constant)| *constant).collect()));
        let first = &inputs[0].0;
        let same = |values: Vec<f64>| Value::from_f64(first.dtype(), first.shape().to_vec(), &values);
        let second = || inputs[1].0.to_f64();
        Ok(vec![match op.name() {
            "Add" => same(first.to_f64().iter().zip(second()).map(|(a, b)| a + b).collect())?,
            "Neg" => same(first.to_f64().iter().map(|v| -v).collect())?,
            "Unsqueeze" => Value::new(first.dtype(), [&[1], first.shape()].concat(), first.bytes().clone())?,
            "Concat" => Value::concat_rows(&inputs.iter().map(|(t, _)| t.clone()).collect::<Vec<_>>())?,
            "Gather" => {
                let row = first.rows(second()[0] as usize, 1).unwrap();
                Value::new(row.dtype(), row.shape()[1..].to_vec(), row.bytes().clone())?
            }
            "Less" => {
                let truths: Vec<f64> =
                    first.to_f64().iter().zip(second()).map(|(a, b)| f64::from(u8::from(*a < b))).collect();
                Value::from_f64(DType::Bool, first.shape().to_vec(), &truths)?
            }
            other => return Err(Error::unsupported(format!("`{other}` is not served"))),
        }])
    }
}

fn node(op_type: &str, inputs: &[&str], outputs: &[&str]) -> Node {
    let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    Node { op_type: op_type.into(), input: texts(inputs), output: texts(outputs), ..Node::default() }
}

fn value_info(name: &str) -> ValueInfo {
    ValueInfo { name: name.into(), r#type: None }
}

fn of_type(name: &str, elem_type: i32, sizes: &[i64]) -> ValueInfo {
    let dim = |&size: &i64| Dimension { dim_value: Some(size), ..Dimension::default() };
    let shape = Some(Shape { dim: sizes.iter().map(dim).collect() });
    let tensor_type = Some(TensorType { elem_type, shape });
    ValueInfo { name: name.into(), r#type: Some(Type { tensor_type, ..Type::default() }) }
}

fn floats(name: &str, values: &[f32]) -> TensorProto {
    let dims = vec![values.len() as i64];
    TensorProto {
        name: name.into(),
        dims,
        data_type: 1,
        float_data: values.to_vec(),
        ..TensorProto::default()
    }
}

fn ints(name: &str, values: &[i64]) -> TensorProto {
    let (dims, int64_data) = (vec![], values.to_vec());
    TensorProto { name: name.into(), dims, data_type: 7, int64_data, ..TensorProto::default() }
}

fn with_graph(mut node: Node, name: &str, graph: Graph) -> Node {
    node.attribute.push(Attribute { name: name.into(), g: Some(graph), r#type: 5, ..Attribute::default() });
    node
}

/// A model of these nodes, with an input `x: f32[2]` and an initialiser `two`, that gives `y`.
fn model(nodes: Vec<Node>) -> Model {
    let graph = Graph {
        node: nodes,
        name: "g".into(),
        input: vec![of_type("x", 1, &[2])],
        output: vec![value_info("y")],
        initializer: vec![floats("two", &[2.0, 2.0]), ints("three", &[3])],
        ..Graph::default()
    };
    let opset_import = vec![OperatorSet { domain: String::new(), version: 17 }];
    Model { ir_version: 8, graph: Some(graph), opset_import, ..Model::default() }
}

fn traced_with(model: &Model, inputs: &[(&str, Value)], small: &mut Small) -> Result<Traced> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    let inputs: HashMap<String, Value> = inputs.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    File::open(&path)?.trace(&inputs, small)
}

fn x() -> Value {
    Value::from_f32(vec![2], vec![1.0, 10.0]).unwrap()
}

fn trace_model(model: &Model) -> Traced {
    traced_with(model, &[("x", x())], &mut Small::default()).unwrap()
}

/// The value of the graph's first output.
fn result(traced: &Traced) -> Vec<f64> {
    traced.values[traced.model.graph().outputs()[0].value.0 as usize].to_f64()
}

#[test]
fn names_are_made_unique_and_constants_are_weights() {
    let mut constant = node("Constant", &[], &["c"]);
    let value = Attribute { name: "value".into(), t: Some(floats("", &[5.0, 5.0])), ..Attribute::default() };
    constant.attribute = vec![Attribute { r#type: 4, ..value }];
    let mut first = node("Add", &["x", "two"], &["a"]);
    first.name = "same".into();
    let mut second = node("Add", &["a", "c"], &["y"]);
    second.name = "same".into();
    let mut small = Small::default();
    let traced = traced_with(&model(vec![constant, first, second]), &[("x", x())], &mut small).unwrap();
    assert_eq!(result(&traced), [8.0, 17.0]);
    let text = traced.model.graph().to_text();
    assert!(text.contains("a: f32[2] = onnx.Add@17(x, two) as same\n"), "{text}");
    assert!(text.contains("y: f32[2] = onnx.Add@17(a, c) as \"same#2\"\n"), "{text}");
    assert!(!text.contains("three"), "an initialiser that nobody reads is no weight: {text}");
    assert_eq!(small.asked, vec![("onnx.Add@17".to_string(), vec![false, true]); 2]);
    assert_eq!(traced.model.weight("c").unwrap().to_f64(), [5.0, 5.0]);
}

#[test]
fn branches_that_are_taken_stand_in_their_places() {
    let branch = |op: &str| Graph {
        node: vec![node(op, &["x", "two"], &["inner"])],
        output: vec![value_info("inner")],
        ..Graph::default()
    };
    let choice = with_graph(node("If", &["flag"], &["y"]), "then_branch", branch("Add"));
    let choice = with_graph(choice, "else_branch", branch("Neg"));
    for (flag, expected) in [(1, [3.0, 12.0]), (0, [-1.0, -10.0])] {
        let mut model = model(vec![choice.clone()]);
        let flag = TensorProto {
            name: "flag".into(),
            data_type: 9,
            int32_data: vec![flag],
            ..TensorProto::default()
        };
        model.graph.as_mut().unwrap().initializer.push(flag);
        let traced = trace_model(&model);
        assert_eq!(result(&traced), expected);
        assert_eq!((traced.model.graph().nodes().len(), traced.unrolled.len()), (1, 1));
        assert_eq!(traced.model.graph().nodes()[0].name, "y/inner");
    }
}

#[test]
fn loops_stand_as_often_as_they_ran() {
    let body = Graph {
        input: vec![value_info("i"), value_info("go"), value_info("sum")],
        node: vec![node("Add", &["sum", "two"], &["next"]), node("Neg", &["next"], &["shown"])],
        output: vec![value_info("go"), value_info("next"), value_info("shown")],
        ..Graph::default()
    };
    let turns = with_graph(node("Loop", &["three", "", "x"], &["y", "all"]), "body", body);
    let mut with = model(vec![turns]);
    with.graph.as_mut().unwrap().output.push(value_info("all"));
    let traced = trace_model(&with);
    assert_eq!(result(&traced), [7.0, 16.0]);
    let all = &traced.values[traced.model.graph().outputs()[1].value.0 as usize];
    assert_eq!((all.shape(), all.to_f64()), (&[3, 2][..], vec![-3.0, -12.0, -5.0, -14.0, -7.0, -16.0]));
    let kinds = traced.model.graph().op_kinds();
    let expected = [("onnx.Add@17", 3), ("onnx.Neg@17", 3), ("onnx.Unsqueeze@17", 3), ("onnx.Concat@17", 1)];
    assert_eq!(kinds, expected);
}

#[test]
fn scans_take_rows_in_turn() {
    let body = Graph {
        input: vec![value_info("sum"), value_info("row")],
        node: vec![node("Add", &["sum", "row"], &["next"])],
        output: vec![value_info("next"), value_info("next")],
        ..Graph::default()
    };
    let mut scan = with_graph(node("Scan", &["zero", "x"], &["y", "all"]), "body", body);
    scan.attribute.push(Attribute {
        name: "num_scan_inputs".into(),
        i: 1,
        r#type: 2,
        ..Attribute::default()
    });
    let mut model = model(vec![scan]);
    let graph = model.graph.as_mut().unwrap();
    let zero =
        TensorProto { name: "zero".into(), data_type: 1, float_data: vec![0.0], ..TensorProto::default() };
    graph.initializer.push(zero);
    graph.output.push(value_info("all"));
    let traced = trace_model(&model);
    assert_eq!(result(&traced), [11.0]);
    let all = &traced.values[traced.model.graph().outputs()[1].value.0 as usize];
    assert_eq!((all.shape(), all.to_f64()), (&[2][..], vec![1.0, 11.0]));
}

#[test]
fn functions_stand_where_they_are_called_and_take_their_attributes() {
    let mut inner = node("Neg", &["a"], &["b"]);
    let given = Attribute { name: "alpha".into(), ref_attr_name: "given".into(), ..Attribute::default() };
    inner.attribute = vec![Attribute { r#type: 1, ..given }];
    let function = FunctionProto {
        name: "Own".into(),
        domain: "here".into(),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: vec![inner],
        opset_import: vec![OperatorSet { domain: String::new(), version: 13 }],
        ..FunctionProto::default()
    };
    let mut call = node("Own", &["x"], &["h"]);
    (call.domain, call.name) = ("here".into(), "call".into());
    call.attribute = vec![Attribute { name: "given".into(), f: 0.1, r#type: 1, ..Attribute::default() }];
    let mut other = node("Own", &["h"], &["y"]);
    other.domain = "here".into();
    let mut model = model(vec![call, other]);
    model.functions = vec![function];
    let traced = trace_model(&model);
    assert_eq!(result(&traced), [1.0, 10.0]);
    let text = traced.model.graph().to_text();
    assert!(
        text.contains("\"call/b\"") || text.contains("call/b: f32[2] = onnx.Neg@13(x) {\"alpha\":0.1}"),
        "{text}"
    );
    assert!(text.contains("y/b: f32[2] = onnx.Neg@13(call/b)\n"), "{text}");
}

#[test]
fn what_cannot_be_a_graph_is_refused_by_name() {
    let wrong = |model: &Model, inputs: &[(&str, Value)]| {
        traced_with(model, inputs, &mut Small::default()).unwrap_err().to_string()
    };
    let plain = model(vec![node("Add", &["x", "two"], &["y"])]);
    let short = Value::from_f32(vec![3], vec![0.0; 3]).unwrap();
    let ids = Value::from_i64(DType::I64, vec![2], &[0, 0]).unwrap();
    assert!(wrong(&plain, &[]).contains("input `x` is missing"));
    assert!(wrong(&plain, &[("x", x()), ("z", x())]).contains("no input `z`"));
    assert!(wrong(&plain, &[("x", short)]).contains("takes f32[2], found f32[3]"));
    assert!(wrong(&plain, &[("x", ids)]).contains("takes f32[2], found i64[2]"));
    let sequence = model(vec![node("SequenceConstruct", &["x"], &["y"])]);
    assert!(wrong(&sequence, &[("x", x())]).contains("a sequence"));
    let mut texts = model(vec![node("Add", &["x", "words"], &["y"])]);
    let words = TensorProto {
        name: "words".into(),
        data_type: 8,
        string_data: vec![Default::default()],
        ..TensorProto::default()
    };
    texts.graph.as_mut().unwrap().initializer.push(words);
    assert!(wrong(&texts, &[("x", x())]).contains("tensor `words`: its elements are string"));
    // A condition that never ends, and one that is no truth.
    let body = Graph {
        input: vec![value_info("i"), value_info("go"), value_info("sum")],
        node: vec![node("Add", &["sum", "two"], &["next"])],
        output: vec![value_info("go"), value_info("next")],
        ..Graph::default()
    };
    let endless = model(vec![with_graph(node("Loop", &["", "", "x"], &["y"]), "body", body.clone())]);
    assert!(wrong(&endless, &[("x", x())]).contains("its 9223372036854775807 turns are more than 256"));
    let untrue = model(vec![with_graph(node("Loop", &["three", "three", "x"], &["y"]), "body", body)]);
    assert!(wrong(&untrue, &[("x", x())]).contains("expected one bool, found i64"));
    // Functions that call each other.
    let mut again = node("Own", &["a"], &["b"]);
    again.domain = "here".into();
    let mut calls = model(vec![again.clone()]);
    calls.graph.as_mut().unwrap().node[0].input = vec!["x".into()];
    calls.graph.as_mut().unwrap().node[0].output = vec!["y".into()];
    calls.functions = vec![FunctionProto {
        name: "Own".into(),
        domain: "here".into(),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: vec![again],
        ..FunctionProto::default()
    }];
    assert!(wrong(&calls, &[("x", x())]).contains("deep"));
}

#[test]
fn inputs_of_initialisers_are_defaults() {
    let mut model = model(vec![node("Add", &["x", "two"], &["y"])]);
    model.graph.as_mut().unwrap().input.push(of_type("two", 1, &[2]));
    assert_eq!(result(&trace_model(&model)), [3.0, 12.0]);
    let other = Value::from_f32(vec![2], vec![0.5, 0.5]).unwrap();
    let mut small = Small::default();
    let given = traced_with(&model, &[("x", x()), ("two", other)], &mut small).unwrap();
    assert_eq!(result(&given), [1.5, 10.5]);
    assert_eq!(small.asked[0].1, [false, false], "a given input is no constant");
    let inputs = given.model.graph().values().iter().filter(|v| v.origin == Origin::Input).count();
    assert_eq!(inputs, 2);
}
