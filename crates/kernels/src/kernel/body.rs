//! Bodies of fused operators, as planners read them: the nodes within, and which input or output of the fused operator each
//! of their values is.
//!
//! A planner never executes a body. It looks for the few shapes of bodies that its kernel implements and refuses the
//! others with an error of kind `Unsupported`, so that the next row of the kernel list is tried.

use super::Request;
use super::source::wrong_op;
use super::weights;
use crate::plan::Arg;
use tapml_graph::{DType, Error, Graph, Node, Op, Origin, Result, TensorType, ValueId};

/// The body of a fused operator.
pub struct FusedBody<'a> {
    /// The nodes and values of the body.
    graph: &'a Graph,
    /// The values that come from outside; their positions are the input indices of the fused operator.
    inputs: Vec<ValueId>,
}

impl<'a> FusedBody<'a> {
    /// That of the request's operator.
    ///
    /// # Errors
    /// A bug error if the operator is not fused: the kernel list is wrong then, not the graph.
    pub fn of_request(request: &'a Request) -> Result<FusedBody<'a>> {
        let Op::Fused(fused) = request.op else { return Err(wrong_op(request)) };
        let graph = fused.body();
        Ok(FusedBody { graph, inputs: graph.inputs().map(|(id, _)| id).collect() })
    }

    /// The nodes in order.
    pub fn nodes(&self) -> &'a [Node] {
        self.graph.nodes()
    }

    /// The only node that is such; an error of kind `Unsupported` if there is none, or are several.
    pub fn only_node(&self, what: &str, wanted: impl Fn(&Op) -> bool) -> Result<&'a Node> {
        self.single_node(wanted).ok_or_else(|| Error::unsupported(format!("the kernel needs one {what}")))
    }

    /// The only node that is such, if there is exactly one.
    /// The second call of `next` tells whether there is another one; the search stops there.
    pub fn single_node(&self, wanted: impl Fn(&Op) -> bool) -> Option<&'a Node> {
        let mut found = self.graph.nodes().iter().filter(|node| wanted(&node.op));
        let first = found.next();
        first.filter(|_| found.next().is_none())
    }

    /// The node that computes a value.
    /// `None` for values that come from outside the body.
    pub fn maker(&self, value: ValueId) -> Option<&'a Node> {
        match self.graph.value(value).origin {
            Origin::Node { node, .. } => Some(self.graph.node(node)),
            _ => None,
        }
    }

    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> &'a TensorType {
        &self.graph.value(value).ty
    }

    /// The types of a node's inputs.
    pub fn types(&self, node: &Node) -> Vec<TensorType> {
        self.graph.input_types(node)
    }

    /// The argument of a launch that reads a value from outside. Fails if the value is computed within.
    ///
    /// It binds the whole input. A packed weight takes [`FusedBody::read_weights`] instead, which binds section by
    /// section.
    pub fn read(&self, value: ValueId) -> Result<Arg> {
        let index = self.inputs.iter().position(|&input| input == value);
        let index = index.ok_or_else(|| {
            let name = &self.graph.value(value).name;
            Error::unsupported(format!("`{name}` is computed within the fused operator"))
        })?;
        // A length of 0 means the whole.
        Ok(Arg::Input { index, offset: 0, len: 0 })
    }

    /// The arguments that read these weights, each as a whole: one for each section of a packed one.
    pub fn read_weights(&self, values: impl IntoIterator<Item = ValueId>) -> Result<Vec<Arg>> {
        let mut args = Vec::new();
        for value in values {
            // `read` gives inputs alone.
            let Arg::Input { index, .. } = self.read(value)? else { continue };
            args.extend(weights::args(index, self.ty(value))?);
        }
        Ok(args)
    }

    /// The arguments that read these values.
    pub fn read_all(&self, values: impl IntoIterator<Item = ValueId>) -> Result<Vec<Arg>> {
        values.into_iter().map(|value| self.read(value)).collect()
    }

    /// Which output of the fused operator a value is.
    pub fn output(&self, value: ValueId) -> Option<usize> {
        self.graph.outputs().iter().position(|output| output.value == value)
    }

    /// The argument of a launch that writes a value. Fails if it is no output.
    pub fn write(&self, value: ValueId) -> Result<Arg> {
        let name = || Error::unsupported(format!("`{}` is no output", self.graph.value(value).name));
        self.output(value).map(Arg::Output).ok_or_else(name)
    }

    /// Fails if the fused operator gives values that a kernel does not write.
    ///
    /// A planner passes everything that its kernel writes: an output that it left out would hold what was in its
    /// buffer.
    pub fn expect_outputs(&self, written: &[Arg]) -> Result<()> {
        // Scratch and inputs among the arguments do not matter here.
        let given = (0..self.graph.outputs().len()).all(|at| written.contains(&Arg::Output(at)));
        if given { Ok(()) } else { Err(Error::unsupported("the kernel does not write all of the outputs")) }
    }

    /// The values that the fused operator gives.
    /// In the order of the fused operator's outputs.
    pub fn results(&self) -> Vec<ValueId> {
        self.graph.outputs().iter().map(|output| output.value).collect()
    }

    /// Which input of the fused operator a value is.
    pub fn input(&self, value: ValueId) -> Option<usize> {
        self.inputs.iter().position(|&input| input == value)
    }
}

/// A body of `norm_linear`: a normalised row and its projections.
///
/// The shape is `rms_norm(x) · W` or `rms_norm(a + b) · W`, with one weight matrix or more.
pub struct Normalised<'a> {
    /// See [`tapml_graph::op::RmsNorm::eps`].
    pub eps: f32,
    /// See [`tapml_graph::op::RmsNorm::offset`].
    pub offset: f32,
    /// Storage of the norm's weight.
    pub dtype: DType,
    /// What is normalised: a row, or the two terms of a sum.
    /// They are the inputs of the sum in its own order, so that the kernel adds as the graph does.
    pub terms: Vec<ValueId>,
    /// The sum of the terms, if there are two.
    pub sum: Option<ValueId>,
    /// The norm's weight.
    pub weight: ValueId,
    /// The projections.
    /// They are all nodes except the norm, the sum and the choice of the last row, in the order of the body.
    pub products: Vec<&'a Node>,
}

impl<'a> Normalised<'a> {
    /// Fails if the body is no such.
    pub fn from_body(body: &FusedBody<'a>) -> Result<Normalised<'a>> {
        let norm = body.only_node("norm", |op| matches!(op, Op::RmsNorm(_)))?;
        let (Op::RmsNorm(op), [x, weight]) = (&norm.op, &norm.inputs[..]) else {
            return Err(Error::unsupported("the kernel needs a norm with a weight"));
        };
        // Without a sum the row comes from outside, or from another node that `read` will refuse.
        let add = body.maker(*x).filter(|node| matches!(node.op, Op::Add(_)));
        // What else there is should be products: planners refuse others.
        let front = |op: &Op| matches!(op, Op::RmsNorm(_) | Op::Add(_) | Op::LastRow(_));
        Ok(Normalised {
            eps: op.eps,
            offset: op.offset,
            dtype: body.ty(*weight).dtype,
            terms: add.map_or(vec![*x], |add| add.inputs.clone()),
            sum: add.map(|_| *x),
            weight: *weight,
            products: body.nodes().iter().filter(|node| !front(&node.op)).collect(),
        })
    }
}
