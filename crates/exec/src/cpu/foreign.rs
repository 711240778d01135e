//! Graphs with operators of others on this machine's processor: their nodes are served one by one.
//!
//! The plain loop of a server of nodes serves them.

use crate::{Gave, NodeCall, NodeInput, NodeServer, PlatformInfo, ServedOp};
use std::collections::HashMap;
use tapml_graph::{Error, Graph, Op, Result, Tensor};
use tapml_reference::foreign;

/// Whether a graph has such operators.
pub(super) fn is_in(graph: &Graph) -> bool {
    graph.nodes().iter().any(|node| matches!(node.op, Op::Foreign(_)))
}

/// Serves nodes by the reference, and by the evaluations of operators of others.
pub(super) struct CpuServer {
    /// The `cpu` platform's own.
    info: PlatformInfo,
    /// The kinds of the graph at hand.
    ops: Vec<ServedOp>,
    /// By handle.
    held: HashMap<u32, Tensor>,
    handles: u32,
}

impl CpuServer {
    /// A server of the operators of this graph.
    pub fn new(info: PlatformInfo, graph: &Graph) -> CpuServer {
        let dtypes = tapml_graph::DType::ALL.to_vec();
        let served = |(name, _): (&'static str, usize)| ServedOp {
            name: name.into(),
            dtypes: dtypes.clone(),
            accumulate: tapml_graph::DType::F32,
            version: info.driver.clone(),
        };
        let ops = graph.op_kinds().into_iter().map(served).collect();
        CpuServer { info, ops, held: HashMap::new(), handles: 0 }
    }

    /// Keeps a tensor under a new handle.
    fn hold(&mut self, tensor: Tensor) -> Result<u32> {
        self.handles = self.handles.checked_add(1).ok_or_else(|| Error::bug("no handles are left"))?;
        self.held.insert(self.handles, tensor);
        Ok(self.handles)
    }
}

impl NodeServer for CpuServer {
    fn describe(&self) -> &PlatformInfo {
        &self.info
    }

    fn ops(&self) -> &[ServedOp] {
        &self.ops
    }

    fn put(&mut self, tensor: &Tensor) -> Result<u32> {
        self.hold(tensor.clone())
    }

    fn release(&mut self, handle: u32) -> Result<()> {
        self.held.remove(&handle);
        Ok(())
    }

    fn call(&mut self, call: &NodeCall<'_>) -> Result<Vec<Gave>> {
        let input = |given: &NodeInput<'_>| match given {
            NodeInput::Here(tensor) => Ok((*tensor).clone()),
            NodeInput::Held(handle) => {
                let held = self.held.get(handle).cloned();
                held.ok_or_else(|| Error::bug(format!("no tensor is held as {handle}")))
            }
        };
        let inputs = call.inputs.iter().map(input).collect::<Result<Vec<_>>>()?;
        let dtypes: Vec<_> = call.outputs.iter().map(|ty| ty.dtype).collect();
        let outputs = foreign::run_any(call.op, call.symbols, &inputs, &dtypes)?;
        let keep = call.keep.iter().copied().chain(std::iter::repeat(false));
        let gave = |(tensor, keep): (Tensor, bool)| {
            if keep { self.hold(tensor).map(Gave::Held) } else { Ok(Gave::Here(tensor)) }
        };
        outputs.into_iter().zip(keep).map(gave).collect()
    }
}
