//! Nodes that are not unrolled: one operator with the graphs within it, whose outer values are inputs of its own.
//!
//! Names within are made anew (`inner_0` and so on), so that no two graphs of one operator clash. An outer
//! value is an input of the operator; `Subgraph::outer` says which name stands for which input. Functions
//! are expanded here too.

use super::{Scope, Tracer, Versions, bound, domain};
use crate::onnx::messages::{self, Graph, Node};
use crate::onnx::{InputType, attribute, outline, tensor};
use std::collections::HashMap;
use tapml_graph::op::{Subgraph, SubgraphNode};
use tapml_graph::{Context, DType, Error, Result, Tensor, ValueId};

/// Nodes of all graphs within one operator at most.
const MAX_NODES: usize = 4096;

/// What a graph reads of the one around it.
enum Outer<'n> {
    /// By the model's name.
    Name(&'n str),
    /// An initialiser of a graph within, which becomes a weight of the whole.
    Stored(&'n messages::TensorProto),
}

/// Gives the place of the operator's input that stands for a value around a graph.
type Up<'u> = &'u mut dyn FnMut(&mut Writer<'_, '_, '_>, &Outer<'_>) -> Result<usize>;

/// Writes the graphs within one operator.
struct Writer<'w, 't, 'm> {
    tracer: &'w mut Tracer<'t, 'm>,
    /// Names given so far.
    /// Counts up over all graphs of the operator.
    names: usize,
    /// Against [`MAX_NODES`].
    nodes: usize,
}

/// A graph that is being written: what its names are called in it.
struct Level<'u> {
    /// The model's name to the new one.
    names: HashMap<String, String>,
    /// Initialisers that nobody has read yet.
    stored: HashMap<&'u str, &'u messages::TensorProto>,
    /// What has been written so far.
    written: Subgraph,
    /// Asks the level around for a value.
    up: Up<'u>,
}

impl Writer<'_, '_, '_> {
    /// A name that no value of this operator has.
    fn fresh(&mut self) -> String {
        // Counted over all levels: names of two graphs must differ.
        self.names += 1;
        format!("inner_{}", self.names - 1)
    }
}

impl Level<'_> {
    /// A new name for one that a node or input of this graph makes.
    fn define(&mut self, name: &str, writer: &mut Writer<'_, '_, '_>) -> String {
        let own = writer.fresh();
        self.names.insert(name.into(), own.clone());
        own
    }

    /// What a name is called here; one of a graph around this one is taken in.
    fn resolve(&mut self, name: &str, writer: &mut Writer<'_, '_, '_>) -> Result<String> {
        if name.is_empty() {
            return Ok(String::new());
        }
        match self.names.get(name) {
            Some(own) => Ok(own.clone()),
            None => {
                let what = self.stored.get(name).map_or(Outer::Name(name), |stored| Outer::Stored(stored));
                self.take(&what, name, writer)
            }
        }
    }

    /// Takes a value of a level around in, at most one time for each name.
    fn take(&mut self, what: &Outer<'_>, name: &str, writer: &mut Writer<'_, '_, '_>) -> Result<String> {
        let place = (self.up)(writer, what)?;
        let own = self.define(name, writer);
        self.written.outer.insert(own.clone(), place);
        Ok(own)
    }
}

impl Tracer<'_, '_> {
    /// One node for one with graphs within it, which run at most `turns` times each.
    pub(super) fn opaque(
        &mut self,
        node: &Node,
        scope: &Scope<'_, '_>,
        versions: &Versions<'_>,
        turns: Option<u64>,
    ) -> Result<Vec<ValueId>> {
        let own = node.input.iter();
        let own = own.map(|name| if name.is_empty() { Ok(None) } else { self.value(name, scope).map(Some) });
        let mut ids = own.collect::<Result<Vec<Option<ValueId>>>>()?;
        let prefix = self.prefix(node, scope);
        if node.op_type == "Loop" && ids.get(1).copied().flatten().is_none() {
            // Not every runtime takes an absent condition for true.
            ids.resize(ids.len().max(2), None);
            ids[1] = Some(
                self.weight(&format!("{prefix}condition"), Tensor::from_i64(DType::Bool, vec![], &[1])?)?,
            );
        }
        // What is pushed from here on are outer values.
        let first = ids.len();
        let given: Vec<Option<DType>> = ids.iter().map(|id| id.map(|id| self.tensor(id).dtype())).collect();
        let mut attributes = attribute::read_plain(node, &self.file.folder)?;
        let mut writer = Writer { tracer: self, names: 0, nodes: 0 };
        for (name, graph) in attribute::graphs(node) {
            let mut up = |writer: &mut Writer<'_, '_, '_>, what: &Outer<'_>| {
                let tracer = &mut *writer.tracer;
                let id = match what {
                    Outer::Name(name) => tracer.value(name, scope)?,
                    Outer::Stored(stored) => {
                        let read = tensor::read(stored, &tracer.file.folder)?;
                        tracer.weight(&format!("{prefix}{}", stored.name), read)?
                    }
                };
                // Each outer value is one input, however often it is read. The operator's own inputs are
                // left alone.
                let known = ids[first..].iter().position(|known| *known == Some(id));
                Ok(known.map(|at| first + at).unwrap_or_else(|| {
                    ids.push(Some(id));
                    ids.len() - 1
                }))
            };
            let mut written = writer.graph(graph, &mut up, versions).context(|| format!("`{name}`"))?;
            // Who runs the operator can bound its work by it.
            written.max_iterations = turns;
            complete(&mut written.types, &node.op_type, &given);
            attributes.insert(name.into(), written.to_attribute());
        }
        let names: Vec<&str> = node.output.iter().map(String::as_str).collect();
        self.run(node, &versions.kind(node), attributes, &ids, &names, scope)
    }
}

