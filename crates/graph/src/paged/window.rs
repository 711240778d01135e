//! How far back a language model looks.

use crate::graph::Graph;
use crate::op::Op;

impl Graph {
    /// How many keys a row sees at most, its own among them, whichever node it is: the largest of the windows and chunks of all
    /// causal attention. `None` if a node sees all keys before a row, and if no node is such attention.
    pub fn attention_window(&self) -> Option<u32> {
        let attentions = self.nodes().iter().filter_map(|node| match &node.op {
            Op::Attention(op) => Some(op),
            Op::PagedAttention(op) => Some(&op.attention),
            _ => None,
        });
        // A chunk begins at most so many keys before a row.
        let windows = attentions.filter(|op| op.causal).map(|op| op.window.into_iter().chain(op.chunk).min());
        windows.collect::<Option<Vec<u32>>>()?.into_iter().max()
    }
}
