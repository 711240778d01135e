// Filling a buffer with a word: a small kernel, because WebGPU itself can only fill with zeros.

const TEXT = `
@group(0) @binding(0) var<storage, read_write> target_words: array<u32>;
@group(0) @binding(1) var<uniform> word: vec4<u32>;

@compute @workgroup_size(256)
fn fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&target_words); i += groups.x * 256u) {
        target_words[i] = word.x;
    }
}
`;

/** One dispatch that fills a range of a buffer. */
export interface FillPart {
  pipeline: GPUComputePipeline;
  group: GPUBindGroup;
  groups: number;
}

/** The pipeline, and one uniform buffer per word in use. */
export class Fill {
  private pipeline: GPUComputePipeline | undefined;
  private readonly words = new Map<number, GPUBuffer>();

  constructor(private readonly device: GPUDevice) {}

  /** Dispatches that fill the first `size` bytes of a buffer, each within `maxBinding` bytes. */
  parts(buffer: GPUBuffer, size: number, word: number, maxBinding: number): FillPart[] {
    const pipeline = (this.pipeline ??= this.device.createComputePipeline({
      label: "fill",
      layout: "auto",
      compute: { module: this.device.createShaderModule({ label: "fill", code: TEXT }), entryPoint: "fill" },
    }));
    const step = Math.max(1 << 16, maxBinding - (maxBinding % (1 << 16)));
    const parts: FillPart[] = [];
    for (let offset = 0; offset < size; offset += step) {
      const bytes = Math.min(step, size - offset);
      const entries = [
        { binding: 0, resource: { buffer, offset, size: bytes } },
        { binding: 1, resource: { buffer: this.word(word) } },
      ];
      const group = this.device.createBindGroup({ label: "fill", layout: pipeline.getBindGroupLayout(0), entries });
      parts.push({ pipeline, group, groups: Math.min(1024, Math.ceil(bytes / 4 / 256)) });
    }
    return parts;
  }

  private word(word: number): GPUBuffer {
    const found = this.words.get(word);
    if (found) return found;
    const made = this.device.createBuffer({ label: "fill word", size: 16, usage: 64 | 8 /* UNIFORM | COPY_DST */ });
    this.device.queue.writeBuffer(made, 0, new Uint32Array(4).fill(word));
    this.words.set(word, made);
    return made;
  }
}
