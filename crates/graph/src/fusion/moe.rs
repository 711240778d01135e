//! Sparse layers with a dense one beside them, as Qwen2-MoE has them: what the rules of their fusions look for.

use super::uses::{Norm, Uses};
use crate::graph::{Node, NodeId, ValueId};
use crate::op::Op;

/// A node with its id.
pub type Found<'g> = (NodeId, &'g Node);

/// What takes the normalised rows of such a layer.
pub struct Layer<'g> {
    /// The projection to the experts' logits, and the choice among them.
    pub router: Found<'g>,
    /// See [`Layer::router`].
    pub route: Found<'g>,
    /// The projection whose sigmoid is the dense layer's share.
    pub gate: Found<'g>,
    /// See [`Layer::gate`].
    pub sigmoid: Found<'g>,
}

/// What brings the two layers together.
pub struct Sum<'g> {
    /// The projections down of the experts and of the dense layer.
    pub down: [Found<'g>; 2],
    /// The sum of the experts' results by their weights.
    pub combine: Found<'g>,
    /// The dense layer's result times its share.
    pub scaled: Found<'g>,
    /// The sum of both.
    pub sum: Found<'g>,
}

/// The layer behind these normalised rows.
pub fn layer<'g>(uses: &Uses<'g>, norm: &Norm) -> Option<Layer<'g>> {
    let users = uses.users(norm.y);
    if users.len() != 4 || uses.kept(norm.y) {
        return None;
    }
    let find = |wanted: &dyn Fn(&Node) -> bool| -> Option<Found<'g>> {
        let mut found = users.iter().map(|&id| (id, uses.graph.node(id))).filter(|(_, node)| wanted(node));
        let first = found.next()?;
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
    experts.1.inputs.contains(&route.1.outputs[0]).then_some(Layer { router, route, gate, sigmoid })
}

/// The sum that a `combine` begins, if it is such a layer's.
pub fn sum<'g>(uses: &Uses<'g>, combine: Found<'g>) -> Option<Sum<'g>> {
    let Op::Combine(_) = combine.1.op else { return None };
    let experts = super::maker(uses.graph, *combine.1.inputs.first()?)?;
    let of_experts = matches!(experts.1.op, Op::ExpertLinear(_));
    let sum = uses.only_user(combine.1.outputs[0]).filter(|(_, node)| uses.is_whole_add(node))?;
    let other = other_operand(sum.1, combine.1.outputs[0])?;
    let scaled = super::maker(uses.graph, other).filter(|_| uses.only_user(other).is_some())?;
    let Op::Mul(_) = scaled.1.op else { return None };
    let dense = super::maker(uses.graph, *scaled.1.inputs.first()?)?;
    let alone = [experts, dense].iter().all(|(_, node)| uses.only_user(node.outputs[0]).is_some());
    let fits = of_experts && uses.is_linear(dense.1) && alone;
    fits.then_some(Sum { down: [experts, dense], combine, scaled, sum })
}

/// The operand of an addition that is not this one.
pub fn other_operand(add: &Node, known: ValueId) -> Option<ValueId> {
    add.inputs.iter().copied().find(|&value| value != known)
}
