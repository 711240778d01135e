//! A program on a device whose inputs and outputs are tensors of the caller: nothing is copied that need not be.
//!
//! A program has planned buffers for everything. Those of inputs and outputs that live alone in their
//! buffer are left out, and the caller's tensor takes their place; all others are copied in and out. A list
//! of commands is recorded for each combination of argument buffers and replayed afterwards.

use super::argument::FunctionArgument;
use super::device::{Device, Dropped, ThreadState, write};
use super::tensor::DeviceTensor;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tapml_device::{Binding, BindingKind, BufferId, Command, KernelId, ListId};
use tapml_graph::{Error, Extent, Result, Symbol, Symbols, Tensor as Host, TensorType};
use tapml_kernels::{Content, KernelCache, Phase, Port, Program, ProgramStep, Slice, symbol_bytes};

// Callers usually alternate between a few sets of tensors.
/// Recorded lists that are kept, one for each combination of arguments.
const LISTS: usize = 16;

/// See the module.
pub(super) struct Bound {
    /// Locked for each run.
    device: Device,
    /// Shared with the library that it was uploaded from.
    program: Arc<Program>,
    /// Present unless it is an argument in a call's memory.
    buffers: Vec<Option<BufferId>>,
    /// In the order of the program's kernels.
    kernels: Vec<KernelId>,
    /// Oldest first; the oldest is dropped when there are too many.
    lists: VecDeque<(Vec<BufferId>, ListId)>,
    /// Tokens that the states hold; `None` after a failed run.
    position: Option<u64>,
}

impl Bound {
    /// # Errors
    /// If a kernel does not compile, memory does not suffice, or a weight is missing.
    pub fn load(
        device: &Device,
        program: Arc<Program>,
        weights: &dyn Fn(&str) -> Result<Host>,
    ) -> Result<Bound> {
        let mut bound = Bound {
            device: device.clone(),
            buffers: Vec::with_capacity(program.buffers.len()),
            kernels: Vec::new(),
            lists: VecDeque::new(),
            position: Some(0),
            program,
        };
        bound.fill(weights).map_err(|e| e.context(format!("program `{}`", bound.program.name)))?;
        // Sets the states as later resets do.
        bound.reset()?;
        Ok(bound)
    }

    /// Makes kernels and buffers. On an error the buffers made so far are freed when `Bound` is dropped.
    fn fill(&mut self, weights: &dyn Fn(&str) -> Result<Host>) -> Result<()> {
        // Buffers that a call's own tensors stand for are not made.
        let direct = direct(&self.program);
        let mut state = self.device.lock();
        let ThreadState { device, kernels } = &mut *state;
        self.kernels = compile_kernels(device.as_mut(), kernels, &self.program)?;
        for (index, plan) in self.program.buffers.iter().enumerate() {
            if direct.contains(&(index as u32)) {
                self.buffers.push(None);
                continue;
            }
            let buffer = device.create_buffer(&plan.name, plan.size)?;
            self.buffers.push(Some(buffer));
            match &plan.content {
                Content::Constant(bytes) => write(device.as_mut(), buffer, bytes)?,
                Content::Weight { name, offset, len } => {
                    let tensor = weights(name)?;
                    let range = usize::try_from(*offset).ok().zip(usize::try_from(*len).ok());
                    let bytes = range.and_then(|(offset, len)| tensor.bytes().slice(offset, len));
                    let bytes = bytes.ok_or_else(|| Error::invalid(format!("weight `{name}` ends early")))?;
                    write(device.as_mut(), buffer, &bytes)?;
                }
                // Written by runs.
                Content::Symbols | Content::Activation | Content::State => {}
            }
        }
        Ok(())
    }

    /// Tokens that the states hold.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// What `p` must be: `None` if the arguments say so, because there are no states.
    pub fn past_length(&self) -> Result<Option<u64>> {
        if self.program.states.is_empty() {
            return Ok(None);
        }
        let failed = || {
            Error::invalid("an earlier run failed, so that the states are undefined")
                .with_hint("reset the function and feed the tokens again")
        };
        self.position.ok_or_else(failed).map(Some)
    }

