//! A model becomes a graph by running it once: sizes are those of the given inputs, branches are those that were taken, loops
//! are as long as they ran, and functions stand where they are called.

mod control;
mod opaque;

use super::check::domain;
use super::messages::{self, Attribute, FunctionProto, Node, OperatorSet};
use super::{File, attribute, tensor};
use std::collections::{HashMap, HashSet};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{
    Builder, BuilderMark, Context, DType, Error, ErrorKind, Model, Op, Result, Tensor, TensorType, ValueId,
};

/// Functions within functions at most.
const MAX_DEPTH: usize = 64;
// Bounds the graph; `MAX_RUNS` bounds the time, as nodes can be taken back.
/// Nodes of the graph at most, those of unrolled loops counted.
const MAX_NODES: usize = 1 << 17;
/// Operators that are run at most, those of loops that are taken back counted.
const MAX_RUNS: usize = 1 << 19;
/// Operators on sequences and optional values, which no graph holds.
const REFUSED: [&str; 12] = [
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceInsert",
    "SequenceErase",
    "SequenceAt",
    "SequenceLength",
    "SequenceMap",
    "SplitToSequence",
    "ConcatFromSequence",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
];

/// Runs operators whose outputs' types are not known yet.
pub trait OperatorRunner {
    /// Runs one. `inputs` are those that are there, in the order of their places, each with whether it is a constant. Gives the
    /// outputs that are asked for, in the order of theirs.
    fn run(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>>;
}

/// A model that has been run once.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Its graph, with the weights.
    pub model: Model,
    /// The value of every value of the graph, by its id.
    pub values: Vec<Tensor>,
    /// What was unrolled: a sentence for each node with graphs within it.
    pub unrolled: Vec<String>,
}

impl File {
    /// Runs the model with these inputs, by name, on `runner`, and gives what it was: its graph for inputs of these sizes.
    ///
    /// # Errors
    /// An input is missing, unknown, or of another type than the model says; the model holds texts, sequences or optional values;
    /// `runner` does not serve an operator. Errors name node and operator.
    pub fn trace(&self, inputs: &HashMap<String, Tensor>, runner: &mut dyn OperatorRunner) -> Result<Traced> {
        let none = messages::Graph::default();
        let graph = self.model.graph.as_ref().unwrap_or(&none);
        let functions = self.model.functions.iter();
        let functions = functions.map(|f| ((domain(&f.domain), f.name.as_str()), f)).collect();
        let mut tracer = Tracer {
            file: self,
            functions,
            runner,
            builder: Builder::new(if graph.name.is_empty() { "onnx" } else { &graph.name }),
            values: Vec::new(),
            weights: HashMap::new(),
            stored: HashMap::new(),
            names: HashSet::new(),
            node_names: HashSet::new(),
            nodes: 0,
            runs: 0,
            depth: 0,
            unrolled: Vec::new(),
        };
        let versions = Versions::from_sets(&self.model.opset_import);
        let mut scope = Scope { names: HashMap::new(), outer: None, prefix: String::new() };
        // Inputs before initialisers: a given input takes the place of its default.
        tracer.take_inputs(graph, inputs, &mut scope)?;
        tracer.initializers(graph, &mut scope)?;
        tracer.nodes(&graph.node, &mut scope, &versions)?;
        for output in &graph.output {
            let value = tracer.value(&output.name, &scope)?;
            tracer.builder.output(&output.name, value);
        }
        let Tracer { builder, values, weights, unrolled, .. } = tracer;
        let graph = builder.finish()?;
        Ok(Traced { model: Model::new(graph, weights)?, values, unrolled })
    }
}

/// The versions of domains of operators.
struct Versions<'m>(HashMap<&'m str, i64>);

