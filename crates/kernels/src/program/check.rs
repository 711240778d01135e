//! What must hold of every program: all indices, sizes and ranges, at every value of the symbols up to the capacity.
//!
//! Programs come from files too. After this check an instance can index buffers, kernels and ranges without looking,
//! and no step reads or writes beyond a buffer that the program itself describes. Kernels are not judged here: what
//! they do within the buffers that they are given is the device's to bound.

use super::{Content, Port, Program, ProgramStep, SCHEMA, Slice};
use crate::plan::program_symbols;
use std::collections::HashSet;
use tapml_device::{BindingKind, Grid, KernelDesc};
use tapml_graph::{Context, Dim, Error, Extent, Result, Symbol, Symbols, TensorType};

/// No buffer is larger than this, so that sums of sizes cannot overflow.
const MAX_BUFFER: u64 = 1 << 40;

impl Program {
    /// Fails unless every index, size and range holds at every value of the symbols up to the capacity.
    pub fn check(&self) -> Result<()> {
        check(self)
    }
}

/// Fails unless the program holds together; errors name the program and the place.
fn check(program: &Program) -> Result<()> {
    inner(program).context(|| format!("program `{}`", program.name.escape_debug()))
}

/// The checks in order: later ones rely on the indices that those before them have accepted.
fn inner(program: &Program) -> Result<()> {
    if program.schema != SCHEMA {
        let text = format!("schema {} is unknown, expected {SCHEMA}", program.schema);
        return Err(Error::unsupported(text).with_hint("compile the model again with this version"));
    }
    symbols(program)?;
    buffers(program)?;
    for (i, kernel) in program.kernels.iter().enumerate() {
        check_kernel(kernel).context(|| format!("kernel {i}"))?;
    }
    for (i, step) in program.steps.iter().enumerate() {
        check_step(program, step).context(|| format!("step {i}"))?;
    }
    ports(program)
}

/// The symbols must be exactly those that kernels know, each with a capacity of 32 bits.
fn symbols(program: &Program) -> Result<()> {
    let expected = program_symbols(&program.capacity);
    if program.symbols != expected {
        return Err(Error::invalid(format!("symbols are {:?}, expected {expected:?}", program.symbols)));
    }
    for &symbol in &program.symbols {
        let most = program.capacity.get(symbol);
        if most.is_none_or(|m| u32::try_from(m).is_err()) {
            return Err(Error::invalid(format!(
                "the capacity of {symbol} is {most:?}, expected a 32-bit number"
            )));
        }
    }
    if program.capacity.iter().count() == program.symbols.len() {
        Ok(())
    } else {
        Err(Error::invalid(format!("the capacity {:?} names other symbols", program.capacity)))
    }
}

/// Sizes are whole words, and hold what is put there when the program is loaded.
fn buffers(program: &Program) -> Result<()> {
    // A run writes the symbols to one place only.
    let uniforms = program.buffers.iter().filter(|b| b.content == Content::Symbols).count();
    if uniforms > 1 {
        return Err(Error::invalid("more than one buffer holds the symbols"));
    }
    for (i, buffer) in program.buffers.iter().enumerate() {
        let held = match &buffer.content {
            Content::Symbols => 16,
            // A range that overflows is larger than any buffer.
            Content::Weight { offset, len, .. } if offset.checked_add(*len).is_none() => u64::MAX,
            Content::Weight { len, .. } => *len,
            Content::Constant(bytes) => bytes.len() as u64,
            Content::Activation | Content::State => 0,
        };
        let size = buffer.size;
        if size < held || !(4..=MAX_BUFFER).contains(&size) || !size.is_multiple_of(4) {
            return Err(Error::invalid(format!("buffer {i} of {size} bytes cannot hold {held} bytes")));
        }
    }
    Ok(())
}

/// Constants must be finite, because JSON and WGSL have no other numbers, and each is set a single time.
fn check_kernel(kernel: &KernelDesc) -> Result<()> {
    let mut names = HashSet::new();
    for (name, value) in &kernel.constants {
        if !value.is_finite() || !names.insert(name) {
            return Err(Error::invalid(format!("constant {name} = {value} is not finite or given twice")));
        }
    }
    if kernel.workgroup.contains(&0) {
        Err(Error::invalid(format!("the workgroup is {:?}", kernel.workgroup)))
    } else {
        Ok(())
    }
}

/// Indices hold, and nothing is written that is a weight, a constant or the symbols.
fn check_step(program: &Program, step: &ProgramStep) -> Result<()> {
    match step {
        ProgramStep::Dispatch { node, row, .. } if row.is_empty() => {
            let text =
                format!("no row of the kernel list explains a launch of node `{}`", node.escape_debug());
            Err(Error::invalid(text).with_hint("compile the model again with this version"))
        }
        ProgramStep::Dispatch { kernel, bindings, groups, .. } => {
            dispatch(program, *kernel, bindings, groups)
        }
        ProgramStep::Copy { src, src_offset, dst, dst_offset, len, .. } => {
            let (from, to) = (size_of(program, *src)?, size_of(program, *dst)?);
            if src == dst || !writable(program, *dst) {
                return Err(Error::invalid(format!("a copy from buffer {src} to {dst}")));
            }
            let read = largest_value(program, src_offset)?.checked_add(largest_value(program, len)?);
            let written = largest_value(program, dst_offset)?.checked_add(largest_value(program, len)?);
            if read.is_some_and(|r| r <= from) && written.is_some_and(|w| w <= to) {
                Ok(())
            } else {
                Err(Error::invalid(format!("a copy beyond buffer {src} or {dst}")))
            }
        }
        ProgramStep::Fill { buffer, .. } => {
            if size_of(program, *buffer).map(|_| writable(program, *buffer))? {
                Ok(())
            } else {
                Err(Error::invalid(format!("a fill of buffer {buffer}, which is not to be written")))
            }
        }
    }
}

