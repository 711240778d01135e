//! The only way to change a graph: a patch says which nodes go, which come and which values take whose place, and is
//! refused if anything would be left dangling or change its type.

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Origin, TensorType, ValueId};
use crate::op::Op;
use std::collections::{HashMap, HashSet};

/// A value that new nodes can use: one of the old graph, or the output of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wire(ValueSource);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ValueSource {
    /// A value of the old graph.
    Old(ValueId),
    /// An output of a node of the patch.
    New { node: usize, output: usize },
}

/// What one [`Patch::replace`] did, in names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Nodes and weights removed.
    pub before: Vec<String>,
    /// Nodes added.
    pub after: Vec<String>,
}

#[derive(Debug)]
pub(super) struct NewNode {
    pub name: String,
    pub op: Op,
    pub inputs: Vec<Wire>,
    pub outputs: Vec<NewValue>,
    /// Index of the old node behind which this one is placed if its inputs allow.
    pub after: u32,
}

#[derive(Debug)]
pub(super) struct NewValue {
    pub name: String,
    ty: TensorType,
    /// Whether the name is that of a replaced value.
    inherited: bool,
}

/// A set of edits to one graph, checked as it grows and applied at once. One edit is: [`replace`](Patch::replace) some
/// nodes, [`tap`](Patch::tap) the values that stay, [`wire`](Patch::wire) new nodes to them and
/// [`shunt`](Patch::shunt) each removed value that is still needed to its equal.
#[derive(Debug)]
pub struct Patch<'g> {
    pub(super) graph: &'g Graph,
    /// What each edit did.
    pub(super) edits: Vec<Edit>,
    /// Position of the last node of the current edit.
    place: u32,
    /// Nodes that go.
    removed: HashSet<NodeId>,
    /// Weights that go.
    pub(super) dropped: HashSet<ValueId>,
    /// Nodes that come.
    pub(super) nodes: Vec<NewNode>,
    /// What takes the place of removed values.
    shunts: HashMap<ValueId, Wire>,
}