impl<'m> Versions<'m> {
    /// A domain that is listed twice has its last version.
    fn from_sets(sets: &'m [OperatorSet]) -> Versions<'m> {
        Versions(sets.iter().map(|set| (domain(&set.domain), set.version)).collect())
    }

    /// Version 1 for a domain that the model does not import.
    fn get(&self, of: &str) -> i64 {
        self.0.get(of).copied().unwrap_or(1)
    }

    /// Domain, name and version of a node's operator.
    fn kind(&self, node: &Node) -> String {
        let of = domain(&node.domain);
        let shown = if of.is_empty() { "onnx" } else { of };
        format!("{shown}.{}@{}", node.op_type, self.get(of))
    }
}

/// What the names of a graph, or of a function, stand for.
struct Scope<'s, 'm> {
    /// Of this scope alone.
    names: HashMap<&'m str, ValuePlace<'m>>,
    /// A subgraph sees the names around it; a function does not.
    outer: Option<&'s Scope<'s, 'm>>,
    /// In front of the names of values and nodes of a graph within another.
    prefix: String,
}

/// A value, or an initialiser that becomes one when it is used.
#[derive(Clone, Copy)]
enum ValuePlace<'m> {
    Value(ValueId),
    Stored(&'m messages::TensorProto),
}

impl<'m> Scope<'_, 'm> {
    /// Of this scope, else of those around it.
    fn get(&self, name: &str) -> Option<ValuePlace<'m>> {
        self.names.get(name).copied().or_else(|| self.outer?.get(name))
    }
}

/// The run under way.
struct Tracer<'t, 'm> {
    /// Its folder holds external tensors.
    file: &'m File,
    /// By domain and name.
    functions: HashMap<(&'m str, &'m str), &'m FunctionProto>,
    runner: &'t mut dyn OperatorRunner,
    builder: Builder,
    /// By the id of the value: as long as the builder has values.
    values: Vec<Tensor>,
    /// By their names in the graph.
    weights: HashMap<String, Tensor>,
    /// Initialisers that have become values, by their places in memory.
    stored: HashMap<*const messages::TensorProto, ValueId>,
    /// Of values that are taken.
    names: HashSet<String>,
    /// Of nodes that are taken.
    node_names: HashSet<String>,
    /// Of the graph; see [`MAX_NODES`].
    nodes: usize,
    /// See [`MAX_RUNS`].
    runs: usize,
    /// Functions around the present node.
    depth: usize,
    /// Sentences for people.
    unrolled: Vec<String>,
}

/// How much of a graph there was.
#[derive(Clone, Copy)]
struct Mark {
    graph: BuilderMark,
    nodes: usize,
    unrolled: usize,
}

/// A node of a function with the attributes of the node that calls it in the places that stand for them.
fn bound(inner: &Node, caller: &Node, function: &FunctionProto) -> Node {
    let resolved = |attribute: &Attribute| {
        let own = |list: &[Attribute]| list.iter().find(|a| a.name == attribute.ref_attr_name).cloned();
        let mut given = if attribute.ref_attr_name.is_empty() {
            attribute.clone()
        } else {
            // An attribute that the caller leaves out has the function's default, or is absent.
            own(&caller.attribute).or_else(|| own(&function.attribute_proto))?
        };
        given.name = attribute.name.clone();
        // Attributes refer to the caller's from within subgraphs, too.
        for graph in given.g.iter_mut().chain(&mut given.graphs) {
            graph.node = graph.node.iter().map(|node| bound(node, caller, function)).collect();
        }
        Some(given)
    };
    Node { attribute: inner.attribute.iter().filter_map(resolved).collect(), ..inner.clone() }
}

/// A type as the graph has it.
fn tensor_type(tensor: &Tensor) -> TensorType {
    TensorType::new(tensor.dtype(), tensor.shape().iter().copied())
}

/// A name that no other has: this one, or this one with a number.
fn unique(known: &mut HashSet<String>, name: &str) -> String {
    let mut own = if name.is_empty() { "unnamed".to_string() } else { name.to_string() };
    let mut count = 1;
    while !known.insert(own.clone()) {
        count += 1;
        own = format!("{name}#{count}");
    }
    own
}

