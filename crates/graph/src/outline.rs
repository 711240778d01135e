//! Cutting nodes out of a graph as the body of an operator: the inverse of putting a definition in its place.

use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, NodeId, Origin, ValueId};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Nodes of a graph as a graph of their own that names nothing of the one they come from, so that equal nodes of other
/// layers give an equal body.
#[derive(Clone, Debug)]
pub struct Outlined {
    /// Inputs `in0`, `in1`, …, nodes and values `v0`, `v1`, …, outputs `out0`, `out1`, ….
    pub body: Graph,
    /// The values of the graph that the body's inputs stand for.
    pub inputs: Vec<ValueId>,
    /// Those that its outputs stand for.
    pub outputs: Vec<ValueId>,
}

impl Graph {
    /// The subgraph of these nodes, in any order. What they use of other nodes, of weights, inputs and states, is an input;
    /// a value that any node outside of `inside` uses, or that is a result or a state's value after the run, is an output.
    ///
    /// `users` is what [`Graph::users`] gives. `inside` holds these nodes and may hold more: those that are replaced together
    /// with them. What is in `given` is no output: something else gives it. Fails on a node that the graph does not have, and
    /// if nothing of what the nodes compute is used.
    pub fn outline(
        &self,
        users: &[Vec<NodeId>],
        nodes: &[NodeId],
        inside: &HashSet<NodeId>,
        given: &HashSet<ValueId>,
    ) -> Result<Outlined> {
        let nodes: BTreeSet<NodeId> = nodes.iter().copied().collect();
        if let Some(bad) = nodes.iter().find(|n| n.0 as usize >= self.nodes().len()) {
            return Err(Error::invalid(format!("node {} is not in graph `{}`", bad.0, self.name())));
        }
        let mut b = Builder::new("body");
        let (mut ids, mut inputs) = (HashMap::new(), Vec::new());
        let computed = |value: ValueId| match self.value(value).origin {
            Origin::Node { node, .. } => nodes.contains(&node),
            _ => false,
        };
        for &value in nodes.iter().flat_map(|&id| &self.node(id).inputs) {
            // Inputs are numbered as the nodes first read them, so that equal nodes give equal bodies.
            if !computed(value) && !ids.contains_key(&value) {
                ids.insert(value, b.input(format!("in{}", inputs.len()), self.value(value).ty.clone())?);
                inputs.push(value);
            }
        }
        let mut count = 0;
        for &id in &nodes {
            let node = self.node(id);
            let taken: Option<Vec<ValueId>> =
                node.inputs.iter().map(|value| ids.get(value).copied()).collect();
            // Nodes are gone through by their ids, which are in topological order.
            let taken = taken.ok_or_else(|| Error::bug(format!("node `{}` uses a later one", node.name)))?;
            let names: Vec<String> = (count..).take(node.outputs.len()).map(|at| format!("v{at}")).collect();
            let named = names.first().cloned().unwrap_or_default();
            let made = b.node_multi(named, node.op.clone(), &taken, &names)?;
            count += made.len();
            ids.extend(node.outputs.iter().copied().zip(made));
        }
        let mut outputs: Vec<ValueId> = self.outgoing_values(users, &nodes, inside);
        // Of a value that two bodies compute one is enough.
        outputs.retain(|value| !given.contains(value));
        // A body without outputs would be dead, and so would the nodes be.
        if outputs.is_empty() {
            return Err(Error::invalid("nothing uses what these nodes compute"));
        }
        for (at, value) in outputs.iter().enumerate() {
            b.output(format!("out{at}"), ids[value]);
        }
        Ok(Outlined { body: b.finish()?, inputs, outputs })
    }

    /// What these nodes compute for others than `inside`.
    fn outgoing_values(
        &self,
        users: &[Vec<NodeId>],
        nodes: &BTreeSet<NodeId>,
        inside: &HashSet<NodeId>,
    ) -> Vec<ValueId> {
        let results = self.outputs().iter().map(|output| output.value);
        let kept: HashSet<ValueId> = results.chain(self.states().iter().map(|state| state.output)).collect();
        let is_used = |value: &ValueId| users[value.0 as usize].iter().any(|user| !inside.contains(user));
        let values = nodes.iter().flat_map(|&id| self.node(id).outputs.iter().copied());
        values.filter(|value| kept.contains(value) || is_used(value)).collect()
    }
}
