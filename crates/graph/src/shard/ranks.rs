//! Which rank of a sharded graph computes which node, read off the graph itself.

use crate::error::Result;
use crate::graph::{Graph, NodeId, Origin, ValueId};
use crate::op::Op;
use std::collections::HashSet;

impl Op {
    /// How many ranks meet at this operator; `None` if it is of one rank alone.
    pub fn meeting_ranks(&self) -> Option<u32> {
        match self {
            Op::AllReduce(op) => Some(op.ranks),
            Op::AllGather(op) => Some(op.ranks),
            _ => None,
        }
    }
}

/// Whose results are made of a node's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Serves {
    /// Nobody's yet.
    None,
    Rank(u32),
    All,
}

impl Serves {
    fn join(self, other: Serves) -> Serves {
        match (self, other) {
            (Serves::None, one) | (one, Serves::None) => one,
            (one, other) if one == other => one,
            _ => Serves::All,
        }
    }
}

impl Graph {
    /// The number of ranks that a graph is shared out among, the most that meet at one node; `None` if none do.
    pub fn ranks(&self) -> Option<u32> {
        self.nodes().iter().filter_map(|node| node.op.meeting_ranks()).max()
    }

    /// For each node the rank that computes it alone: its results reach others only through that rank's input of a node at
    /// which ranks meet. `None` for a node that every rank computes for itself, and for those at which they meet.
    pub fn node_ranks(&self) -> Vec<Option<u32>> {
        let mut serves = vec![Serves::None; self.values().len()];
        for output in self.outputs() {
            serves[output.value.0 as usize] = Serves::All;
        }
        let mut ranks = vec![None; self.nodes().len()];
        // From the end, so that users are known before what they use.
        for (index, node) in self.nodes().iter().enumerate().rev() {
            let meets = node.op.meeting_ranks().is_some();
            let own = node.outputs.iter().map(|id| serves[id.0 as usize]).fold(Serves::None, Serves::join);
            if let (Serves::Rank(rank), false) = (own, meets) {
                ranks[index] = Some(rank);
            }
            for (at, input) in node.inputs.iter().enumerate() {
                let by_user = match own {
                    _ if meets => Serves::Rank(at as u32),
                    // What only a state keeps is kept by all.
                    Serves::None => Serves::All,
                    own => own,
                };
                let known = &mut serves[input.0 as usize];
                *known = known.join(by_user);
            }
        }
        ranks
    }

    /// These nodes of one rank as a graph of its own, as [`Graph::extract`] makes it, without outputs that other ranks alone
    /// would read.
    ///
    /// # Errors
    /// As [`Graph::extract`].
    pub fn extract_rank(&self, nodes: &[NodeId], rank: u32) -> Result<Graph> {
        let mut graph = self.extract(nodes)?;
        let (inside, ranks): (HashSet<NodeId>, _) = (nodes.iter().copied().collect(), self.node_ranks());
        let mut wanted: HashSet<ValueId> = self.outputs().iter().map(|output| output.value).collect();
        wanted.extend(self.states().iter().map(|state| state.output));
        for (id, node) in (0..).map(NodeId).zip(self.nodes()).filter(|(id, _)| !inside.contains(id)) {
            let other = ranks[id.0 as usize].is_some_and(|of| of != rank);
            let meets = node.op.meeting_ranks().is_some();
            let read =
                node.inputs.iter().enumerate().filter(|(at, _)| !other && (!meets || *at as u32 == rank));
            wanted.extend(read.map(|(_, input)| *input));
        }
        let names: HashSet<&str> = wanted.into_iter().map(|id| self.value(id).name.as_str()).collect();
        let mine = |id: ValueId| match self.value(id).origin {
            Origin::Node { node, .. } => inside.contains(&node),
            _ => false,
        };
        debug_assert!(graph.outputs.iter().all(|output| self.find_value(&output.name).is_some_and(mine)));
        graph.outputs.retain(|output| names.contains(output.name.as_str()));
        Ok(graph)
    }
}
