//! The graph: values, nodes, weights and states in SSA form, and the builder that makes it. Its types stand with the operators,
//! since a fused operator holds a graph.

use crate::dim::{Dim, Symbol, Symbols};
use crate::error::{Context, Error, Result};
use crate::op::Op;
use crate::verify;
use std::collections::HashMap;

pub use crate::op::{Graph, Node};
pub use crate::tensor_type::TensorType;
pub use crate::value::{NodeId, Origin, Output, State, Value, ValueId};

impl State {
    /// Whether the state gains rows in every run.
    pub fn grows(&self, graph: &Graph) -> bool {
        graph.value(self.input).ty.shape.first().is_some_and(|d| *d == Dim::symbol(Symbol::P))
    }
}

impl Graph {
    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All values; [`ValueId`] is the index.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The nodes in execution order; [`NodeId`] is the index.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The states.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// The results.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// One value. Panics if the id is from another graph.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// One node. Panics if the id is from another graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Values of this kind of origin with their ids, in order.
    fn of_origin(&self, wanted: fn(Origin) -> bool) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values
            .iter()
            .enumerate()
            .filter(move |(_, v)| wanted(v.origin))
            .map(|(i, v)| (ValueId(i as u32), v))
    }

    /// The inputs given at each run.
    pub fn inputs(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.of_origin(|o| o == Origin::Input)
    }

    /// The weights.
    pub fn weights(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.of_origin(|o| o == Origin::Weight)
    }

    /// The value of this name.
    pub fn find_value(&self, name: &str) -> Option<ValueId> {
        self.values.iter().position(|v| v.name == name).map(|i| ValueId(i as u32))
    }

    /// The node of this name.
    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|n| n.name == name).map(|i| NodeId(i as u32))
    }

    /// Types of a node's inputs.
    pub fn input_types(&self, node: &Node) -> Vec<TensorType> {
        node.inputs.iter().map(|&v| self.value(v).ty.clone()).collect()
    }

    /// For each value, the nodes that use it, in order.
    pub fn users(&self) -> Vec<Vec<NodeId>> {
        let mut users = vec![Vec::new(); self.values.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            for &input in &node.inputs {
                let list: &mut Vec<NodeId> = &mut users[input.0 as usize];
                // A node that takes a value twice is one user.
                if list.last() != Some(&NodeId(i as u32)) {
                    list.push(NodeId(i as u32));
                }
            }
        }
        users
    }

    /// About the multiplications of a node at these symbols: elements of the outputs times the longest sum that one of them may
    /// be. What has no size at these symbols counts as one element.
    pub fn estimate_work(&self, node: &Node, symbols: &Symbols) -> u64 {
        let sizes = |&id: &ValueId| self.value(id).ty.sizes(symbols).unwrap_or_default();
        let outputs: Vec<Vec<usize>> = node.outputs.iter().map(sizes).collect();
        let inputs: Vec<Vec<usize>> = node.inputs.iter().map(sizes).collect();
        let count = |shape: &Vec<usize>| shape.iter().fold(1u64, |count, &d| count.saturating_mul(d as u64));
        let elements = outputs.iter().map(count).fold(0, u64::saturating_add);
        // Element-wise: one operation for each element.
        if inputs.iter().all(|shape| outputs.contains(shape)) {
            return elements;
        }
        // An operator whose rows see each other may sum over all rows.
        let rows = inputs.iter().filter(|_| !node.op.row_wise()).filter_map(|shape| shape.first());
        let longest = inputs.iter().filter_map(|shape| shape.last()).chain(rows).max();
        elements.saturating_mul(longest.map_or(1, |&l| l as u64))
    }

    /// Operator names in the order of their first node, with the count of nodes.
    pub fn op_kinds(&self) -> Vec<(&'static str, usize)> {
        let mut kinds: Vec<(&'static str, usize)> = Vec::new();
        for node in &self.nodes {
            match kinds.iter_mut().find(|(name, _)| *name == node.op.name()) {
                Some((_, count)) => *count += 1,
                None => kinds.push((node.op.name(), 1)),
            }
        }
        kinds
    }
}

/// Makes a graph step by step; each node's output types are inferred as it is added.
#[derive(Debug)]
pub struct Builder {
    /// The graph so far.
    graph: Graph,
    /// The value of each name.
    names: HashMap<String, ValueId>,
    /// Whether each state still lacks its value after the run.
    open_states: Vec<bool>,
}

/// How much of a graph a [`Builder`] had.
#[derive(Clone, Copy, Debug)]
pub struct BuilderMark {
    /// Count of values.
    values: usize,
    /// Count of nodes.
    nodes: usize,
}

impl Builder {
    /// An empty graph of this name.
    pub fn new(name: impl Into<String>) -> Builder {
        let graph = Graph {
            name: name.into(),
            values: Vec::new(),
            nodes: Vec::new(),
            states: Vec::new(),
            outputs: Vec::new(),
        };
        Builder { graph, names: HashMap::new(), open_states: Vec::new() }
    }

    /// A value that was added.
    pub fn value(&self, id: ValueId) -> &Value {
        self.graph.value(id)
    }

    /// Adds an input.
    pub fn input(&mut self, name: impl Into<String>, ty: TensorType) -> Result<ValueId> {
        self.add(name.into(), ty, Origin::Input)
    }