/// The type of an input as far as the model says; see [`Subgraph::types`].
fn type_text(of: &InputType) -> String {
    let Some(dtype) = of.dtype else { return String::new() };
    let Some(shape) = &of.shape else { return dtype.name().into() };
    let size = |size: &Option<usize>| size.map_or_else(|| "?".to_string(), |size| size.to_string());
    format!("{dtype}[{}]", shape.iter().map(size).collect::<Vec<_>>().join(","))
}

/// Fills in the types that follow from those of the operator's inputs.
fn complete(types: &mut [String], op: &str, given: &[Option<DType>]) {
    for (at, ty) in types.iter_mut().enumerate().filter(|(_, ty)| ty.is_empty()) {
        *ty = match (op, at) {
            // The turn's number and the condition have types that the standard fixes.
            ("Loop", 0) => "i64[]".into(),
            ("Loop", 1) => "bool[]".into(),
            ("Loop" | "Scan", at) => {
                given.get(at).copied().flatten().map(|dtype| dtype.to_string()).unwrap_or_default()
            }
            _ => continue,
        };
    }
}

impl Writer<'_, '_, '_> {
    /// Writes one graph; initialisers are taken in when they are read.
    fn graph(&mut self, graph: &Graph, up: Up<'_>, versions: &Versions<'_>) -> Result<Subgraph> {
        let stored = graph.initializer.iter().map(|stored| (stored.name.as_str(), stored)).collect();
        let mut level = Level { names: HashMap::new(), stored, written: Subgraph::default(), up };
        for input in &graph.input {
            let own = level.define(&input.name, self);
            level.written.inputs.push(own);
            level.written.types.push(type_text(&outline::input_type(input)));
        }
        if let Some(sparse) = graph.sparse_initializer.first() {
            let name = sparse.values.as_ref().map_or("", |values| &values.name);
            return Err(Error::unsupported(format!(
                "the initialiser `{name}` is sparse, which is not served"
            )));
        }
        self.add(&graph.node, &mut level, versions)?;
        for output in &graph.output {
            let own = level.resolve(&output.name, self)?;
            level.written.outputs.push(own);
        }
        Ok(level.written)
    }

    /// Writes nodes in their order.
    fn add(&mut self, nodes: &[Node], level: &mut Level<'_>, versions: &Versions<'_>) -> Result<()> {
        for node in nodes {
            self.node(node, level, versions).context(|| crate::onnx::check::describe_node(node))?;
        }
        Ok(())
    }

    /// Writes one node, and the graphs within it.
    fn node(&mut self, node: &Node, level: &mut Level<'_>, versions: &Versions<'_>) -> Result<()> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Error::unsupported(format!("more than {MAX_NODES} nodes within one operator")));
        }
        let mut inputs = Vec::new();
        for name in &node.input {
            inputs.push(level.resolve(name, self)?);
        }
        let function = self.tracer.functions.get(&(domain(&node.domain), node.op_type.as_str())).copied();
        if let Some(function) = function {
            return self.function(node, function, &inputs, level);
        }
        let mut attributes = attribute::read_plain(node, &self.tracer.file.folder)?;
        // The node's own inputs; outer values of its graphs come behind them.
        let own = inputs.len();
        for (name, graph) in attribute::graphs(node) {
            let mut up = |writer: &mut Writer<'_, '_, '_>, what: &Outer<'_>| {
                let taken = match what {
                    Outer::Name(name) => level.resolve(name, writer)?,
                    // Behind a name that no node can have.
                    Outer::Stored(stored) => level.take(what, &format!("\0{}", stored.name), writer)?,
                };
                let known = inputs[own..].iter().position(|known| *known == taken);
                Ok(known.map(|at| own + at).unwrap_or_else(|| {
                    inputs.push(taken);
                    inputs.len() - 1
                }))
            };
            let written = self.graph(graph, &mut up, versions)?;
            attributes.insert(name.into(), written.to_attribute());
        }
        let mut outputs = Vec::new();
        for name in &node.output {
            outputs.push(if name.is_empty() { String::new() } else { level.define(name, self) });
        }
        level.written.nodes.push(SubgraphNode { op: versions.kind(node), attributes, inputs, outputs });
        Ok(())
    }

    /// The nodes of a function in the place of the node that calls it.
    fn function(
        &mut self,
        node: &Node,
        function: &messages::FunctionProto,
        inputs: &[String],
        level: &mut Level<'_>,
    ) -> Result<()> {
        if self.tracer.depth == super::MAX_DEPTH {
            let text = format!("functions call each other more than {} deep", super::MAX_DEPTH);
            return Err(Error::invalid(text));
        }
        let names = function.input.iter().cloned().zip(inputs.iter().cloned()).collect();
        // A function sees nothing of what is around the node that calls it.
        let outer = std::mem::replace(&mut level.names, names);
        let stored = std::mem::take(&mut level.stored);
        // Attributes that refer to the caller's are filled in first.
        let nodes: Vec<Node> = function.node.iter().map(|inner| bound(inner, node, function)).collect();
        self.tracer.depth += 1;
        let done = self.add(&nodes, level, &Versions::from_sets(&function.opset_import));
        self.tracer.depth -= 1;
        // Restored before the error is looked at, so that the level is whole either way.
        let inner = std::mem::replace(&mut level.names, outer);
        level.stored = stored;
        done.context(|| format!("function `{}`", function.name))?;
        for (own, name) in function.output.iter().zip(&node.output).filter(|(_, name)| !name.is_empty()) {
            let made = inner.get(own).cloned();
            let made = made.ok_or_else(|| Error::invalid(format!("nothing makes the output `{own}`")))?;
            level.names.insert(name.clone(), made);
        }
        Ok(())
    }
}
