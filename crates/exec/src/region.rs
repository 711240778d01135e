//! Several nodes of a graph as one model, with values for what they are given.
//!
//! Values are named `v` and their id, which is unique in the graph. A region keeps the graph's order of
//! nodes.

use crate::Call;
use std::collections::{BTreeSet, HashMap};
use tapml_graph::op::{Foreign, Fused};
use tapml_graph::{Error, Graph, NodeId, Op, Origin, Result, Tensor, TensorType, ValueId};

/// Nodes that a platform runs as one model: what it fuses, lays out and plans when it sees them together is part of it. Values
/// that nothing outside reads are not seen.
#[derive(Clone, Debug)]
pub struct Region {
    /// For messages.
    pub name: String,
    /// In an order in which each uses only values that are given or made before.
    pub nodes: Vec<RegionNode>,
    /// What the nodes are given.
    pub inputs: Vec<RegionInput>,
    /// Names and types of the values that are read outside, or by nobody.
    pub outputs: Vec<(String, TensorType)>,
}

/// A node of a [`Region`]. An optional input or output that is not there has an empty name.
#[derive(Clone, Debug)]
pub struct RegionNode {
    /// Its name, for messages.
    pub name: String,
    /// The operator.
    pub op: Foreign,
    /// Names of its inputs at their places.
    pub inputs: Vec<String>,
    /// Names of its outputs at their places.
    pub outputs: Vec<String>,
}

/// A value that a [`Region`] is given.
#[derive(Clone, Debug)]
pub struct RegionInput {
    /// Its name.
    pub name: String,
    /// The value.
    pub tensor: Tensor,
    /// Whether it is the same in every run.
    pub constant: bool,
}

/// The name of a value within a region.
fn name(id: ValueId) -> String {
    format!("v{}", id.0)
}

impl Region {
    /// The values of a graph that a region of these nodes gives: those that other nodes read, results of the graph, and those
    /// that nobody reads.
    pub fn outputs_of(graph: &Graph, nodes: &BTreeSet<NodeId>) -> Vec<ValueId> {
        let made = nodes.iter().flat_map(|&id| graph.node(id).outputs.iter().copied());
        // Nobody reads it: it may still be wrong, so it is shown.
        let seen = |id: &ValueId| {
            let mut users =
                graph.nodes().iter().zip(0u32..).filter(|(node, _)| node.inputs.contains(id)).peekable();
            let unused = users.peek().is_none();
            unused
                || users.any(|(_, i)| !nodes.contains(&NodeId(i)))
                || graph.outputs().iter().any(|o| o.value == *id)
        };
        made.filter(seen).collect()
    }

    /// The region of these nodes of a graph; `value` gives weights, and values of a run.
    ///
    /// # Errors
    /// A node is none of an operator of others, or a value is not there.
    pub fn from_nodes(
        graph: &Graph,
        nodes: &BTreeSet<NodeId>,
        value: &dyn Fn(ValueId) -> Result<Tensor>,
    ) -> Result<Region> {
        let given = |id: ValueId| Ok((value(id)?, graph.value(id).origin == Origin::Weight));
        Region::build(graph, nodes, &given, Region::outputs_of(graph, nodes))
    }

    /// The region that a call of a fused operator stands for.
    ///
    /// # Errors
    /// A node of its body is none of an operator of others.
    pub fn of_call(call: &Call, fused: &Fused) -> Result<Region> {
        let body = fused.body();
        let places: HashMap<ValueId, usize> = body.inputs().map(|(id, _)| id).zip(0..).collect();
        let given = |id: ValueId| {
            let missing = || Error::bug("a call without an input of its body");
            let at = *places.get(&id).ok_or_else(missing)?;
            let constant = call.weights.get(at).is_some_and(Option::is_some);
            Ok((call.inputs.get(at).cloned().ok_or_else(missing)?, constant))
        };
        let nodes = (0u32..).take(body.nodes().len()).map(NodeId).collect();
        let results = body.outputs().iter().map(|output| output.value).collect();
        let region = Region::build(body, &nodes, &given, results)?;
        Ok(Region { name: call.node.clone(), ..region })
    }

    /// The region of these nodes that gives these values; `given` tells of other values what they are, and whether they are the
    /// same in every run.
    fn build(
        graph: &Graph,
        nodes: &BTreeSet<NodeId>,
        given: &dyn Fn(ValueId) -> Result<(Tensor, bool)>,
        results: Vec<ValueId>,
    ) -> Result<Region> {
        let made: BTreeSet<ValueId> =
            nodes.iter().flat_map(|&id| graph.node(id).outputs.iter().copied()).collect();
        let (mut inputs, mut known, mut own) = (Vec::new(), BTreeSet::new(), Vec::new());
        for &id in nodes {
            let node = graph.node(id);
            let Op::Foreign(op) = &node.op else {
                return Err(Error::unsupported(format!("`{}` is no operator of others", node.op.name())));
            };
            for &input in node.inputs.iter().filter(|id| !made.contains(id)) {
                // A value that several nodes read is given one time.
                if known.insert(input) {
                    let (tensor, constant) = given(input)?;
                    inputs.push(RegionInput { name: name(input), tensor, constant });
                }
            }
            let placed = op.place_inputs(node.inputs.iter().map(|&id| name(id))).into_iter();
            let mut outputs = node.outputs.iter().map(|&id| name(id));
            let output = |asked: bool| if asked { outputs.next().unwrap_or_default() } else { String::new() };
            own.push(RegionNode {
                name: node.name.clone(),
                op: op.clone(),
                inputs: placed.map(Option::unwrap_or_default).collect(),
                outputs: op.outputs().iter().map(|declared| declared.is_asked()).map(output).collect(),
            });
        }
        let outputs = results.into_iter().map(|id| (name(id), graph.value(id).ty.clone())).collect();
        let region =
            format!("{} nodes from {}", nodes.len(), own.first().map_or("", |node| node.name.as_str()));
        Ok(Region { name: region, nodes: own, inputs, outputs })
    }
}