    /// States begin empty, or as zeros.
    pub fn reset(&mut self) -> Result<()> {
        let mut state = self.device.lock();
        // Growing states are read up to `p` only, so that old rows need not be cleared.
        for port in self.program.states.iter().filter(|s| !s.grows) {
            if let Some(buffer) = self.buffers[port.buffer as usize] {
                let size = self.program.buffers[port.buffer as usize].size;
                state.device.write(buffer, 0, &vec![0; size as usize])?;
            }
        }
        self.position = Some(0);
        Ok(())
    }

    /// One run.
    pub fn run<'a>(
        &mut self,
        symbols: &Symbols,
        arguments: impl Iterator<Item = (&'a FunctionArgument, &'a DeviceTensor)>,
    ) -> Result<()> {
        self.within_capacity(symbols)?;
        let mut ports: Vec<(&FunctionArgument, BufferId)> = arguments.map(|(a, t)| (a, t.buffer())).collect();
        // Callers may order arguments in another way than the program does.
        ports.sort_by_key(|(a, _)| (a.output, a.port));
        let ports: Vec<BufferId> = ports.into_iter().map(|(_, buffer)| buffer).collect();
        // Taken out until the run has been started: a failure leaves states that nobody may use.
        let before = self.position.take();
        let device = self.device.clone();
        let mut state = device.lock();
        let list = self.list(&mut state, &ports)?;
        let buffer = self.program.buffers.iter().position(|b| b.content == Content::Symbols);
        // Symbols change from run to run; the recorded list reads them from their buffer.
        if let Some(buffer) = buffer.and_then(|i| self.buffers[i]) {
            state.device.write(buffer, 0, &symbol_bytes(symbols)?)?;
        }
        state.device.replay(list, symbols)?;
        // Without states there is nothing to count.
        let added = if self.program.states.is_empty() { Some(0) } else { symbols.get(Symbol::N) };
        self.position = before.zip(added).map(|(before, added)| before + added);
        Ok(())
    }

    /// A language model's run over `tokens`, in parts of as many as the program takes. Sizes of `n` rows are cut along.
    pub fn run_in_parts<'a>(
        &mut self,
        tokens: u64,
        arguments: impl Iterator<Item = (&'a FunctionArgument, &'a DeviceTensor)>,
    ) -> Result<()> {
        let arguments: Vec<(&FunctionArgument, &DeviceTensor)> = arguments.collect();
        // A part takes as many tokens as the program's activations have room for.
        let most = self.program.capacity.get(Symbol::N).unwrap_or(1).max(1);
        let start = self.past_length()?.unwrap_or(0);
        // All of it, or nothing.
        self.within_context(tokens, start)?;
        if tokens <= most {
            return self.run(&Symbols::np(tokens, start), arguments.into_iter());
        }
        for first in (0..tokens).step_by(most as usize) {
            let symbols = Symbols::np(most.min(tokens - first), start + first);
            // Each part has tensors of its own: an argument is bound from its first byte.
            let part = |(a, t): &(&FunctionArgument, &DeviceTensor)| {
                DeviceTensor::reserve(&self.device, a.ty.sizes(&symbols)?, t.dtype())
            };
            let parts = arguments.iter().map(part).collect::<Result<Vec<_>>>()?;
            self.cut(&arguments, &parts, first, false)?;
            self.run(&symbols, arguments.iter().map(|(a, _)| *a).zip(&parts))?;
            self.cut(&arguments, &parts, first, true)?;
        }
        Ok(())
    }

    /// Copies rows from `first` on between arguments and their parts: inputs into the parts, or outputs out of them.
    fn cut(
        &mut self,
        arguments: &[(&FunctionArgument, &DeviceTensor)],
        parts: &[DeviceTensor],
        first: u64,
        outputs: bool,
    ) -> Result<()> {
        let mut commands = Vec::new();
        for ((argument, whole), part) in arguments.iter().zip(parts).filter(|((a, _), _)| a.output == outputs)
        {
            // Arguments without a size of `n` go to every part as they are; of outputs the last part's
            // stay.
            let cut = argument.ty.shape.first().is_some_and(|dim| dim.symbols().any(|s| s == Symbol::N));
            let row = part.bytes() / part.shape().first().copied().unwrap_or(1).max(1);
            let at = Extent::from_dim(if cut { first * row as u64 } else { 0 });
            let (zero, len) = (Extent::from_dim(0u64), Extent::from_dim(part.bytes() as u64));
            commands.push(if outputs {
                copy((part.buffer(), zero), (whole.buffer(), at), len)
            } else {
                copy((whole.buffer(), at), (part.buffer(), zero), len)
            });
        }
        let mut state = self.device.lock();
        let list = state.device.record(&commands)?;
        state.device.replay(list, &Symbols::np(0, 0))?;
        state.device.destroy_list(list)
    }

    /// Fails if a symbol is larger than the program has room for.
    fn within_capacity(&self, symbols: &Symbols) -> Result<()> {
        for &symbol in &self.program.symbols {
            let (value, most) = (symbols.get(symbol), self.program.capacity.get(symbol));
            let (Some(value), Some(most)) = (value, most) else { continue };
            if value > most {
                let option = if symbol == Symbol::N { "step" } else { "context" };
                let text = format!("{symbol} = {value} is beyond the {most} that it was compiled for");
                return Err(Error::invalid(text).with_hint(format!("compile with a larger `{option}`")));
            }
        }
        self.within_context(symbols.get(Symbol::N).unwrap_or(0), symbols.get(Symbol::P).unwrap_or(0))
    }

    /// Fails if the model was not made for so many positions.
    pub(super) fn within_context(&self, tokens: u64, past: u64) -> Result<()> {
        match self.program.context {
            Some(context) if tokens.saturating_add(past) > context => Err(Error::invalid(format!(
                "{tokens} tokens after {past} do not fit into a context of {context}"
            ))
            .with_hint("compile with a larger `context`, or begin anew with `prefill`")),
            _ => Ok(()),
        }
    }

    /// The list that runs the program with these arguments: inputs, then outputs.
    fn list(&mut self, state: &mut ThreadState, ports: &[BufferId]) -> Result<ListId> {
        // At most [`LISTS`], so that a search is cheap.
        if let Some((_, list)) = self.lists.iter().find(|(known, _)| known == ports) {
            return Ok(*list);
        }
        let commands = self.commands(ports)?;
        let list = state.device.record(&commands)?;
        self.lists.push_back((ports.to_vec(), list));
        if self.lists.len() > LISTS
            && let Some((_, old)) = self.lists.pop_front()
        {
            state.device.destroy_list(old)?;
        }
        Ok(list)
    }

    /// Copies in, the program's steps, copies out.
    fn commands(&self, arguments: &[BufferId]) -> Result<Vec<Command>> {
        let program = &self.program;
        let ports: Vec<(&Port, BufferId)> =
            program.inputs.iter().chain(&program.outputs).zip(arguments.iter().copied()).collect();
        let buffer = |index: u32| -> Result<BufferId> {
            // The program's own buffer, else the argument that takes its place.
            let own = self.buffers.get(index as usize).copied().flatten();
            let given = || ports.iter().find(|(port, _)| port.buffer == index).map(|(_, buffer)| *buffer);
            own.or_else(given).ok_or_else(|| Error::bug(format!("buffer {index} is nowhere")))
        };
        let mut commands = Vec::new();
        let copied = |output: bool| {
            let inputs = program.inputs.len();
            let side = if output { &ports[inputs..] } else { &ports[..inputs] };
            side.iter().filter_map(|(port, given)| Some((*port, *given, self.buffers[port.buffer as usize]?)))
        };
        for (port, given, own) in copied(false) {
            commands.push(copy(
                (given, Extent::from_dim(0u64)),
                (own, Extent::from_dim(0u64)),
                length(&port.ty)?,
            ));
        }
        // Steps of prefill serve every number of rows; the decode variants are for graphs of one row.
        for step in program.steps.iter().filter(|step| step.runs_in(Phase::Prefill)) {
            commands.push(command(step, &self.kernels, &buffer)?);
        }
        for (port, given, own) in copied(true) {
            commands.push(copy(
                (own, Extent::from_dim(0u64)),
                (given, Extent::from_dim(0u64)),
                length(&port.ty)?,
            ));
        }
        Ok(commands)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let lists = self.lists.drain(..).map(|(_, list)| Dropped::List(list));
        self.device.give_back(lists.chain(self.buffers.drain(..).flatten().map(Dropped::Buffer)));
    }
}

