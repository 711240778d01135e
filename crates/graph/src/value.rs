//! Values of a graph, states and results: what nodes compute from and what they give, by their ids.

use crate::tensor_type::TensorType;
use serde::{Deserialize, Serialize};

/// Index of a value in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// Index of a node in its graph; nodes are in an order in which each uses only earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Given by the caller of each run.
    Input,
    /// Stored in the checkpoint under the value's name.
    Weight,
    /// What the state of this index holds before the run.
    State(u32),
    /// Output number `output` of a node.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its outputs.
        output: u32,
    },
}

/// A value: a name that is unique in the graph, a type and an origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique name; for a weight the checkpoint's name, for a node's only output the node's name.
    pub name: String,
    /// Dtype and sizes.
    pub ty: TensorType,
    /// Where it comes from.
    pub origin: Origin,
}

/// Something that lives from one run to the next: a KV cache, a recurrent state.
///
/// A growing state has type `[p, …]` before a run and `[n+p, …]` after it; a fixed one keeps its type.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Unique name among states.
    pub name: String,
    /// The value before the run.
    pub input: ValueId,
    /// The value after the run.
    pub output: ValueId,
}

/// A named result of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Name, such as `logits`.
    pub name: String,
    /// The value.
    pub value: ValueId,
}
