//! Models of a few nodes, whole, changed, cut and damaged.
use super::messages::{
    Attribute, Dimension, FunctionProto, Graph, Model, Node, OperatorSet, Shape, StringEntryProto,
    TensorProto, TensorType, Type, ValueInfo,
};
use super::{File, Outline};
use prost::Message;
use std::path::Path;
use tapml_graph::Result;

fn tensor(name: &str, dims: &[i64]) -> TensorProto {
    let count: i64 = dims.iter().product();
    let float_data = vec![1.0; count as usize];
    TensorProto { name: name.into(), dims: dims.to_vec(), data_type: 1, float_data, ..TensorProto::default() }
}

fn node(op_type: &str, inputs: &[&str], outputs: &[&str]) -> Node {
    let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    Node { op_type: op_type.into(), input: texts(inputs), output: texts(outputs), ..Node::default() }
}

fn value(name: &str) -> ValueInfo {
    let named = |name: &str| Dimension { dim_param: Some(name.into()), ..Dimension::default() };
    let size = |size| Dimension { dim_value: Some(size), ..Dimension::default() };
    let shape = Shape { dim: vec![named("batch"), size(3), Dimension::default()] };
    let tensor_type = Some(TensorType { elem_type: 1, shape: Some(shape) });
    ValueInfo { name: name.into(), r#type: Some(Type { tensor_type, ..Type::default() }) }
}

/// A convolution, a branch that reads a name of the graph around it, and a function.
fn model() -> Model {
    let branch = |op: &str| Graph {
        node: vec![node(op, &["features"], &["left"])],
        output: vec![value("left")],
        ..Graph::default()
    };
    let attribute =
        |name: &str, op| Attribute { name: name.into(), g: Some(branch(op)), ..Attribute::default() };
    let mut choice = node("If", &["flag"], &["chosen"]);
    choice.attribute = vec![attribute("then_branch", "Relu"), attribute("else_branch", "Neg")];
    let mut own = node("Twice", &["chosen"], &["result"]);
    own.domain = "here".into();
    let graph = Graph {
        name: "small".into(),
        node: vec![node("Conv", &["image", "kernel", ""], &["features"]), choice, own],
        initializer: vec![tensor("kernel", &[2, 3]), tensor("flag", &[])],
        input: vec![value("image"), value("kernel")],
        output: vec![value("result")],
        ..Graph::default()
    };
    let standard = OperatorSet { domain: String::new(), version: 17 };
    let function = FunctionProto {
        name: "Twice".into(),
        domain: "here".into(),
        input: vec!["x".into()],
        output: vec!["y".into()],
        node: vec![node("Add", &["x", "x"], &["y"])],
        opset_import: vec![standard.clone()],
        ..FunctionProto::default()
    };
    Model {
        ir_version: 8,
        producer_name: "hand".into(),
        producer_version: "1".into(),
        graph: Some(graph),
        opset_import: vec![standard],
        functions: vec![function],
    }
}

fn open_outline(folder: &Path, bytes: &[u8]) -> Result<Outline> {
    let path = folder.join("model.onnx");
    std::fs::write(&path, bytes).unwrap();
    File::open(&path).map(|file| file.outline())
}

type Change = fn(&mut Model);

/// What is said of the model after a change.
fn change_error(change: impl FnOnce(&mut Model)) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.bin"), [0; 20]).unwrap();
    let mut model = model();
    change(&mut model);
    match open_outline(folder.path(), &model.encode_to_vec()) {
        Ok(outline) => format!("{outline:?}"),
        Err(error) => format!("{error}\nhint: {}", error.hint().unwrap_or_default()),
    }
}

fn graph(model: &mut Model) -> &mut Graph {
    model.graph.as_mut().unwrap()
}

