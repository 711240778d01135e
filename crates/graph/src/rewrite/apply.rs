//! Applying a patch: the order of the new graph's nodes, and the graph itself.
//!
//! The order is a topological sort (Kahn, "Topological sorting of large networks", 1962) that keeps the old order where it can.
//! So a patched graph reads as the old one does, and the same patch always gives the same graph.

use super::patch::{Edit, Patch, ValueSource};
use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, NodeId, Origin, ValueId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

impl Patch<'_> {
    /// The patched graph, verified, and what each edit did.
    ///
    /// Fails if a removed value is still used, or if the new nodes need each other in a circle.
    pub fn apply(self) -> Result<(Graph, Vec<Edit>)> {
        self.check_removed()?;
        let order = order(&self)?;
        let graph = Rebuild::new(&self)?.run(&order)?;
        Ok((graph, self.edits))
    }
}

/// A node of the patched graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum PatchedNode {
    /// A node that stays, by its index.
    Old(u32),
    /// A node of the patch, by its index there.
    New(usize),
}

/// Inputs of an item as its users find them.
fn sources(patch: &Patch<'_>, item: PatchedNode) -> Result<Vec<ValueSource>> {
    match item {
        PatchedNode::Old(i) => {
            let inputs = &patch.graph.nodes()[i as usize].inputs;
            inputs.iter().map(|&v| patch.resolve(patch.tap(v))).collect()
        }
        PatchedNode::New(j) => patch.nodes[j].inputs.iter().map(|&w| patch.resolve(w)).collect(),
    }
}

/// The node that gives a value; `None` for inputs, weights and states.
fn producer(patch: &Patch<'_>, source: ValueSource) -> Option<PatchedNode> {
    match source {
        ValueSource::New { node, .. } => Some(PatchedNode::New(node)),
        ValueSource::Old(v) => match patch.graph.value(v).origin {
            Origin::Node { node, .. } => Some(PatchedNode::Old(node.0)),
            _ => None,
        },
    }
}

/// Kept and new nodes so that each comes after what it uses, else in the old order.
fn order(patch: &Patch<'_>) -> Result<Vec<PatchedNode>> {
    let old =
        (0..patch.graph.nodes().len() as u32).filter(|&i| !patch.removes(NodeId(i))).map(PatchedNode::Old);
    let items: Vec<PatchedNode> = old.chain((0..patch.nodes.len()).map(PatchedNode::New)).collect();
    let mut users: HashMap<PatchedNode, Vec<PatchedNode>> = HashMap::new();
    // How many values each node still waits for.
    let mut waits: HashMap<PatchedNode, usize> = HashMap::new();
    for &item in &items {
        for source in sources(patch, item)? {
            if let Some(from) = producer(patch, source) {
                users.entry(from).or_default().push(item);
                *waits.entry(item).or_default() += 1;
            }
        }
    }
    // A new node stands behind the old one in whose place it is.
    let key = |item: PatchedNode| match item {
        PatchedNode::Old(i) => (i, 0),
        PatchedNode::New(j) => (patch.nodes[j].after, j + 1),
    };
    // Nodes that read leaves alone.
    let free = items.iter().filter(|i| !waits.contains_key(i));
    let mut ready: BinaryHeap<_> = free.map(|&i| Reverse((key(i), i))).collect();
    let mut order = Vec::with_capacity(items.len());
    while let Some(Reverse((_, item))) = ready.pop() {
        order.push(item);
        for &user in users.get(&item).into_iter().flatten() {
            let count = waits.entry(user).or_default();
            *count -= 1;
            if *count == 0 {
                ready.push(Reverse((key(user), user)));
            }
        }
    }
    // Nodes of a circle never become ready.
    if order.len() == items.len() {
        Ok(order)
    } else {
        Err(Error::bug("the new nodes need each other in a circle"))
    }
}

/// Builds the patched graph: nodes in their new order; inputs, weights and states in their old order, each where it was.
struct Rebuild<'p, 'g> {
    /// What is applied.
    patch: &'p Patch<'g>,
    /// The new graph so far.
    builder: Builder,
    /// Inputs, weights and states of the old graph that are not added yet, in order.
    leaves: std::iter::Peekable<std::vec::IntoIter<ValueId>>,
    values: HashMap<ValueSource, ValueId>,
}

