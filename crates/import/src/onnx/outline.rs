//! What a model consists of, in numbers and names.
//!
//! Nothing is read of external files but their names. `tapml inspect` prints it.

use super::check::domain;
use super::messages::{Dimension, Graph, Model, Node, TensorProto, Type, ValueInfo};
use super::tensor;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tapml_graph::{DType, Error, Result, Tensor as Given};

/// What an ONNX model consists of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outline {
    /// Version of the format.
    pub ir_version: i64,
    /// Name and version of the program that wrote it; may be empty.
    pub producer: String,
    /// The operators' domains and their versions, in the order of the file.
    pub opsets: Vec<OpsetOutline>,
    /// The inputs that are no initialisers.
    pub inputs: Vec<ValueOutline>,
    /// The outputs.
    pub outputs: Vec<ValueOutline>,
    /// Operators with the number of their nodes, the most frequent first, those of subgraphs among them.
    pub operators: Vec<OperatorOutline>,
    /// Nodes of all graphs.
    pub nodes: usize,
    /// Graphs within nodes, such as the branches of an `If`.
    pub subgraphs: usize,
    /// Names of the functions that the model brings.
    pub functions: Vec<String>,
    /// Initialisers and the tensors of attributes, by the type of their elements.
    pub weights: Vec<WeightOutline>,
    /// Files that hold tensors, as the model names them.
    pub external_files: Vec<String>,
}

/// A domain of operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpsetOutline {
    /// `ai.onnx` for the standard's own.
    pub domain: String,
    /// Its version.
    pub version: i64,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueOutline {
    /// Its name.
    pub name: String,
    /// Type and sizes in words: `f32[batch, 3, ?, 640]`, `sequence(f32)`.
    #[serde(rename = "type")]
    pub ty: String,
}

/// What a model says of an input that is a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputType {
    /// Its name.
    pub name: String,
    /// Its elements, if the model says so and a graph can hold them.
    pub dtype: Option<DType>,
    /// Its sizes, if their number is known; `None` for each that is free.
    pub shape: Option<Vec<Option<usize>>>,
    /// Type and sizes in words: `f32[batch, 3, ?, 640]`.
    pub text: String,
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorOutline {
    /// Domain, name and version: `onnx.Conv@17`.
    pub operator: String,
    /// Its nodes.
    pub nodes: usize,
}

/// Tensors of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WeightOutline {
    /// The type of the elements.
    pub dtype: String,
    /// Tensors.
    pub tensors: usize,
    /// Elements of all.
    pub elements: u64,
    /// Bytes of all; 0 for texts.
    pub bytes: u64,
}

/// Counts over all graphs of a model.
#[derive(Default)]
struct Counts {
    // By domain and name.
    operators: BTreeMap<(String, String), usize>,
    /// Those of functions among them.
    nodes: usize,
    subgraphs: usize,
    /// By code of the element type.
    weights: BTreeMap<i32, WeightCount>,
    /// In order, each once.
    files: BTreeSet<String>,
}

/// Tensors of one element type.
#[derive(Clone, Copy, Default)]
struct WeightCount {
    tensors: usize,
    elements: u64,
    bytes: u64,
}

impl Counts {
    /// Counts a graph and those within it.
    fn graph(&mut self, graph: &Graph) {
        let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
        graph.initializer.iter().chain(sparse).for_each(|tensor| self.tensor(tensor));
        graph.node.iter().for_each(|node| self.node(node));
    }

    /// A node, its tensors, and the graphs within it.
    fn node(&mut self, node: &Node) {
        self.nodes += 1;
        *self.operators.entry((domain(&node.domain).into(), node.op_type.clone())).or_default() += 1;
        for attribute in &node.attribute {
            attribute.t.iter().chain(&attribute.tensors).for_each(|tensor| self.tensor(tensor));
            for graph in attribute.g.iter().chain(&attribute.graphs) {
                self.subgraphs += 1;
                self.graph(graph);
            }
        }
    }

    /// Elements and bytes as the file claims them.
    fn tensor(&mut self, tensor: &TensorProto) {
        let (elements, bytes) = tensor::len(tensor).unwrap_or_default();
        let sum = self.weights.entry(tensor.data_type).or_default();
        sum.tensors += 1;
        // Saturating: sizes are claims of the file.
        sum.elements = sum.elements.saturating_add(elements);
        sum.bytes = sum.bytes.saturating_add(bytes);
        self.files.extend(tensor::external(tensor).map(str::to_string));
    }
}

