//! A program loaded on a device: its buffers, kernels and recorded command list.
//!
//! Loading allocates every buffer at its size at capacity and records the command lists. A run writes inputs and
//! symbols and submits a list: no memory is allocated on the device, and no kernel compiled, between runs. Methods
//! take `&mut dyn Device`, so that runs of one device come one after the other.

mod outputs;

use crate::cache::KernelCache;
use crate::plan::{Phase, symbol_bytes};
use crate::program::{Content, Port, Program, ProgramStep, Slice, StatePort};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use tapml_device::{Binding, BufferId, Command, Device, Get, KernelId, ListId, PeerMemory, Put};
use tapml_graph::{Bytes, Context, Error, ErrorKind, MEETING, Result, Symbol, Symbols, Tensor, TensorType};

/// A loaded program. Use it with the device it was loaded on, and [`unload`](Instance::unload) it at the end.
#[derive(Debug)]
pub struct Instance {
    /// Checked when it was loaded; indices into it hold.
    program: Arc<Program>,
    /// One for each buffer of the program, in its order.
    buffers: Vec<BufferId>,
    /// The steps of a prompt; of any run if there is no list for the other phase.
    list: ListId,
    /// The steps of a run of one row, if they differ.
    decode: Option<ListId>,
    /// The buffer of the uniform block, if the program has one.
    symbols: Option<BufferId>,
    /// The steps of one row that feed the next one, once they were asked for.
    pub(crate) greedy_list: Option<ListId>,
    /// The steps of each node, and what follows the last one, once a node was looked at.
    pub(crate) node_lists: Vec<Option<ListId>>,
    /// Kernels that no cache owns.
    kernels: Vec<KernelId>,
}

impl Instance {
    /// Allocates, uploads the weights that `weights` gives by name, compiles the kernels and records the steps.
    /// On failure everything allocated so far is freed.
    ///
    /// # Errors
    /// As [`Instance::load_with`]. A lost device takes the place of the error that led there.
    pub fn load(
        device: &mut dyn Device,
        program: &Program,
        weights: &dyn Fn(&str) -> Result<Tensor>,
    ) -> Result<Instance> {
        let mut cache = KernelCache::new();
        match Instance::load_with(device, &mut cache, program, weights) {
            Ok(mut instance) => {
                instance.kernels = cache.into_ids();
                Ok(instance)
            }
            // Kernels that cannot be freed on a lost device are a consequence: the loss is what a caller must know
            // of.
            Err(e) => {
                let freed = cache.clear(device);
                Err(freed.err().filter(|e| e.kind() == ErrorKind::DeviceLost).unwrap_or(e))
            }
        }
    }

    /// As [`Instance::load`], with kernels from a cache that outlives the instance.
    ///
    /// `weights` is asked for each part of a weight that some buffer holds, in the order of the buffers.
    ///
    /// # Errors
    /// If the program does not hold together, the device refuses something, or a weight is missing or too short.
    pub fn load_with(
        device: &mut dyn Device,
        cache: &mut KernelCache,
        program: &Program,
        weights: &dyn Fn(&str) -> Result<Tensor>,
    ) -> Result<Instance> {
        Instance::load_for_rank(device, cache, program, weights, &[])
    }

