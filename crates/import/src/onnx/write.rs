//! Writing models: nodes of operators of others as one ONNX file that any runtime reads.
//!
//! Elements are written as `raw_data`, sizes as constants. The order of nodes is the caller's.

use super::attribute::{self, GRAPH};
use super::messages::{
    Attribute, Dimension, Graph, Model, Node, OperatorSet, Shape, TensorProto, TensorType, Type, ValueInfo,
};
use super::tensor;
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use tapml_graph::op::{DeclaredType, Foreign, Subgraph, SubgraphNode};
use tapml_graph::{Context, DType, Error, Result};

/// The opset that a model names where no node of it is of the standard: runtimes ask for one.
const OPSET: u32 = 17;
/// Versions of the format with the newest opset of the standard that each may name; see
/// <https://github.com/onnx/onnx/blob/main/docs/Versioning.md>. Every runtime reads version 8.
const VERSIONS: [(i64, u32); 6] = [(8, 18), (9, 20), (10, 22), (11, 23), (12, 24), (13, u32::MAX)];

/// A node of a model to be written.
#[derive(Clone, Debug)]
pub struct NewNode<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its operator.
    pub op: &'a Foreign,
    /// Names of its inputs by place; an absent one has none.
    pub inputs: Vec<String>,
    /// Names of its outputs by place; one that nobody asks for has none.
    pub outputs: Vec<String>,
}

/// A model to be written: its nodes in an order in which each uses only what stands before it.
#[derive(Clone, Debug, Default)]
pub struct NewModel<'a> {
    /// The nodes.
    pub nodes: Vec<NewNode<'a>>,
    /// Names and types of the inputs.
    pub inputs: Vec<(String, tapml_graph::TensorType)>,
    /// Initialisers.
    pub constants: Vec<(String, tapml_graph::Tensor)>,
    /// Names and types of the results.
    pub outputs: Vec<(String, tapml_graph::TensorType)>,
}

impl NewModel<'_> {
    /// The bytes of the file.
    ///
    /// # Errors
    /// An operator has no version, nodes of one domain have several, or a dtype has no code in ONNX.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut versions: BTreeMap<&str, u32> = BTreeMap::new();
        let mut all: Vec<Foreign> = Vec::new();
        self.nodes.iter().try_for_each(|node| with_inner(node.op, &mut all))?;
        for op in &all {
            let domain = if op.domain() == "onnx" { "" } else { op.domain() };
            let none = || Error::unsupported(format!("`{}` has no version, which ONNX asks for", op.kind()));
            let version = op.version().ok_or_else(none)?;
            if *versions.entry(domain).or_insert(version) != version {
                let text = format!("`{}` stands beside a node of another version of its domain", op.kind());
                return Err(Error::unsupported(text));
            }
        }
        // The lowest version of the format that may name this opset.
        let opset = *versions.entry("").or_insert(OPSET);
        let format = VERSIONS.iter().find(|(_, newest)| opset <= *newest);
        let named = |(name, ty): &(String, tapml_graph::TensorType)| value(name, ty);
        let graph = Graph {
            name: "reproducer".into(),
            node: self.nodes.iter().map(node).collect::<Result<_>>()?,
            initializer: (self.constants.iter())
                .map(|(name, tensor)| Ok(TensorProto { name: name.clone(), ..tensor::write(tensor)? }))
                .collect::<Result<_>>()?,
            input: self.inputs.iter().map(named).collect::<Result<_>>()?,
            output: self.outputs.iter().map(named).collect::<Result<_>>()?,
            sparse_initializer: Vec::new(),
        };
        let set = |(domain, version): (&str, u32)| OperatorSet {
            domain: domain.into(),
            version: i64::from(version),
        };
        let model = Model {
            ir_version: format.map_or(8, |(format, _)| *format),
            producer_name: "tapml".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: Some(graph),
            opset_import: versions.into_iter().map(set).collect(),
            functions: Vec::new(),
        };
        Ok(model.encode_to_vec())
    }
}

/// An operator and those of the graphs within it.
fn with_inner(op: &Foreign, all: &mut Vec<Foreign>) -> Result<()> {
    all.push(op.clone());
    for value in op.attributes().values() {
        for inner in Subgraph::from_attribute(value)?.into_iter().flat_map(|graph| graph.nodes) {
            let places = vec![true; inner.inputs.len()];
            with_inner(
                &Foreign::new(&inner.op, inner.attributes, places, vec![DeclaredType::Unknown])?,
                all,
            )?;
        }
    }
    Ok(())
}

