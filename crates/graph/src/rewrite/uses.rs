//! Who uses each value of a graph: what the preconditions of rules ask.

use crate::graph::{Graph, NodeId, Origin, ValueId};

/// Users of every value.
pub struct Uses {
    users: Vec<Vec<NodeId>>,
    /// Whether the value is a result or what a state holds after the run.
    kept: Vec<bool>,
}

impl Uses {
    /// Counts the uses in a graph.
    pub fn of(graph: &Graph) -> Uses {
        let mut kept = vec![false; graph.values().len()];
        let results = graph.outputs().iter().map(|o| o.value);
        for value in results.chain(graph.states().iter().map(|s| s.output)) {
            kept[value.0 as usize] = true;
        }
        Uses { users: graph.users(), kept }
    }

    /// The nodes that use the value.
    pub fn users(&self, value: ValueId) -> &[NodeId] {
        &self.users[value.0 as usize]
    }

    /// Whether the value is a result or what a state holds after the run.
    pub fn kept(&self, value: ValueId) -> bool {
        self.kept[value.0 as usize]
    }

    /// Whether nothing but `node` uses the value.
    pub fn only(&self, value: ValueId, node: NodeId) -> bool {
        !self.kept(value) && self.users(value) == [node]
    }
}

/// The node that computes a value, if one does.
pub fn producer(graph: &Graph, value: ValueId) -> Option<NodeId> {
    match graph.value(value).origin {
        Origin::Node { node, .. } => Some(node),
        _ => None,
    }
}