impl<'m> Tracer<'_, 'm> {
    /// The inputs, which must be those that the model takes.
    fn take_inputs(
        &mut self,
        graph: &'m messages::Graph,
        inputs: &HashMap<String, Tensor>,
        scope: &mut Scope<'_, 'm>,
    ) -> Result<()> {
        let stored: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let taken = |name: &str| graph.input.iter().any(|value| value.name == name);
        if let Some(unknown) = inputs.keys().find(|name| !taken(name)) {
            return Err(super::outline::unknown_input(graph, unknown));
        }
        for value in &graph.input {
            let Some(tensor) = inputs.get(&value.name) else {
                // An initialiser is the default of an input of its name.
                if stored.contains(value.name.as_str()) {
                    continue;
                }
                let error = Error::invalid(format!("input `{}` is missing", value.name));
                return Err(error.with_hint(super::outline::inputs_text(graph)));
            };
            super::outline::expect(value, tensor)?;
            let name = unique(&mut self.names, &value.name);
            let id = self.builder.input(name, tensor_type(tensor))?;
            self.values.push(tensor.clone());
            scope.names.insert(&value.name, ValuePlace::Value(id));
        }
        Ok(())
    }

    /// Nothing is read yet: large ones may never be used.
    fn initializers<'n>(&mut self, graph: &'n messages::Graph, scope: &mut Scope<'_, 'n>) -> Result<()> {
        if let Some(sparse) = graph.sparse_initializer.first() {
            let name = sparse.values.as_ref().map_or("", |values| &values.name);
            return Err(Error::unsupported(format!(
                "the initialiser `{name}` is sparse, which is not served"
            )));
        }
        for tensor in &graph.initializer {
            // An input of the same name was given and stays.
            scope.names.entry(&tensor.name).or_insert(ValuePlace::Stored(tensor));
        }
        Ok(())
    }

    /// The value of a name, which the checks have found to be made.
    fn value(&mut self, name: &str, scope: &Scope<'_, '_>) -> Result<ValueId> {
        match scope.get(name) {
            Some(ValuePlace::Value(id)) => Ok(id),
            Some(ValuePlace::Stored(stored)) => {
                // One weight for each initialiser, wherever it is read.
                let key = std::ptr::from_ref(stored);
                if let Some(&id) = self.stored.get(&key) {
                    return Ok(id);
                }
                let tensor = tensor::read(stored, &self.file.folder)?;
                let id = self.weight(name, tensor)?;
                self.stored.insert(key, id);
                Ok(id)
            }
            None => Err(Error::invalid(format!("nothing makes `{name}`"))),
        }
    }

    /// How much there is of everything, to go back to.
    fn mark(&self) -> Mark {
        Mark { graph: self.builder.mark(), nodes: self.nodes, unrolled: self.unrolled.len() }
    }

    /// Takes away what was added since.
    fn rewind(&mut self, mark: Mark) {
        let names = self.builder.rewind(mark.graph);
        for name in &names {
            self.weights.remove(name);
            self.names.remove(name);
        }
        self.values.truncate(self.values.len() - names.len());
        let count = self.values.len();
        self.stored.retain(|_, id| (id.0 as usize) < count);
        self.nodes = mark.nodes;
        self.unrolled.truncate(mark.unrolled);
    }

    /// A constant of the graph, with a name that no other has.
    fn weight(&mut self, name: &str, tensor: Tensor) -> Result<ValueId> {
        let name = unique(&mut self.names, name);
        let id = self.builder.weight(&name, tensor_type(&tensor))?;
        self.values.push(tensor.clone());
        self.weights.insert(name, tensor);
        Ok(id)
    }

    /// What a value was in this run.
    fn tensor(&self, id: ValueId) -> &Tensor {
        &self.values[id.0 as usize]
    }

    fn nodes<'n>(
        &mut self,
        nodes: &'n [Node],
        scope: &mut Scope<'_, 'n>,
        versions: &Versions<'_>,
    ) -> Result<()> {
        for node in nodes {
            self.node(node, scope, versions).context(|| super::check::describe_node(node))?;
        }
        Ok(())
    }

    /// A node of the model: of a function, of control flow, a constant, or an operator to run.
    fn node<'n>(&mut self, node: &'n Node, scope: &mut Scope<'_, 'n>, versions: &Versions<'_>) -> Result<()> {
        let of = domain(&node.domain);
        // A function of the model goes before an operator of the same name.
        if let Some(function) = self.functions.get(&(of, node.op_type.as_str())).copied() {
            return self.function(node, function, scope);
        }
        let standard = of.is_empty();
        match node.op_type.as_str() {
            "Constant" if standard => return self.constant(node, scope),
            "If" | "Loop" | "Scan" if standard => return self.control(node, scope, versions),
            name if standard && REFUSED.contains(&name) => {
                let text = "it makes or reads a sequence or an optional value, which no graph holds";
                return Err(Error::unsupported(text).with_hint(
                    "export the model without sequences: `Split` and `Concat` take their places",
                ));
            }
            _ => {}
        }
        let ids: Vec<Option<ValueId>> = (node.input.iter())
            .map(|name| if name.is_empty() { Ok(None) } else { self.value(name, scope).map(Some) })
            .collect::<Result<_>>()?;
        let attributes = attribute::read(node, &self.file.folder)?;
        let names: Vec<&'n str> = node.output.iter().map(String::as_str).collect();
        let made = self.run(node, &versions.kind(node), attributes, &ids, &names, scope)?;
        let names = names.iter().filter(|name| !name.is_empty());
        scope.names.extend(names.zip(made).map(|(&name, id)| (name, ValuePlace::Value(id))));
        Ok(())
    }

    /// Runs one operator and adds its node; gives the outputs that are asked for.
    fn run(
        &mut self,
        node: &Node,
        kind: &str,
        attributes: serde_json::Map<String, serde_json::Value>,
        inputs: &[Option<ValueId>],
        outputs: &[&str],
        scope: &Scope<'_, '_>,
    ) -> Result<Vec<ValueId>> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Error::unsupported(format!("more than {MAX_NODES} nodes, unrolled ones counted")));
        }
        self.count_run()?;
        let asked = |name: &&str| if name.is_empty() { DeclaredType::Absent } else { DeclaredType::Unknown };
        let places = inputs.iter().map(Option::is_some).collect();
        // Types of the outputs are known only after the run.
        let op = Foreign::new(kind, attributes, places, outputs.iter().map(asked).collect())?;
        let ids: Vec<ValueId> = inputs.iter().copied().flatten().collect();
        let given: Vec<(Tensor, bool)> = (ids.iter())
            .map(|&id| (self.tensor(id).clone(), self.weights.contains_key(self.builder.name(id))))
            .collect();
        let first = outputs.iter().find(|name| !name.is_empty()).copied().unwrap_or_default();
        let name = if node.name.is_empty() { first } else { &node.name };
        let name = unique(&mut self.node_names, &format!("{}{name}", scope.prefix));
        let gave = self.runner.run(&name, &op, &given)?;
        let wanted = outputs.iter().filter(|name| !name.is_empty()).count();
        if gave.len() != wanted {
            let text = format!("the source gave {} outputs of `{kind}`, expected {wanted}", gave.len());
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let mut types = gave.iter().map(tensor_type);
        let declare = |name: &&str| {
            if name.is_empty() {
                DeclaredType::Absent
            } else {
                types.next().map_or(DeclaredType::Absent, DeclaredType::As)
            }
        };
        let op = op.with_outputs(outputs.iter().map(declare).collect())?;
        let called = outputs.iter().filter(|name| !name.is_empty());
        let called: Vec<String> =
            called.map(|name| unique(&mut self.names, &format!("{}{name}", scope.prefix))).collect();
        let made = self.builder.node_multi(name, Op::Foreign(op), &ids, &called)?;
        self.values.extend(gave);
        Ok(made)
    }

    /// Before each run, so that loops end.
    fn count_run(&mut self) -> Result<()> {
        self.runs += 1;
        if self.runs > MAX_RUNS {
            Err(Error::unsupported(format!("more than {MAX_RUNS} operators to run")))
        } else {
            Ok(())
        }
    }

    /// A `Constant` is a weight.
    fn constant<'n>(&mut self, node: &'n Node, scope: &mut Scope<'_, 'n>) -> Result<()> {
        let [attribute] = &node.attribute[..] else {
            let text = format!("expected one attribute, the value, found {}", node.attribute.len());
            return Err(Error::invalid(text));
        };
        let ints = |shape: Vec<usize>, values: &[i64]| Tensor::from_i64(DType::I64, shape, values);
        let tensor = match (attribute.name.as_str(), &attribute.t) {
            ("value", Some(tensor)) => tensor::read(tensor, &self.file.folder)?,
            ("value_int", _) => ints(vec![], &[attribute.i])?,
            ("value_ints", _) => ints(vec![attribute.ints.len()], &attribute.ints)?,
            ("value_float", _) => Tensor::from_f32(vec![], vec![attribute.f])?,
            ("value_floats", _) => Tensor::from_f32(vec![attribute.floats.len()], attribute.floats.clone())?,
            (name, _) => {
                return Err(Error::unsupported(format!("a constant by `{name}`, which is not served")));
            }
        };
        let Some(output) = node.output.first() else { return Ok(()) };
        let id = self.weight(&format!("{}{output}", scope.prefix), tensor)?;
        scope.names.insert(output, ValuePlace::Value(id));
        Ok(())
    }

    /// The nodes of a function in the place of the node that calls it.
    fn function<'n>(
        &mut self,
        node: &'n Node,
        function: &'m FunctionProto,
        scope: &mut Scope<'_, 'n>,
    ) -> Result<()> {
        // Calls count as well, or functions that call each other would cost nothing.
        self.nodes += 1;
        self.count_run()?;
        if self.depth == MAX_DEPTH {
            return Err(Error::invalid(format!("functions call each other more than {MAX_DEPTH} deep")));
        }
        let mut inner = Scope { names: HashMap::new(), outer: None, prefix: self.prefix(node, scope) };
        for (own, given) in function.input.iter().zip(&node.input).filter(|(_, given)| !given.is_empty()) {
            inner.names.insert(own, ValuePlace::Value(self.value(given, scope)?));
        }
        let nodes: Vec<Node> = function.node.iter().map(|inner| bound(inner, node, function)).collect();
        // These nodes are no longer in memory when others take their places.
        let stored = std::mem::take(&mut self.stored);
        self.depth += 1;
        let done = self.nodes(&nodes, &mut inner, &Versions::from_sets(&function.opset_import));
        self.depth -= 1;
        self.stored = stored;
        done.context(|| format!("function `{}`", function.name))?;
        for (own, name) in function.output.iter().zip(&node.output).filter(|(_, name)| !name.is_empty()) {
            let id = self.value(own, &inner)?;
            scope.names.insert(name, ValuePlace::Value(id));
        }
        Ok(())
    }

    /// What stands in front of names within a node.
    fn prefix(&self, node: &Node, scope: &Scope<'_, '_>) -> String {
        let first = node.output.iter().find(|name| !name.is_empty()).map_or("", String::as_str);
        format!("{}{}/", scope.prefix, if node.name.is_empty() { first } else { &node.name })
    }
}

#[cfg(test)]
mod tests;
