//! Which rank of a sharded graph computes which node, read off the graph itself.

use crate::dtype::DType;
use crate::error::{Context, Error, Result};
use crate::graph::{Builder, Graph, Node, NodeId, Origin, TensorType, ValueId};
use crate::op::{AllGather, AllReduce, Op};
use std::collections::{HashMap, HashSet};

/// Name of the memory in which ranks meet, before its rank.
pub const MEETING: &str = "meeting@";

impl Op {
    /// How many ranks meet at this operator; `None` if it is of one rank alone.
    pub fn meeting_ranks(&self) -> Option<u32> {
        match self {
            Op::AllReduce(AllReduce { ranks, rank: None }) => Some(*ranks),
            Op::AllGather(AllGather { ranks, rank: None }) => Some(*ranks),
            _ => None,
        }
    }

    /// This operator, at which ranks meet, as it stands in the graph of one rank; `None` if none meet.
    pub fn for_rank(&self, rank: u32) -> Option<Op> {
        match self {
            Op::AllReduce(AllReduce { ranks, rank: None }) => {
                Some(AllReduce { ranks: *ranks, rank: Some(rank) }.into())
            }
            Op::AllGather(AllGather { ranks, rank: None }) => {
                Some(AllGather { ranks: *ranks, rank: Some(rank) }.into())
            }
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

    /// All that one rank computes, as a graph of its own. Where ranks meet it takes its own part and the memory of all ranks in
    /// which they meet, of so many words: the weights `meeting@0`, `meeting@1`, …, which no checkpoint has. Inputs that only
    /// others read are left out.
    ///
    /// # Errors
    /// If there is no such rank, or an output or a state is another rank's.
    pub fn rank_graph(&self, rank: u32, words: u64) -> Result<Graph> {
        let ranks = self.ranks().filter(|&ranks| rank < ranks).ok_or_else(|| {
            Error::invalid(format!("graph `{}` is not shared out to a rank {rank}", self.name()))
        })?;
        let owners = self.node_ranks();
        let mine = |id: NodeId| owners[id.0 as usize].is_none_or(|owner| owner == rank);
        let mut own = RankGraph { graph: self, builder: Builder::new(self.name()), known: HashMap::new() };
        for (_, node) in (0..).map(NodeId).zip(self.nodes()).filter(|(id, _)| mine(*id)) {
            own.node(node, (rank, ranks), words).context(|| format!("node `{}`", node.name))?;
        }
        for output in self.outputs() {
            let value = own.value(output.value)?;
            own.builder.output(&output.name, value);
        }
        for state in self.states() {
            if let (Some(&before), Some(&after)) = (own.known.get(&state.input), own.known.get(&state.output))
            {
                own.builder.set_state(before, after)?;
            }
        }
        own.builder.finish()
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

/// The graph of one rank under construction.
struct RankGraph<'a> {
    graph: &'a Graph,
    builder: Builder,
    /// What stands for a value.
    known: HashMap<ValueId, ValueId>,
}

impl RankGraph<'_> {
    /// A value that the rank uses.
    fn value(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(&known) = self.known.get(&id) {
            return Ok(known);
        }
        let value = self.graph.value(id);
        let made = match value.origin {
            Origin::Input => self.builder.input(&value.name, value.ty.clone())?,
            Origin::State(_) => self.builder.state(&value.name, value.ty.clone())?,
            Origin::Weight => self.builder.weight(&value.name, value.ty.clone())?,
            Origin::Node { .. } => {
                return Err(Error::invalid(format!("`{}` is another rank's", value.name)));
            }
        };
        self.known.insert(id, made);
        Ok(made)
    }

    /// A node of the rank, or one at which ranks meet.
    fn node(&mut self, node: &Node, (rank, ranks): (u32, u32), words: u64) -> Result<()> {
        let (mut op, mut inputs) = (node.op.clone(), Vec::new());
        if let Some(met) = node.op.for_rank(rank) {
            op = met;
            inputs.push(self.value(node.inputs[rank as usize])?);
            let ty = TensorType::new(DType::U32, [words]);
            for other in 0..ranks {
                inputs.push(self.builder.weight(format!("{MEETING}{other}"), ty.clone())?);
            }
        } else {
            for &input in &node.inputs {
                inputs.push(self.value(input)?);
            }
        }
        let names: Vec<String> = node.outputs.iter().map(|&id| self.graph.value(id).name.clone()).collect();
        let outputs = self.builder.node_multi(&node.name, op, &inputs, &names)?;
        self.known.extend(node.outputs.iter().copied().zip(outputs));
        Ok(())
    }
}
