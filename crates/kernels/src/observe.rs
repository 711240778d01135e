//! Runs that stop before and behind single nodes, so that the values of the deployed program are read where it has them.
//!
//! The kernels, their bindings, the memory and the order are those of any other run. Only the submissions differ: each node is
//! one of its own.

use crate::cache::KernelCache;
use crate::compile::{NodePlace, ObservableNodes};
use crate::instance::{Instance, commands_of};
use crate::output_rows::OutputRows;
use crate::program::ProgramStep;
use std::ops::Range;
use tapml_device::{Device, KernelId};
use tapml_graph::{Bytes, Context, Error, Node, NodeId, Result, Symbols, Tensor, TensorType, byte_len};
use tapml_graph::{NamedParts, Pools};

/// What a run shows of a node.
#[derive(Clone, Debug)]
pub struct ObservedNode {
    /// The node of the graph as it runs.
    pub node: NodeId,
    /// What it found in its inputs; `None` for weights.
    pub inputs: Vec<Option<Tensor>>,
    /// What it left in its outputs.
    pub outputs: Vec<Tensor>,
    /// How many parts its pools are shown with, if only those that it names.
    pub parts: Option<u32>,
}

/// What is to be seen of a run.
#[derive(Clone, Copy, Debug)]
pub struct WatchedNodes<'a> {
    /// All nodes of the program.
    pub nodes: &'a ObservableNodes,
    /// Those that are to be seen, in the order of the graph.
    pub watched: &'a [NodeId],
    /// Pools ([`tapml_graph::Op::pools`]) are shown with the parts alone that the node names, numbered anew, and a node whose
    /// parts take more bytes than this is not shown. `None` shows whole pools.
    pub pool_bytes: Option<u64>,
}

/// What a node found before it ran.
struct Found {
    inputs: Vec<Option<Tensor>>,
    /// The parts that are shown, if not whole pools.
    parts: Option<(Pools, NamedParts)>,
}

/// Bytes between two parts that are read along with them: a read of its own takes longer.
const GAP: usize = 256 << 10;

