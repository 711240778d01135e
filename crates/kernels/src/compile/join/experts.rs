//! A sparse layer with a dense one beside it, in runs of one row: norm, router and choice are one launch; gate and up of the chosen
//! experts and of the dense layer another; and a third makes the sum of both out of what comes down, and adds it to the residual stream.
//! In runs of many rows the sum of both layers is one launch.

use super::{Finder, Joins, Stream};
use crate::kernel::cuda::choose::{self, Router};
use crate::kernel::cuda::linear::{Product, Projection};
use crate::kernel::cuda::mix;
use crate::kernel::source::constant;
use crate::plan::When;
use tapml_device::{Grid, KernelDesc};
use tapml_graph::{DType, Node, NodeId, Op, Origin, ValueId};

/// The nodes of such a layer that take the normalised rows.
struct Taking<'a> {
    router: (usize, &'a Node),
    /// Gate and up of the experts, and of the dense layer.
    experts: (usize, &'a Node),
    dense: (usize, &'a Node),
    /// The projection whose sigmoid is the dense layer's share.
    gate: (usize, &'a Node),
}

/// What comes of them.
struct Joined<'a> {
    route: (usize, &'a Node),
    share: (usize, &'a Node),
    /// The projections down, and what adds their results up.
    down: [(usize, &'a Node); 2],
    adding: [(usize, &'a Node); 3],
}

type Launched = ((KernelDesc, Grid), Vec<ValueId>);

impl<'a> Finder<'a> {
    /// Joins the sparse layer behind a norm, if it is one.
    pub(super) fn sparse(&self, at: usize, joins: &mut Joins) -> Option<()> {
        let node = &self.graph.nodes()[at];
        let stream = self.stream(node)?;
        let given = joins.sums.contains(&at) || matches!(node.op, Op::RmsNorm(_));
        let added = if given { None } else { Some(self.added(node, stream.sum)?) };
        let taking = self.taking(stream.y)?;
        let joined = self.joined_layer(&taking)?;
        let choice = self.choice(&stream, &taking, &joined)?;
        let up = self.up(&stream, &taking, &joined)?;
        let (next, down) = self.down(&stream, &taking, &joined)?;

        if let Some((product, kernel, values)) = added {
            joins.replaced.insert(product);
            joins.add(at, When::OneRow, kernel, values);
        }
        joins.add(at, When::OneRow, choice.0, choice.1);
        joins.add(taking.experts.0.min(taking.dense.0), When::OneRow, up.0, up.1);
        joins.add(joined.adding[2].0, When::OneRow, down.0, down.1);
        joins.sums.extend(next);
        let of_both = [taking.router, taking.experts, taking.dense, taking.gate, joined.route, joined.share];
        let nodes = of_both.iter().chain(&joined.down).chain(&joined.adding);
        joins.replaced.extend(nodes.map(|(index, _)| *index).chain([at]));
        Some(())
    }

    /// Joins the sum of both layers in runs of many rows.
    pub(super) fn sparse_sum(&self, at: usize, joins: &mut Joins) -> Option<()> {
        let stream = self.stream(&self.graph.nodes()[at])?;
        let taking = self.taking(stream.y)?;
        let joined = self.joined_layer(&taking)?;
        let [(combine, by), (scale, _), (sum, node)] = joined.adding;
        let Op::Combine(op) = &by.op else { return None };
        let ty = &self.graph.value(node.outputs[0]).ty;
        let values = [
            joined.down[0].1.outputs[0],
            joined.route.1.outputs[1],
            joined.down[1].1.outputs[0],
            taking.gate.1.outputs[0],
            node.outputs[0],
        ];
        let halves = values.iter().all(|&value| self.graph.value(value).ty.dtype == DType::F16);
        let [rows, width] = &ty.shape[..] else { return None };
        let kernel =
            mix::kernel(rows, constant("a size", width).ok()?, op.k, self.info).filter(|_| halves)?;
        joins.add(sum, When::ManyRows, kernel, values.to_vec());
        joins.replaced_many.extend([combine, scale, sum, joined.share.0]);
        Some(())
    }

    /// The only user of a value that is no result.
    fn user(&self, value: ValueId) -> Option<(usize, &'a Node)> {
        match self.users[value.0 as usize][..] {
            [user] if !self.kept.contains(&value) => Some((user.0 as usize, self.graph.node(user))),
            _ => None,
        }
    }

    fn taking(&self, y: ValueId) -> Option<Taking<'a>> {
        let users = self.users[y.0 as usize].as_slice();
        if users.len() != 4 || self.kept.contains(&y) {
            return None;
        }
        let find = |wanted: &dyn Fn(&Node) -> bool| {
            let mut found = users.iter().filter(|&&NodeId(user)| wanted(&self.graph.nodes()[user as usize]));
            let node = *found.next()?;
            let node = (node.0 as usize, self.graph.node(node));
            let alone = found.next().is_none() && node.1.inputs.iter().filter(|&&v| v == y).count() == 1;
            (alone && node.1.inputs[0] == y).then_some(node)
        };
        let leads = |node: &Node, to: fn(&Op) -> bool| {
            matches!(node.op, Op::Linear(_))
                && self.user(node.outputs[0]).is_some_and(|(_, user)| to(&user.op))
        };
        Some(Taking {
            router: find(&|node| leads(node, |op| matches!(op, Op::Route(_))))?,
            experts: find(&|node| {
                matches!(node.op, Op::ExpertGatedLinear(_) | Op::QuantizedExpertGatedLinear(_))
            })?,
            dense: find(&|node| matches!(node.op, Op::GatedLinear(_) | Op::QuantizedGatedLinear(_)))?,
            gate: find(&|node| leads(node, |op| matches!(op, Op::Sigmoid(_))))?,
        })
    }

    /// What comes of them, if each result goes where it is expected, and nowhere else.
    fn joined_layer(&self, taking: &Taking<'a>) -> Option<Joined<'a>> {
        let route = self.user(taking.router.1.outputs[0])?;
        let share = self.user(taking.gate.1.outputs[0])?;
        let down = [self.user(taking.experts.1.outputs[0])?, self.user(taking.dense.1.outputs[0])?];
        let combine = self.user(down[0].1.outputs[0])?;
        let scale = self.user(down[1].1.outputs[0])?;
        let sum = self.user(combine.1.outputs[0])?;
        let [chosen, weights] = route.1.outputs[..] else { return None };
        let (Op::Route(op), Op::Combine(by)) = (&route.1.op, &combine.1.op) else { return None };
        let of_experts = matches!(down[0].1.op, Op::ExpertLinear(_) | Op::QuantizedExpertLinear(_));
        let of_dense = matches!(down[1].1.op, Op::Linear(_) | Op::QuantizedLinear(_));
        let scaled = matches!(scale.1.op, Op::Mul(_)) && self.user(share.1.outputs[0])?.0 == scale.0;
        let added = matches!(sum.1.op, Op::Add(_)) && self.user(scale.1.outputs[0])?.0 == sum.0;
        let combined = by.k == op.k && combine.1.inputs == [down[0].1.outputs[0], weights];
        let users = |value: ValueId| self.users[value.0 as usize].iter().map(|user| user.0 as usize);
        let routed = users(weights).eq([combine.0]) && users(chosen).eq([taking.experts.0, down[0].0]);
        let scaled = scaled && scale.1.inputs == [down[1].1.outputs[0], share.1.outputs[0]];
        let first = down.iter().zip([taking.experts, taking.dense]);
        let first = first.into_iter().all(|((_, node), (_, from))| node.inputs[0] == from.outputs[0]);
        let kept = [chosen, weights].iter().any(|value| self.kept.contains(value));
        let all = of_experts && of_dense && scaled && added && combined && routed && first && !kept;
        all.then_some(Joined { route, share, down, adding: [combine, scale, sum] })
    }

    /// Norm, router, choice and share.
    fn choice(&self, stream: &Stream, taking: &Taking, joined: &Joined) -> Option<Launched> {
        let Op::Route(route) = &joined.route.1.op else { return None };
        let ty = |value: ValueId| &self.graph.value(value).ty;
        let (router, gate) = (taking.router.1, taking.gate.1);
        let ([_, w], [_, g], [_]) = (&router.inputs[..], &gate.inputs[..], &joined.route.1.inputs[..]) else {
            return None;
        };
        let act = ty(stream.y).dtype;
        let size = |value: ValueId, at: usize| constant("a size", ty(value).shape.get(at)?).ok();
        let alike = ty(*w).dtype == ty(*g).dtype && size(*g, 0)? == 1;
        let logits = [router.outputs[0], gate.outputs[0], joined.share.1.outputs[0]];
        if !alike || logits.iter().any(|&value| ty(value).dtype != act) || !self.weights(&[*w, *g]) {
            return None;
        }
        let router = Router { k: size(*w, 1)?, experts: size(*w, 0)?, stored: ty(*w).dtype, act };
        let kernel = choose::kernel(&router, route, stream.norm, self.info)?;
        let mut values = vec![stream.sum, stream.weight, *w, *g, stream.y];
        values.extend(&joined.route.1.outputs);
        values.push(joined.share.1.outputs[0]);
        Some((kernel, values))
    }

    /// Gate and up of the experts and of the dense layer.
    fn up(&self, stream: &Stream, taking: &Taking, joined: &Joined) -> Option<Launched> {
        let (experts, dense) = (taking.experts.1, taking.dense.1);
        let (of_experts, of_dense) = (self.stack(experts)?, self.plain(dense)?);
        let product = of_experts.product.clone().beside(&of_dense.product)?;
        let mut values = vec![stream.y];
        values.extend(of_experts.weights.iter().map(|&k| experts.inputs[k]));
        values.extend(of_dense.weights.iter().map(|&k| dense.inputs[k]));
        values.extend([joined.route.1.outputs[0], experts.outputs[0], dense.outputs[0]]);
        let chosen = experts.inputs[of_experts.chosen?] == joined.route.1.outputs[0];
        Some((product.kernel(self.info).filter(|_| chosen)?, values))
    }

    /// Down, and the sum; and the norm behind it whose own addition is made here, if that leaves its sum to others.
    fn down(&self, stream: &Stream, taking: &Taking, joined: &Joined) -> Option<(Option<usize>, Launched)> {
        let [experts, dense] = joined.down.map(|(_, node)| node);
        let (of_experts, of_dense) = (self.stack(experts)?, self.plain(dense)?);
        let mut product: Product = of_experts.product.clone().mixed_with(&of_dense.product)?;
        let mut values = vec![taking.experts.1.outputs[0], taking.dense.1.outputs[0]];
        values.extend(of_experts.weights.iter().map(|&k| experts.inputs[k]));
        values.extend(of_dense.weights.iter().map(|&k| dense.inputs[k]));
        values.extend(&joined.route.1.outputs);
        values.push(joined.share.1.outputs[0]);
        let sum = joined.adding[2].1.outputs[0];
        let next = self.user(sum).filter(|(_, node)| self.adds(node, stream.sum, sum));
        match &next {
            Some((_, node)) => {
                product = product.added_to();
                values.extend([stream.sum, node.outputs[0]]);
            }
            None => values.push(sum),
        }
        let chosen = experts.inputs[of_experts.chosen?] == joined.route.1.outputs[0];
        let kernel = product.kernel(self.info).filter(|_| chosen)?;
        Some((next.map(|(index, _)| index), (kernel, values)))
    }

    /// Whether a norm adds these two, and its result goes into products that normalise it themselves, or into such a layer.
    fn adds(&self, node: &Node, residual: ValueId, term: ValueId) -> bool {
        let Op::AddRmsNorm(_) = node.op else { return false };
        let both = [[residual, term], [term, residual]].iter().any(|two| node.inputs[..2] == *two);
        both && self.stream(node).is_some_and(|stream| self.taken(&stream).is_some())
    }

    fn stack(&self, node: &Node) -> Option<Projection> {
        let out = self.graph.value(node.outputs[0]).ty.dtype;
        Projection::of_stack(&node.op, &self.graph.input_types(node), out)
    }

    /// A product with dense weights, which can be asked for early.
    fn plain(&self, node: &Node) -> Option<Projection> {
        let out = self.graph.value(node.outputs[0]).ty.dtype;
        let found = Projection::of(&node.op, &self.graph.input_types(node), out)?;
        let weights: Vec<ValueId> = found.weights.iter().map(|&k| node.inputs[k]).collect();
        self.weights(&weights).then_some(found)
    }

    fn weights(&self, values: &[ValueId]) -> bool {
        values.iter().all(|&value| matches!(self.graph.value(value).origin, Origin::Weight))
    }
}
