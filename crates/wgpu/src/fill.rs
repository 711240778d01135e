//! Filling a buffer with a word: a small kernel, because WebGPU itself can only fill with zeros.
//!
//! The kernel strides over the buffer, so that a bounded number of workgroups fills any size.

use crate::gpu::Gpu;
use std::collections::HashMap;
use tapml_graph::Result;

/// The number of invocations stands in it twice; [`WIDTH`] must be the same.
const TEXT: &str = "
@group(0) @binding(0) var<storage, read_write> target_words: array<u32>;
@group(0) @binding(1) var<uniform> word: vec4<u32>;

@compute @workgroup_size(256)
fn fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&target_words); i += groups.x * 256u) {
        target_words[i] = word.x;
    }
}
";

/// Invocations of a workgroup of the kernel above.
const WIDTH: u64 = 256;

/// The pipeline, and one uniform buffer per word in use.
pub(crate) struct FillPipeline {
    /// Its layout is derived from the text.
    pipeline: wgpu::ComputePipeline,
    /// Uniform buffers, each with its word four times. They live as long as the device, since few words are used.
    words: HashMap<u32, wgpu::Buffer>,
}

/// One dispatch that fills a range of a buffer.
pub(crate) struct FillPart {
    /// The range and the word.
    pub(crate) group: wgpu::BindGroup,
    /// Workgroups along x.
    pub(crate) groups: u32,
}

impl FillPipeline {
    /// Compiles the kernel.
    pub(crate) fn new(gpu: &Gpu) -> Result<FillPipeline> {
        let pipeline = gpu.call(
            || "compile the fill kernel".into(),
            |device, _| {
                let source = wgpu::ShaderSource::Wgsl(TEXT.into());
                let module =
                    device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("fill"), source });
                device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                    label: Some("fill"),
                    layout: None,
                    module: &module,
                    entry_point: Some("fill"),
                    compilation_options: wgpu::PipelineCompilationOptions::default(),
                    cache: None,
                })
            },
        )?;
        Ok(FillPipeline { pipeline, words: HashMap::new() })
    }

    /// What fills are dispatched with.
    pub(crate) fn pipeline(&self) -> &wgpu::ComputePipeline {
        &self.pipeline
    }

    /// Dispatches that fill the first `size` bytes of `buffer`, each within `max_binding` bytes.
    pub(crate) fn parts(
        &mut self,
        gpu: &Gpu,
        buffer: &wgpu::Buffer,
        size: u64,
        word: u32,
        max_binding: u64,
    ) -> Result<Vec<FillPart>> {
        // Multiples of 64 KiB suit every alignment of offsets.
        let step = (max_binding & !0xffff).max(1 << 16);
        let word_buffer = self.word(gpu, word)?;
        let layout = self.pipeline.get_bind_group_layout(0);
        (0..size.div_ceil(step))
            .map(|part| {
                let range = wgpu::BufferBinding {
                    buffer,
                    offset: part * step,
                    size: wgpu::BufferSize::new(step.min(size - part * step)),
                };
                let bytes = step.min(size - part * step);
                let entries = [
                    wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(range) },
                    wgpu::BindGroupEntry { binding: 1, resource: word_buffer.as_entire_binding() },
                ];
                let desc =
                    wgpu::BindGroupDescriptor { label: Some("fill"), layout: &layout, entries: &entries };
                let group =
                    gpu.call(|| "bind a buffer to fill".into(), |device, _| device.create_bind_group(&desc))?;
                // Each invocation takes several words of large buffers.
                let groups = (bytes / 4).div_ceil(WIDTH).min(1024) as u32;
                Ok(FillPart { group, groups })
            })
            .collect()
    }

    /// The uniform buffer of a word, made on first use.
    fn word(&mut self, gpu: &Gpu, word: u32) -> Result<wgpu::Buffer> {
        if let Some(buffer) = self.words.get(&word) {
            return Ok(buffer.clone());
        }
        let desc = wgpu::BufferDescriptor {
            label: Some("fill word"),
            size: 16,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        // A uniform binding of 16 bytes, the size of `vec4<u32>`.
        let bytes = [word; 4].map(u32::to_ne_bytes).concat();
        let buffer = gpu.call(
            || "create the buffer of a fill word".into(),
            |device, queue| {
                let buffer = device.create_buffer(&desc);
                queue.write_buffer(&buffer, 0, &bytes);
                buffer
            },
        )?;
        self.words.insert(word, buffer.clone());
        Ok(buffer)
    }
}