impl Instance {
    /// As [`Instance::step`] for a program of [`crate::compile_observable`], with the values of these nodes.
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
        watching: WatchedNodes<'_>,
    ) -> Result<(Vec<Tensor>, Vec<ObservedNode>)> {
        let WatchedNodes { nodes, watched, pool_bytes } = watching;
        let data = self.writes(symbols, inputs)?;
        if self.node_lists.is_empty() {
            self.record_nodes(device, cache, nodes)?;
        }
        data.iter().try_for_each(|(buffer, data)| device.write(*buffer, 0, data))?;
        let mut seen = Vec::with_capacity(watched.len());
        for (at, place) in nodes.places.iter().enumerate() {
            let id = NodeId(at as u32);
            let node = nodes.graph.node(id);
            let mut found = None;
            if watched.binary_search(&id).is_ok() {
                let before = self.found_before(device, nodes, (node, place), symbols, pool_bytes);
                found = before.context(|| format!("node `{}`", node.name))?;
            }
            if let Some(list) = self.node_lists[at] {
                device.replay(list, symbols)?;
            }
            if let Some(Found { inputs, parts }) = found {
                let left = self.left_behind(device, nodes, (node, place), symbols, parts.as_ref());
                let outputs = left.context(|| format!("node `{}`", node.name))?;
                let parts = parts.map(|(_, parts)| parts.count() as u32);
                seen.push(ObservedNode { node: id, inputs, outputs, parts });
            }
        }
        if let Some(Some(rest)) = self.node_lists.get(nodes.places.len()) {
            device.replay(*rest, symbols)?;
        }
        let read = outputs.iter().map(|output| self.read_rows(device, output, symbols));
        Ok((read.collect::<Result<_>>()?, seen))
    }

    /// The inputs of a node as their buffers hold them now; `None` if the parts of its pools take more bytes than they may.
    fn found_before(
        &self,
        device: &mut dyn Device,
        nodes: &ObservableNodes,
        (node, place): (&Node, &NodePlace),
        symbols: &Symbols,
        pool_bytes: Option<u64>,
    ) -> Result<Option<Found>> {
        let graph = &nodes.graph;
        let types = graph.input_types(node);
        let pools = pool_bytes.and_then(|most| Some((node.op.pools(&types)?, most)));
        let is_pool = |at: usize| pools.as_ref().is_some_and(|(pools, _)| pools.inputs.contains(&at));
        let mut inputs = Vec::with_capacity(types.len());
        for (at, (buffer, ty)) in place.inputs.iter().zip(&types).enumerate() {
            let buffer = buffer.filter(|_| !is_pool(at));
            inputs.push(buffer.map(|buffer| self.fetch(device, buffer, ty, symbols)).transpose()?);
        }
        let Some((pools, most)) = pools else { return Ok(Some(Found { inputs, parts: None })) };
        let missing = || Error::bug("a pool or its table is no value of the program");
        let first = pools.inputs.first().and_then(|&pool| types.get(pool)).ok_or_else(missing)?;
        let rows = first.sizes(symbols)?.first().copied().ok_or_else(missing)?;
        let table = inputs.get(pools.table).and_then(Option::as_ref).ok_or_else(missing)?;
        let parts = pools.find_parts(table, rows)?;
        let outputs = pools.outputs.iter().filter_map(|&at| node.outputs.get(at));
        let outputs = outputs.map(|&output| &graph.value(output).ty);
        let mut bytes = 0u64;
        for ty in pools.inputs.iter().filter_map(|&pool| types.get(pool)).chain(outputs) {
            let mut sizes = ty.sizes(symbols)?;
            sizes[0] = parts.count().saturating_mul(pools.part);
            bytes = bytes.saturating_add(byte_len(ty.dtype, &sizes).map_or(u64::MAX, |len| len as u64));
        }
        if bytes > most {
            return Ok(None);
        }
        for &at in &pools.inputs {
            let buffer = place.inputs.get(at).copied().flatten().ok_or_else(missing)?;
            inputs[at] = Some(self.fetch_parts(device, buffer, &types[at], symbols, &parts)?);
        }
        inputs[pools.table] = Some(parts.table().clone());
        Ok(Some(Found { inputs, parts: Some((pools, parts)) }))
    }

    /// The outputs of a node as their buffers hold them now.
    fn left_behind(
        &self,
        device: &mut dyn Device,
        nodes: &ObservableNodes,
        (node, place): (&Node, &NodePlace),
        symbols: &Symbols,
        parts: Option<&(Pools, NamedParts)>,
    ) -> Result<Vec<Tensor>> {
        let outputs = place.outputs.iter().zip(&node.outputs).enumerate();
        let outputs = outputs.map(|(at, (&buffer, &value))| {
            let ty = &nodes.graph.value(value).ty;
            match parts {
                Some((pools, parts)) if pools.outputs.contains(&at) => {
                    self.fetch_parts(device, buffer, ty, symbols, parts)
                }
                _ => self.fetch(device, buffer, ty, symbols),
            }
        });
        outputs.collect()
    }

    /// Waits and reads parts of a pool of this type.
    fn fetch_parts(
        &self,
        device: &mut dyn Device,
        buffer: u32,
        ty: &TensorType,
        symbols: &Symbols,
        parts: &NamedParts,
    ) -> Result<Tensor> {
        let (mut shape, len) = self.sizes(buffer, ty, symbols)?;
        let row = len / shape.first().copied().unwrap_or(1).max(1);
        let ranges: Vec<Range<usize>> =
            parts.row_ranges().into_iter().map(|rows| rows.start * row..rows.end * row).collect();
        let id = self.buffer(buffer);
        let mut bytes = Vec::with_capacity(ranges.iter().map(Range::len).sum());
        for near in ranges.chunk_by(|one, next| next.start - one.end <= GAP) {
            let (Some(first), Some(last)) = (near.first(), near.last()) else { continue };
            // Devices read whole words.
            let start = first.start / 4 * 4;
            let mut read = vec![0; (last.end - start).next_multiple_of(4)];
            device.read(id, start as u64, &mut read)?;
            near.iter()
                .for_each(|range| bytes.extend_from_slice(&read[range.start - start..range.end - start]));
        }
        if let Some(rows) = shape.first_mut() {
            *rows = bytes.len() / row.max(1);
        }
        Tensor::new(ty.dtype, shape, Bytes::new(bytes))
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
