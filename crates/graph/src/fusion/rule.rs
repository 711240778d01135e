//! What a fusion is: a name, the places of a graph where it may stand, and cases that exercise it.

use super::uses::Uses;
use crate::op::Sample;
use crate::value::NodeId;

/// A fused operator.
#[derive(Clone, Copy, Debug)]
pub struct Fusion {
    /// Name in the text form, on the command line and in reports.
    pub name: &'static str,
    /// The places of a graph where it may stand.
    pub find: fn(&Uses<'_>) -> Vec<Site>,
    /// Cases that exercise it.
    pub samples: fn() -> Vec<Sample>,
}

/// A place of a graph where a fusion may stand.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// What may become of it, best first.
    pub ways: Vec<Way>,
}

/// One way of fusing a place: the nodes of each fused operator. A node may be in several of them, which then all compute
/// it.
pub type Way = Vec<Vec<NodeId>>;