/// Buffers of a program that an argument may stand for: those of one input or output alone that hold nothing else in
/// the run. Intermediate values may have shared the buffer of an output, and be larger.
fn direct(program: &Program) -> HashSet<u32> {
    let ports = || program.inputs.iter().chain(&program.outputs).map(|p| p.buffer);
    // A state must outlive the call.
    let states: HashSet<u32> = program.states.iter().map(|s| s.buffer).collect();
    let once = |buffer: &u32| ports().filter(|b| b == buffer).count() == 1;
    ports().filter(|b| once(b) && !states.contains(b) && writers(program, *b) <= 1).collect()
}

/// How many nodes write a buffer.
fn writers(program: &Program, buffer: u32) -> usize {
    let mut nodes = HashSet::new();
    for step in &program.steps {
        match step {
            ProgramStep::Dispatch { node, kernel, bindings, .. } => {
                let kinds = program.kernels.get(*kernel as usize).map_or(&[][..], |k| &k.bindings);
                let writes = |(slice, kind): (&Slice, &BindingKind)| {
                    slice.buffer == buffer && *kind == BindingKind::ReadWrite
                };
                if bindings.iter().zip(kinds).any(writes) {
                    nodes.insert(node.as_str());
                }
            }
            // Copies and fills may write a part; such a buffer is never the caller's own.
            ProgramStep::Copy { dst, .. } if *dst == buffer => return usize::MAX,
            ProgramStep::Fill { buffer: filled, .. } if *filled == buffer => return usize::MAX,
            ProgramStep::Copy { .. } | ProgramStep::Fill { .. } => {}
        }
    }
    nodes.len()
}

