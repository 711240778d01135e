//! A program in the making: what the lists of both phases share.

use super::options::CompileOptions;
use super::place::NodePlace;
use crate::cache::key_of;
use crate::memory::Buffers;
use crate::plan::program_symbols;
use crate::program::{Content, Port, Program, ProgramStep, SCHEMA, StatePort, bytes_at_capacity};
use std::collections::HashMap;
use tapml_device::{DeviceInfo, KernelDesc};
use tapml_graph::{Error, Graph, Result, TensorType};

/// A quiet NaN as f32, and as both of two f16 or bf16.
pub const POISON: u32 = 0x7fc1_7fc2;

/// Part of a weight.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct WeightPart {
    name: String,
    /// Its first byte.
    offset: u64,
    /// Bytes.
    len: u64,
}

/// A copy whose destination is not there yet.
pub(super) struct Trace {
    /// Name of the port.
    pub(super) name: String,
    /// Bytes at capacity, in whole words.
    pub(super) size: u64,
    /// Indices of the copies among the program's steps: one for each phase in which the node runs.
    pub(super) steps: Vec<usize>,
}

/// A program in the making: what the lists of both phases share.
///
/// Indices are those of [`Program::buffers`] and [`Program::kernels`].
pub(super) struct Compiler<'a> {
    /// The graph that is compiled; lowered ones have its inputs, results and states.
    pub(super) source: &'a Graph,
    /// Sizes at capacity follow from them.
    pub(super) options: &'a CompileOptions,
    /// All buffers so far; those of activations are shared by both phases too.
    pub(super) buffers: Buffers,
    /// The buffer of each part of a weight that some launch binds.
    pub(super) weights: HashMap<WeightPart, u32>,
    /// Distinct descriptions in the order of their first use.
    pub(super) kernels: Vec<KernelDesc>,
    /// The index of each, by its serialised form.
    pub(super) kernel_index: HashMap<[u8; 32], u32>,
    /// The steps so far, those of the prefill phase first.
    pub(super) steps: Vec<ProgramStep>,
    /// The buffer of the uniform block.
    pub(super) symbols: u32,
    /// The buffer of each input.
    pub(super) inputs: Vec<u32>,
    /// The buffer of each state.
    pub(super) states: Vec<u32>,
    /// The buffers of values that outlive a run, by the values' names.
    pub(super) results: HashMap<String, u32>,
    /// Memory that rows of the kernel list keep to themselves, by row and bytes.
    pub(super) kept: HashMap<(String, u64), u32>,
    /// Most workgroups of a dispatch in each dimension.
    pub(super) max_groups: u32,
    /// Copies for a debugger, whose buffers are added at the end.
    pub(super) traces: Vec<Trace>,
    /// The nodes so far.
    pub(super) places: Vec<NodePlace>,
}

