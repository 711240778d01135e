//! Command lists: all checks and bind groups at recording. How they run is in `replay`.
//!
//! A list that was recorded holds clones of what it needs, so a replay looks nothing up. Only extents are evaluated per run.

use crate::compile::WgpuKernel;
use crate::fill::FillPipeline;
use crate::parts::{DeviceParts, Stored};
use std::collections::HashMap;
use std::sync::Arc;
use tapml_device::{Binding, BindingKind, BufferId, Command, Grid, KernelId};
use tapml_graph::{Error, Extent, Result, Symbols};

/// A recorded list, ready to be encoded.
pub(crate) struct WgpuList {
    /// Commands in order. One fill may be several steps.
    pub(crate) steps: Vec<ListStep>,
    /// One label per step, for errors.
    pub(crate) labels: Vec<Arc<str>>,
    /// Buffers that it uses, each once.
    pub(crate) buffers: Vec<BufferId>,
    /// Kernels that it uses, each once.
    pub(crate) kernels: Vec<KernelId>,
    /// The device's count of destroyed parts when this list was last found complete.
    pub(crate) checked_at: u64,
    /// What earlier replays left.
    pub(crate) runs: Runs,
}

/// A command with everything resolved but sizes. A clear fills a whole buffer with zeros, which WebGPU does itself.
pub(crate) enum ListStep {
    Dispatch { label: Arc<str>, pipeline: wgpu::ComputePipeline, group: wgpu::BindGroup, grid: Grid },
    Copy { src: CopySide, dst: CopySide, len: Extent },
    Clear { buffer: wgpu::Buffer },
}

/// One end of a copy. The offset may depend on symbols.
pub(crate) struct CopySide {
    /// The buffer.
    pub(crate) raw: wgpu::Buffer,
    /// For messages.
    label: String,
    /// Bytes of the buffer.
    size: u64,
    /// Where the copy begins, in bytes.
    offset: Extent,
}

/// Sizes of a run, one row per step.
/// A dispatch has its grid, a copy has source offset, target offset and length, a clear has nothing.
type RunSizes = Vec<[u64; 3]>;

/// What a list knows of its runs; how it runs is in `replay`.
#[derive(Default)]
pub(crate) struct Runs {
    /// Sizes of the last run.
    pub(crate) last: RunSizes,
    /// Whether the run before had the same.
    pub(crate) repeats: bool,
    /// The steps at the sizes of the last run, if they are encoded already.
    pub(crate) ready: Option<wgpu::CommandBuffer>,
}

/// Bind groups made during one recording: layers of a model repeat bindings.
type Groups = HashMap<(KernelId, Vec<Binding>), wgpu::BindGroup>;

impl WgpuList {
    /// Checks the commands and makes their bind groups.
    ///
    /// # Errors
    ///
    /// Handles that do not exist, bindings that the device or the kernel does not take, copies within a buffer.
    pub(crate) fn record(parts: &mut DeviceParts, commands: &[Command]) -> Result<WgpuList> {
        let mut list = WgpuList {
            steps: Vec::with_capacity(commands.len()),
            labels: Vec::with_capacity(commands.len()),
            buffers: Vec::new(),
            kernels: Vec::new(),
            checked_at: parts.destroyed,
            runs: Runs::default(),
        };
        let mut groups = Groups::new();
        for command in commands {
            match command {
                Command::Dispatch { label, kernel, bindings, groups: grid } => {
                    let step = dispatch(parts, &mut groups, label, *kernel, bindings, grid)
                        .map_err(|e| e.context(format!("dispatch `{label}`")))?;
                    list.kernels.push(*kernel);
                    list.buffers.extend(bindings.iter().map(|b| b.buffer));
                    list.push(label, step);
                }
                Command::Copy { src, src_offset, dst, dst_offset, len } => {
                    // wgpu refuses it too, but only when the copy is encoded.
                    if src == dst {
                        return Err(Error::invalid(format!("copy within one buffer (buffer {})", src.0)));
                    }
                    let src_side = CopySide::new(parts.buffer(*src)?, src_offset);
                    let dst_side = CopySide::new(parts.buffer(*dst)?, dst_offset);
                    list.buffers.extend([*src, *dst]);
                    let label = format!("copy {} -> {}", src_side.label, dst_side.label);
                    list.push(&label, ListStep::Copy { src: src_side, dst: dst_side, len: len.clone() });
                }
                Command::Fill { buffer, word } => list.fill(parts, *buffer, *word)?,
            }
        }
        list.buffers.sort_unstable();
        // Short lists keep the check before each replay cheap.
        list.buffers.dedup();
        list.kernels.sort_unstable();
        list.kernels.dedup();
        list.rehearse(parts)?;
        Ok(list)
    }

