//! Runs that stop before and behind single nodes, so that the values of the deployed program are read where it has them.
//!
//! The kernels, their bindings, the memory and the order are those of any other run. Only the submissions differ: each node is
//! one of its own.

use crate::cache::KernelCache;
use crate::compile::ObservableNodes;
use crate::instance::{Instance, commands_of};
use crate::output_rows::OutputRows;
use crate::program::ProgramStep;
use tapml_device::{Device, KernelId};
use tapml_graph::{Context, Error, NodeId, Result, Symbols, Tensor, ValueId};

/// What a run shows of a node.
#[derive(Clone, Debug)]
pub struct ObservedNode {
    /// The node of the graph as it runs.
    pub node: NodeId,
    /// What it found in its inputs; `None` for weights.
    pub inputs: Vec<Option<Tensor>>,
    /// What it left in its outputs.
    pub outputs: Vec<Tensor>,
}

impl Instance {
    /// As [`Instance::step`] for a program of [`crate::compile_observable`], with the values of these nodes, which are in the
    /// order of the graph.
    ///
    /// # Errors
    /// As [`Instance::step`].
    pub fn step_observed(
        &mut self,
        device: &mut dyn Device,
        cache: &mut KernelCache,
        symbols: &Symbols,
        inputs: &[(&str, &Tensor)],
        outputs: &[OutputRows<'_>],
        (nodes, watched): (&ObservableNodes, &[NodeId]),
    ) -> Result<(Vec<Tensor>, Vec<ObservedNode>)> {
        let data = self.writes(symbols, inputs)?;
        if self.node_lists.is_empty() {
            self.record_nodes(device, cache, nodes)?;
        }
        data.iter().try_for_each(|(buffer, data)| device.write(*buffer, 0, data))?;
        let mut seen = Vec::with_capacity(watched.len());
        for (at, place) in nodes.places.iter().enumerate() {
            let id = NodeId(at as u32);
            let node = nodes.graph.node(id);
            let is_watched = watched.binary_search(&id).is_ok();
            let mut found = Vec::new();
            if is_watched {
                for (buffer, &value) in place.inputs.iter().zip(&node.inputs) {
                    let value =
                        buffer.map(|buffer| self.observed_value(device, nodes, (buffer, value), symbols));
                    found.push(value.transpose().context(|| format!("node `{}`", node.name))?);
                }
            }
            if let Some(list) = self.node_lists[at] {
                device.replay(list, symbols)?;
            }
            if is_watched {
                let left = place.outputs.iter().zip(&node.outputs);
                let left = left
                    .map(|(&buffer, &value)| self.observed_value(device, nodes, (buffer, value), symbols));
                let outputs = left.collect::<Result<_>>().context(|| format!("node `{}`", node.name))?;
                seen.push(ObservedNode { node: id, inputs: found, outputs });
            }
        }
        if let Some(Some(rest)) = self.node_lists.get(nodes.places.len()) {
            device.replay(*rest, symbols)?;
        }
        let read = outputs.iter().map(|output| self.read_rows(device, output, symbols));
        Ok((read.collect::<Result<_>>()?, seen))
    }

    /// A value as its buffer holds it now.
    fn observed_value(
        &self,
        device: &mut dyn Device,
        nodes: &ObservableNodes,
        (buffer, value): (u32, ValueId),
        symbols: &Symbols,
    ) -> Result<Tensor> {
        self.fetch(device, buffer, &nodes.graph.value(value).ty, symbols)
    }

    /// Records the steps of each node, and those that follow the last one if there are any.
    fn record_nodes(
        &mut self,
        device: &mut dyn Device,
        cache: &mut KernelCache,
        nodes: &ObservableNodes,
    ) -> Result<()> {
        let program = self.program().clone();
        let kernels =
            program.kernels.iter().map(|k| cache.get(device, k)).collect::<Result<Vec<KernelId>>>()?;
        let end = nodes.places.last().map_or(0, |place| place.steps.end);
        let rest = (end < program.steps.len()).then_some(end..program.steps.len());
        let ranges = nodes.places.iter().map(|place| place.steps.clone()).chain(rest);
        for range in ranges {
            let steps =
                program.steps.get(range).ok_or_else(|| Error::bug("a node has steps of no program"))?;
            // A node whose value lies where it is wanted has no steps.
            if steps.is_empty() {
                self.node_lists.push(None);
                continue;
            }
            let commands = commands_of(steps.iter(), &kernels, &|_: &ProgramStep, index| self.buffer(index));
            match device.record(&commands) {
                Ok(list) => self.node_lists.push(Some(list)),
                Err(error) => {
                    // All or none: the next run tries again.
                    for list in std::mem::take(&mut self.node_lists).into_iter().flatten() {
                        device.destroy_list(list)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
