//! Traces of a program as tensors: the copies that it takes of the values of single nodes.

use crate::TracedNode;
use tapml_device::Device;
use tapml_graph::{Bytes, Context, Error, Graph, Result, Symbols, Tensor, TensorType};
use tapml_kernels::{Content, Instance, POISON, Program, ProgramStep, TracedValue, trace_port};

/// The traces that a program takes, by node.
#[derive(Default)]
pub(super) struct Trace {
    nodes: Vec<NodeTrace>,
}

/// The values of one node.
struct NodeTrace {
    node: String,
    inputs: Vec<Option<TracedPort>>,
    outputs: Vec<TracedPort>,
}

/// One value: the program's output that holds its bytes, its type, and the word that the bytes behind it were filled with.
struct TracedPort {
    name: String,
    ty: TensorType,
    filled: Option<u32>,
}

/// Lets the program fill memory with this word where it would fill it with [`POISON`].
pub(super) fn refill(program: &mut Program, fill: u32) {
    for step in &mut program.steps {
        if let ProgramStep::Fill { word, .. } = step
            && *word == POISON
        {
            *word = fill;
        }
    }
}

impl Trace {
    /// What the program, compiled from this graph, traces.
    pub fn from_program(program: &Program, graph: &Graph) -> Trace {
        let nodes = graph.nodes().iter().filter_map(|node| {
            let port = |value, what| {
                let name = trace_port(&node.name, what);
                let held = program.outputs.iter().find(|o| o.name == name)?;
                let ty = graph.value(value).ty.clone();
                Some(TracedPort { name, ty, filled: fill_word(program, held.buffer) })
            };
            let inputs =
                node.inputs.iter().enumerate().map(|(k, &v)| port(v, TracedValue::Input(k))).collect();
            let outputs = node.outputs.iter().enumerate().map(|(k, &v)| port(v, TracedValue::Output(k)));
            let outputs = outputs.collect::<Option<Vec<TracedPort>>>()?;
            Some(NodeTrace { node: node.name.clone(), inputs, outputs })
        });
        // A program without traces is the rule; looking for each node's would take time for nothing.
        let any = program.outputs.iter().any(|o| tapml_kernels::is_trace(&o.name));
        Trace { nodes: if any { nodes.collect() } else { Vec::new() } }
    }

    /// Number of nodes that are traced.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Reads the traces of the last run, which had these symbols.
    pub fn read(
        &self,
        instance: &Instance,
        device: &mut dyn Device,
        symbols: &Symbols,
    ) -> Result<Vec<TracedNode>> {
        let mut each = |trace: &NodeTrace| {
            let mut read = |port: &TracedPort| value(instance, device, port, symbols);
            let inputs = trace.inputs.iter().map(|port| port.as_ref().map(|p| Ok(read(p)?.0)).transpose());
            let inputs = inputs.collect::<Result<_>>()?;
            let outputs = trace.outputs.iter().map(&mut read).collect::<Result<Vec<_>>>()?;
            let (outputs, beyond) = outputs.into_iter().unzip();
            Ok(TracedNode { node: trace.node.clone(), inputs, outputs, out_of_bounds_bytes: beyond })
        };
        let mut read = |trace: &NodeTrace| each(trace).context(|| format!("trace of node `{}`", trace.node));
        self.nodes.iter().map(&mut read).collect()
    }
}

/// The word that the program fills what is copied to this buffer with before a node writes it, if it does.
fn fill_word(program: &Program, trace: u32) -> Option<u32> {
    let src = program.steps.iter().find_map(|step| match step {
        ProgramStep::Copy { src, dst, .. } if *dst == trace => Some(*src),
        _ => None,
    })?;
    let word = |step: &ProgramStep| match step {
        ProgramStep::Fill { buffer, word, .. } if *buffer == src => Some(*word),
        _ => None,
    };
    let activation = program.buffers[src as usize].content == Content::Activation;
    activation.then(|| program.steps.iter().find_map(word)).flatten()
}

/// The value, and how many bytes behind it no longer hold what they were filled with.
fn value(
    instance: &Instance,
    device: &mut dyn Device,
    port: &TracedPort,
    symbols: &Symbols,
) -> Result<(Tensor, u64)> {
    let whole = instance.read(device, &port.name, symbols)?;
    let shape = port.ty.sizes(symbols)?;
    let len = tapml_graph::byte_len(port.ty.dtype, &shape);
    let bytes = len.and_then(|len| whole.bytes().slice(0, len));
    let bytes = bytes.ok_or_else(|| Error::bug(format!("a trace of {} is too short", port.ty)))?;
    // Whole words behind the value: a kernel may write the rest of its last word.
    let rest = whole.bytes().get(bytes.len().next_multiple_of(4)..).unwrap_or_default();
    // A device may keep a NaN and not its bits.
    let nan = |word: u32| f32::from_bits(word).is_nan();
    let (words, _) = rest.as_chunks::<4>();
    let held = |word: u32, fill: u32| word == fill || nan(word) && nan(fill);
    let written = |fill: u32| words.iter().filter(|w| !held(u32::from_le_bytes(**w), fill)).count();
    let beyond = port.filled.map_or(0, |fill| 4 * written(fill) as u64);
    // A copy: a slice would keep the whole buffer, which has room for the longest run.
    Ok((Tensor::new(port.ty.dtype, shape, Bytes::new(bytes.to_vec()))?, beyond))
}