    /// Adds a weight by its checkpoint name; a second request for the same name and type gives the same value.
    pub fn weight(&mut self, name: impl Into<String>, ty: TensorType) -> Result<ValueId> {
        let name = name.into();
        if let Some(&id) = self.names.get(&name) {
            let old = self.graph.value(id);
            // Tied weights, such as those of an embedding and a head, are one value.
            if old.origin == Origin::Weight && old.ty == ty {
                return Ok(id);
            }
        }
        self.add(name, ty, Origin::Weight)
    }

    /// Adds a state; returns its value before the run. [`Builder::set_state`] must give the value after it.
    pub fn state(&mut self, name: impl Into<String>, ty: TensorType) -> Result<ValueId> {
        let name = name.into();
        let id = self.add(name.clone(), ty, Origin::State(self.graph.states.len() as u32))?;
        // The output stands in until `set_state` gives it; `finish` refuses a state without it.
        self.graph.states.push(State { name, input: id, output: id });
        self.open_states.push(true);
        Ok(id)
    }

    /// Sets what the state whose value before the run is `input` holds after the run.
    pub fn set_state(&mut self, input: ValueId, output: ValueId) -> Result<()> {
        let Some(Origin::State(i)) = self.graph.values.get(input.0 as usize).map(|v| v.origin) else {
            return Err(Error::invalid("set_state: this value is no state"));
        };
        let i = i as usize;
        self.graph.states[i].output = output;
        self.open_states[i] = false;
        Ok(())
    }

    /// Adds a node with one output, which gets the node's name.
    pub fn node(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<ValueId> {
        let name = name.into();
        let outputs = self.node_multi(name.clone(), op, inputs, std::slice::from_ref(&name))?;
        outputs.first().copied().ok_or_else(|| Error::invalid(format!("node `{name}` has no output")))
    }

    /// Adds a node whose outputs get these names. Fails if the operator has another number of outputs.
    pub fn node_multi(
        &mut self,
        name: impl Into<String>,
        op: impl Into<Op>,
        inputs: &[ValueId],
        outputs: &[String],
    ) -> Result<Vec<ValueId>> {
        let (name, op) = (name.into(), op.into());
        if let Some(bad) = inputs.iter().find(|v| v.0 as usize >= self.graph.values.len()) {
            return Err(Error::invalid(format!("node `{name}`: no value {}", bad.0)));
        }
        let types: Vec<TensorType> = inputs.iter().map(|&v| self.graph.value(v).ty.clone()).collect();
        let inferred = op.infer(&types).context(|| format!("node `{name}`"))?;
        if inferred.len() != outputs.len() {
            let (have, want) = (outputs.len(), inferred.len());
            return Err(Error::invalid(format!(
                "node `{name}`: {} has {want} outputs, {have} named",
                op.name()
            )));
        }
        let node = NodeId(self.graph.nodes.len() as u32);
        let mut ids = Vec::new();
        for (i, (output, ty)) in outputs.iter().zip(inferred).enumerate() {
            ids.push(self.add(output.clone(), ty, Origin::Node { node, output: i as u32 })?);
        }
        self.graph.nodes.push(Node { name, op, inputs: inputs.to_vec(), outputs: ids.clone() });
        Ok(ids)
    }

    /// How much has been added, for [`Builder::rewind`].
    pub fn mark(&self) -> BuilderMark {
        BuilderMark { values: self.graph.values.len(), nodes: self.graph.nodes.len() }
    }

    /// Takes the values and nodes away that were added since, and gives the values' names. States and results stay: there must be
    /// none of what goes.
    pub fn rewind(&mut self, mark: BuilderMark) -> Vec<String> {
        self.graph.nodes.truncate(mark.nodes);
        let gone = self.graph.values.split_off(mark.values.min(self.graph.values.len()));
        let names: Vec<String> = gone.into_iter().map(|value| value.name).collect();
        names.iter().for_each(|name| {
            self.names.remove(name);
        });
        names
    }

    /// Names a result.
    pub fn output(&mut self, name: impl Into<String>, value: ValueId) {
        self.graph.outputs.push(Output { name: name.into(), value });
    }

    /// The type of a value added so far. Panics if the id is from another builder.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        &self.graph.value(value).ty
    }

    /// The name of a value added so far. Panics if the id is from another builder.
    pub fn name(&self, value: ValueId) -> &str {
        &self.graph.value(value).name
    }

    /// The finished graph. Fails with all errors the verifier finds.
    pub fn finish(self) -> Result<Graph> {
        if let Some(i) = self.open_states.iter().position(|&open| open) {
            return Err(Error::invalid(format!(
                "state `{}` has no value after the run",
                self.graph.states[i].name
            )));
        }
        verify::check(&self.graph)?;
        Ok(self.graph)
    }

    fn add(&mut self, name: String, ty: TensorType, origin: Origin) -> Result<ValueId> {
        let id = ValueId(self.graph.values.len() as u32);
        if self.names.insert(name.clone(), id).is_some() {
            return Err(Error::invalid(format!("two values are named `{name}`")));
        }
        self.graph.values.push(Value { name, ty, origin });
        Ok(id)
    }
}