impl Outline {
    /// Counts the graph and the functions.
    pub(super) fn from_model(model: &Model) -> Outline {
        let mut counts = Counts::default();
        let none = Graph::default();
        let graph = model.graph.as_ref().unwrap_or(&none);
        counts.graph(graph);
        let functions = model.functions.iter();
        functions.clone().flat_map(|function| &function.node).for_each(|node| counts.node(node));
        let version = |of: &str| {
            let set = model.opset_import.iter().find(|set| domain(&set.domain) == of);
            set.map(|set| format!("@{}", set.version)).unwrap_or_default()
        };
        let mut operators: Vec<OperatorOutline> = (counts.operators.iter())
            .map(|((of, name), &nodes)| {
                let shown = if of.is_empty() { "onnx" } else { of };
                OperatorOutline { operator: format!("{shown}.{name}{}", version(of)), nodes }
            })
            .collect();
        // Ties by name, so that the order does not depend on the file.
        operators.sort_by(|a, b| b.nodes.cmp(&a.nodes).then_with(|| a.operator.cmp(&b.operator)));
        let opsets = model.opset_import.iter().map(|set| OpsetOutline {
            domain: if domain(&set.domain).is_empty() { "ai.onnx".into() } else { set.domain.clone() },
            version: set.version,
        });
        // Files of old versions list initialisers among the inputs.
        let given: BTreeSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let inputs = graph.input.iter().filter(|value| !given.contains(value.name.as_str()));
        let weights = counts.weights.iter().map(|(&code, count)| WeightOutline {
            dtype: tensor::element_name(code),
            tensors: count.tensors,
            elements: count.elements,
            bytes: count.bytes,
        });
        Outline {
            ir_version: model.ir_version,
            producer: format!("{} {}", model.producer_name, model.producer_version).trim().into(),
            opsets: opsets.collect(),
            inputs: inputs.map(value).collect(),
            outputs: graph.output.iter().map(value).collect(),
            operators,
            nodes: counts.nodes,
            subgraphs: counts.subgraphs,
            functions: functions.map(|function| function.name.clone()).collect(),
            weights: weights.collect(),
            external_files: counts.files.into_iter().collect(),
        }
    }
}

/// Type and sizes of an input in words.
pub(super) fn value_type(of: &ValueInfo) -> String {
    value(of).ty
}

/// Fails unless a tensor is of the type and the sizes that the model says.
pub(super) fn expect(of: &ValueInfo, tensor: &Given) -> Result<()> {
    let declared = of.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref());
    let found = || format!("{}{:?}", tensor.dtype(), tensor.shape());
    let wrong = || {
        let text = format!("input `{}`: the model takes {}, found {}", of.name, value_type(of), found());
        Error::invalid(text)
    };
    let Some(declared) = declared else {
        let text = format!("input `{}` is {}: graphs hold tensors only", of.name, value_type(of));
        return Err(Error::unsupported(text));
    };
    // An element type that no graph holds fits nothing.
    if tensor::dtype(declared.elem_type) != Some(tensor.dtype()) {
        return Err(wrong());
    }
    // A model need not say how many sizes an input has.
    let Some(shape) = &declared.shape else { return Ok(()) };
    let fits = |(dim, &size): (&Dimension, &usize)| fixed_size(dim).is_none_or(|wanted| wanted == size);
    if shape.dim.len() == tensor.shape().len() && shape.dim.iter().zip(tensor.shape()).all(fits) {
        Ok(())
    } else {
        Err(wrong())
    }
}

/// What is said of an input.
pub(super) fn input_type(of: &ValueInfo) -> InputType {
    let declared = of.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref());
    let sizes = declared.and_then(|ty| ty.shape.as_ref());
    InputType {
        name: of.name.clone(),
        dtype: declared.and_then(|ty| tensor::dtype(ty.elem_type)),
        shape: sizes.map(|shape| shape.dim.iter().map(fixed_size).collect()),
        text: value_type(of),
    }
}

/// Why an input of this name cannot be given, and which can.
pub(super) fn unknown_input(graph: &Graph, name: &str) -> Error {
    Error::invalid(format!("the model has no input `{name}`")).with_hint(inputs_text(graph))
}

/// The inputs that a model takes, those of initialisers left out, in words.
pub(super) fn inputs_text(graph: &Graph) -> String {
    let stored: BTreeSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let wanted = graph.input.iter().filter(|value| !stored.contains(value.name.as_str()));
    let wanted = wanted.map(|value| format!("{}: {}", value.name, value_type(value)));
    format!("it takes {}", wanted.collect::<Vec<_>>().join(", "))
}

/// The size of a dimension that is not free. Some exporters write -1 where one is.
fn fixed_size(dim: &Dimension) -> Option<usize> {
    dim.dim_value.and_then(|size| usize::try_from(size).ok())
}

/// Name and type of an input or output.
fn value(value: &ValueInfo) -> ValueOutline {
    ValueOutline { name: value.name.clone(), ty: value.r#type.as_ref().map_or_else(|| "?".into(), type_text) }
}

/// Recursive; the depth of types is bounded by the walk.
fn type_text(ty: &Type) -> String {
    if let Some(tensor) = &ty.tensor_type {
        let name = tensor::element_name(tensor.elem_type);
        let Some(shape) = &tensor.shape else { return name };
        let size = |dim: &super::messages::Dimension| match (dim.dim_value, &dim.dim_param) {
            (Some(size), _) => size.to_string(),
            (None, Some(name)) if !name.is_empty() => name.clone(),
            _ => "?".into(),
        };
        return format!("{name}[{}]", shape.dim.iter().map(size).collect::<Vec<_>>().join(", "));
    }
    let of = |word: &str, element: &super::messages::Element| {
        format!("{word}({})", element.elem_type.as_deref().map_or_else(|| "?".into(), type_text))
    };
    match (&ty.sequence_type, &ty.optional_type) {
        (Some(element), _) => of("sequence", element),
        (None, Some(element)) => of("optional", element),
        (None, None) => "?".into(),
    }
}