    /// As [`Instance::load_with`] for a program of one rank's graph: these memories stand for the weights `meeting@0`,
    /// `meeting@1`, ….
    ///
    /// # Errors
    /// As [`Instance::load_with`], and if the device cannot use a memory.
    pub fn load_for_rank(
        device: &mut dyn Device,
        cache: &mut KernelCache,
        program: &Program,
        weights: &dyn Fn(&str) -> Result<Tensor>,
        memories: &[PeerMemory],
    ) -> Result<Instance> {
        program.check()?;
        let mut buffers = Vec::with_capacity(program.buffers.len());
        let loaded = fill(device, program, weights, memories, &mut buffers)
            .and_then(|()| zero_states(device, program, &buffers))
            .and_then(|()| record_all(device, cache, program, &buffers));
        match loaded {
            Ok((list, decode)) => {
                let symbols =
                    program.buffers.iter().position(|b| b.content == Content::Symbols).map(|i| buffers[i]);
                let program = Arc::new(program.clone());
                Ok(Instance {
                    program,
                    buffers,
                    list,
                    decode,
                    symbols,
                    greedy_list: None,
                    node_lists: Vec::new(),
                    kernels: Vec::new(),
                })
            }
            Err(e) => {
                // The first error is the one to tell; freeing after it is an attempt.
                buffers.into_iter().for_each(|b| drop(device.destroy_buffer(b)));
                Err(e.context(format!("program `{}`", program.name)))
            }
        }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The device's buffer in the place of one of the program.
    pub(crate) fn buffer(&self, index: u32) -> BufferId {
        self.buffers[index as usize]
    }

    /// See [`Instance::load`]; `None` for a program whose kernels bind no symbols.
    pub(crate) fn symbols(&self) -> Option<BufferId> {
        self.symbols
    }

    /// Runs the program once. Every input must be given once, of exactly the dtype and sizes it has at these symbols.
    ///
    /// A growing state must hold `p` rows and holds `n + p` afterwards. Returns before the work is complete.
    ///
    /// # Errors
    /// `InvalidInput` for symbols beyond the capacity, and for inputs that are missing, unknown, doubled or of
    /// another type.
    pub fn run(
        &mut self,
        device: &mut dyn Device,
        symbols: &Symbols,
        inputs: &[(&str, &Tensor)],
    ) -> Result<()> {
        self.step(device, symbols, inputs, &[]).map(drop)
    }

    /// Checks symbols and inputs, and submits the list of the phase with writes before it and reads behind it.
    fn start(
        &self,
        device: &mut dyn Device,
        symbols: &Symbols,
        inputs: &[(&str, &Tensor)],
        gets: &mut [Get<'_>],
    ) -> Result<()> {
        let data = self.writes(symbols, inputs)?;
        let puts: Vec<Put<'_>> =
            data.iter().map(|(buffer, data)| Put { buffer: *buffer, offset: 0, data }).collect();
        // Without a list for decode steps the other one serves both phases.
        // The number of rows decides, also for a prompt of one token.
        let is_decode =
            symbols.get(Symbol::N).is_some_and(|rows| (1..=self.program.decode_rows).contains(&rows));
        let list = self.decode.filter(|_| is_decode).unwrap_or(self.list);
        device.step(list, symbols, &puts, gets)
    }

    /// What a run writes before its first step. All inputs are checked.
    pub(crate) fn writes<'t>(
        &self,
        symbols: &Symbols,
        inputs: &[(&str, &'t Tensor)],
    ) -> Result<Vec<(BufferId, Cow<'t, [u8]>)>> {
        let program = &self.program;
        expect_within(program, symbols)?;
        for port in &program.inputs {
            if !inputs.iter().any(|(name, _)| *name == port.name) {
                return Err(Error::invalid(format!("input `{}` ({}) is missing", port.name, port.ty)));
            }
        }
        // All inputs are checked before anything is written.
        let (mut seen, mut data) = (HashSet::new(), Vec::new());
        for (name, tensor) in inputs {
            let port = program.inputs.iter().find(|p| p.name == *name);
            let port = port.ok_or_else(|| Error::invalid(format!("there is no input `{name}`")))?;
            if !seen.insert(*name) {
                return Err(Error::invalid(format!("input `{name}` is given twice")));
            }
            expect_type(name, tensor, &port.ty, symbols)?;
            data.push((self.room(port.buffer, tensor.bytes())?, pad_to_words(tensor.bytes())));
        }
        if let Some(buffer) = self.symbols {
            data.push((buffer, Cow::Owned(symbol_bytes(symbols)?.to_vec())));
        }
        data.retain(|(_, data)| !data.is_empty());
        Ok(data)
    }

    /// Waits and reads a state as it is before a run with these symbols: a growing one has `p` rows.
    pub fn read_state(&self, device: &mut dyn Device, state: &str, symbols: &Symbols) -> Result<Tensor> {
        let port = self.state(state)?;
        self.fetch(device, port.buffer, &port.ty, symbols)
    }

    /// Overwrites a state. A growing one takes as many rows as the tensor has; the next run's `p` must be that many.
    ///
    /// # Errors
    /// `InvalidInput` if dtype or sizes differ, or if the rows do not fit the state at capacity.
    pub fn write_state(&mut self, device: &mut dyn Device, state: &str, value: &Tensor) -> Result<()> {
        let port = self.state(state)?;
        let symbols = match (port.grows, value.shape().first()) {
            // The type of a growing state counts its rows by `p`.
            (true, Some(&rows)) => Symbols::np(0, rows as u64),
            _ => Symbols::np(0, 0),
        };
        expect_type(state, value, &port.ty, &symbols)?;
        write_all(device, self.room(port.buffer, value.bytes())?, value.bytes())
    }

    /// Fills the states of a fixed shape with zeros, which they hold when loaded. Growing ones need nothing: a run with
    /// `p = 0` reads no rows of them.
    pub fn zero_states(&mut self, device: &mut dyn Device) -> Result<()> {
        zero_states(device, &self.program, &self.buffers)
    }

    /// Frees buffers, the list and the kernels that no cache owns.
    ///
    /// # Errors
    /// The first error of the device; everything else is freed all the same.
    pub fn unload(self, device: &mut dyn Device) -> Result<()> {
        let mut result = device.destroy_list(self.list);
        for list in
            self.decode.into_iter().chain(self.greedy_list).chain(self.node_lists.into_iter().flatten())
        {
            // `and` keeps the first error, and the call is made in any case.
            result = result.and(device.destroy_list(list));
        }
        for buffer in self.buffers {
            result = result.and(device.destroy_buffer(buffer));
        }
        for kernel in self.kernels {
            result = result.and(device.destroy_kernel(kernel));
        }
        result
    }

    /// The state of this name.
    fn state(&self, name: &str) -> Result<&StatePort> {
        let port = self.program.states.iter().find(|s| s.name == name);
        port.ok_or_else(|| Error::invalid(format!("there is no state `{name}`")))
    }

    /// The output of this name; the error lists those that there are.
    fn output(&self, name: &str) -> Result<&Port> {
        let port = self.program.outputs.iter().find(|p| p.name == name);
        port.ok_or_else(|| {
            let names: Vec<&str> = self.program.outputs.iter().map(|p| p.name.as_str()).collect();
            Error::invalid(format!("there is no output `{name}`"))
                .with_hint(format!("outputs: {}", names.join(", ")))
        })
    }

    /// The buffer, if it has room for these bytes.
    /// Writes begin at byte 0, so that only the length matters.
    fn room(&self, buffer: u32, bytes: &[u8]) -> Result<BufferId> {
        let size = self.program.buffers[buffer as usize].size;
        if bytes.len() as u64 > size {
            let (name, have) = (&self.program.buffers[buffer as usize].name, bytes.len());
            return Err(Error::invalid(format!("`{name}` holds {size} bytes, found {have}")));
        }
        Ok(self.buffers[buffer as usize])
    }

    /// The sizes and bytes of a value of this type in a buffer.
    pub(crate) fn sizes(
        &self,
        buffer: u32,
        ty: &TensorType,
        symbols: &Symbols,
    ) -> Result<(Vec<usize>, usize)> {
        let shape = ty.sizes(symbols)?;
        let plan = &self.program.buffers[buffer as usize];
        let len = tapml_graph::byte_len(ty.dtype, &shape).filter(|&len| len as u64 <= plan.size);
        let len =
            len.ok_or_else(|| Error::invalid(format!("{ty} at {symbols:?} is larger than `{}`", plan.name)))?;
        Ok((shape, len))
    }

    /// Waits and reads a value of this type from the beginning of a buffer.
    pub(crate) fn fetch(
        &self,
        device: &mut dyn Device,
        buffer: u32,
        ty: &TensorType,
        symbols: &Symbols,
    ) -> Result<Tensor> {
        let (shape, len) = self.sizes(buffer, ty, symbols)?;
        // Devices read whole words.
        let mut bytes = vec![0; len.next_multiple_of(4)];
        device.read(self.buffers[buffer as usize], 0, &mut bytes)?;
        bytes.truncate(len);
        Tensor::new(ty.dtype, shape, Bytes::new(bytes))
    }
}

/// Fails if the symbols are beyond what the program was compiled for.
///
/// Buffers are sized by the capacity, so that this keeps kernels within them.
pub(crate) fn expect_within(program: &Program, symbols: &Symbols) -> Result<()> {
    let (mut rows, mut names) = (0u64, Vec::new());
    for &symbol in &program.symbols {
        let value = symbols.get(symbol);
        let value = value.ok_or_else(|| Error::invalid(format!("symbol `{symbol}` is not bound")))?;
        let most = program.capacity.get(symbol).unwrap_or(0);
        if value > most {
            let text = format!("{symbol} = {value} is beyond the {most} that the program was compiled for");
            return Err(Error::invalid(text).with_hint(format!("compile with a larger capacity of {symbol}")));
        }
        // Rows whose logits are wanted are among the others.
        if symbol != Symbol::S {
            rows = rows.saturating_add(value);
            names.push(symbol.to_string());
        }
    }
    // The context bounds the sum of new and cached rows, each of which may be within its own capacity.
    match program.context {
        Some(context) if rows > context => {
            let text = format!("{} = {rows} is beyond the context of {context}", names.join(" + "));
            Err(Error::invalid(text))
        }
        _ => Ok(()),
    }
}

/// Fails unless the tensor has the dtype and the sizes that this type has at these symbols.
fn expect_type(name: &str, tensor: &Tensor, ty: &TensorType, symbols: &Symbols) -> Result<()> {
    let sizes = ty.sizes(symbols)?;
    if tensor.dtype() == ty.dtype && tensor.shape() == sizes {
        return Ok(());
    }
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    Err(Error::invalid(format!("`{name}` must be {ty}, here {}{sizes:?}, found {dtype}{shape:?}", ty.dtype)))
}

/// Bytes of any length in whole words, as devices take them.
/// Bytes behind the end are zero.
fn pad_to_words(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.len().is_multiple_of(4) {
        return Cow::Borrowed(bytes);
    }
    let mut words = bytes.to_vec();
    words.resize(bytes.len().next_multiple_of(4), 0);
    Cow::Owned(words)
}

/// Writes bytes at the beginning of a buffer; devices take no empty writes.
fn write_all(device: &mut dyn Device, buffer: BufferId, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() { Ok(()) } else { device.write(buffer, 0, &pad_to_words(bytes)) }
}

/// The memory of a rank that a weight stands for; `None` if it is a weight.
fn rank_memory<'a>(content: &Content, memories: &'a [PeerMemory]) -> Option<&'a PeerMemory> {
    let Content::Weight { name, .. } = content else { return None };
    memories.get(name.strip_prefix(MEETING)?.parse::<usize>().ok()?)
}

/// Creates the buffers and writes weights and constants. `buffers` holds those created so far even on failure.
fn fill(
    device: &mut dyn Device,
    program: &Program,
    weights: &dyn Fn(&str) -> Result<Tensor>,
    memories: &[PeerMemory],
    buffers: &mut Vec<BufferId>,
) -> Result<()> {
    for plan in &program.buffers {
        if let Some(memory) = rank_memory(&plan.content, memories) {
            if memory.size() != plan.size {
                let (name, size, found) = (&plan.name, plan.size, memory.size());
                return Err(Error::invalid(format!("`{name}`: expected {size} bytes, found {found}")));
            }
            buffers.push(device.import_buffer(&plan.name, memory)?);
            continue;
        }
        let buffer = device.create_buffer(&plan.name, plan.size)?;
        buffers.push(buffer);
        match &plan.content {
            Content::Constant(bytes) => write_all(device, buffer, bytes)?,
            Content::Weight { name, offset, len } => {
                let tensor = weights(name).context(|| format!("weight `{name}`"))?;
                let range = usize::try_from(*offset).ok().zip(usize::try_from(*len).ok());
                let bytes = range.and_then(|(offset, len)| tensor.bytes().slice(offset, len));
                let bytes = bytes.ok_or_else(|| {
                    let have = tensor.bytes().len();
                    Error::invalid(format!(
                        "weight `{name}`: expected {len} bytes at {offset}, found {have} in all"
                    ))
                })?;
                write_all(device, buffer, &bytes)?;
            }
            // Written by runs; states are zeroed afterwards.
            Content::Symbols | Content::Activation | Content::State => {}
        }
    }
    Ok(())
}

/// Fills states that do not grow with zeros, in full. Growing ones are read only up to rows that a run has written.
fn zero_states(device: &mut dyn Device, program: &Program, buffers: &[BufferId]) -> Result<()> {
    for state in program.states.iter().filter(|state| !state.grows) {
        let size = program.buffers[state.buffer as usize].size;
        let zeros = vec![0; usize::try_from(size).map_err(|_| Error::invalid("a state is too large"))?];
        device.write(buffers[state.buffer as usize], 0, &zeros)?;
    }
    Ok(())
}

/// The list of prompts, which serves any run if no step minds, and that of runs of one row if any does.
fn record_all(
    device: &mut dyn Device,
    cache: &mut KernelCache,
    program: &Program,
    buffers: &[BufferId],
) -> Result<(ListId, Option<ListId>)> {
    let kernels = program.kernels.iter().map(|k| cache.get(device, k)).collect::<Result<Vec<KernelId>>>()?;
    let place = |_: &ProgramStep, index: u32| buffers[index as usize];
    let prefill = device.record(&commands(program, &kernels, &place, Phase::Prefill))?;
    // Steps without a phase serve both: one list is enough.
    if program.steps.iter().all(|step| step.phase().is_none()) {
        return Ok((prefill, None));
    }
    match device.record(&commands(program, &kernels, &place, Phase::Decode)) {
        Ok(decode) => Ok((prefill, Some(decode))),
        // No list may outlive a failed load: the caller frees buffers alone.
        Err(e) => {
            drop(device.destroy_list(prefill));
            Err(e)
        }
    }
}

/// The steps of a phase as commands; `place` gives the buffer that a step takes for one of the program.
///
/// Grids, offsets and lengths stay expressions of the symbols, which the device evaluates in each run.
pub(crate) fn commands(
    program: &Program,
    kernels: &[KernelId],
    place: &dyn Fn(&ProgramStep, u32) -> BufferId,
    phase: Phase,
) -> Vec<Command> {
    commands_of(program.steps.iter().filter(|step| step.runs_in(phase)), kernels, place)
}

/// These steps as commands.
pub(crate) fn commands_of<'a>(
    steps: impl Iterator<Item = &'a ProgramStep>,
    kernels: &[KernelId],
    place: &dyn Fn(&ProgramStep, u32) -> BufferId,
) -> Vec<Command> {
    steps
        .map(|step| {
            let buffer = |index: u32| place(step, index);
            let bind = |s: &Slice| Binding { buffer: buffer(s.buffer), offset: s.offset, size: s.size };
            match step {
                ProgramStep::Dispatch { node, kernel, bindings, groups, .. } => Command::Dispatch {
                    label: node.clone(),
                    kernel: kernels[*kernel as usize],
                    bindings: bindings.iter().map(bind).collect(),
                    groups: groups.clone(),
                },
                ProgramStep::Copy { src, src_offset, dst, dst_offset, len, .. } => Command::Copy {
                    src: buffer(*src),
                    src_offset: src_offset.clone(),
                    dst: buffer(*dst),
                    dst_offset: dst_offset.clone(),
                    len: len.clone(),
                },
                ProgramStep::Fill { buffer: index, word, .. } => {
                    Command::Fill { buffer: buffer(*index), word: *word }
                }
            }
        })
        .collect()
}
