//! A program loaded on a device: its buffers, kernels and recorded command list.

use crate::cache::KernelCache;
use crate::plan::symbol_bytes;
use crate::program::{Content, Program, Slice, StatePort, Step};
use std::collections::HashSet;
use std::sync::Arc;
use tapml_device::{Binding, BufferId, Command, Device, KernelId, ListId};
use tapml_graph::{Bytes, Context, Error, ErrorKind, Result, Symbols, Tensor, TensorType};

/// A loaded program. Use it with the device it was loaded on, and [`unload`](Instance::unload) it at the end.
#[derive(Debug)]
pub struct Instance {
    program: Arc<Program>,
    buffers: Vec<BufferId>,
    list: ListId,
    symbols: Option<BufferId>,
    /// Kernels that no cache owns.
    kernels: Vec<KernelId>,
}

impl Instance {
    /// Allocates, uploads the weights that `weights` gives by name, compiles the kernels and records the steps.
    /// On failure everything allocated so far is freed.
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
            Err(e) => {
                let freed = cache.clear(device);
                Err(freed.err().filter(|e| e.kind() == ErrorKind::DeviceLost).unwrap_or(e))
            }
        }
    }

    /// As [`Instance::load`], with kernels from a cache that outlives the instance.
    pub fn load_with(
        device: &mut dyn Device,
        cache: &mut KernelCache,
        program: &Program,
        weights: &dyn Fn(&str) -> Result<Tensor>,
    ) -> Result<Instance> {
        program.check()?;
        let mut buffers = Vec::with_capacity(program.buffers.len());
        let loaded = fill(device, program, weights, &mut buffers)
            .and_then(|()| zero_states(device, program, &buffers))
            .and_then(|()| record(device, cache, program, &buffers));
        match loaded {
            Ok(list) => {
                let symbols =
                    program.buffers.iter().position(|b| b.content == Content::Symbols).map(|i| buffers[i]);
                let program = Arc::new(program.clone());
                Ok(Instance { program, buffers, list, symbols, kernels: Vec::new() })
            }
            Err(e) => {
                buffers.into_iter().for_each(|b| drop(device.destroy_buffer(b)));
                Err(e.context(format!("program `{}`", program.name)))
            }
        }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs the program once. Every input must be given once, of exactly the dtype and sizes it has at these symbols.
    ///
    /// A growing state must hold `p` rows and holds `n + p` afterwards. Returns before the work is complete.
    pub fn run(
        &mut self,
        device: &mut dyn Device,
        symbols: &Symbols,
        inputs: &[(&str, &Tensor)],
    ) -> Result<()> {
        self.start(device, symbols, inputs).context(|| format!("program `{}`", self.program.name))
    }

    fn start(&self, device: &mut dyn Device, symbols: &Symbols, inputs: &[(&str, &Tensor)]) -> Result<()> {
        let program = &self.program;
        within_capacity(program, symbols)?;
        for port in &program.inputs {
            if !inputs.iter().any(|(name, _)| *name == port.name) {
                return Err(Error::invalid(format!("input `{}` ({}) is missing", port.name, port.ty)));
            }
        }
        let mut seen = HashSet::new();
        for (name, tensor) in inputs {
            let port = program.inputs.iter().find(|p| p.name == *name);
            let port = port.ok_or_else(|| Error::invalid(format!("there is no input `{name}`")))?;
            if !seen.insert(*name) {
                return Err(Error::invalid(format!("input `{name}` is given twice")));
            }
            expect_type(name, tensor, &port.ty, symbols)?;
            self.write(device, port.buffer, tensor.bytes())?;
        }
        if let Some(buffer) = self.symbols {
            device.write(buffer, 0, &symbol_bytes(symbols)?)?;
        }
        device.replay(self.list, symbols)
    }

    /// Waits for the runs so far and reads an output, with the sizes it has at these symbols: those of the last run.
    pub fn read(&self, device: &mut dyn Device, output: &str, symbols: &Symbols) -> Result<Tensor> {
        let port = self.program.outputs.iter().find(|p| p.name == output);
        let port = port.ok_or_else(|| {
            let names: Vec<&str> = self.program.outputs.iter().map(|p| p.name.as_str()).collect();
            Error::invalid(format!("there is no output `{output}`"))
                .with_hint(format!("outputs: {}", names.join(", ")))
        })?;
        self.fetch(device, port.buffer, &port.ty, symbols)
    }

    /// Waits and reads a state as it is before a run with these symbols: a growing one has `p` rows.
    pub fn read_state(&self, device: &mut dyn Device, state: &str, symbols: &Symbols) -> Result<Tensor> {
        let port = self.state(state)?;
        self.fetch(device, port.buffer, &port.ty, symbols)
    }

    /// Overwrites a state. A growing one takes as many rows as the tensor has; the next run's `p` must be that many.
    pub fn write_state(&mut self, device: &mut dyn Device, state: &str, value: &Tensor) -> Result<()> {
        let port = self.state(state)?;
        let symbols = match (port.grows, value.shape().first()) {
            (true, Some(&rows)) => Symbols::np(0, rows as u64),
            _ => Symbols::np(0, 0),
        };
        expect_type(state, value, &port.ty, &symbols)?;
        self.write(device, port.buffer, value.bytes())
    }

    /// Fills the states of a fixed shape with zeros, which they hold when loaded. Growing ones need nothing: a run with
    /// `p = 0` reads no rows of them.
    pub fn zero_states(&mut self, device: &mut dyn Device) -> Result<()> {
        zero_states(device, &self.program, &self.buffers)
    }

    /// Frees buffers, the list and the kernels that no cache owns.
    pub fn unload(self, device: &mut dyn Device) -> Result<()> {
        let mut result = device.destroy_list(self.list);
        for buffer in self.buffers {
            result = result.and(device.destroy_buffer(buffer));
        }
        for kernel in self.kernels {
            result = result.and(device.destroy_kernel(kernel));
        }
        result
    }

    fn state(&self, name: &str) -> Result<&StatePort> {
        let port = self.program.states.iter().find(|s| s.name == name);
        port.ok_or_else(|| Error::invalid(format!("there is no state `{name}`")))
    }

    fn write(&self, device: &mut dyn Device, buffer: u32, bytes: &[u8]) -> Result<()> {
        let size = self.program.buffers[buffer as usize].size;
        if bytes.len() as u64 > size {
            let (name, have) = (&self.program.buffers[buffer as usize].name, bytes.len());
            return Err(Error::invalid(format!("`{name}` holds {size} bytes, found {have}")));
        }
        write_padded(device, self.buffers[buffer as usize], bytes)
    }

    fn fetch(
        &self,
        device: &mut dyn Device,
        buffer: u32,
        ty: &TensorType,
        symbols: &Symbols,
    ) -> Result<Tensor> {
        let shape = ty.sizes(symbols)?;
        let plan = &self.program.buffers[buffer as usize];
        let len = tapml_graph::byte_len(ty.dtype, &shape).filter(|&len| len as u64 <= plan.size);
        let len =
            len.ok_or_else(|| Error::invalid(format!("{ty} at {symbols:?} is larger than `{}`", plan.name)))?;
        let mut bytes = vec![0; len.next_multiple_of(4)];
        device.read(self.buffers[buffer as usize], 0, &mut bytes)?;
        bytes.truncate(len);
        Tensor::new(ty.dtype, shape, Bytes::new(bytes))
    }
}

