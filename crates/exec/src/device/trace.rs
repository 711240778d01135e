//! Traces of a program as tensors: the copies that it takes of the values of single nodes.

use crate::TracedNode;
use tapml_device::Device;
use tapml_graph::{Bytes, Context, Error, Graph, Result, Symbols, Tensor, TensorType};
use tapml_kernels::{Content, Instance, POISON, Program, Step, Traced, trace_port};

/// The traces that a program takes, by node.
pub(super) struct Trace {
    nodes: Vec<NodeTrace>,
}

struct NodeTrace {
    node: String,
    inputs: Vec<Option<Port>>,
    outputs: Vec<Port>,
}

/// One value: the program's output that holds its bytes, its type, and whether the bytes behind it were poisoned.
struct Port {
    name: String,
    ty: TensorType,
    poisoned: bool,
}

impl Trace {
    /// What the program, compiled from this graph, traces.
    pub fn of(program: &Program, graph: &Graph) -> Trace {
        let nodes = graph.nodes().iter().filter_map(|node| {
            let port = |value, what| {
                let name = trace_port(&node.name, what);
                let held = program.outputs.iter().find(|o| o.name == name)?;
                let ty = graph.value(value).ty.clone();
                Some(Port { name, ty, poisoned: poisoned(program, held.buffer) })
            };
            let inputs = node.inputs.iter().enumerate().map(|(k, &v)| port(v, Traced::Input(k))).collect();
            let outputs = node.outputs.iter().enumerate().map(|(k, &v)| port(v, Traced::Output(k)));
            let outputs = outputs.collect::<Option<Vec<Port>>>()?;
            Some(NodeTrace { node: node.name.clone(), inputs, outputs })
        });
        // A program without traces is the rule; looking for each node's would take time for nothing.
        let any = program.outputs.iter().any(|o| tapml_kernels::is_trace(&o.name));
        Trace { nodes: if any { nodes.collect() } else { Vec::new() } }
    }

    /// Reads the traces of the last run, which had these symbols.
    pub fn read(
        &self,
        instance: &Instance,
        device: &mut dyn Device,
        symbols: &Symbols,
    ) -> Result<Vec<TracedNode>> {
        let mut each = |trace: &NodeTrace| {
            let mut read = |port: &Port| value(instance, device, port, symbols);
            let inputs = trace.inputs.iter().map(|port| port.as_ref().map(|p| Ok(read(p)?.0)).transpose());
            let inputs = inputs.collect::<Result<_>>()?;
            let outputs = trace.outputs.iter().map(&mut read).collect::<Result<Vec<_>>>()?;
            let (outputs, beyond) = outputs.into_iter().unzip();
            Ok(TracedNode { node: trace.node.clone(), inputs, outputs, beyond })
        };
        let mut read = |trace: &NodeTrace| each(trace).context(|| format!("trace of node `{}`", trace.node));
        self.nodes.iter().map(&mut read).collect()
    }
}

/// Whether the program fills what is copied to this buffer before a node writes it.
fn poisoned(program: &Program, trace: u32) -> bool {
    let source = program.steps.iter().find_map(|step| match step {
        Step::Copy { src, dst, .. } if *dst == trace => Some(*src),
        _ => None,
    });
    source.is_some_and(|src| {
        let filled = |step: &Step| matches!(step, Step::Fill { buffer, .. } if *buffer == src);
        program.buffers[src as usize].content == Content::Activation && program.steps.iter().any(filled)
    })
}

/// The value, and how many bytes behind it no longer hold the poison.
fn value(
    instance: &Instance,
    device: &mut dyn Device,
    port: &Port,
    symbols: &Symbols,
) -> Result<(Tensor, u64)> {
    let whole = instance.read(device, &port.name, symbols)?;
    let shape = port.ty.sizes(symbols)?;
    let len = tapml_graph::byte_len(port.ty.dtype, &shape);
    let bytes = len.and_then(|len| whole.bytes().slice(0, len));
    let bytes = bytes.ok_or_else(|| Error::bug(format!("a trace of {} is too short", port.ty)))?;
    let rest = whole.bytes().get(bytes.len().next_multiple_of(4)..).unwrap_or_default();
    let written = |word: &&[u8]| **word != POISON.to_le_bytes();
    let beyond = if port.poisoned { 4 * rest.chunks_exact(4).filter(written).count() as u64 } else { 0 };
    // A copy: a slice would keep the whole buffer, which has room for the longest run.
    Ok((Tensor::new(port.ty.dtype, shape, Bytes::new(bytes.to_vec()))?, beyond))
}