impl<'g> Patch<'g> {
    /// A patch that changes nothing yet.
    pub fn new(graph: &'g Graph) -> Patch<'g> {
        Patch {
            graph,
            edits: Vec::new(),
            place: 0,
            removed: HashSet::new(),
            dropped: HashSet::new(),
            nodes: Vec::new(),
            shunts: HashMap::new(),
        }
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Whether this node is removed.
    pub fn removes(&self, node: NodeId) -> bool {
        self.removed.contains(&node)
    }

    /// Begins an edit that removes these nodes. Fails if one is removed already or is not in the graph.
    pub fn replace(&mut self, nodes: &[NodeId]) -> Result<()> {
        let mut edit = Edit::default();
        for &id in nodes {
            let node = self.graph.nodes().get(id.0 as usize);
            let node = node.ok_or_else(|| Error::bug(format!("the graph has no node {}", id.0)))?;
            if !self.removed.insert(id) {
                return Err(Error::bug(format!("node `{}` is replaced twice", node.name)));
            }
            edit.before.push(node.name.clone());
        }
        // New nodes stand where the last removed one stood, if their inputs allow.
        self.place = nodes.iter().map(|n| n.0).max().unwrap_or(0);
        self.edits.push(edit);
        Ok(())
    }

    /// Removes a weight as part of the current edit. Fails if the value is no weight.
    pub fn drop_weight(&mut self, weight: ValueId) -> Result<()> {
        let value = self.graph.value(weight);
        if value.origin != Origin::Weight || self.edits.is_empty() {
            return Err(Error::bug(format!("`{}` is no weight to drop in an edit", value.name)));
        }
        self.dropped.insert(weight);
        self.note(|edit| edit.before.push(value.name.clone()));
        Ok(())
    }

    /// A value of the old graph. If another edit replaces the value, its replacement is meant.
    pub fn tap(&self, value: ValueId) -> Wire {
        Wire(ValueSource::Old(value))
    }

    /// Adds a node to the current edit and infers its outputs. They are named as the node, or `name.0`, `name.1`, … if
    /// there are several, until a [`shunt`](Patch::shunt) gives them the name of what they replace.
    pub fn wire(&mut self, name: impl Into<String>, op: impl Into<Op>, inputs: &[Wire]) -> Result<Vec<Wire>> {
        let (name, op) = (name.into(), op.into());
        let inferred = inputs.iter().map(|&w| self.ty(w)).collect::<Result<Vec<_>>>();
        let types = inferred.and_then(|types| op.infer(&types));
        // Bad inputs here are the rule's mistake, not the user's.
        let types = types.map_err(|e| Error::bug(format!("new node `{name}`: {e}")))?;
        if self.edits.is_empty() {
            return Err(Error::bug(format!("new node `{name}` belongs to no edit")));
        }
        let node = self.nodes.len();
        let single = types.len() == 1;
        let named = |i| if single { name.clone() } else { format!("{name}.{i}") };
        let outputs: Vec<NewValue> = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| NewValue { name: named(i), ty, inherited: false })
            .collect();
        let wires = (0..outputs.len()).map(|output| Wire(ValueSource::New { node, output })).collect();
        self.note(|edit| edit.after.push(name.clone()));
        self.nodes.push(NewNode { name, op, inputs: inputs.to_vec(), outputs, after: self.place });
        Ok(wires)
    }

    /// Lets `new` take the place of `old` for every user, result and state, and its name if `new` is the output of a
    /// new node. Fails unless both have one type and the node of `old` is removed.
    pub fn shunt(&mut self, old: ValueId, new: Wire) -> Result<()> {
        let value = self.graph.value(old);
        let ty = self.ty(new)?;
        if ty != value.ty {
            return Err(Error::bug(format!("`{}` is {}, its replacement is {ty}", value.name, value.ty)));
        }
        if !matches!(value.origin, Origin::Node { node, .. } if self.removes(node)) {
            return Err(Error::bug(format!("`{}` is replaced, its node is not", value.name)));
        }
        if self.shunts.insert(old, new).is_some() {
            return Err(Error::bug(format!("`{}` is replaced twice", value.name)));
        }
        if let ValueSource::New { node, output } = new.0 {
            let target = &mut self.nodes[node].outputs[output];
            // One output may replace several values; it gets the name of the first.
            if !target.inherited {
                target.name.clone_from(&value.name);
                target.inherited = true;
            }
        }
        Ok(())
    }

    /// Changes what the current edit tells of itself.
    fn note(&mut self, change: impl FnOnce(&mut Edit)) {
        if let Some(edit) = self.edits.last_mut() {
            change(edit);
        }
    }

    /// The type of a wire.
    ///
    /// # Errors
    /// If it belongs to another patch.
    fn ty(&self, wire: Wire) -> Result<TensorType> {
        let ty = match wire.0 {
            ValueSource::Old(v) => self.graph.values().get(v.0 as usize).map(|v| &v.ty),
            ValueSource::New { node, output } => {
                self.nodes.get(node).and_then(|n| n.outputs.get(output)).map(|o| &o.ty)
            }
        };
        ty.cloned().ok_or_else(|| Error::bug("a wire of another patch"))
    }

    /// Where users of a wire find it once the patch is applied.
    pub(super) fn resolve(&self, mut wire: Wire) -> Result<ValueSource> {
        // A replacement may be replaced itself by another edit. More steps than shunts are a circle.
        for _ in 0..=self.shunts.len() {
            match wire.0 {
                ValueSource::Old(v) if self.shunts.contains_key(&v) => wire = self.shunts[&v],
                found => return Ok(found),
            }
        }
        Err(Error::bug("values are replaced by each other in a circle"))
    }

    /// Fails if a value that goes is still used by what stays.
    pub(super) fn check_removed(&self) -> Result<()> {
        let gone = |v: ValueId| {
            let by_node =
                matches!(self.graph.value(v).origin, Origin::Node { node, .. } if self.removes(node));
            self.dropped.contains(&v) || by_node
        };
        let check = |wire: Wire, user: &str| match self.resolve(wire)? {
            ValueSource::Old(v) if gone(v) => {
                let name = &self.graph.value(v).name;
                Err(Error::bug(format!("`{name}` is removed but still used by {user}")))
            }
            _ => Ok(()),
        };
        for (i, node) in self.graph.nodes().iter().enumerate() {
            if !self.removes(NodeId(i as u32)) {
                let user = format!("node `{}`", node.name);
                node.inputs.iter().try_for_each(|&v| check(self.tap(v), &user))?;
            }
        }
        for node in &self.nodes {
            let user = format!("new node `{}`", node.name);
            node.inputs.iter().try_for_each(|&w| check(w, &user))?;
        }
        for output in self.graph.outputs() {
            check(self.tap(output.value), &format!("output `{}`", output.name))?;
        }
        for state in self.graph.states() {
            check(self.tap(state.output), &format!("state `{}`", state.name))?;
        }
        Ok(())
    }
}