fn within_capacity(program: &Program, symbols: &Symbols) -> Result<()> {
    let (mut rows, mut names) = (0u64, Vec::new());
    for &symbol in &program.symbols {
        let value = symbols.get(symbol);
        let value = value.ok_or_else(|| Error::invalid(format!("symbol `{symbol}` is not bound")))?;
        let most = program.capacity.get(symbol).unwrap_or(0);
        if value > most {
            let text = format!("{symbol} = {value} is beyond the {most} that the program was compiled for");
            return Err(Error::invalid(text).with_hint(format!("compile with a larger capacity of {symbol}")));
        }
        rows = rows.saturating_add(value);
        names.push(symbol.to_string());
    }
    match program.context {
        Some(context) if rows > context => {
            let text = format!("{} = {rows} is beyond the context of {context}", names.join(" + "));
            Err(Error::invalid(text))
        }
        _ => Ok(()),
    }
}

fn expect_type(name: &str, tensor: &Tensor, ty: &TensorType, symbols: &Symbols) -> Result<()> {
    let sizes = ty.sizes(symbols)?;
    if tensor.dtype() == ty.dtype && tensor.shape() == sizes {
        return Ok(());
    }
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    Err(Error::invalid(format!("`{name}` must be {ty}, here {}{sizes:?}, found {dtype}{shape:?}", ty.dtype)))
}

