//! The recorder hook: sees every node of a run with its inputs and outputs.
//!
//! Recording works through this hook alone; platforms know nothing of suites.

use std::borrow::Cow;
use tapml_graph::{Error, Graph, Node, NodeId, Result, Symbols, Tensor, byte_len};

/// One node that has just run. Tensors share their bytes with the run: keeping one copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct NodeEvent<'a> {
    /// The graph that runs.
    pub graph: &'a Graph,
    /// Index of the node in the graph.
    pub id: NodeId,
    /// The node. Before an observer with [`Observer::pool_bytes`], its operator is that for the parts that the call names, where
    /// inputs are pools.
    pub node: &'a Node,
    /// Values of the symbols in this run.
    pub symbols: &'a Symbols,
    /// Values of the inputs in the operator's order, weights included.
    pub inputs: &'a [Tensor],
    /// Values of the outputs, rounded to their dtypes.
    pub outputs: &'a [Tensor],
}

impl NodeEvent<'_> {
    /// For a node whose operator appends ([`tapml_graph::Op::appends`]), the rows that this run added to output 0: a
    /// view, as all tensors here. `None` for other operators.
    pub fn added_rows(&self) -> Option<Tensor> {
        if !self.node.op.appends() {
            return None;
        }
        let before = *self.inputs.first()?.shape().first()?;
        let after = self.outputs.first()?;
        after.rows(before, after.shape().first()?.checked_sub(before)?)
    }
}

/// Receives every node of a run, in graph order, on the thread of the caller, perhaps some nodes later.
/// An error stops the run.
///
/// A growing state that the observer keeps beyond the call (see [`NodeEvent::added_rows`] for what is new in it) makes
/// the next step copy it once, because rows are added in place only while nobody else looks at them.
pub trait Observer {
    /// Called once per node and run, after the node has run.
    fn node(&mut self, event: &NodeEvent<'_>) -> Result<()>;

    /// Whether it wants to see this node of a run with these symbols. Asked for each node in graph order before the run.
    fn watches(&mut self, graph: &Graph, id: NodeId, symbols: &Symbols) -> bool {
        let (_, _, _) = (graph, id, symbols);
        true
    }

    /// Whether it wants a call on pools ([`tapml_graph::Op::pools`]) as one on the parts alone that it names, numbered anew, and
    /// how many bytes of parts at most: a call with more is not shown. `None` shows whole pools.
    fn pool_bytes(&self) -> Option<u64> {
        None
    }
}

/// Leaves of pools the parts that the call names, with bytes of their own. Gives the node to be shown; `None` if its parts take
/// more than `most` bytes.
pub(crate) fn narrow_pools<'a>(
    graph: &Graph,
    node: &'a Node,
    (inputs, outputs): (&mut [Tensor], &mut [Tensor]),
    most: u64,
) -> Result<Option<Cow<'a, Node>>> {
    let Some(pools) = node.op.pools(&graph.input_types(node)) else { return Ok(Some(Cow::Borrowed(node))) };
    let missing = || Error::bug(format!("node `{}` lacks a pool or its table", node.name));
    let rows = pools.inputs.first().and_then(|&pool| inputs.get(pool)?.shape().first().copied());
    let table = inputs.get(pools.table).ok_or_else(missing)?;
    let parts = pools.find_parts(table, rows.ok_or_else(missing)?)?;
    let of_inputs = inputs.iter_mut().enumerate().filter(|(at, _)| pools.inputs.contains(at));
    let of_outputs = outputs.iter_mut().enumerate().filter(|(at, _)| pools.outputs.contains(at));
    let mut all: Vec<&mut Tensor> = of_inputs.chain(of_outputs).map(|(_, pool)| pool).collect();
    let len = |pool: &Tensor| {
        let rows = parts.count().saturating_mul(pools.part);
        byte_len(pool.dtype(), &[rows, pool.row_len()]).map_or(u64::MAX, |len| len as u64)
    };
    if all.iter().map(|pool| len(pool)).fold(0, u64::saturating_add) > most {
        return Ok(None);
    }
    for pool in &mut all {
        **pool = parts.take_from(pool)?;
    }
    inputs[pools.table] = parts.table().clone();
    let op = node.op.with_parts(parts.count() as u32);
    Ok(Some(Cow::Owned(Node { op, ..node.clone() })))
}

/// Chooses steps to be looked at.
pub trait StepSampler: Send {
    /// A step begins, which may encode images first: who looks at its nodes, the encoder's among them, if anybody does.
    fn begin_step(&mut self, encodes: bool) -> Option<&mut dyn Observer>;
}
