//! Cutting a set of nodes out of a graph as a graph of its own.
//!
//! It makes small cases of large models: a layer, or the nodes around one that fails.

use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, NodeId, Origin, State, ValueId};
use std::collections::{BTreeSet, HashMap, HashSet};

impl Graph {
    /// The subgraph of these nodes, in any order, as a graph of its own that keeps the names of nodes and values.
    ///
    /// * Values computed outside become inputs; inputs and weights that the nodes use stay what they are.
    /// * A state stays a state if the node that computes its value after the run is in the set, and so are all nodes that
    ///   use its value before the run. Otherwise its value before the run becomes an input and its value after it an output.
    /// * Values used outside, by nodes, results or states, become outputs named as the values.
    ///
    /// Fails if the set is empty or names a node that does not exist.
    pub fn extract(&self, nodes: &[NodeId]) -> Result<Graph> {
        let inside: BTreeSet<NodeId> = nodes.iter().copied().collect();
        if let Some(bad) = inside.iter().find(|n| n.0 as usize >= self.nodes().len()) {
            let count = self.nodes().len();
            return Err(Error::invalid(format!(
                "node {} is not in graph `{}`, which has {count}",
                bad.0,
                self.name()
            )));
        }
        if inside.is_empty() {
            return Err(Error::invalid("cannot extract a graph of no nodes"));
        }
        Extract::new(self, inside).run()
    }
}

struct Extract<'g> {
    /// The whole graph.
    graph: &'g Graph,
    /// The nodes of the subgraph.
    inside: BTreeSet<NodeId>,
    /// The nodes that use each value of the whole graph.
    users: Vec<Vec<NodeId>>,
    /// Values that results of the graph name.
    results: HashSet<ValueId>,
    /// Values that states hold after the run.
    after: HashSet<ValueId>,
}

impl<'g> Extract<'g> {
    /// From a set of nodes that exist.
    fn new(graph: &'g Graph, inside: BTreeSet<NodeId>) -> Extract<'g> {
        let results = graph.outputs().iter().map(|o| o.value).collect();
        let after = graph.states().iter().map(|s| s.output).collect();
        Extract { graph, inside, users: graph.users(), results, after }
    }

    /// Whether a node of the subgraph gives a value.
    fn computes(&self, value: ValueId) -> bool {
        matches!(self.graph.value(value).origin, Origin::Node { node, .. } if self.inside.contains(&node))
    }

    /// Whether some node inside, or outside, uses a value.
    fn used_by(&self, value: ValueId, inside: bool) -> bool {
        self.users[value.0 as usize].iter().any(|n| self.inside.contains(n) == inside)
    }

    /// Whether a state stays one: nobody outside sees its value before the run.
    fn keeps(&self, state: &State) -> bool {
        let before = state.input;
        self.computes(state.output)
            && !self.used_by(before, false)
            && !self.results.contains(&before)
            && !self.after.contains(&before)
    }

    /// The subgraph, with its values in the old order.
    fn run(self) -> Result<Graph> {
        let graph = self.graph;
        // A state of which a part lies outside cannot be one here.
        let (kept, cut): (Vec<&State>, Vec<&State>) = graph.states().iter().partition(|s| self.keeps(s));
        let starts: HashSet<ValueId> = kept.iter().map(|s| s.input).collect();
        let ends: HashSet<ValueId> = cut.iter().map(|s| s.output).collect();
        let mut builder = Builder::new(graph.name());
        let mut ids: HashMap<ValueId, ValueId> = HashMap::new();
        for (i, value) in graph.values().iter().enumerate() {
            let old = ValueId(i as u32);
            if self.computes(old) {
                // All outputs of a node are added with the first.
                if let Origin::Node { node, output: 0 } = value.origin {
                    self.add_node(node, &mut builder, &mut ids)?;
                }
                continue;
            }
            // Values that no node inside reads are left out.
            if !self.used_by(old, true) && !starts.contains(&old) {
                continue;
            }
            let ty = value.ty.clone();
            let new = match value.origin {
                Origin::Weight => builder.weight(&value.name, ty)?,
                Origin::State(_) if starts.contains(&old) => builder.state(&value.name, ty)?,
                // What is computed outside, and states that are cut, are given from outside.
                _ => builder.input(&value.name, ty)?,
            };
            ids.insert(old, new);
        }
        for state in &kept {
            builder.set_state(ids[&state.input], ids[&state.output])?;
        }
        for (i, value) in graph.values().iter().enumerate() {
            let old = ValueId(i as u32);
            let outside = self.used_by(old, false) || self.results.contains(&old) || ends.contains(&old);
            if self.computes(old) && outside {
                builder.output(&value.name, ids[&old]);
            }
        }
        builder.finish()
    }

    /// Adds a node, whose inputs are added already.
    fn add_node(&self, id: NodeId, builder: &mut Builder, ids: &mut HashMap<ValueId, ValueId>) -> Result<()> {
        let node = self.graph.node(id);
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| ids[v]).collect();
        let names: Vec<String> = node.outputs.iter().map(|&v| self.graph.value(v).name.clone()).collect();
        let outputs = builder.node_multi(&node.name, node.op.clone(), &inputs, &names)?;
        ids.extend(node.outputs.iter().copied().zip(outputs));
        Ok(())
    }
}
