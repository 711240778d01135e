//! Anomalies that one cause explains.

use super::scan::Anomaly;
use crate::report::FaultKind;
use std::collections::BTreeSet;
use tapml_graph::NodeId;

/// A fault in the making: what one cause explains.
pub(super) struct Group {
    pub kind: FaultKind,
    pub cause: String,
    /// Tells faults of one cause apart: a kernel, a node that runs late.
    pub key: String,
    pub certain: bool,
    pub evidence: String,
    pub nodes: BTreeSet<NodeId>,
    pub count: u64,
    pub first: Anomaly,
    /// Whether it is one of the program as a whole, which no placement of nodes leaves out.
    pub whole: bool,
    /// The node that runs after what reads its result.
    pub late: Option<NodeId>,
}

impl Group {
    /// A fault of the whole program.
    pub fn whole(
        cause: &str,
        certain: bool,
        evidence: String,
        nodes: BTreeSet<NodeId>,
        first: Anomaly,
    ) -> Group {
        let (kind, cause, key) = (FaultKind::Between, cause.into(), String::new());
        Group { kind, cause, key, certain, evidence, nodes, count: 1, first, whole: true, late: None }
    }

    /// The same with so many anomalies that it explains.
    pub fn with_count(self, count: u64) -> Group {
        Group { count, ..self }
    }

    /// Whether both are one fault.
    pub fn explains(&self, other: &Group) -> bool {
        (self.kind, &self.cause, &self.key) == (other.kind, &other.cause, &other.key)
    }
}
