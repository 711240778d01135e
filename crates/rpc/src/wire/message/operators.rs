//! Devices that run operators themselves: tensors to hold, nodes and graphs to run.
//!
//! Tensors are held by handles from 1 on; 0 means that the tensor's bytes come with the request. Whether attributes
//! are valid is for the device to say.

use super::bounds::{at_most, bounded_list, integer, name, symbols};
use super::{Answered, Names, Note, ReplyMessage, RequestMessage};
use crate::wire::limits::{MAX_ATTRIBUTES, MAX_OUTPUTS, MAX_RANK, PIECE};
use crate::wire::{CallGraph, CallNode, DropTensor, NodeResult, PutTensor, Tensor};
use tapml_graph::{Error, Result};

impl RequestMessage for PutTensor {
    const ANSWERED: Answered = Answered::Always;

    fn check(&self) -> Result<()> {
        // Larger tensors come in several pieces.
        let held = self.tensor.as_ref().filter(|t| t.handle > 0 && t.data.len() <= PIECE);
        tensor(held.ok_or_else(|| {
            Error::invalid(format!("a tensor to hold needs a handle, and at most {PIECE} bytes at once"))
        })?)
    }

    fn note(&self, _: &Names) -> Note {
        let (handle, bytes) = self.tensor.as_ref().map_or((0, 0), |t| (t.handle, t.data.len()));
        Note::Text(format!("put {bytes} bytes of tensor {handle}"))
    }
}

impl RequestMessage for DropTensor {
    const ANSWERED: Answered = Answered::Never;

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("free tensor {}", self.handle))
    }
}

impl RequestMessage for CallNode {
    const ANSWERED: Answered = Answered::Always;

    fn check(&self) -> Result<()> {
        name("node", &self.node)?;
        name("op", &self.op)?;
        at_most("bytes of attributes", self.attributes.len(), MAX_ATTRIBUTES)?;
        symbols(&self.symbols)?;
        bounded_list("inputs", self.inputs.len())?;
        at_most("outputs to keep", self.keep.len(), MAX_OUTPUTS)?;
        at_most("outputs", self.outputs.len(), MAX_OUTPUTS)?;
        self.inputs.iter().chain(&self.outputs).try_for_each(tensor)
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("node `{}` ({})", self.node, self.op))
    }
}

impl RequestMessage for CallGraph {
    const ANSWERED: Answered = Answered::Always;

    fn check(&self) -> Result<()> {
        name("graph", &self.name)?;
        symbols(&self.symbols)?;
        // How many there are is bounded by the fields of a message.
        for node in &self.nodes {
            name("node", &node.node)?;
            name("op", &node.op)?;
            at_most("bytes of attributes", node.attributes.len(), MAX_ATTRIBUTES)?;
            node.inputs.iter().chain(&node.outputs).try_for_each(|value| name("value", value))?;
        }
        self.inputs.iter().chain(&self.outputs).try_for_each(|value| name("value", value))?;
        one_each("inputs", self.inputs.len(), self.values.len())?;
        one_each("outputs", self.outputs.len(), self.types.len())?;
        at_most("outputs to keep", self.keep.len(), self.outputs.len())?;
        self.values.iter().chain(&self.types).try_for_each(tensor)
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("graph `{}`", self.name))
    }
}

impl ReplyMessage for NodeResult {
    fn check(&self) -> Result<()> {
        at_most("outputs", self.outputs.len(), MAX_OUTPUTS)?;
        self.outputs.iter().try_for_each(tensor)
    }

    fn words(&self) -> String {
        "the result of a node".into()
    }
}

/// Fails unless there is a tensor for each name.
fn one_each(what: &str, names: usize, tensors: usize) -> Result<()> {
    if names != tensors {
        return Err(Error::invalid(format!("{names} names of {what}, {tensors} of their tensors")));
    }
    Ok(())
}

/// Dtype and sizes; whether the bytes fit them is for the receiver to say.
fn tensor(tensor: &Tensor) -> Result<()> {
    name("dtype", &tensor.dtype)?;
    at_most("sizes", tensor.shape.len(), MAX_RANK)?;
    tensor.shape.iter().try_for_each(|&size| integer("size", size))
}
