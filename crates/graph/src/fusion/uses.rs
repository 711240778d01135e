//! What the rules of fusions ask of a graph: who uses a value, who computes it, and whether nodes can become one.

use crate::dim::{Dim, Symbol};
use crate::graph::{Graph, Node, NodeId, Origin, ValueId};
use crate::op::{Op, RmsNorm};
use std::collections::HashSet;

/// A graph with the users of its values.
pub struct Uses<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// The nodes that use each value, by its id.
    users: Vec<Vec<NodeId>>,
    /// Results and new states, which have to exist after the run.
    kept: HashSet<ValueId>,
}

/// A normalisation of the residual stream, and the addition in front of it.
#[derive(Clone, Copy, Debug)]
pub struct ResidualNorm {
    /// The node of the norm.
    pub id: NodeId,
    /// What it gives.
    pub y: ValueId,
    /// The node that adds two values of one type to what is normalised.
    pub add: Option<NodeId>,
}

impl<'g> Uses<'g> {
    /// Of this graph.
    pub fn from_graph(graph: &'g Graph) -> Uses<'g> {
        let results = graph.outputs().iter().map(|output| output.value);
        let kept = results.chain(graph.states().iter().map(|state| state.output)).collect();
        Uses { graph, users: graph.users(), kept }
    }

    /// The nodes with their ids, in order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &'g Node)> {
        (0u32..).map(NodeId).zip(self.graph.nodes())
    }

    /// The nodes that use a value.
    pub fn users(&self, value: ValueId) -> &[NodeId] {
        &self.users[value.0 as usize]
    }

    /// The nodes that use each value, by its id.
    pub fn all(&self) -> &[Vec<NodeId>] {
        &self.users
    }

    /// Whether the value is a result, or what a state holds after the run.
    pub fn is_kept(&self, value: ValueId) -> bool {
        self.kept.contains(&value)
    }

    /// The only user of a value that is not kept.
    pub fn only_user(&self, value: ValueId) -> Option<(NodeId, &'g Node)> {
        match self.users(value)[..] {
            [user] if !self.is_kept(value) => Some((user, self.graph.node(user))),
            _ => None,
        }
    }

    /// The node that computes a value which one other node alone uses; a state may keep the value.
    pub fn maker_for_one(&self, value: ValueId) -> Option<(NodeId, &'g Node)> {
        maker(self.graph, value).filter(|_| self.users(value).len() == 1)
    }

    /// Whether a value has as many rows as the run.
    pub fn has_rows_of_run(&self, value: ValueId) -> bool {
        self.graph.value(value).ty.shape.first() == Some(&Dim::symbol(Symbol::N))
    }

    /// Whether all of these are weights: what is there before anything runs.
    pub fn are_weights(&self, values: &[ValueId]) -> bool {
        values.iter().all(|&value| self.graph.value(value).origin == Origin::Weight)
    }

    /// Whether a node multiplies rows by a weight: a projection, plain or with a gate.
    pub fn is_product(&self, node: &Node) -> bool {
        let product = matches!(node.op, Op::Linear(_) | Op::GatedLinear(_));
        product && self.are_weights(&node.inputs[1..])
    }

    /// Whether a node is a projection by one weight.
    pub fn is_linear(&self, node: &Node) -> bool {
        self.is_product(node) && matches!(node.op, Op::Linear(_))
    }

    /// Whether a node takes a value as its first input, and nowhere else.
    pub fn takes_first(&self, node: &Node, value: ValueId) -> bool {
        node.inputs.first() == Some(&value) && node.inputs.iter().filter(|&&v| v == value).count() == 1
    }

    /// The norm that a node is, if it normalises whole rows of the run by a weight.
    pub fn norm(&self, (id, node): (NodeId, &Node)) -> Option<ResidualNorm> {
        // A norm of groups normalises parts of a row.
        let Op::RmsNorm(RmsNorm { group: None, .. }) = node.op else { return None };
        let [x, weight] = node.inputs[..] else { return None };
        if !self.has_rows_of_run(x) || !self.are_weights(&[weight]) {
            return None;
        }
        let add = maker(self.graph, x).filter(|(_, node)| self.is_whole_add(node)).map(|(id, _)| id);
        Some(ResidualNorm { id, y: node.outputs[0], add })
    }

    /// Whether a node adds two different values of one type.
    pub fn is_whole_add(&self, node: &Node) -> bool {
        let ty = |at: usize| node.inputs.get(at).map(|&value| &self.graph.value(value).ty);
        matches!(node.op, Op::Add(_)) && ty(0) == ty(1) && node.inputs.first() != node.inputs.get(1)
    }

    /// Whether the nodes can become one: nothing that they need is computed from what they compute.
    pub fn is_convex(&self, inside: &HashSet<NodeId>) -> bool {
        // Nodes stand in topological order, so that a path between two of them lies between their ids.
        let Some(first) = inside.iter().min() else { return true };
        let last = inside.iter().max().unwrap_or(first);
        let mut behind: HashSet<ValueId> = HashSet::new();
        for at in first.0..=last.0 {
            let (id, node) = (NodeId(at), self.graph.node(NodeId(at)));
            let follows = node.inputs.iter().any(|value| behind.contains(value));
            let own = inside.contains(&id);
            if own && follows {
                return false;
            }
            let from_inside =
                |value: &ValueId| maker(self.graph, *value).is_some_and(|(maker, _)| inside.contains(&maker));
            if !own && (follows || node.inputs.iter().any(from_inside)) {
                behind.extend(&node.outputs);
            }
        }
        true
    }
}

/// The node that computes a value.
pub fn maker(graph: &Graph, value: ValueId) -> Option<(NodeId, &Node)> {
    match graph.value(value).origin {
        Origin::Node { node, .. } => Some((node, graph.node(node))),
        _ => None,
    }
}
