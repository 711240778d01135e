//! What a server of nodes does: it runs single nodes, and holds tensors for them.

use crate::{PlatformInfo, Region};
use tapml_graph::op::Foreign;
use tapml_graph::{DType, Error, Op, Result, Symbols, Tensor, TensorType};

/// An operator that a server of nodes runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedOp {
    /// The operator's name; `onnx.*` for all operators of a domain, which it may refuse one by one.
    pub name: String,
    /// Dtypes of inputs and outputs that it takes.
    pub dtypes: Vec<DType>,
    /// The dtype in which it adds up.
    pub accumulate: DType,
    /// Changes whenever the operator's code does.
    pub version: String,
}

/// An input of a node.
#[derive(Clone, Copy, Debug)]
pub enum NodeInput<'a> {
    /// Its bytes are here.
    Here(&'a Tensor),
    /// The server holds it under this handle.
    Held(u32),
}

/// An output of a node.
#[derive(Clone, Debug)]
pub enum Gave {
    /// Its bytes are here.
    Here(Tensor),
    /// The server holds it under this handle.
    Held(u32),
}

/// One node to run.
#[derive(Clone, Debug)]
pub struct NodeCall<'a> {
    /// Its name, for messages.
    pub node: &'a str,
    /// The operator with its attributes.
    pub op: &'a Op,
    /// Values of the symbols in this step.
    pub symbols: &'a Symbols,
    /// The inputs.
    pub inputs: Vec<NodeInput<'a>>,
    /// For each input, whether it is the same in every call of the node.
    pub constants: Vec<bool>,
    /// Types of the outputs; every size is constant.
    pub outputs: Vec<TensorType>,
    /// For each output, whether the server shall hold it.
    pub keep: Vec<bool>,
}

/// Runs nodes and holds tensors for them.
///
/// Errors of kind [`tapml_graph::ErrorKind::Unsupported`] say that it does not serve what is asked, such as an operator with these
/// attributes; after [`tapml_graph::ErrorKind::DeviceLost`] it can do nothing any more.
pub trait NodeServer: Send {
    /// Identity, for reports.
    fn describe(&self) -> &PlatformInfo;

    /// The operators that it runs.
    fn ops(&self) -> &[ServedOp];

    /// Whether [`NodeServer::reopen`] can do anything.
    fn reopens(&self) -> bool {
        false
    }

    /// As [`tapml_device::Device::reopen`]: the server holds nothing then.
    fn reopen(&mut self, lost: Error) -> Result<()> {
        Err(lost)
    }

    /// Holds a tensor; gives its handle.
    fn put(&mut self, tensor: &Tensor) -> Result<u32>;

    /// Frees a held tensor.
    fn release(&mut self, handle: u32) -> Result<()>;

    /// Runs a node. The outputs are of the types that the call names, here or held as it asks; anything else is an error.
    fn call(&mut self, call: &NodeCall<'_>) -> Result<Vec<Gave>>;

    /// Runs several nodes as one model; see [`crate::Platform::run_region`].
    fn run_region(&mut self, region: &Region) -> Result<Vec<Tensor>> {
        Err(Error::unsupported(format!("`{}` does not run as one model", region.name)))
    }

    /// Runs an operator whose outputs' types are not known; see [`crate::Platform::discover`].
    fn discover(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        let (_, _, name) = (node, inputs, op.kind());
        Err(Error::unsupported(format!("`{name}` does not run before the types of its outputs are known")))
    }
}

impl ServedOp {
    /// Whether an operator of this name is meant.
    /// A domain stands for all of its operators, in every version.
    pub(super) fn is(&self, name: &str) -> bool {
        match self.name.strip_suffix(".*") {
            // The rest has no version with a point, and no further domain in front of the name.
            Some(domain) => name.strip_prefix(domain).is_some_and(|rest| rest.starts_with('.')),
            None => self.name == name,
        }
    }
}