/// Writes bytes of any length into a buffer that is at least as long, rounded up to a multiple of 4.
fn write_padded(device: &mut dyn Device, buffer: BufferId, bytes: &[u8]) -> Result<()> {
    let whole = bytes.len() / 4 * 4;
    if whole > 0 {
        device.write(buffer, 0, &bytes[..whole])?;
    }
    if whole < bytes.len() {
        let mut last = [0; 4];
        last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        device.write(buffer, whole as u64, &last)?;
    }
    Ok(())
}

fn fill(
    device: &mut dyn Device,
    program: &Program,
    weights: &dyn Fn(&str) -> Result<Tensor>,
    buffers: &mut Vec<BufferId>,
) -> Result<()> {
    for plan in &program.buffers {
        let buffer = device.create_buffer(&plan.name, plan.size)?;
        buffers.push(buffer);
        match &plan.content {
            Content::Constant(bytes) => write_padded(device, buffer, bytes)?,
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
                write_padded(device, buffer, &bytes)?;
            }
            Content::Symbols | Content::Activation | Content::State => {}
        }
    }
    Ok(())
}

fn zero_states(device: &mut dyn Device, program: &Program, buffers: &[BufferId]) -> Result<()> {
    for state in program.states.iter().filter(|state| !state.grows) {
        let size = program.buffers[state.buffer as usize].size;
        let zeros = vec![0; usize::try_from(size).map_err(|_| Error::invalid("a state is too large"))?];
        device.write(buffers[state.buffer as usize], 0, &zeros)?;
    }
    Ok(())
}

fn record(
    device: &mut dyn Device,
    cache: &mut KernelCache,
    program: &Program,
    buffers: &[BufferId],
) -> Result<ListId> {
    let kernels = program.kernels.iter().map(|k| cache.get(device, k)).collect::<Result<Vec<KernelId>>>()?;
    let buffer = |index: u32| buffers[index as usize];
    let bind = |s: &Slice| Binding { buffer: buffer(s.buffer), offset: s.offset, size: s.size };
    let commands: Vec<Command> = program
        .steps
        .iter()
        .map(|step| match step {
            Step::Dispatch { node, kernel, bindings, groups } => Command::Dispatch {
                label: node.clone(),
                kernel: kernels[*kernel as usize],
                bindings: bindings.iter().map(bind).collect(),
                groups: groups.clone(),
            },
            Step::Copy { src, src_offset, dst, dst_offset, len } => Command::Copy {
                src: buffer(*src),
                src_offset: src_offset.clone(),
                dst: buffer(*dst),
                dst_offset: dst_offset.clone(),
                len: len.clone(),
            },
            Step::Fill { buffer: index, word } => Command::Fill { buffer: buffer(*index), word: *word },
        })
        .collect();
    device.record(&commands)
}