/// Inputs beyond the operator's own belong to graphs within it, which read them by name.
fn node(node: &NewNode<'_>) -> Result<Node> {
    let op = node.op;
    let attributes = op.attributes().iter().map(|(name, value)| {
        let written = attribute_of(name, value, &node.inputs);
        written.context(|| format!("attribute `{name}` of `{}`", op.kind()))
    });
    Ok(Node {
        input: node.inputs.iter().take(op.own_inputs()).cloned().collect(),
        output: node.outputs.clone(),
        name: node.name.into(),
        op_type: op.name().into(),
        attribute: attributes.collect::<Result<Vec<Attribute>>>()?,
        domain: if op.domain() == "onnx" { String::new() } else { op.domain().into() },
    })
}

/// The attribute of a value. `outer` are the names of the operator's inputs, which graphs within it read.
fn attribute_of(name: &str, value: &Value, outer: &[String]) -> Result<Attribute> {
    let Some(graph) = Subgraph::from_attribute(value)? else { return attribute::write(name, value) };
    let graph = subgraph(&graph, outer).context(|| format!("attribute `{name}`"))?;
    Ok(Attribute { name: name.into(), r#type: GRAPH, g: Some(graph), ..Attribute::default() })
}

/// A graph within an operator of these inputs.
fn subgraph(graph: &Subgraph, outer: &[String]) -> Result<Graph> {
    let missing =
        |name: &str| Error::invalid(format!("`{name}` stands for an input that the operator has not"));
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, &place) in &graph.outer {
        names.insert(name, outer.get(place).ok_or_else(|| missing(name))?);
    }
    // Names of the graph around take the place of those that stand for outer values.
    let named =
        |name: &String| names.get(name.as_str()).map_or_else(|| name.clone(), |outer| outer.to_string());
    let values =
        |list: &[String]| list.iter().map(|name| ValueInfo { name: named(name), r#type: None }).collect();
    let node = |inner: &SubgraphNode| {
        let op = Foreign::new(
            &inner.op,
            inner.attributes.clone(),
            vec![true; inner.inputs.len()],
            vec![DeclaredType::Unknown],
        )?;
        let [inputs, outputs] = [&inner.inputs, &inner.outputs].map(|list| list.iter().map(named).collect());
        node(&NewNode { name: "", op: &op, inputs, outputs })
    };
    Ok(Graph {
        name: "within".into(),
        node: graph.nodes.iter().map(node).collect::<Result<_>>()?,
        input: (graph.inputs.iter().enumerate())
            .map(|(at, name)| inner_value(name, graph.types.get(at).map_or("", String::as_str)))
            .collect::<Result<_>>()?,
        output: values(&graph.outputs),
        ..Graph::default()
    })
}

/// An input of a graph within an operator, of a type such as `f32[2,?]`; see [`Subgraph::types`].
fn inner_value(name: &str, ty: &str) -> Result<ValueInfo> {
    if ty.is_empty() {
        return Ok(ValueInfo { name: name.into(), r#type: None });
    }
    let wrong = || Error::invalid(format!("`{name}`: `{ty}` is no type"));
    let (dtype, sizes) = ty.split_once('[').map_or((ty, None), |(dtype, sizes)| (dtype, Some(sizes)));
    let size = |size: &str| match size {
        "?" => Ok(Dimension::default()),
        size => {
            let size = size.parse().map_err(|_| wrong())?;
            Ok(Dimension { dim_value: Some(size), dim_param: None })
        }
    };
    let sizes = sizes.map(|sizes| sizes.strip_suffix(']').ok_or_else(wrong)).transpose()?;
    let dims =
        |sizes: &str| sizes.split(',').filter(|size| !size.is_empty()).map(size).collect::<Result<_>>();
    let shape = sizes.map(dims).transpose()?.map(|dim| Shape { dim });
    let elem_type = tensor::code(DType::parse(dtype).ok_or_else(wrong)?)?;
    let ty = Type { tensor_type: Some(TensorType { elem_type, shape }), ..Type::default() };
    Ok(ValueInfo { name: name.into(), r#type: Some(ty) })
}

/// A name with a type of constant sizes.
fn value(name: &str, ty: &tapml_graph::TensorType) -> Result<ValueInfo> {
    let symbolic = || Error::invalid(format!("`{name}`: sizes must be constant, found {ty}"));
    let size = |size: &tapml_graph::Dim| {
        let size = size.as_const().and_then(|size| i64::try_from(size).ok()).ok_or_else(symbolic)?;
        Ok(Dimension { dim_value: Some(size), dim_param: None })
    };
    let shape = Shape { dim: ty.shape.iter().map(size).collect::<Result<_>>()? };
    let tensor_type = TensorType { elem_type: tensor::code(ty.dtype)?, shape: Some(shape) };
    let ty = Type { tensor_type: Some(tensor_type), ..Type::default() };
    Ok(ValueInfo { name: name.into(), r#type: Some(ty) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::File;
    use std::collections::HashMap;

    /// Attributes of every type.
    const ATTRIBUTES: &str = r#"{"alpha":0.5,"axis":-1,"mode":"linear","pads":[1,0],"scales":[1.5,2.0],"names":["a","b"],"none":{"ints":[]},
        "no_floats":{"floats":[]},"no_names":{"strings":[]},"high":{"float":"inf"},"bounds":{"floats":[1.0,"nan","-inf"]},
        "value":{"tensor":{"dtype":"f32","shape":[2],"data":[0.5,"inf"]}},"flags":{"tensor":{"dtype":"bool","shape":[],"data":[true]}},
        "large":{"tensor":{"dtype":"u64","shape":[1],"data":[18446744073709551615]}}}"#;

    /// Gives outputs of the declared type, and keeps the operators that it saw.
    struct Seen(Vec<(String, Foreign, Vec<bool>)>);

    impl crate::onnx::OperatorRunner for Seen {
        fn run(
            &mut self,
            node: &str,
            op: &Foreign,
            inputs: &[(tapml_graph::Tensor, bool)],
        ) -> Result<Vec<tapml_graph::Tensor>> {
            self.0.push((node.into(), op.clone(), inputs.iter().map(|(_, constant)| *constant).collect()));
            Ok(vec![inputs[0].0.clone()])
        }
    }

    #[test]
    fn a_model_that_was_written_is_read_as_it_was() {
        let ty = tapml_graph::TensorType::new(tapml_graph::DType::F32, [2u64]);
        let outputs = vec![DeclaredType::Absent, DeclaredType::As(ty.clone())];
        let attributes = serde_json::from_str(ATTRIBUTES).unwrap();
        let op = Foreign::new("onnx.Odd@11", attributes, vec![true, false, true], outputs).unwrap();
        let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let (inputs, outputs) = (texts(&["x0", "", "x1"]), texts(&["", "y1"]));
        let two = tapml_graph::Tensor::from_f32(vec![2], vec![1.0, f32::NAN]).unwrap();
        let model = NewModel {
            nodes: vec![NewNode { name: "odd", op: &op, inputs, outputs }],
            inputs: vec![("x0".into(), ty.clone())],
            constants: vec![("x1".into(), two.clone())],
            outputs: vec![("y1".into(), ty)],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model.encode().unwrap()).unwrap();
        let file = File::open(&path).unwrap();
        let mut seen = Seen(Vec::new());
        let traced = file.trace(&HashMap::from([("x0".to_string(), two.clone())]), &mut seen).unwrap();
        let [(name, found, constants)] = &seen.0[..] else { panic!("{} nodes", seen.0.len()) };
        assert_eq!((name.as_str(), found.kind(), found.inputs()), ("odd", op.kind(), op.inputs()));
        assert_eq!(found.attributes(), op.attributes());
        assert_eq!(constants, &[false, true]);
        let weight = traced.model.weight("x1").unwrap();
        assert_eq!((weight.shape(), &**weight.bytes()), (two.shape(), &**two.bytes()));

        let bare =
            Foreign::new("aten.relu.default", Default::default(), vec![true], vec![DeclaredType::Unknown]);
        let bare = bare.unwrap();
        let node = NewNode { name: "a", op: &bare, inputs: texts(&["x"]), outputs: texts(&["y"]) };
        let error = NewModel { nodes: vec![node], ..NewModel::default() }.encode().unwrap_err().to_string();
        assert!(error.contains("has no version"), "{error}");
    }
}
