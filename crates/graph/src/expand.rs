//! The inverse of fusing: fused operators replaced by the small graphs that define them.
//!
//! So whoever knows the plain operators alone can run any graph, such as a reference or an exporter.

use crate::error::{Context, Error, Result};
use crate::graph::{Graph, NodeId, ValueId};
use crate::rewrite::{Patch, Wire};
use std::collections::{HashMap, HashSet};

/// Definitions of definitions of …: no operator needs more levels.
const MAX_LEVELS: usize = 8;

impl Graph {
    /// The graph with every fused operator replaced by its definition, down to operators without one. Values keep their
    /// names; a node inside a definition is named as the value it gives, or behind the fused node's name.
    pub fn inline_definitions(&self) -> Result<Graph> {
        let mut graph = self.clone();
        // A definition may hold fused operators itself.
        for _ in 0..MAX_LEVELS {
            let all: Vec<NodeId> = (0..graph.nodes().len() as u32).map(NodeId).collect();
            match graph.expand(&all)? {
                None => return Ok(graph),
                Some(expanded) => graph = expanded,
            }
        }
        Err(Error::bug(format!("definitions are nested deeper than {MAX_LEVELS} levels")))
    }

    /// The graph with these nodes replaced by their definitions, by one level. `None` if none of them has one.
    pub fn expand(&self, nodes: &[NodeId]) -> Result<Option<Graph>> {
        let mut patch = Patch::new(self);
        let mut names = TakenNames::from_graph(self);
        for &id in nodes {
            let node = self.nodes().get(id.0 as usize);
            let node = node
                .ok_or_else(|| Error::invalid(format!("node {} is not in graph `{}`", id.0, self.name())))?;
            if let Some(definition) = node.op.definition(&self.input_types(node)) {
                let done = definition.and_then(|d| expand_one(self, id, &d, &mut patch, &mut names));
                done.context(|| format!("definition of node `{}`", node.name))?;
            }
        }
        if patch.is_empty() { Ok(None) } else { Ok(Some(patch.apply()?.0)) }
    }
}

/// Puts a definition in the place of a node: its inputs are the node's, its outputs take the place of the node's.
///
/// # Errors
/// Of kind `Bug` if the definition does not fit the operator.
fn expand_one(
    graph: &Graph,
    id: NodeId,
    definition: &Graph,
    patch: &mut Patch<'_>,
    names: &mut TakenNames,
) -> Result<()> {
    let node = graph.node(id);
    patch.replace(&[id])?;
    // The node goes, so that one of its parts may take its name.
    names.nodes.remove(&node.name);
    let mut wires: HashMap<ValueId, Wire> =
        definition.inputs().map(|(v, _)| v).zip(node.inputs.iter().map(|&v| patch.tap(v))).collect();
    for inner in definition.nodes() {
        let missing = || Error::bug(format!("`{}` uses a weight or a state", inner.name));
        let inputs = inner.inputs.iter().map(|v| wires.get(v).copied().ok_or_else(missing));
        let inputs = inputs.collect::<Result<Vec<Wire>>>()?;
        let gives = |v: &ValueId| definition.outputs().iter().position(|o| o.value == *v);
        // Whoever looks for a value by its name finds the node that gives it.
        let replaced = inner.outputs.first().and_then(gives).and_then(|i| node.outputs.get(i));
        let name = match replaced {
            Some(&value) => names.fresh_node(&graph.value(value).name),
            None => names.fresh(&format!("{}.{}", node.name, inner.name)),
        };
        let outputs = patch.wire(name, inner.op.clone(), &inputs)?;
        wires.extend(inner.outputs.iter().copied().zip(outputs));
    }
    // Both lists are walked together below.
    if definition.outputs().len() != node.outputs.len() {
        let (found, expected) = (definition.outputs().len(), node.outputs.len());
        return Err(Error::bug(format!("expected {expected} outputs, found {found}")));
    }
    for (output, &old) in definition.outputs().iter().zip(&node.outputs) {
        let wire = wires.get(&output.value).copied();
        let wire = wire.ok_or_else(|| Error::bug(format!("output `{}` is not computed", output.name)))?;
        patch.shunt(old, wire)?;
    }
    Ok(())
}

/// Names that are taken, of nodes and of values.
struct TakenNames {
    /// Names of nodes.
    nodes: HashSet<String>,
    /// Names of values.
    values: HashSet<String>,
}

impl TakenNames {
    /// All names of a graph.
    fn from_graph(graph: &Graph) -> TakenNames {
        TakenNames {
            nodes: graph.nodes().iter().map(|n| n.name.clone()).collect(),
            values: graph.values().iter().map(|v| v.name.clone()).collect(),
        }
    }

    /// A name for a node whose outputs are named otherwise.
    fn fresh_node(&mut self, wanted: &str) -> String {
        let name = find_free_name(wanted, |n| !self.nodes.contains(n));
        self.nodes.insert(name.clone());
        name
    }

    /// A name for a node and its outputs.
    fn fresh(&mut self, wanted: &str) -> String {
        let free = |n: &str| !self.nodes.contains(n) && !self.values.contains(n);
        let name = find_free_name(wanted, free);
        self.nodes.insert(name.clone());
        self.values.insert(name.clone());
        name
    }
}

/// `wanted`, or `wanted.2`, `wanted.3`, …: the first that is free.
fn find_free_name(wanted: &str, free: impl Fn(&str) -> bool) -> String {
    if free(wanted) {
        return wanted.to_string();
    }
    (2u64..).map(|i| format!("{wanted}.{i}")).find(|n| free(n)).unwrap_or_else(|| wanted.to_string())
}