impl<'a> Compiler<'a> {
    /// Adds the buffers that both phases have in common: symbols, inputs and states.
    pub(super) fn new(
        source: &'a Graph,
        info: &DeviceInfo,
        options: &'a CompileOptions,
    ) -> Result<Compiler<'a>> {
        let limit = info.limits.max_binding_size.min(info.limits.max_buffer_size);
        let mut buffers = Buffers::new(options.reuse_memory, limit);
        let symbols = buffers.add("symbols", 16, Content::Symbols)?;
        let mut compiler = Compiler {
            source,
            options,
            buffers,
            weights: HashMap::new(),
            kernels: Vec::new(),
            kernel_index: HashMap::new(),
            steps: Vec::new(),
            symbols,
            inputs: Vec::new(),
            states: Vec::new(),
            results: HashMap::new(),
            kept: HashMap::new(),
            max_groups: info.limits.max_groups_per_dim,
            traces: Vec::new(),
            places: Vec::new(),
        };
        for (_, value) in source.inputs() {
            let size = compiler.bytes(&value.name, &value.ty)?;
            let buffer = compiler.buffers.add(&value.name, size, Content::Activation)?;
            compiler.inputs.push(buffer);
        }
        for state in source.states() {
            // A growing state is larger behind a run than before it: its type before counts `p` rows, that behind it
            // `n + p`.
            let after = compiler.bytes(&state.name, &source.value(state.output).ty)?;
            let size = after.max(compiler.bytes(&state.name, &source.value(state.input).ty)?);
            let buffer = compiler.buffers.add(&state.name, size, Content::State)?;
            compiler.states.push(buffer);
        }
        Ok(compiler)
    }

    /// Bytes of a value at capacity.
    pub(super) fn bytes(&self, name: &str, ty: &TensorType) -> Result<u64> {
        bytes_at_capacity(ty, &self.options.capacity, self.options.context).ok_or_else(|| {
            Error::unsupported(format!("the size of `{name}`, {ty}, at {:?}", self.options.capacity))
        })
    }

    /// The buffer of a part of a weight; 0 bytes mean all from the first on.
    ///
    /// Equal parts share a buffer, in whichever node and phase they are bound.
    pub(super) fn weight(&mut self, name: &str, ty: &TensorType, offset: u64, len: u64) -> Result<u32> {
        let bytes = self.bytes(name, ty)?;
        let len = if len == 0 { bytes.saturating_sub(offset) } else { len };
        // The length is resolved first, so that a part which is all of a weight shares the buffer of the whole.
        let key = WeightPart { name: name.into(), offset, len };
        if let Some(&known) = self.weights.get(&key) {
            return Ok(known);
        }
        let content = Content::Weight { name: name.into(), offset, len };
        // Labels tell parts apart in traces.
        let label = if len == bytes { name.to_string() } else { format!("{name}@{offset}") };
        let added = self.buffers.add(&label, len, content)?;
        self.weights.insert(key, added);
        Ok(added)
    }

    /// The index of a description, which is added at its first use.
    pub(super) fn kernel(&mut self, desc: &KernelDesc) -> Result<u32> {
        let next = self.kernels.len() as u32;
        let index = *self.kernel_index.entry(key_of(desc)?).or_insert(next);
        if index == next {
            self.kernels.push(desc.clone());
        }
        Ok(index)
    }

    /// The memory of this size that a row of the kernel list keeps to itself.
    /// Only launches of that row use it, in any phase, so that nothing else disturbs what they leave there.
    pub(super) fn reserve_memory(&mut self, row: &str, bytes: u64) -> Result<u32> {
        let key = (row.to_string(), bytes);
        if let Some(&buffer) = self.kept.get(&key) {
            return Ok(buffer);
        }
        let buffer = self.buffers.add("kept", bytes, Content::Activation)?;
        self.kept.insert(key, buffer);
        Ok(buffer)
    }

    /// Resolves ports and states. Fails if a weight is an output of the graph itself, since nothing would write it
    /// there.
    pub(super) fn finish(mut self) -> Result<Program> {
        let source = self.source;
        let result = |name: &str, results: &HashMap<String, u32>| {
            // Results were noted by the lists: only a value that no node makes is missing.
            let found = results.get(name).copied();
            found.ok_or_else(|| Error::unsupported(format!("`{name}` is a weight and a result at once")))
        };
        let mut outputs = Vec::new();
        for output in source.outputs() {
            let value = source.value(output.value);
            let buffer = result(&value.name, &self.results)?;
            outputs.push(Port { name: output.name.clone(), ty: value.ty.clone(), buffer });
        }
        let inputs = source.inputs().zip(&self.inputs);
        let inputs = inputs.map(|((_, value), &buffer)| Port {
            name: value.name.clone(),
            ty: value.ty.clone(),
            buffer,
        });
        let inputs = inputs.collect();
        // Traces follow the results, so that the indices of these do not depend on what is traced.
        outputs.extend(self.trace_ports()?);
        let states = source.states().iter().zip(&self.states);
        let states = states.map(|(state, &buffer)| StatePort {
            name: state.name.clone(),
            ty: source.value(state.input).ty.clone(),
            buffer,
            grows: state.grows(source),
        });
        Ok(Program {
            schema: SCHEMA,
            name: source.name().into(),
            symbols: program_symbols(&self.options.capacity),
            capacity: self.options.capacity.clone(),
            context: self.options.context,
            decode_rows: 1,
            states: states.collect(),
            buffers: self.buffers.finish(),
            kernels: self.kernels,
            steps: self.steps,
            inputs,
            outputs,
        })
    }
}
