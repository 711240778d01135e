//! Loops that are too long to unroll: one node with its body, which evaluates to what the turns would give.
use super::*;
use tapml_graph::op::Subgraph;
use tapml_graph::{Graph as Whole, Op};
use tapml_reference::foreign;

/// Evaluates everything.
struct Evaluates;

impl OperatorRunner for Evaluates {
    fn run(&mut self, _: &str, op: &Foreign, inputs: &[(Value, bool)]) -> Result<Vec<Value>> {
        foreign::evaluate(op, &inputs.iter().map(|(tensor, _)| tensor.clone()).collect::<Vec<_>>())
    }
}

fn evaluate(model: &Model) -> Result<Traced> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    File::open(&path)?.trace(&HashMap::from([("x".to_string(), x())]), &mut Evaluates)
}

/// `sum = sum + step`, `step` around the body; `all` are the sums.
fn counting_model(turns: i64, step: &str) -> Model {
    let body = Graph {
        input: vec![value_info("i"), value_info("go"), value_info("sum")],
        node: vec![node("Add", &["sum", step], &["next"])],
        initializer: vec![floats("own", &[0.5, 0.5])],
        output: vec![value_info("go"), value_info("next"), value_info("next")],
        ..Graph::default()
    };
    let mut model = model(vec![with_graph(node("Loop", &["count", "", "x"], &["y", "all"]), "body", body)]);
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.push(ints("count", &[turns]));
    graph.initializer.last_mut().unwrap().dims = vec![];
    graph.output.push(value_info("all"));
    model
}

fn all(traced: &Traced) -> &Value {
    &traced.values[traced.model.graph().outputs()[1].value.0 as usize]
}

#[test]
fn a_long_loop_is_one_node_and_gives_what_its_turns_give() {
    for (step, by) in [("two", 2.0), ("own", 0.5)] {
        let long = evaluate(&counting_model(10_000, step)).unwrap();
        let [node] = long.model.graph().nodes() else { panic!("{}", long.model.graph().to_text()) };
        let Op::Foreign(op) = &node.op else { panic!("{:?}", node.op) };
        assert_eq!((op.kind(), op.inputs().len()), ("onnx.Loop@17", 4));
        assert_eq!(op.own_inputs(), 3);
        let body = Subgraph::from_attribute(&op.attributes()["body"]).unwrap().unwrap();
        assert_eq!(
            (body.max_iterations, body.types),
            (Some(10_000), vec!["i64[]".into(), "bool[]".into(), "f32".into()])
        );
        assert_eq!(result(&long), [1.0 + 1e4 * by, 10.0 + 1e4 * by]);
        assert_eq!(all(&long).shape(), [10_000, 2]);
        assert!(
            long.unrolled[0].contains("it stays one node: its 10000 turns are more than 256"),
            "{:?}",
            long.unrolled
        );
        // The graph's text holds the body.
        let text = long.model.graph().to_text();
        assert_eq!(Whole::parse(&text).unwrap().to_text(), text);
        // A short loop is unrolled, and the first turns are the same.
        let short = evaluate(&counting_model(200, step)).unwrap();
        assert!(short.model.graph().nodes().len() > 400 && short.unrolled[0].contains("200 times"));
        assert_eq!(all(&short).to_f64(), all(&long).to_f64()[..400]);
    }
}

