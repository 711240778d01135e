//! Plans of fused operators that hold products of one row.
//!
//! Each planner finds the nodes that it knows in the body, describes one launch that does the work of all, and lists
//! arguments in the order that [`super::Product`] documents.

use super::{InputNorm, MOST_MIXED, Product, Projection};
use crate::kernel::Request;
use crate::kernel::body::{FusedBody, Normalised};
use crate::kernel::cuda::rms_norm;
use crate::kernel::source::unserved_error;
use crate::plan::{Arg, NodePlan};
use tapml_graph::{Error, Node, Op, Result, ValueId};

/// A node of a fused operator's body that is a product, with the arguments of its weights and its bias.
struct BodyProduct<'a> {
    /// The node within the body.
    node: &'a Node,
    /// What it asks of the kernel, with inputs by their places at the node.
    projection: Projection,
    /// The sections of its weights, as inputs of the fused operator.
    weights: Vec<Arg>,
    /// Its bias, as an input of the fused operator.
    bias: Option<Arg>,
}

impl<'a> BodyProduct<'a> {
    /// Fails if the kernel does not read such weights, or if they are computed within the body.
    fn from_node(body: &FusedBody<'a>, node: &'a Node) -> Result<BodyProduct<'a>> {
        let (types, out) = (body.types(node), body.ty(node.outputs[0]).dtype);
        let found = Projection::from_op(&node.op, &types, out);
        let found = found.or_else(|| Projection::of_stack(&node.op, &types, out));
        let projection = found.ok_or_else(|| {
            Error::unsupported(format!("the kernel does not serve such `{}`", node.op.name()))
        })?;
        let weights = body.read_weights(projection.weights.iter().map(|&k| node.inputs[k]))?;
        let bias = projection.bias.map(|k| body.read(node.inputs[k])).transpose()?;
        Ok(BodyProduct { node, projection, weights, bias })
    }

    /// What is chosen of its weights.
    fn expert_ids(&self) -> Option<ValueId> {
        self.projection.chosen.map(|k| self.node.inputs[k])
    }
}

/// The plan of the projections of one normalised row: see [`tapml_graph::fusion`], `norm_linear`.
pub fn plan_of_norm(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let of = Normalised::from_body(&body)?;
    // The prologue of this kernel normalises a row, not a sum of two.
    let ([x], None) = (&of.terms[..], of.sum) else { return Err(unserved_error(request)) };
    let inner =
        of.products.iter().map(|node| BodyProduct::from_node(&body, node)).collect::<Result<Vec<_>>>()?;
    let all: Vec<&Product> = inner.iter().map(|inner| &inner.projection.product).collect();
    let norm = InputNorm { eps: of.eps, offset: of.offset, dtype: of.dtype };
    let product = Product::fuse(&all).ok_or_else(|| unserved_error(request))?.of_normalised(norm);
    let mut args = body.read_all([*x, of.weight])?;
    args.extend(inner.iter().flat_map(|inner| inner.weights.clone()));
    args.extend(inner.iter().filter_map(|inner| inner.bias));
    for inner in &inner {
        args.push(body.write(inner.node.outputs[0])?);
    }
    body.expect_outputs(&args)?;
    // The norm adds up in the order of the kernel for norms.
    product.plan(request, args, rms_norm::chain(product.k))
}

/// The plan of a product of one row that is added to something: `linear_add`.
pub fn plan_added(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let add = body.only_node("addition", |op| matches!(op, Op::Add(_)))?;
    let node = body.only_node("projection", |op| !matches!(op, Op::Add(_)))?;
    let inner = BodyProduct::from_node(&body, node)?;
    let product = &inner.projection.product;
    // Addition commutes: the product may be either of the two inputs.
    let residual = add.inputs.iter().copied().find(|value| *value != node.outputs[0]);
    let residual = residual.filter(|_| product.act == product.out && !product.gated);
    let residual = residual.ok_or_else(|| unserved_error(request))?;
    let mut args = vec![body.read(node.inputs[0])?];
    args.extend(inner.weights.iter().copied().chain(inner.bias));
    args.extend([body.read(residual)?, body.write(add.outputs[0])?]);
    body.expect_outputs(&args)?;
    product.clone().added_to().plan(request, args, 1)
}

/// The plan of gate and up of a row's experts and of the dense layer beside them: `moe_gated_linear`.
pub fn plan_moe_gated(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let [experts, dense] = experts_and_dense(&body)?;
    let product = experts.projection.product.clone().with_shared_expert(&dense.projection.product);
    let product = product.ok_or_else(|| unserved_error(request))?;
    let chosen = experts.expert_ids().ok_or_else(|| unserved_error(request))?;
    let mut args = vec![body.read(experts.node.inputs[0])?];
    args.extend(experts.weights.iter().chain(&dense.weights).copied());
    args.push(body.read(chosen)?);
    args.extend([body.write(experts.node.outputs[0])?, body.write(dense.node.outputs[0])?]);
    body.expect_outputs(&args)?;
    product.plan(request, args, 0)
}

/// The products of a sparse layer and of the dense one beside it.
fn experts_and_dense<'a>(body: &FusedBody<'a>) -> Result<[BodyProduct<'a>; 2]> {
    // Operators are told by their names, so that plain and gated ones both count.
    let stacked = |op: &Op| op.name().contains("expert");
    let product = |op: &Op| op.name().ends_with("linear");
    let experts = body.only_node("product with experts", |op| product(op) && stacked(op))?;
    let dense = body.only_node("dense product", |op| product(op) && !stacked(op))?;
    Ok([BodyProduct::from_node(body, experts)?, BodyProduct::from_node(body, dense)?])
}

/// The plan of the projections down of a row's experts and of the dense layer, and of their sum: `moe_down`.
pub fn plan_moe_down(request: &Request) -> Result<NodePlan> {
    let body = FusedBody::of_request(request)?;
    let [experts, dense] = experts_and_dense(&body)?;
    let combine = body.only_node("combination", |op| matches!(op, Op::Combine(_)))?;
    let scaled = body.only_node("share", |op| matches!(op, Op::Mul(_)))?;
    let adds: Vec<&Node> = body.nodes().iter().filter(|node| matches!(node.op, Op::Add(_))).collect();
    let product = experts.projection.product.clone().mixed_with(&dense.projection.product);
    let (product, chosen) = product.zip(experts.expert_ids()).ok_or_else(|| unserved_error(request))?;
    let mut args = body.read_all([experts.node.inputs[0], dense.node.inputs[0]])?;
    args.extend(experts.weights.iter().chain(&dense.weights).copied());
    args.extend(body.read_all([chosen, combine.inputs[1], scaled.inputs[1]])?);
    let (product, sum) = match adds[..] {
        [sum] => (product, sum),
        // Two additions: of the dense result, and of a residual to both.
        [both, sum] => {
            let residual = sum.inputs.iter().copied().find(|value| *value != both.outputs[0]);
            args.push(body.read(residual.ok_or_else(|| unserved_error(request))?)?);
            (product.added_to(), sum)
        }
        _ => return Err(unserved_error(request)),
    };
    args.push(body.write(sum.outputs[0])?);
    body.expect_outputs(&args)?;
    product.plan(request, args, MOST_MIXED)
}
