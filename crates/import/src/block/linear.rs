//! A projection: `weight: [outputs, inputs]`, and `bias: [outputs]` where the model has one.
//!
//! `y = x·Wᵀ + b`, as `nn.Linear` of PyTorch has it.

use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::Linear;
use tapml_graph::{Result, ValueId};

/// Sizes and layout of a projection.
#[derive(Clone, Copy, Debug)]
pub struct Projection {
    /// Columns of its input.
    pub inputs: u32,
    /// Columns of its output.
    pub outputs: u32,
    /// Whether it adds a bias.
    pub bias: bool,
    /// Whether the checkpoint holds the matrix as `[inputs, outputs]` (GPT-2's `Conv1D`).
    pub transposed: bool,
}

impl Projection {
    /// One whose matrix is stored as `[outputs, inputs]`.
    pub fn new(inputs: u32, outputs: u32, bias: bool) -> Projection {
        Projection { inputs, outputs, bias, transposed: false }
    }
}

/// `x: [n, inputs]` to `[n, outputs]`.
///
/// # Errors
/// If `x` has not as many columns as the matrix has inputs.
pub fn linear(net: &mut Net, at: &Path, x: ValueId, size: Projection) -> Result<ValueId> {
    let (name, shape) = (at.child("weight"), [size.outputs, size.inputs]);
    let weight = if size.transposed {
        // Turned when it is loaded: kernels read rows of outputs.
        let source = Source::Transposed(name.to_string());
        net.derive(&at.child("weight.transposed"), &shape, source)?
    } else {
        net.weight(&name, &shape)?
    };
    let mut inputs = vec![x, weight];
    if size.bias {
        inputs.push(net.weight(&at.child("bias"), &[size.outputs])?);
    }
    net.node(at, Linear::default(), &inputs)
}