#[test]
fn a_loop_that_ends_itself_late_is_taken_back() {
    // `sum < limit` decides: nobody knows before how often.
    let body = Graph {
        input: vec![value_info("i"), value_info("go"), value_info("sum")],
        node: vec![
            node("Add", &["sum", "two"], &["next"]),
            node("ReduceMax", &["next"], &["most"]),
            node("Less", &["most", "limit"], &["again"]),
        ],
        output: vec![value_info("again"), value_info("next")],
        ..Graph::default()
    };
    let mut reduce = body.clone();
    let keep = Attribute { name: "keepdims".into(), i: 0, r#type: 2, ..Attribute::default() };
    reduce.node[1].attribute.push(keep);
    let mut model = model(vec![
        node("Add", &["x", "two"], &["h"]),
        with_graph(node("Loop", &["", "", "h"], &["y"]), "body", reduce),
    ]);
    let limit = TensorProto {
        name: "limit".into(),
        data_type: 1,
        float_data: vec![2000.0],
        ..TensorProto::default()
    };
    model.graph.as_mut().unwrap().initializer.push(limit);
    let traced = evaluate(&model).unwrap();
    assert_eq!(traced.model.graph().op_kinds(), [("onnx.Add@17", 1), ("onnx.Loop@17", 1)]);
    assert_eq!(result(&traced), [1991.0, 2000.0]);
    assert!(traced.unrolled[0].contains("more than 256 turns"), "{:?}", traced.unrolled);
    // Nothing of the turns that were tried is left.
    let weights = traced.model.graph().values().iter().filter(|value| value.origin == Origin::Weight);
    let names: Vec<&str> = weights.map(|value| value.name.as_str()).collect();
    assert_eq!(names, ["two", "y/condition", "limit"]);
}

#[test]
fn a_long_scan_and_a_loop_within_a_branch_within_a_function() {
    let body = Graph {
        input: vec![value_info("sum"), value_info("row")],
        node: vec![node("Add", &["sum", "row"], &["next"])],
        output: vec![value_info("next"), value_info("next")],
        ..Graph::default()
    };
    let count = |name: &str, i| Attribute { name: name.into(), i, r#type: 2, ..Attribute::default() };
    let list = |name: &str, ints| Attribute { name: name.into(), ints, r#type: 7, ..Attribute::default() };
    let mut scan = with_graph(node("Scan", &["zero", "long"], &["y", "all"]), "body", body);
    scan.attribute.extend([count("num_scan_inputs", 1), list("scan_input_directions", vec![1])]);
    let mut long = model(vec![scan]);
    let graph = long.graph.as_mut().unwrap();
    let zero =
        TensorProto { name: "zero".into(), data_type: 1, float_data: vec![0.0], ..TensorProto::default() };
    graph.initializer.extend([zero, floats("long", &(0..1000).map(|i| i as f32).collect::<Vec<_>>())]);
    graph.output.push(value_info("all"));
    let traced = evaluate(&long).unwrap();
    assert_eq!(traced.model.graph().op_kinds(), [("onnx.Scan@17", 1)]);
    assert_eq!((result(&traced), all(&traced).to_f64()[1]), (vec![499500.0], 999.0 + 998.0));

    // The loop stands in a branch that its own turns choose; the function's own loop is within it.
    let turn = |add: &str| Graph {
        input: vec![value_info("i"), value_info("go"), value_info("a")],
        node: vec![node("Add", &["a", add], &["b"])],
        output: vec![value_info("go"), value_info("b")],
        ..Graph::default()
    };
    let function = FunctionProto {
        name: "Many".into(),
        domain: "here".into(),
        input: vec!["a".into(), "n".into()],
        output: vec!["r".into()],
        node: vec![with_graph(node("Loop", &["n", "", "a"], &["r"]), "body", turn("a"))],
        opset_import: vec![OperatorSet { domain: String::new(), version: 17 }],
        ..FunctionProto::default()
    };
    let mut call = node("Many", &["s", "three"], &["t"]);
    call.domain = "here".into();
    let branch = Graph { node: vec![call], output: vec![value_info("t")], ..Graph::default() };
    let other = Graph { output: vec![value_info("s")], ..Graph::default() };
    let choice =
        with_graph(with_graph(node("If", &["go"], &["u"]), "then_branch", branch), "else_branch", other);
    let outer = Graph {
        input: vec![value_info("i"), value_info("go"), value_info("s")],
        node: vec![choice, node("Mul", &["u", "eighth"], &["v"])],
        initializer: vec![floats("eighth", &[0.125, 0.125])],
        output: vec![value_info("go"), value_info("v")],
        ..Graph::default()
    };
    let mut nested = model(vec![with_graph(node("Loop", &["count", "", "x"], &["y"]), "body", outer)]);
    nested.functions = vec![function];
    let graph = nested.graph.as_mut().unwrap();
    graph.initializer.push(ints("count", &[300]));
    // Each turn doubles three times, and takes an eighth.
    let traced = evaluate(&nested).unwrap();
    assert_eq!(traced.model.graph().op_kinds(), [("onnx.Loop@17", 1)]);
    assert_eq!(result(&traced), [1.0, 10.0]);
}

#[test]
fn a_loop_without_turns_that_stacks_needs_a_source_that_knows_the_sizes() {
    let told = evaluate(&counting_model(0, "two")).unwrap_err().to_string();
    assert!(told.contains("`Loop` without turns has outputs of unknown sizes"), "{told}");
    /// Gives what a runtime gives that infers the sizes.
    struct Infers;
    impl OperatorRunner for Infers {
        fn run(&mut self, _: &str, _: &Foreign, inputs: &[(Value, bool)]) -> Result<Vec<Value>> {
            Ok(vec![inputs[2].0.clone(), Value::from_f32(vec![0, 2], vec![])?])
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, counting_model(0, "two").encode_to_vec()).unwrap();
    let traced =
        File::open(&path).unwrap().trace(&HashMap::from([("x".to_string(), x())]), &mut Infers).unwrap();
    assert_eq!((result(&traced), all(&traced).shape()), (vec![1.0, 10.0], &[0, 2][..]));
}
