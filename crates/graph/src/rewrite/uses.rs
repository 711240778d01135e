//! Who uses each value of a graph: what the preconditions of rules ask.

use crate::graph::{Graph, NodeId, Origin, ValueId};
use crate::op::Op;

/// Users of every value.
pub struct Uses {
    /// The nodes that use each value.
    users: Vec<Vec<NodeId>>,
    /// Whether the value is a result or what a state holds after the run.
    kept: Vec<bool>,
}

impl Uses {
    /// Counts the uses in a graph.
    pub fn from_graph(graph: &Graph) -> Uses {
        let mut kept = vec![false; graph.values().len()];
        let results = graph.outputs().iter().map(|o| o.value);
        for value in results.chain(graph.states().iter().map(|s| s.output)) {
            kept[value.0 as usize] = true;
        }
        Uses { users: graph.users(), kept }
    }

    /// The nodes that use the value.
    pub fn users(&self, value: ValueId) -> &[NodeId] {
        &self.users[value.0 as usize]
    }

    /// Whether the value is a result or what a state holds after the run.
    pub fn is_kept(&self, value: ValueId) -> bool {
        self.kept[value.0 as usize]
    }

    /// Whether nothing but `node` uses the value.
    pub fn is_only_user(&self, value: ValueId, node: NodeId) -> bool {
        !self.is_kept(value) && self.users(value) == [node]
    }
}

/// The node that computes a value, if one does.
pub fn producer(graph: &Graph, value: ValueId) -> Option<NodeId> {
    match graph.value(value).origin {
        Origin::Node { node, .. } => Some(node),
        _ => None,
    }
}

/// Whether two values have one type.
pub fn same_type(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    graph.value(a).ty == graph.value(b).ty
}

/// A product `silu(gate) · up` whose parts nothing else uses.
pub struct GatedProduct {
    /// The node of the gate.
    pub gate: NodeId,
    /// The node of the other factor.
    pub up: NodeId,
    /// The node of the activation.
    silu: NodeId,
    /// The node of the product.
    mul: NodeId,
}

impl GatedProduct {
    /// All nodes of the product.
    pub fn nodes(&self) -> [NodeId; 4] {
        [self.gate, self.up, self.silu, self.mul]
    }
}

/// The gated product that `mul` ends, factors in either order.
pub fn gated_product(graph: &Graph, uses: &Uses, mul: NodeId) -> Option<GatedProduct> {
    let node = graph.node(mul);
    if !matches!(node.op, Op::Mul(_)) {
        return None;
    }
    let [a, b] = node.inputs[..] else { return None };
    let of = |activated: ValueId, plain: ValueId| {
        let (silu, up) = (producer(graph, activated)?, producer(graph, plain)?);
        let projected = *graph.node(silu).inputs.first()?;
        let inside = uses.is_only_user(activated, mul)
            && uses.is_only_user(plain, mul)
            && uses.is_only_user(projected, silu);
        let is_silu = matches!(graph.node(silu).op, Op::Silu(_));
        (inside && is_silu).then_some(GatedProduct { gate: producer(graph, projected)?, up, silu, mul })
    };
    of(a, b).or_else(|| of(b, a))
}
