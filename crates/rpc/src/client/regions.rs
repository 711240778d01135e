//! Several nodes as one call of an agent.

use super::nodes::RemoteOperators;
use super::tensors::output_type;
use crate::wire::{self, Request};
use tapml_exec::{NodeInput, Region};
use tapml_graph::{Error, Result, Tensor, TensorType};

impl RemoteOperators {
    /// See [`tapml_exec::NodeServer::run_region`].
    pub(super) fn call_region(&mut self, region: &Region) -> Result<Vec<Tensor>> {
        let tensors: Vec<NodeInput<'_>> =
            region.inputs.iter().map(|input| NodeInput::Here(&input.tensor)).collect();
        let constants: Vec<bool> = region.inputs.iter().map(|input| input.constant).collect();
        let (values, put) = self.ordered_inputs(&tensors, &constants)?;
        let nodes = region.nodes.iter().map(|node| wire::GraphNode {
            node: node.name.clone(),
            op: node.op.kind().into(),
            attributes: tapml_graph::Op::Foreign(node.op.clone()).attributes_text(),
            inputs: node.inputs.clone(),
            outputs: node.outputs.clone(),
        });
        let (names, types): (Vec<String>, Vec<&TensorType>) =
            region.outputs.iter().map(|(name, ty)| (name.clone(), ty)).unzip();
        let request = wire::CallGraph {
            name: region.name.clone(),
            nodes: nodes.collect(),
            inputs: region.inputs.iter().map(|input| input.name.clone()).collect(),
            values,
            outputs: names,
            types: types.iter().map(|ty| output_type(ty)).collect(),
            keep: Vec::new(),
            symbols: Vec::new(),
        };
        let found = self.request_outputs(Request::CallGraph(request), types.len());
        for handle in put {
            // If the connection is lost, the call's own error says so.
            drop(self.free(handle));
        }
        let found = found?;
        for (i, (tensor, ty)) in found.iter().zip(types).enumerate() {
            let own = TensorType::new(tensor.dtype(), tensor.shape().iter().copied());
            if own != *ty {
                let text = format!("output {i}: expected {ty}, found {own}");
                return Err(Error::invalid(text).with_detail("found", own.to_string()));
            }
        }
        Ok(found)
    }
}