/// As many ranges as bindings, each within its buffer and aligned to 256 bytes.
fn dispatch(program: &Program, kernel: u32, bindings: &[Slice], groups: &Grid) -> Result<()> {
    let desc = program.kernels.get(kernel as usize);
    let desc = desc.ok_or_else(|| Error::invalid(format!("no kernel {kernel}")))?;
    if desc.bindings.len() != bindings.len() {
        let (want, have) = (desc.bindings.len(), bindings.len());
        return Err(Error::invalid(format!("kernel {kernel} has {want} bindings, {have} are given")));
    }
    let (mut reads, mut writes) = (HashSet::new(), HashSet::new());
    for (slice, kind) in bindings.iter().zip(&desc.bindings) {
        let size = size_of(program, slice.buffer)?;
        // A size of 0 means to the end, so that the offset itself has to lie within the buffer.
        let end = slice.offset.checked_add(slice.size).filter(|&e| e <= size && slice.offset < size);
        if end.is_none() || !slice.offset.is_multiple_of(256) || !slice.size.is_multiple_of(4) {
            return Err(Error::invalid(format!("{slice:?} does not lie in a buffer of {size} bytes")));
        }
        let fresh = match kind {
            BindingKind::ReadWrite => writable(program, slice.buffer) && writes.insert(slice.buffer),
            BindingKind::Read | BindingKind::Uniform => {
                reads.insert(slice.buffer);
                true
            }
        };
        // WebGPU counts a whole buffer as used: ranges that do not overlap are no excuse.
        if !fresh || reads.intersection(&writes).next().is_some() {
            let text =
                format!("buffer {} is bound twice, and written, or is not to be written", slice.buffer);
            return Err(Error::invalid(text));
        }
    }
    // The device's own limit is not known here; only the arithmetic must not overflow.
    groups.iter().try_for_each(|extent| largest_value(program, extent).map(drop))
}

/// Whether steps may write a buffer; false for a buffer that there is not.
fn writable(program: &Program, buffer: u32) -> bool {
    let content = program.buffers.get(buffer as usize).map(|b| &b.content);
    matches!(content, Some(Content::Activation | Content::State))
}

/// Bytes of a buffer; fails for an index beyond the list.
fn size_of(program: &Program, buffer: u32) -> Result<u64> {
    let plan = program.buffers.get(buffer as usize);
    plan.map(|b| b.size).ok_or_else(|| Error::invalid(format!("no buffer {buffer}")))
}

/// The value at capacity: sizes grow with every symbol.
fn largest_value(program: &Program, extent: &Extent) -> Result<u64> {
    extent.eval(&program.capacity)
}

/// Names are unique among their kind, values at capacity fit their buffers, and inputs and states can be written.
fn ports(program: &Program) -> Result<()> {
    let states =
        program.states.iter().map(|s| Port { name: s.name.clone(), ty: s.ty.clone(), buffer: s.buffer });
    let states: Vec<Port> = states.collect();
    for (what, ports) in [("input", &program.inputs), ("output", &program.outputs), ("state", &states)] {
        let mut names = HashSet::new();
        for port in ports {
            let name = port.name.escape_debug();
            if !names.insert(&port.name) {
                return Err(Error::invalid(format!("two {what}s are named `{name}`")));
            }
            let size = size_of(program, port.buffer).context(|| format!("{what} `{name}`"))?;
            let need = bytes_at_capacity(&port.ty, &program.capacity, program.context);
            if need.is_none_or(|need| need > size) || (what != "output" && !writable(program, port.buffer)) {
                return Err(Error::invalid(format!("{what} `{name}` does not fit buffer {}", port.buffer)));
            }
        }
    }
    Ok(())
}

/// The most elements of a size when each symbol is at most its capacity and `n + p` at most `context`; `None` on
/// overflow. For an affine size the maximum lies where the symbol with the larger factor is as large as it can be.
pub(crate) fn largest(dim: &Dim, capacity: &Symbols, context: Option<u64>) -> Option<u64> {
    let [n, p, s] = [Symbol::N, Symbol::P, Symbol::S].map(|symbol| capacity.get(symbol).unwrap_or(0));
    let context = context.unwrap_or(u64::MAX);
    // One symbol as large as it can be, and the other as large as the context then leaves.
    let corner = |first: u64, second: u64| {
        let a = first.min(context);
        (a, second.min(context - a))
    };
    let (n_first, p_first) = (corner(n, p), corner(p, n));
    let values = [(n_first.0, n_first.1), (p_first.1, p_first.0)]
        .map(|(n, p)| dim.eval(&Symbols::np(n, p).with_symbol(Symbol::S, s)).ok());
    values[0].zip(values[1]).map(|(a, b)| a.max(b))
}

/// The most bytes that a value of this type takes; `None` on overflow or an unknown symbol.
/// Packed dtypes count with all of their sections.
pub(crate) fn bytes_at_capacity(ty: &TensorType, capacity: &Symbols, context: Option<u64>) -> Option<u64> {
    largest(&ty.bytes()?, capacity, context)
}
