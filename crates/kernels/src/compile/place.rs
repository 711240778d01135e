//! Where the nodes of a program stand, for whoever stops a run at one of them.

use crate::plan::{NodePlan, Phase};
use std::ops::Range;
use std::sync::Arc;
use tapml_graph::Graph;

/// The nodes of a program that can be looked at.
#[derive(Clone, Debug)]
pub struct ObservableNodes {
    /// The graph as it runs, with fused operators.
    pub graph: Graph,
    /// For each node, in the graph's order.
    pub places: Vec<NodePlace>,
}

/// Where a node stands in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Its steps.
    pub steps: Range<usize>,
    /// The buffers that hold its inputs before its first step; `None` for weights.
    pub inputs: Vec<Option<u32>>,
    /// The buffers that hold its outputs behind its last step.
    pub outputs: Vec<u32>,
}

/// The nodes of one list of steps of a program, for whoever runs single nodes of it.
#[derive(Clone, Debug)]
pub struct PhaseNodes {
    /// The runs that take these steps; all if there is none.
    pub phase: Option<Phase>,
    /// The graph as it runs, with fused operators.
    pub graph: Graph,
    /// How each node runs and where it stands, in the graph's order.
    pub nodes: Vec<(Arc<NodePlan>, NodePlace)>,
}