    /// Appends a step with its label.
    fn push(&mut self, label: &str, step: ListStep) {
        self.labels.push(label.into());
        self.steps.push(step);
    }

    /// Appends a clear for zeros, or a dispatch per part of the buffer that a binding can hold.
    fn fill(&mut self, parts: &mut DeviceParts, id: BufferId, word: u32) -> Result<()> {
        let stored = parts.buffer(id)?;
        let (raw, size) = (stored.raw.clone(), stored.size);
        let label = format!("fill {}", stored.label);
        self.buffers.push(id);
        if word == 0 {
            self.push(&label, ListStep::Clear { buffer: raw });
            return Ok(());
        }
        let max_binding = parts.info.limits.max_binding_size;
        let fill = match &mut parts.fill {
            Some(fill) => fill,
            none => none.insert(FillPipeline::new(&parts.gpu)?),
        };
        for part in fill.parts(&parts.gpu, &raw, size, word, max_binding)? {
            let grid = [part.groups, 1, 1].map(|g| Extent::from_dim(u64::from(g)));
            let pipeline = fill.pipeline().clone();
            self.push(
                &label,
                ListStep::Dispatch { label: label.as_str().into(), pipeline, group: part.group, grid },
            );
        }
        Ok(())
    }

    /// Encodes the dispatches with empty grids and drops the result: what wgpu checks only when it encodes, such as a
    /// binding shorter than the kernel's struct, fails at recording and names the dispatch.
    fn rehearse(&self, parts: &DeviceParts) -> Result<()> {
        let encode = |steps: &[ListStep]| {
            let doing = || "record a command list".to_string();
            parts.gpu.call(doing, |raw, _| {
                let mut encoder = raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
                for step in steps {
                    if let ListStep::Dispatch { pipeline, group, .. } = step {
                        pass.set_pipeline(pipeline);
                        pass.set_bind_group(0, group, &[]);
                        pass.dispatch_workgroups(0, 0, 0);
                    }
                }
                drop(pass);
                drop(encoder.finish());
            })
        };
        // The list is encoded at once; only if that fails each dispatch is tried alone, to name the one at fault.
        let Err(error) = encode(&self.steps) else { return Ok(()) };
        parts.gpu.alive()?;
        for step in &self.steps {
            if let ListStep::Dispatch { label, .. } = step {
                encode(std::slice::from_ref(step)).map_err(|e| e.context(format!("dispatch `{label}`")))?;
            }
        }
        Err(error)
    }
}

impl CopySide {
    fn new(stored: &Stored, offset: &Extent) -> CopySide {
        CopySide {
            raw: stored.raw.clone(),
            label: stored.label.clone(),
            size: stored.size,
            offset: offset.clone(),
        }
    }

    /// The offset under `symbols`, checked together with the length.
    pub(crate) fn place(&self, len: u64, symbols: &Symbols) -> Result<u64> {
        let offset = self.offset.eval(symbols)?;
        if !offset.is_multiple_of(4) || !len.is_multiple_of(4) {
            let text = format!(
                "{len} bytes at offset {offset} of buffer `{}`: both must be multiples of 4",
                self.label
            );
            return Err(Error::invalid(text));
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(offset),
            _ => Err(Error::invalid(format!(
                "{len} bytes at offset {offset} pass the end of buffer `{}` of {} bytes",
                self.label, self.size
            ))),
        }
    }
}

/// Checks a dispatch and binds its buffers.
fn dispatch(
    parts: &DeviceParts,
    groups: &mut Groups,
    label: &str,
    id: KernelId,
    bindings: &[Binding],
    grid: &Grid,
) -> Result<ListStep> {
    let kernel = parts.kernels.get(&id);
    let kernel = kernel.ok_or_else(|| Error::invalid(format!("no kernel {} on this device", id.0)))?;
    check_bindings(parts, kernel, bindings).map_err(|e| e.with_detail("kernel", &*kernel.name))?;
    let key = (id, bindings.to_vec());
    // Making a bind group costs more than hashing its ranges.
    let group = match groups.get(&key) {
        Some(group) => group.clone(),
        None => {
            let group = bind(parts, kernel, label, bindings)?;
            groups.insert(key, group.clone());
            group
        }
    };
    Ok(ListStep::Dispatch {
        label: label.into(),
        pipeline: kernel.pipeline.clone(),
        group,
        grid: grid.clone(),
    })
}

