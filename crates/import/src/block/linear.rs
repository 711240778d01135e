//! A projection: `weight: [outputs, inputs]`, and `bias: [outputs]` where the model has one.

use crate::net::{Net, Path};
use tapml_graph::op::Linear;
use tapml_graph::{Result, ValueId};

/// Sizes of a projection.
#[derive(Clone, Copy, Debug)]
pub struct Projection {
    /// Columns of its input.
    pub inputs: u32,
    /// Columns of its output.
    pub outputs: u32,
    /// Whether it adds a bias.
    pub bias: bool,
}

/// `x: [n, inputs]` to `[n, outputs]`.
pub fn linear(net: &mut Net, at: &Path, x: ValueId, size: Projection) -> Result<ValueId> {
    let mut inputs = vec![x, net.weight(&at.at("weight"), &[size.outputs, size.inputs])?];
    if size.bias {
        inputs.push(net.weight(&at.at("bias"), &[size.outputs])?);
    }
    net.node(at, Linear::default(), &inputs)
}
