//! Tracing: copies of what a node finds in its inputs and leaves in its outputs, taken within the program, so that a
//! debugger sees the values under the very memory plan, order and submission that is deployed.

use super::compiler::{Compiler, Trace};
use super::list::StepList;
use crate::program::{Content, Port, ProgramStep};
use tapml_graph::{DType, Extent, Node, Origin, Result, TensorType, ValueId};

/// Which value of a node a trace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TracedValue {
    /// What the node found in this input before its first dispatch.
    Input(usize),
    /// What the node left in this output after its last dispatch.
    Output(usize),
}

/// The name of the program's output that holds this value of a traced node: whole buffers at capacity, as `u32` words.
/// Values of the graph cannot have such a name.
pub fn trace_port(node: &str, value: TracedValue) -> String {
    match value {
        TracedValue::Input(k) => format!("{PREFIX}in{k} {node}"),
        TracedValue::Output(k) => format!("{PREFIX}out{k} {node}"),
    }
}

/// Whether an output of a program is a trace.
pub fn is_trace(port: &str) -> bool {
    port.starts_with(PREFIX)
}

/// No name of a graph contains a space.
const PREFIX: &str = "trace ";

impl StepList<'_, '_> {
    /// Copies the inputs of a traced node, weights excepted, as they are now.
    /// Weights do not change, and lie in parts.
    pub(super) fn trace_inputs(&mut self, node: &Node) -> Result<()> {
        if !self.compiler.options.trace.contains(&node.name) {
            return Ok(());
        }
        for (k, &value) in node.inputs.iter().enumerate() {
            if self.graph.value(value).origin != Origin::Weight {
                self.trace(node, value, TracedValue::Input(k))?;
            }
        }
        Ok(())
    }

    /// Copies the outputs of a traced node as they are now.
    pub(super) fn trace_outputs(&mut self, node: &Node) -> Result<()> {
        if !self.compiler.options.trace.contains(&node.name) {
            return Ok(());
        }
        let mut outputs = node.outputs.iter().enumerate();
        outputs.try_for_each(|(k, &value)| self.trace(node, value, TracedValue::Output(k)))
    }

    /// Adds the copy of a value; its destination is filled in by [`Compiler::trace_ports`].
    fn trace(&mut self, node: &Node, value: ValueId, what: TracedValue) -> Result<()> {
        let described = self.graph.value(value);
        let size = self.compiler.bytes(&described.name, &described.ty)?.max(4).next_multiple_of(4);
        let src = self.home(value)?;
        let (src_offset, dst_offset) = (Extent::from_dim(0u64), Extent::from_dim(0u64));
        let (compiler, phase) = (&mut *self.compiler, self.phase);
        // A buffer may still grow while others are placed; the value fits what it has at this time.
        let len = Extent::from_dim(size.min(compiler.buffers.size(src)));
        let (name, step) = (trace_port(&node.name, what), compiler.steps.len());
        match compiler.traces.iter_mut().find(|trace| trace.name == name) {
            Some(known) => known.steps.push(step),
            None => compiler.traces.push(Trace { name, size, steps: vec![step] }),
        }
        // `u32::MAX` is no buffer: a copy that was forgotten would fail the check of the program.
        compiler.steps.push(ProgramStep::Copy { src, src_offset, dst: u32::MAX, dst_offset, len, phase });
        Ok(())
    }
}

impl Compiler<'_> {
    /// The outputs that hold the traces. Their buffers come last, so that all others are and are called what they would
    /// be without.
    pub(super) fn trace_ports(&mut self) -> Result<Vec<Port>> {
        let mut ports = Vec::new();
        for Trace { name, size, steps } in std::mem::take(&mut self.traces) {
            let buffer = self.buffers.add(&name, size, Content::Activation)?;
            for step in steps {
                if let Some(ProgramStep::Copy { dst, .. }) = self.steps.get_mut(step) {
                    *dst = buffer;
                }
            }
            ports.push(Port { name, ty: TensorType::new(DType::U32, [size / 4]), buffer });
        }
        Ok(ports)
    }
}
