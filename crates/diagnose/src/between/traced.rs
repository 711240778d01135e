//! The values of one step of a loaded program: what its nodes found and left, what they were given, and what memory was
//! filled with.

use super::hybrid::hybrid;
use crate::context::DiagnosisContext;
use std::collections::{HashMap, HashSet};
use tapml_exec::{Hybrid, LoadOptions, TracedNode};
use tapml_graph::{ErrorKind, NodeId, Origin, Result, Symbols, Tensor, ValueId};

/// The word that memory is filled with where values are looked at: -12345678 as f32. What computes with it gives other
/// numbers, activations too, than what was never written, and no device changes its bits, as it may those of a NaN.
pub(super) const FILL: u32 = 0xcb3c_614e;

/// See the module.
pub(super) struct TracedValues {
    /// Inputs as they were found and outputs as they were left, by node.
    pub nodes: Vec<TracedNode>,
    /// What came from outside the part of the program that reads it, by reader: inputs of the graph, values that the
    /// source computed, and those that another part left.
    pub given: HashMap<(NodeId, ValueId), Tensor>,
    /// The word that memory was filled with, if it was.
    pub fill: Option<u32>,
}

impl TracedValues {
    /// The values of the last step of a hybrid that [`load`] gave.
    pub fn from_hybrid(
        run: &DiagnosisContext<'_>,
        whole: &mut Hybrid,
        fill: Option<u32>,
    ) -> Result<TracedValues> {
        let nodes = whole.traced_nodes()?;
        let graph = run.suite.graph();
        let mut given = HashMap::new();
        for id in nodes.iter().filter_map(|t| graph.find_node(&t.node)) {
            let segment = whole.segment_of(id);
            for &value in &graph.node(id).inputs {
                let outside = match graph.value(value).origin {
                    Origin::Node { node, .. } => whole.segment_of(node) != segment,
                    Origin::Input | Origin::State(_) => true,
                    Origin::Weight => false,
                };
                if outside && let Some(tensor) = whole.crossing_value(&graph.value(value).name) {
                    given.insert((id, value), tensor.clone());
                }
            }
        }
        Ok(TracedValues { nodes, given, fill })
    }

    /// Whether a word, or the half of one that ends a tensor, may be what memory was filled with. A device may keep a NaN and not its bits.
    pub fn is_fill(&self, word: &[u8]) -> bool {
        self.fill.is_some_and(|fill| fill.to_le_bytes().starts_with(word) || nan(fill) && is_nan(word))
    }

    /// Whether a tensor holds nothing but what memory is filled with; zeros if it is not filled.
    pub fn is_untouched(&self, tensor: &Tensor) -> bool {
        let mut words = tensor.bytes().chunks_exact(4);
        !tensor.is_empty()
            && match self.fill {
                Some(_) => words.len() > 0 && words.all(|w| self.is_fill(w)),
                None => tensor.bytes().iter().all(|&b| b == 0),
            }
    }

    /// Whether any word of a tensor is what memory is filled with.
    pub fn touches_fill(&self, tensor: &Tensor) -> bool {
        tensor.bytes().chunks_exact(4).any(|w| self.is_fill(w))
    }
}

fn nan(word: u32) -> bool {
    f32::from_bits(word).is_nan()
}

fn is_nan(word: &[u8]) -> bool {
    word.try_into().is_ok_and(|bytes| nan(u32::from_le_bytes(bytes)))
}

/// A hybrid with these nodes on the target that shows their values in runs of at most this capacity, and fills memory with
/// a word before it is written. `None` if the target cannot show them: a trace needs memory of its own, which a large model may
/// not leave.
pub(super) fn load(
    run: &mut DiagnosisContext<'_>,
    nodes: &[NodeId],
    capacity: &Symbols,
    fill: Option<u32>,
) -> Result<Option<Hybrid>> {
    let options = LoadOptions { poison: Some(fill.is_some()), fill, ..of_all(run, nodes) };
    match hybrid(run, nodes, capacity, options) {
        Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::OutOfMemory) => Ok(None),
        other => other.map(Some),
    }
}

/// Options that keep the values of these nodes, so that each runs by its own kernels.
pub(super) fn of_all(run: &DiagnosisContext<'_>, nodes: &[NodeId]) -> LoadOptions {
    let trace: HashSet<String> = nodes.iter().map(|&id| run.name(id).to_string()).collect();
    LoadOptions { trace, ..LoadOptions::default() }
}
