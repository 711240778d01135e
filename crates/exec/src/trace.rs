//! What a debugger asks of a loaded graph: another use of memory, and the values that single nodes find and leave.
//!
//! Traces are copies that the program itself takes in its order of work, so memory that is used again does
//! not spoil them.

use std::collections::HashSet;
use tapml_device::PeerMemory;
use tapml_graph::Tensor;
use tapml_kernels::Fusing;

/// How a graph is loaded, where that differs from how its platform loads graphs otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Whether buffers serve several values in turn; as the platform was told if absent.
    pub reuse_memory: Option<bool>,
    /// Whether buffers are filled with NaN before each value is written; as the platform was told if absent.
    pub poison: Option<bool>,
    /// The word that poisoned buffers are filled with; [`crate::POISON`], a NaN, if absent. A number tells what computes
    /// with memory that nobody wrote from what was never written, also where a device does not keep the bits of a NaN.
    pub fill: Option<u32>,
    /// Names of nodes whose values are kept; see [`crate::Loaded::traced_nodes`]. Names of no node are ignored, so that the
    /// parts of a split graph can share the list.
    pub trace: HashSet<String>,
    /// Which fused operators may take the place of nodes; none does where memory is poisoned or nodes are traced.
    pub fusing: Fusing,
    /// Whether a platform that compiles whole graphs adds the choice of the next token to them, so that
    /// [`crate::Loaded::generate_greedily`] can serve them; see [`tapml_graph::Graph::greedy`]. Others leave graphs as they are.
    pub greedy: bool,
    /// Whether only kernels are taken by which a row's results depend on that row alone; see
    /// [`Overrides::with_row_invariance`](tapml_kernels::Overrides::with_row_invariance). A platform without kernels computes
    /// each row by itself in any case.
    pub row_invariant: bool,
    /// Whether an [`crate::Observer`] is shown the nodes that it [watches](crate::Observer::watches) of the program as it is deployed,
    /// fused operators as one node, by a platform that compiles whole graphs. Other platforms show nodes in any case.
    pub observable: bool,
    /// Of a graph of all ranks: which of them is loaded, and where it meets the others; all of them if absent.
    pub meeting: Option<RankMeeting>,
}

/// One rank of a graph, on a device that reads the memory of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankMeeting {
    /// Which rank.
    pub rank: u32,
    /// The memory of each rank, as [`crate::RankMemory::memory`] gives it.
    pub memories: Vec<PeerMemory>,
}

/// The values of one node as the last run found and left them, in the memory of the whole loaded program.
#[derive(Clone, Debug)]
pub struct TracedNode {
    /// Name of the node.
    pub node: String,
    /// What the node found in its inputs when it ran; `None` for weights.
    pub inputs: Vec<Option<Tensor>>,
    /// What the node left in its outputs.
    pub outputs: Vec<Tensor>,
    /// For each output, the number of bytes behind its end, within its buffer, that were written although they held
    /// the word of [`LoadOptions::fill`]. 0 where memory is not poisoned, and for states that are extended in place.
    pub out_of_bounds_bytes: Vec<u64>,
}
