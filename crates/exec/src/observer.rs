//! The recorder hook: sees every node of a run with its inputs and outputs.
//!
//! Recording works through this hook alone; platforms know nothing of suites.

use tapml_graph::{Graph, Node, NodeId, Result, Symbols, Tensor};

/// One node that has just run. Tensors share their bytes with the run: keeping one copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct NodeEvent<'a> {
    /// The graph that runs.
    pub graph: &'a Graph,
    /// Index of the node in the graph.
    pub id: NodeId,
    /// The node.
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
}

/// Chooses steps to be looked at.
pub trait StepSampler: Send {
    /// A step begins: who looks at its nodes, if anybody does.
    fn begin_step(&mut self) -> Option<&mut dyn Observer>;
}