impl<'p, 'g> Rebuild<'p, 'g> {
    /// Nothing yet. Values that the patch drops are left out.
    pub fn new(patch: &'p Patch<'g>) -> Result<Rebuild<'p, 'g>> {
        let graph = patch.graph;
        let leaf = |v: &ValueId| {
            !matches!(graph.value(*v).origin, Origin::Node { .. }) && !patch.dropped.contains(v)
        };
        let leaves: Vec<ValueId> = (0..graph.values().len() as u32).map(ValueId).filter(leaf).collect();
        let builder = Builder::new(graph.name());
        Ok(Rebuild { patch, builder, leaves: leaves.into_iter().peekable(), values: HashMap::new() })
    }

    /// The graph with nodes in this order.
    ///
    /// # Errors
    /// Of kind `Bug` if a node reads what has no value yet. As [`Builder::finish`] has them.
    pub fn run(mut self, order: &[PatchedNode]) -> Result<Graph> {
        let graph = self.patch.graph;
        for &item in order {
            self.item(item)?;
        }
        // Leaves behind the last node.
        self.leaves_to(ValueId(u32::MAX))?;
        for output in graph.outputs() {
            let value = self.find(self.patch.resolve(self.patch.tap(output.value))?)?;
            self.builder.output(&output.name, value);
        }
        for state in graph.states() {
            let input = self.find(ValueSource::Old(state.input))?;
            let output = self.find(self.patch.resolve(self.patch.tap(state.output))?)?;
            self.builder.set_state(input, output)?;
        }
        self.builder.finish()
    }

    /// Adds a node, and before it the leaves that stand before it in the old graph.
    fn item(&mut self, item: PatchedNode) -> Result<()> {
        let (graph, patch) = (self.patch.graph, self.patch);
        let place = match item {
            PatchedNode::Old(i) => i,
            PatchedNode::New(j) => patch.nodes[j].after,
        };
        if let Some(&before) = graph.nodes().get(place as usize).and_then(|n| n.outputs.first()) {
            self.leaves_to(before)?;
        }
        let mut inputs = Vec::new();
        for source in sources(patch, item)? {
            if let ValueSource::Old(v) = source {
                self.leaves_to(v)?;
            }
            inputs.push(self.find(source)?);
        }
        let (name, op, outputs): (_, _, Vec<(ValueSource, String)>) = match item {
            PatchedNode::Old(i) => {
                let node = &graph.nodes()[i as usize];
                let named = |&v: &ValueId| (ValueSource::Old(v), graph.value(v).name.clone());
                (&node.name, &node.op, node.outputs.iter().map(named).collect())
            }
            PatchedNode::New(j) => {
                let node = &patch.nodes[j];
                let source = |output| ValueSource::New { node: j, output };
                let named = node.outputs.iter().enumerate().map(|(k, o)| (source(k), o.name.clone()));
                (&node.name, &node.op, named.collect())
            }
        };
        let (sources, names): (Vec<ValueSource>, Vec<String>) = outputs.into_iter().unzip();
        let ids = self.builder.node_multi(name, op.clone(), &inputs, &names)?;
        self.values.extend(sources.into_iter().zip(ids));
        Ok(())
    }

    /// Adds inputs, weights and states up to this value of the old graph.
    fn leaves_to(&mut self, last: ValueId) -> Result<()> {
        while let Some(old) = self.leaves.next_if(|&v| v <= last) {
            let value = self.patch.graph.value(old);
            let (name, ty) = (&value.name, value.ty.clone());
            let new = match value.origin {
                Origin::Input => self.builder.input(name, ty)?,
                Origin::Weight => self.builder.weight(name, ty)?,
                Origin::State(_) => self.builder.state(name, ty)?,
                Origin::Node { .. } => return Err(Error::bug(format!("`{name}` is computed, not given"))),
            };
            self.values.insert(ValueSource::Old(old), new);
        }
        Ok(())
    }

    /// The value of the new graph.
    fn find(&self, source: ValueSource) -> Result<ValueId> {
        self.values.get(&source).copied().ok_or_else(|| Error::bug(format!("{source:?} has no value yet")))
    }
}
