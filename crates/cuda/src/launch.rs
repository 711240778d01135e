//! Commands with all their sizes known, and how they are handed to the driver.
//!
//! A call holds handles of buffers, not addresses, except in arguments of kernels. Graphs are captured from
//! the same calls that run one by one, so both do the same.

use crate::compile::Compiled;
use crate::driver::{Argument, CudaKernel, CudaMemory, Driver, LaunchGeometry};
use crate::error::CudaResult;
use crate::map::Map;
use std::collections::HashMap;
use std::sync::Arc;
use tapml_cfamily::Arg;
use tapml_device::{Binding, BufferId, Command, HandleTable, KernelId, RecordedList};
use tapml_graph::{Error, Result, Symbols};

/// By handle.
pub(crate) type Memories = HashMap<BufferId, CudaMemory>;
/// By handle.
pub(crate) type CompiledKernels = HashMap<KernelId, Compiled>;

/// One command, ready.
///
/// What does nothing (an empty grid, a copy of no bytes) is no call.
pub(crate) enum LaunchCall {
    Launch {
        /// Place of the command in its list.
        at: usize,
        /// Alive until the call has been made, even if it is destroyed meanwhile.
        kernel: Arc<CudaKernel>,
        /// In the order of the kernel's declaration.
        arguments: Vec<Argument>,
        /// None is 0.
        groups: [u32; 3],
        /// Blocks of a cluster along x; 1 for a grid without clusters.
        cluster: u32,
        /// Threads of a workgroup.
        block: [u32; 3],
        /// Dynamic shared memory in bytes.
        shared: u32,
        /// Whether it may begin before the call in front of it has ended.
        dependent_launch: bool,
    },
    Copy {
        at: usize,
        /// Another buffer than `dst`.
        src: BufferId,
        /// First byte in it.
        from: u64,
        dst: BufferId,
        /// First byte in it.
        to: u64,
        /// Bytes; not 0.
        len: usize,
    },
    Fill {
        at: usize,
        buffer: BufferId,
        /// Over the whole buffer.
        word: u32,
    },
}

impl LaunchCall {
    /// Place of the command in its list.
    pub(crate) fn command_index(&self) -> usize {
        match *self {
            LaunchCall::Launch { at, .. } | LaunchCall::Copy { at, .. } | LaunchCall::Fill { at, .. } => at,
        }
    }

    /// Hands the call to the driver.
    pub(crate) fn make(&self, driver: &Driver, memories: &Memories) -> CudaResult {
        let memory = |id: &BufferId| memories.get(id);
        match self {
            LaunchCall::Launch {
                kernel,
                arguments,
                groups,
                cluster,
                block,
                shared,
                dependent_launch: overlaps,
                ..
            } => {
                let geometry =
                    LaunchGeometry { groups: *groups, cluster: *cluster, block: *block, shared: *shared };
                driver.launch(kernel, arguments, geometry, *overlaps)
            }
            LaunchCall::Copy { src, from, dst, to, len, .. } => match memory(src).zip(memory(dst)) {
                Some((src, dst)) => driver.copy(src, *from, dst, *to, *len),
                // Cannot happen: the books have checked that both exist.
                None => Ok(()),
            },
            LaunchCall::Fill { buffer, word, .. } => memory(buffer).map_or(Ok(()), |m| driver.fill(m, *word)),
        }
    }
}