#[test]
fn a_model_is_told_by_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let outline = open_outline(folder.path(), &model().encode_to_vec()).unwrap();
    let operators: Vec<_> = outline.operators.iter().map(|o| (o.operator.as_str(), o.nodes)).collect();
    let once = |name| (name, 1);
    let expected = ["here.Twice", "onnx.Add@17", "onnx.Conv@17", "onnx.If@17", "onnx.Neg@17", "onnx.Relu@17"];
    assert_eq!(operators, expected.map(once));
    assert_eq!((outline.nodes, outline.subgraphs, outline.functions.len()), (6, 2, 1));
    let inputs: Vec<_> = outline.inputs.iter().map(|i| (i.name.as_str(), i.ty.as_str())).collect();
    assert_eq!(inputs, [("image", "f32[batch, 3, ?]")], "initialisers are no inputs");
    let [weights] = outline.weights.as_slice() else { panic!("{outline:?}") };
    assert_eq!((weights.dtype.as_str(), weights.tensors, weights.elements, weights.bytes), ("f32", 2, 7, 28));
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let cases: [(&str, Change); 12] = [
        ("it has no graph", |m| m.graph = None),
        ("nothing makes the output `other`", |m| graph(m).output[0].name = "other".into()),
        ("a node `Conv` reads `features`, which nothing before it makes", |m| {
            graph(m).node[0].input[0] = "features".into()
        }),
        ("a node `Neg` makes `features`, which is made before", |m| {
            graph(m).node.insert(1, node("Neg", &["image"], &["features"]));
        }),
        ("a node `Neg` makes `image`, which is made before", |m| {
            graph(m).node.insert(0, node("Neg", &["kernel"], &["image"]));
        }),
        ("a node `Relu`: the model imports no version of the operators of `far`", |m| {
            graph(m).node[1].attribute[0].g.as_mut().unwrap().node[0].domain = "far".into();
        }),
        ("function `Twice`: nothing makes the output `y`", |m| m.functions[0].node[0].output[0] = "z".into()),
        ("tensor `kernel`: f32[2, 3] takes 6 numbers, and there are 5", |m| {
            graph(m).initializer[0].float_data.pop();
        }),
        ("tensor `kernel`: f32[2, 3] takes 24 bytes, and `raw_data` has 3", |m| {
            graph(m).initializer[0].raw_data = Some(vec![1, 2, 3].into());
        }),
        ("tensor `kernel`: there is no type of elements 99", |m| graph(m).initializer[0].data_type = 99),
        ("tensor `kernel` has the sizes [-1, 3]", |m| graph(m).initializer[0].dims[0] = -1),
        ("tensor `kernel` has the sizes [4294967296, 4294967296]", |m| {
            graph(m).initializer[0].dims = vec![1 << 32; 2]
        }),
    ];
    for (expected, change) in cases {
        let found = change_error(change);
        assert!(
            found.contains(expected) && found.contains("model.onnx"),
            "expected {expected}, found {found}"
        );
    }
}

#[test]
fn external_data_lies_below_the_model_and_is_long_enough() {
    let at = |pairs: &'static [(&str, &str)]| {
        change_error(|model| {
            let kernel = &mut graph(model).initializer[0];
            kernel.float_data.clear();
            kernel.data_location = 1;
            let entry =
                |&(key, value): &(&str, &str)| StringEntryProto { key: key.into(), value: value.into() };
            kernel.external_data = pairs.iter().map(entry).collect();
        })
    };
    assert!(at(&[("location", "data.bin"), ("offset", "0")]).contains("bytes 0 to 0 + 24"), "20 are there");
    for place in ["../data.bin", "/etc/passwd", "", "a/../../data.bin"] {
        let pairs: &'static [(&str, &str)] = Box::leak(Box::new([("location", place)]));
        assert!(at(pairs).contains("which is no path below the model's folder"), "{place}");
    }
    assert!(
        at(&[("location", "data.bin"), ("offset", "-4")])
            .contains("`offset` of its external data is no number: `-4`")
    );
    assert!(
        at(&[("location", "data.bin"), ("length", "9")])
            .contains("takes 24 bytes, and its external data claims 9")
    );
    assert!(at(&[("location", "data.bin"), ("offset", "18446744073709551615")]).contains("which has 20"));
    assert!(at(&[("location", "data.bin"), ("offset", "0")]).contains("hint: the file was cut off"));
    let missing = at(&[("location", "none.bin")]);
    assert!(
        missing.contains("none.bin: ")
            && missing.contains("hint: the model keeps weights beside itself: put `none.bin`")
    );
}

#[cfg(unix)]
#[test]
fn links_out_of_the_folder_are_refused_and_those_of_a_cache_are_not() {
    let place = tempfile::tempdir().unwrap();
    let [blobs, snapshot] = ["blobs", "snapshot"].map(|name| place.path().join(name));
    [&blobs, &snapshot].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    std::fs::write(blobs.join("data"), [0; 24]).unwrap();
    let mut model = model();
    let kernel = &mut graph(&mut model).initializer[0];
    kernel.float_data.clear();
    kernel.data_location = 1;
    kernel.external_data = vec![StringEntryProto { key: "location".into(), value: "data.bin".into() }];
    std::os::unix::fs::symlink("../blobs/data", snapshot.join("data.bin")).unwrap();
    let said = open_outline(&snapshot, &model.encode_to_vec()).unwrap_err().to_string();
    assert!(said.contains("a link to") && said.contains("blobs/data"), "{said}");
    // Both are links to one folder.
    std::fs::rename(snapshot.join("model.onnx"), blobs.join("model")).unwrap();
    std::os::unix::fs::symlink("../blobs/model", snapshot.join("model.onnx")).unwrap();
    File::open(&snapshot.join("model.onnx")).unwrap();
}