/// Bytes of a value, as a copy takes them: multiples of 4.
fn length(ty: &TensorType) -> Result<Extent> {
    let bytes = ty.bytes().ok_or_else(|| Error::unsupported(format!("{ty} is too large")))?;
    if let Some(constant) = bytes.as_const() {
        return Ok(Extent::from_dim(constant.next_multiple_of(4)));
    }
    // Bytes are linear in `n` and `p`: three points tell.
    let words = [(0, 0), (1, 0), (0, 1)]
        .iter()
        .all(|&(n, p)| bytes.eval(&Symbols::np(n, p)).is_ok_and(|len| len.is_multiple_of(4)));
    if words {
        Ok(Extent::from_dim(bytes))
    } else {
        Err(Error::unsupported(format!("an argument of type {ty} does not end at a multiple of 4 bytes")))
    }
}

/// A copy of `len` bytes.
fn copy(
    (src, src_offset): (BufferId, Extent),
    (dst, dst_offset): (BufferId, Extent),
    len: Extent,
) -> Command {
    Command::Copy { src, src_offset, dst, dst_offset, len }
}

/// A step of the program as a command on these buffers.
fn command(
    step: &ProgramStep,
    kernels: &[KernelId],
    buffer: &dyn Fn(u32) -> Result<BufferId>,
) -> Result<Command> {
    Ok(match step {
        ProgramStep::Dispatch { node, kernel, bindings, groups, .. } => {
            let bind = |s: &Slice| Ok(Binding { buffer: buffer(s.buffer)?, offset: s.offset, size: s.size });
            let kernel = kernels.get(*kernel as usize).copied();
            Command::Dispatch {
                label: node.clone(),
                kernel: kernel.ok_or_else(|| Error::bug("a step runs a kernel that is not there"))?,
                bindings: bindings.iter().map(bind).collect::<Result<_>>()?,
                groups: groups.clone(),
            }
        }
        ProgramStep::Copy { src, src_offset, dst, dst_offset, len, .. } => Command::Copy {
            src: buffer(*src)?,
            src_offset: src_offset.clone(),
            dst: buffer(*dst)?,
            dst_offset: dst_offset.clone(),
            len: len.clone(),
        },
        ProgramStep::Fill { buffer: index, word, .. } => {
            Command::Fill { buffer: buffer(*index)?, word: *word }
        }
    })
}

/// The kernels that programs were compiled to stay compiled as long as the device is open.
fn compile_kernels(
    device: &mut dyn tapml_device::Device,
    cache: &mut KernelCache,
    program: &Program,
) -> Result<Vec<KernelId>> {
    program.kernels.iter().map(|kernel| cache.get(device, kernel)).collect()
}