/// The calls of a list at these symbols, without those that do nothing. The books have checked all sizes.
pub(crate) fn calls(
    commands: &[Command],
    symbols: &Symbols,
    mirror: &HandleTable,
    memories: &Memories,
    kernels: &CompiledKernels,
    driver: &Driver,
) -> Result<Vec<LaunchCall>> {
    let limit = mirror.info().limits.max_groups_per_dim;
    let mut calls: Vec<LaunchCall> = Vec::with_capacity(commands.len());
    for (at, command) in commands.iter().enumerate() {
        match command {
            Command::Dispatch { label, kernel, bindings, groups } => {
                let groups = RecordedList::groups_within(limit, label, groups, symbols)?;
                // The driver refuses an empty grid.
                if groups.contains(&0) {
                    continue;
                }
                let compiled = find_compiled(kernels, *kernel)?;
                let clustered = compiled.cluster.and_then(|rule| rule.cluster_grid(groups));
                let (groups, cluster) = clustered.unwrap_or((groups, 1));
                // A programmatic dependent launch waits for a kernel in front of it, not for a copy.
                let behind_kernel = matches!(calls.last(), Some(LaunchCall::Launch { .. }));
                calls.push(LaunchCall::Launch {
                    at,
                    kernel: Arc::clone(&compiled.kernel),
                    arguments: arguments(compiled, bindings, memories, driver)?,
                    groups,
                    cluster,
                    block: compiled.workgroup,
                    shared: compiled.shared,
                    dependent_launch: compiled.dependent_launch && behind_kernel,
                });
            }
            Command::Copy { src, src_offset, dst, dst_offset, len } => {
                let from = mirror.copy_range(*src, src_offset, len, symbols)?;
                let to = mirror.copy_range(*dst, dst_offset, len, symbols)?;
                if !from.is_empty() {
                    let (start, len) = (from.start as u64, from.len());
                    calls.push(LaunchCall::Copy {
                        at,
                        src: *src,
                        from: start,
                        dst: *dst,
                        to: to.start as u64,
                        len,
                    });
                }
            }
            Command::Fill { buffer, word } => {
                calls.push(LaunchCall::Fill { at, buffer: *buffer, word: *word })
            }
        }
    }
    Ok(calls)
}

/// The kernel of a handle.
pub(crate) fn find_compiled(kernels: &CompiledKernels, kernel: KernelId) -> Result<&Compiled> {
    kernels.get(&kernel).ok_or_else(|| Error::bug(format!("kernel {} was not compiled", kernel.0)))
}

/// The memory of a buffer.
pub(crate) fn memory(memories: &Memories, buffer: BufferId) -> Result<&CudaMemory> {
    memories.get(&buffer).ok_or_else(|| Error::bug(format!("buffer {} has no memory", buffer.0)))
}

/// Addresses, offsets and lengths in the order in which the kernel declares them, then tensor maps.
fn arguments(
    compiled: &Compiled,
    bindings: &[Binding],
    memories: &Memories,
    driver: &Driver,
) -> Result<Vec<Argument>> {
    let bound = |at: u32| {
        let binding = bindings.get(at as usize).ok_or_else(|| Error::bug("an argument without a binding"))?;
        Ok((binding, memory(memories, binding.buffer)?))
    };
    let argument = |arg: &Arg| {
        let (Arg::Pointer(at) | Arg::Offset(at) | Arg::Bytes(at)) = *arg;
        let (binding, memory) = bound(at)?;
        Ok(match arg {
            Arg::Pointer(_) => Argument::Address(memory.address() + binding.offset),
            Arg::Offset(_) => Argument::Address(binding.offset),
            // Bound ranges are at most [`Limits`](tapml_device::Limits) large, which fits 32 bits.
            Arg::Bytes(_) => Argument::Bytes(u32::try_from(length(binding, memory)).unwrap_or(!3)),
        })
    };
    let map = |map: &Map| {
        let (binding, memory) = bound(map.binding)?;
        map.argument(driver, memory.address() + binding.offset, length(binding, memory))
    };
    compiled.args.iter().map(argument).chain(compiled.maps.iter().map(map)).collect()
}

/// Bytes of a bound range.
///
/// A size of 0 stands for the rest of the buffer.
fn length(binding: &Binding, memory: &CudaMemory) -> u64 {
    if binding.size == 0 { memory.size().saturating_sub(binding.offset) } else { binding.size }
}

/// Refuses ranges that are shorter than what the kernel binds there.
pub(crate) fn check_lengths(command: &Command, memories: &Memories, kernels: &CompiledKernels) -> Result<()> {
    let Command::Dispatch { label, kernel, bindings, .. } = command else { return Ok(()) };
    let compiled = find_compiled(kernels, *kernel)?;
    // Clamped indices stay within an array that has at least one element.
    for (index, (binding, &least)) in bindings.iter().zip(&compiled.min_sizes).enumerate() {
        let bytes = length(binding, memory(memories, binding.buffer)?);
        if bytes < u64::from(least) {
            let name = &compiled.name;
            return Err(Error::invalid(format!(
                "dispatch `{label}`: binding {index} of kernel `{name}` has {bytes} bytes, it needs at least {least}"
            ))
            .with_detail("kernel", name));
        }
    }
    Ok(())
}