#[test]
fn what_is_cut_or_damaged_is_told_and_nothing_panics() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = model().encode_to_vec();
    let cut = (0..bytes.len()).filter(|&len| open_outline(folder.path(), &bytes[..len]).is_ok()).count();
    assert_eq!(cut, 0, "a model ends where its last part does");
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..2000 {
        let mut damaged = bytes.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..damaged.len());
            damaged[at] = random.u8(..);
        }
        drop(open_outline(folder.path(), &damaged));
    }
    let error = |bytes: &[u8]| open_outline(folder.path(), bytes).unwrap_err();
    let said = |bytes: &[u8]| error(bytes).to_string();
    assert!(error(b"\x08\x08\x12").hint().is_some_and(|hint| hint.contains("fetch it again")));
    assert!(said(&[]).contains("this is no ONNX model: the file is empty"));
    assert!(said(b"PK\x03\x04 is a zip").contains("this is no ONNX model"));
    assert!(said(&[0x3a, 0x7f, 0x00]).contains("a part claims 127 bytes, of which 1 are there"));
}

#[test]
fn many_parts_and_graphs_within_graphs_are_refused_before_they_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let said = |bytes: &[u8]| open_outline(folder.path(), bytes).unwrap_err().to_string();
    // Empty nodes: two bytes each.
    let nodes = [0x0a, 0x00].repeat((1 << 21) + 1);
    let mut many = vec![0x3a];
    prost::encoding::encode_varint(nodes.len() as u64, &mut many);
    many.extend(nodes);
    assert!(said(&many).contains("more than 2097152 parts"));
    let mut deep = Graph::default();
    for _ in 0..40 {
        let attribute = Attribute { g: Some(deep), ..Attribute::default() };
        let node = Node { op_type: "If".into(), attribute: vec![attribute], ..Node::default() };
        deep = Graph { node: vec![node], ..Graph::default() };
    }
    assert!(
        said(&Model { graph: Some(deep), ..Model::default() }.encode_to_vec()).contains("more than 16 deep")
    );
}

#[test]
fn numbers_share_a_field_as_the_format_says() {
    let of = |data_type, numbers| {
        change_error(|model| {
            let kernel = &mut graph(model).initializer[0];
            kernel.float_data.clear();
            (kernel.data_type, kernel.int32_data) = (data_type, vec![0; numbers]);
        })
    };
    // i4, i2, e2m3 and f16 of six elements.
    for (data_type, numbers) in [(22, 3), (26, 2), (27, 6), (10, 6)] {
        assert!(of(data_type, numbers).starts_with("Outline"), "{data_type}");
        let said = of(data_type, numbers + 1);
        assert!(said.contains(&format!("takes {numbers} numbers, and there are {}", numbers + 1)), "{said}");
    }
}

#[test]
fn many_graphs_within_one_of_many_names_are_soon_checked() {
    let folder = tempfile::tempdir().unwrap();
    let branch = Attribute { g: Some(Graph::default()), ..Attribute::default() };
    let mut model = model();
    let wide = graph(&mut model);
    for i in 0..100_000 {
        let choice =
            Node { attribute: vec![branch.clone()], ..node("If", &["flag"], &[&format!("made {i}")]) };
        wide.node.push(choice);
    }
    // With a copy of the names for each graph, five thousand million would be copied.
    assert_eq!(open_outline(folder.path(), &model.encode_to_vec()).unwrap().subgraphs, 100_002);
}

#[test]
fn tensors_in_files_of_their_own_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input_0.pb");
    let bytes = tensor("x", &[2, 3]).encode_to_vec();
    std::fs::write(&path, &bytes).unwrap();
    let (name, read) = super::read_tensor(&path).unwrap();
    assert_eq!((name.as_str(), read.shape(), read.to_f64()), ("x", [2, 3].as_slice(), vec![1.0; 6]));
    let larger = TensorProto { dims: vec![2, 4], ..tensor("x", &[2, 3]) }.encode_to_vec();
    let texts = TensorProto {
        data_type: 8,
        string_data: vec![Default::default()],
        dims: vec![1],
        ..TensorProto::default()
    };
    for (bytes, told) in [
        (larger, "8 numbers, and there are 6"),
        (bytes[..bytes.len() - 1].to_vec(), "no ONNX tensor"),
        (texts.encode_to_vec(), "string"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = super::read_tensor(&path).unwrap_err().to_string();
        assert!(error.contains(told) && error.contains("input_0.pb"), "{error}");
    }
}