/// A bind group for these ranges; a size of 0 binds the rest of the buffer.
fn bind(
    parts: &DeviceParts,
    kernel: &WgpuKernel,
    label: &str,
    bindings: &[Binding],
) -> Result<wgpu::BindGroup> {
    let entries = bindings.iter().zip(0..).map(|(b, at)| {
        let range = wgpu::BufferBinding {
            buffer: &parts.buffer(b.buffer)?.raw,
            offset: b.offset,
            size: wgpu::BufferSize::new(b.size),
        };
        Ok(wgpu::BindGroupEntry { binding: at, resource: wgpu::BindingResource::Buffer(range) })
    });
    let entries = entries.collect::<Result<Vec<_>>>()?;
    let desc = wgpu::BindGroupDescriptor { label: Some(label), layout: &kernel.layout, entries: &entries };
    parts.gpu.call(
        || format!("bind the buffers of kernel `{}`", kernel.name),
        |raw, _| raw.create_bind_group(&desc),
    )
}

/// Checks the number and the ranges of bindings, and that no written buffer is bound twice.
fn check_bindings(parts: &DeviceParts, kernel: &WgpuKernel, bindings: &[Binding]) -> Result<()> {
    if bindings.len() != kernel.kinds.len() {
        return Err(Error::invalid(format!(
            "{} buffers are bound, kernel `{}` has {} bindings",
            bindings.len(),
            kernel.name,
            kernel.kinds.len()
        )));
    }
    for (at, (binding, &kind)) in bindings.iter().zip(&kernel.kinds).enumerate() {
        check_range(parts, binding, kind).map_err(|e| e.context(format!("binding {at}")))?;
        // WebGPU allows two written ranges that do not overlap. The rule here is stricter and looks at no ranges.
        let shared = bindings.iter().zip(&kernel.kinds).enumerate().find(|(other, (b, k))| {
            *other != at && b.buffer == binding.buffer && BindingKind::ReadWrite == **k
        });
        if let Some((other, _)) = shared {
            let label = &parts.buffer(binding.buffer)?.label;
            return Err(Error::invalid(format!(
                "buffer `{label}` is bound at {other} for writing and again at {at}; a buffer that a kernel writes may be bound once"
            ))
            .with_hint("bind another buffer, or read and write through one binding"));
        }
    }
    Ok(())
}

/// Checks one binding: alignment, end of the buffer, limits, whole words.
fn check_range(parts: &DeviceParts, binding: &Binding, kind: BindingKind) -> Result<()> {
    let stored = parts.buffer(binding.buffer)?;
    let (limits, label) = (&parts.info.limits, &stored.label);
    let align = u64::from(limits.min_offset_alignment);
    if !binding.offset.is_multiple_of(align) {
        let text = format!("offset {} into buffer `{label}` is no multiple of {align}", binding.offset);
        return Err(Error::invalid(text).with_detail("limit", "min_offset_alignment"));
    }
    // As in WebGPU, a binding without a size takes the rest of the buffer.
    let size = match binding.size {
        0 => stored.size.saturating_sub(binding.offset),
        size => size,
    };
    let past =
        || format!("{size} bytes at offset {} of buffer `{label}` of {} bytes", binding.offset, stored.size);
    if size == 0 || binding.offset.checked_add(size).is_none_or(|end| end > stored.size) {
        return Err(Error::invalid(format!("cannot bind {}", past())));
    }
    let (limit, max) = match kind {
        BindingKind::Uniform => ("max_uniform_size", limits.max_uniform_size),
        BindingKind::Read | BindingKind::ReadWrite => ("max_binding_size", limits.max_binding_size),
    };
    if size > max {
        let text = format!("buffer `{label}` is bound with {size} bytes, {} allows {max}", parts.info.name);
        return Err(Error::unsupported(text)
            .with_detail("limit", limit)
            .with_detail("asked", size.to_string())
            .with_detail("offered", max.to_string()));
    }
    if kind != BindingKind::Uniform && !size.is_multiple_of(4) {
        Err(Error::invalid(format!("a storage binding is a multiple of 4 bytes long, not {}", past())))
    } else {
        Ok(())
    }
}
