//! Attention whose keys and values are made of cached rows, row by row, as latent attention makes them.
//!
//! Pages hold what attention reads. So keys and values are made of the new rows alone, one time for each position, and what the
//! caches of the graph hold is not kept beside them. A page is as large as the keys and values of all heads.

use crate::error::{Error, Result};
use crate::graph::{Builder, Graph, Node, NodeId, Origin, TensorType, ValueId};
use crate::op::{Op, PagedAppend};
use std::collections::{HashMap, HashSet};

/// The keys and values that pages hold in the places of a graph's caches.
#[derive(Default)]
pub(super) struct ProjectedRows {
    /// The nodes that append to caches of which nothing is kept.
    appends: HashSet<NodeId>,
    /// The states that are such caches.
    states: HashSet<ValueId>,
    /// Keys and values that are made of them, in the graph's order.
    kept: Vec<ValueId>,
    /// The state that holds each of these in the new graph.
    pages: HashMap<ValueId, ValueId>,
    /// That state behind the step's rows, once they are written.
    written: HashMap<ValueId, ValueId>,
}

impl ProjectedRows {
    /// Those of a graph. None where a cache, or what is made of one, is read by other nodes, too.
    pub fn from_graph(graph: &Graph) -> ProjectedRows {
        let mut found = ProjectedRows::default();
        let mut makers = HashSet::new();
        let attentions = graph.nodes().iter().filter(|node| matches!(node.op, Op::Attention(_)));
        for &value in attentions.flat_map(|node| node.inputs.iter().skip(1).take(2)) {
            if found.kept.contains(&value) {
                continue;
            }
            // A cache that attention reads as it is stays one, and an encoder's keys are made of no cache.
            let chain = trace(graph, value).filter(|chain| !chain.is_empty() && !is_append(graph, value));
            if let Some(chain) = chain {
                makers.extend(chain);
                found.kept.push(value);
            }
        }
        let users = graph.users();
        // What else reads a cache would find nothing in it.
        let reads_pages = |user: &NodeId| matches!(graph.node(*user).op, Op::Attention(_));
        let is_apart = |&value: &ValueId| {
            let cache = is_append(graph, value);
            let mut users = users[value.0 as usize].iter();
            users.all(|user| makers.contains(user) || !cache && reads_pages(user))
        };
        if !makers.iter().flat_map(|&id| &graph.node(id).outputs).all(is_apart) {
            return ProjectedRows::default();
        }
        found.appends = makers.into_iter().filter(|&id| matches!(graph.node(id).op, Op::Append(_))).collect();
        found.states = found.appends.iter().map(|&id| graph.node(id).inputs[0]).collect();
        found
    }

    /// Whether attention reads this value from pages that hold it.
    pub fn holds(&self, value: ValueId) -> bool {
        self.kept.contains(&value)
    }

    /// Whether a state is one of which nothing is kept.
    pub fn replaces(&self, state: ValueId) -> bool {
        self.states.contains(&state)
    }

    /// Whether a node appends to a cache of which nothing is kept: what it gives is the new rows alone.
    pub fn passes_rows(&self, node: NodeId) -> bool {
        self.appends.contains(&node)
    }

    /// Adds the states that hold keys and values, of so many rows.
    pub fn add_states(&mut self, graph: &Graph, builder: &mut Builder, rows: u64) -> Result<()> {
        for &id in &self.kept {
            let value = graph.value(id);
            let [_, width] = value.ty.shape.as_slice() else {
                return Err(Error::bug(format!("`{}` has no rows", value.name)));
            };
            let ty = TensorType { dtype: value.ty.dtype, shape: vec![rows.into(), width.clone()] };
            self.pages.insert(id, builder.state(format!("{}_pages", value.name), ty)?);
        }
        Ok(())
    }

    /// The pages of a key or value behind the step's rows, which are written to these slots.
    pub fn write(
        &mut self,
        (graph, builder): (&Graph, &mut Builder),
        id: ValueId,
        [rows, slots]: [ValueId; 2],
    ) -> Result<ValueId> {
        if let Some(&written) = self.written.get(&id) {
            return Ok(written);
        }
        let name = &graph.value(id).name;
        let pages = self.pages.get(&id).ok_or_else(|| Error::bug(format!("`{name}` has no pages")))?;
        let written = builder.node(format!("{name}_cache"), PagedAppend {}, &[*pages, rows, slots])?;
        builder.set_state(*pages, written)?;
        self.written.insert(id, written);
        Ok(written)
    }
}

/// The nodes that make a value of appended caches, row by row; `None` if it is made of anything else that has rows.
fn trace(graph: &Graph, value: ValueId) -> Option<Vec<NodeId>> {
    let mut chain = Vec::new();
    let mut values = vec![value];
    while let Some(value) = values.pop() {
        let value = graph.value(value);
        if value.ty.shape.iter().all(|size| size.as_const().is_some()) {
            continue;
        }
        let Origin::Node { node: id, .. } = value.origin else { return None };
        if chain.contains(&id) {
            continue;
        }
        chain.push(id);
        let node = graph.node(id);
        if appends_to_state(graph, node) {
            continue;
        }
        if !node.op.row_wise() {
            return None;
        }
        values.extend(&node.inputs);
    }
    Some(chain)
}

/// Whether a node appends rows to a state.
pub(super) fn appends_to_state(graph: &Graph, node: &Node) -> bool {
    let is_state = |value: &ValueId| matches!(graph.value(*value).origin, Origin::State(_));
    matches!(node.op, Op::Append(_)) && node.inputs.first().is_some_and(is_state)
}

/// Whether a value is a cache behind the step's rows.
fn is_append(graph: &Graph, value: ValueId) -> bool {
    match graph.value(value).origin {
        Origin::Node { node, .. } => appends_to_state(graph, graph.node(node)),
        _ => false,
    }
}
