//! Sparse layers with a dense one beside them, as Qwen2-MoE has them: what the rules of their fusions look for.

use super::uses::{ResidualNorm, Uses, maker};
use crate::graph::{Node, NodeId, ValueId};
use crate::op::Op;

/// A node with its id.
pub type FoundNode<'g> = (NodeId, &'g Node);

/// What takes the normalised rows of such a layer.
pub struct ExpertLayer<'g> {
    /// The projection to the experts' logits, and the choice among them.
    pub router: FoundNode<'g>,
    /// See [`ExpertLayer::router`].
    pub route: FoundNode<'g>,
    /// The projection whose sigmoid is the dense layer's share.
    pub gate: FoundNode<'g>,
    /// See [`ExpertLayer::gate`].
    pub sigmoid: FoundNode<'g>,
}

/// What brings the two layers together.
pub struct ExpertSum<'g> {
    /// The projections down of the experts and of the dense layer.
    pub down: [FoundNode<'g>; 2],
    /// The sum of the experts' results by their weights.
    pub combine: FoundNode<'g>,
    /// The dense layer's result times its share.
    pub scaled: FoundNode<'g>,
    /// The sum of both.
    pub sum: FoundNode<'g>,
}

/// The layer behind these normalised rows.
pub fn layer<'g>(uses: &Uses<'g>, norm: &ResidualNorm) -> Option<ExpertLayer<'g>> {
    let users = uses.users(norm.y);
    // Router, dense gate, experts and the dense layer take the rows, and nothing else.
    if users.len() != 4 || uses.is_kept(norm.y) {
        return None;
    }
    let find = |wanted: &dyn Fn(&Node) -> bool| -> Option<FoundNode<'g>> {
        let mut found = users.iter().map(|&id| (id, uses.graph.node(id))).filter(|(_, node)| wanted(node));
        let first = found.next()?;
        // Exactly one node may fit, else it is another architecture.
        (found.next().is_none() && uses.takes_first(first.1, norm.y)).then_some(first)
    };
    let leads = |node: &Node, to: fn(&Op) -> bool| {
        uses.is_linear(node) && uses.only_user(node.outputs[0]).is_some_and(|(_, user)| to(&user.op))
    };
    let router = find(&|node| leads(node, |op| matches!(op, Op::Route(_))))?;
    let gate = find(&|node| leads(node, |op| matches!(op, Op::Sigmoid(_))))?;
    let gated = |op: &Op| matches!(op, Op::ExpertGatedLinear(_));
    let experts = find(&|node| gated(&node.op))?;
    let dense = |op: &Op| matches!(op, Op::GatedLinear(_));
    find(&|node| uses.is_product(node) && dense(&node.op))?;
    let (route, sigmoid) = (uses.only_user(router.1.outputs[0])?, uses.only_user(gate.1.outputs[0])?);
    experts.1.inputs.contains(&route.1.outputs[0]).then_some(ExpertLayer { router, route, gate, sigmoid })
}

/// The sum that a `combine` begins, if it is such a layer's.
pub fn sum<'g>(uses: &Uses<'g>, combine: FoundNode<'g>) -> Option<ExpertSum<'g>> {
    let Op::Combine(_) = combine.1.op else { return None };
    let experts = maker(uses.graph, *combine.1.inputs.first()?)?;
    let of_experts = matches!(experts.1.op, Op::ExpertLinear(_));
    let sum = uses.only_user(combine.1.outputs[0]).filter(|(_, node)| uses.is_whole_add(node))?;
    let other = other_operand(sum.1, combine.1.outputs[0])?;
    let scaled = maker(uses.graph, other).filter(|_| uses.only_user(other).is_some())?;
    let Op::Mul(_) = scaled.1.op else { return None };
    let dense = maker(uses.graph, *scaled.1.inputs.first()?)?;
    let alone = [experts, dense].iter().all(|(_, node)| uses.only_user(node.outputs[0]).is_some());
    let fits = of_experts && uses.is_linear(dense.1) && alone;
    fits.then_some(ExpertSum { down: [experts, dense], combine, scaled, sum })
}

/// The operand of an addition that is not this one.
pub fn other_operand(add: &Node, known: ValueId) -> Option<ValueId> {
    add.inputs.iter().copied().find(|&value| value != known)
}
