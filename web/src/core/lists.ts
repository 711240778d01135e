// Command lists: all checks and bind groups at recording, sizes and encoding at replay, one submission.

import { BindingKind } from "../wire/gen/tapml_pb";
import { beyond, doing, failureOf, invalid, type Failure } from "./failure";
import type { Stored } from "./buffers";
import type { Fill } from "./fill";
import { type Gpu, explain } from "./gpu";
import type { Kernel } from "./kernels";
import { evaluate, type Size, type Symbols } from "./sizes";

/** A range of a buffer; size 0 means to its end. */
export interface Binding {
  buffer: Stored;
  offset: number;
  size: number;
}

/** A command with its parts looked up. */
export type Command =
  | { do: "dispatch"; label: string; kernel: Kernel; bindings: Binding[]; grid: [Size, Size, Size] }
  | { do: "copy"; src: Stored; srcOffset: Size; dst: Stored; dstOffset: Size; size: Size }
  | { do: "fill"; buffer: Stored; word: number };

/** A command with everything made that does not depend on symbols. */
type Step =
  | { do: "dispatch"; label: string; kernel: string; pipeline: GPUComputePipeline; group: GPUBindGroup; grid: [Size, Size, Size]; symbols: string[] }
  | { do: "run"; label: string; pipeline: GPUComputePipeline; group: GPUBindGroup; groups: number }
  | { do: "copy"; label: string; src: Stored; srcOffset: Size; dst: Stored; dstOffset: Size; size: Size; symbols: string[] }
  | { do: "clear"; label: string; buffer: GPUBuffer };

/** Workgroups of a dispatch; the offsets and the length of a copy. */
type Sizes = [number, number, number];

/** What a replay looks at to learn that all parts still exist. */
export interface Parts {
  /** Counts destroyed buffers and kernels. */
  destroyed: number;
  hasBuffer(buffer: Stored): boolean;
  hasKernel(kernel: Kernel): boolean;
}

const AXES = ["x", "y", "z"];

/** A recorded list. */
export class List {
  private readonly steps: Step[] = [];
  /** The symbols of the last run, and what came of them. */
  private last: { symbols: Symbols; sizes: Sizes[] } | undefined;
  private readonly groups = new Map<string, GPUBindGroup>();
  private readonly buffers = new Set<Stored>();
  private readonly kernels = new Set<Kernel>();
  private checkedAt: number;

  constructor(
    private readonly gpu: Gpu,
    private readonly parts: Parts,
    fill: Fill,
    seq: number,
    private readonly id: number,
    commands: Command[],
  ) {
    this.checkedAt = parts.destroyed;
    const what = (): string => `record list ${id} of ${commands.length} commands`;
    const scope = gpu.scope(
      () => {
        commands.forEach((command) => this.add(fill, command));
        // What the browser checks only when it encodes, such as a binding shorter than the kernel's struct.
        this.rehearse(this.steps);
      },
      async (error) => gpu.report(seq, (await this.culprit()) ?? explain(what(), error)),
    );
    gpu.track(scope.settled);
  }

  /** How many commands it has. */
  get length(): number {
    return this.steps.length;
  }

  private add(fill: Fill, command: Command): void {
    if (command.do === "dispatch") {
      const { label, kernel, bindings, grid } = command;
      const group = doing(`dispatch \`${label}\``, () => this.group(label, kernel, bindings));
      const symbols = symbolsIn(grid);
      this.steps.push({ do: "dispatch", label, kernel: kernel.name, pipeline: kernel.pipeline, group, grid, symbols });
      this.kernels.add(kernel);
      bindings.forEach((b) => this.buffers.add(b.buffer));
    } else if (command.do === "copy") {
      const { src, dst, srcOffset, dstOffset, size } = command;
      if (src === dst) throw invalid(`copy within the buffer \`${src.label}\`: source and destination must differ`);
      this.steps.push({ ...command, label: `copy ${src.label} -> ${dst.label}`, symbols: symbolsIn([srcOffset, dstOffset, size]) });
      this.buffers.add(src).add(dst);
    } else {
      const { buffer, word } = command;
      const label = `fill ${buffer.label}`;
      this.buffers.add(buffer);
      if (word === 0) {
        this.steps.push({ do: "clear", label, buffer: buffer.raw });
        return;
      }
      const max = this.gpu.info.limits.max_binding_size;
      fill.parts(buffer.raw, buffer.size, word, max).forEach((part) => this.steps.push({ do: "run", label, ...part }));
    }
  }

  /** The bind group of a dispatch; layers of a model repeat bindings. */
  private group(label: string, kernel: Kernel, bindings: Binding[]): GPUBindGroup {
    const key = `${kernel.kinds.join()}:${bindings.map((b) => `${b.buffer.id},${b.offset},${b.size}`).join(";")}`;
    const found = this.groups.get(key);
    if (found) return found;
    checkBindings(this.gpu, kernel, bindings);
    const entries = bindings.map((b, binding) => {
      const size = b.size || b.buffer.size - b.offset;
      return { binding, resource: { buffer: b.buffer.raw, offset: b.offset, size: Math.max(4, size) } };
    });
    const made = this.gpu.device.createBindGroup({ label, layout: kernel.layout, entries });
    this.groups.set(key, made);
    return made;
  }

  /** Encodes the dispatches and drops the result. */
  private rehearse(steps: Step[]): void {
    const encoder = this.gpu.device.createCommandEncoder({ label: `list ${this.id}` });
    const pass = encoder.beginComputePass();
    for (const step of steps) {
      if (step.do !== "dispatch") continue;
      pass.setPipeline(step.pipeline);
      pass.setBindGroup(0, step.group);
      pass.dispatchWorkgroups(1, 1, 1);
    }
    pass.end();
    encoder.finish();
  }

  /** The failure of the first dispatch that cannot be encoded by itself. */
  private async culprit(): Promise<Failure | undefined> {
    for (const step of this.steps) {
      if (step.do !== "dispatch") continue;
      let found: Failure | undefined;
      const scope = this.gpu.scope(
        () => this.rehearse([step]),
        (error) => {
          found = explain(`run kernel \`${step.kernel}\``, error).within(`dispatch \`${step.label}\``);
          if (!found.details.some(([n]) => n === "kernel")) found.with("kernel", step.kernel);
        },
      );
      await scope.settled;
      if (found) return found;
    }
    return undefined;
  }

  /** Runs the commands as one submission. */
  replay(seq: number, symbols: Symbols): void {
    this.expectComplete();
    const sizes = this.allSizes(symbols);
    this.gpu.scoped(seq, () => `run list ${this.id}`, () => this.submit(this.steps, sizes));
  }

  /** As `replay`, command by command: `each` is told which is next, and each is waited for. */
  async trace(seq: number, symbols: Symbols, each: (at: number) => void): Promise<void> {
    this.expectComplete();
    const sizes = this.allSizes(symbols);
    for (const [at, step] of this.steps.entries()) {
      each(at);
      this.gpu.scoped(seq, () => `run command ${at + 1} of list ${this.id}`, () => this.submit([step], [sizes[at]!]));
      await this.gpu.device.queue.onSubmittedWorkDone();
    }
  }

  /** Fails if a buffer or kernel of this list was destroyed. */
  private expectComplete(): void {
    if (this.checkedAt === this.parts.destroyed) return;
    for (const b of this.buffers) {
      if (!this.parts.hasBuffer(b)) throw invalid(`the list uses buffer ${b.id}, which was destroyed`);
    }
    for (const k of this.kernels) {
      if (!this.parts.hasKernel(k)) throw invalid(`the list uses kernel ${k.id}, which was destroyed`);
    }
    this.checkedAt = this.parts.destroyed;
  }

  /**
   * All sizes before anything is encoded, so that a replay that fails here has run nothing. Most do not change from one
   * decoded token to the next, and are kept.
   */
  private allSizes(symbols: Symbols): Sizes[] {
    const { last } = this;
    const changed = (symbol: string): boolean => last?.symbols.get(symbol) !== symbols.get(symbol);
    const sizes = this.steps.map((step, at) => {
      return last && !symbolsOf(step).some(changed) ? last.sizes[at]! : this.sizes(step, symbols);
    });
    this.last = { symbols, sizes };
    return sizes;
  }

  private sizes(step: Step, symbols: Symbols): Sizes {
    if (step.do === "dispatch") {
      const limit = this.gpu.info.limits.max_groups_per_dim;
      return step.grid.map((size, axis) => {
        const value = doing(`dispatch \`${step.label}\``, () => evaluate(size, symbols));
        const text = `dispatch \`${step.label}\` needs ${value} workgroups in ${AXES[axis]}, the device allows ${limit}`;
        if (value > limit) throw beyond(text, "max_groups_per_dim", value, limit);
        return value;
      }) as Sizes;
    }
    if (step.do !== "copy") return [0, 0, 0];
    return doing(step.label, () => {
      const size = evaluate(step.size, symbols);
      return [place(step.src, step.srcOffset, size, symbols), place(step.dst, step.dstOffset, size, symbols), size];
    });
  }

  /** Consecutive dispatches share a pass; copies and clears stand between passes. */
  private submit(steps: Step[], sizes: Sizes[]): void {
    const encoder = this.gpu.device.createCommandEncoder({ label: `list ${this.id}` });
    let pass: GPUComputePassEncoder | undefined;
    let pipeline: GPUComputePipeline | undefined;
    const run = (step: { pipeline: GPUComputePipeline; group: GPUBindGroup }, x: number, y: number, z: number): void => {
      if (x === 0 || y === 0 || z === 0) return;
      pass ??= encoder.beginComputePass();
      if (pipeline !== step.pipeline) pass.setPipeline((pipeline = step.pipeline));
      pass.setBindGroup(0, step.group);
      pass.dispatchWorkgroups(x, y, z);
    };
    for (let at = 0; at < steps.length; at++) {
      const step = steps[at]!;
      const [a, b, c] = sizes[at]!;
      if (step.do === "dispatch") run(step, a, b, c);
      else if (step.do === "run") run(step, step.groups, 1, 1);
      else {
        pass?.end();
        pass = pipeline = undefined;
        if (step.do === "clear") encoder.clearBuffer(step.buffer);
        else if (c > 0) encoder.copyBufferToBuffer(step.src.raw, a, step.dst.raw, b, c);
      }
    }
    pass?.end();
    this.gpu.device.queue.submit([encoder.finish()]);
  }
}

const NONE: string[] = [];

/** The symbols that a command's sizes depend on. */
function symbolsOf(step: Step): string[] {
  return step.do === "dispatch" || step.do === "copy" ? step.symbols : NONE;
}

const symbolsIn = (sizes: Size[]): string[] => [...new Set(sizes.flatMap((size) => size.terms.map((t) => t.symbol)))];

/** The offset of one side of a copy, checked together with the length. */
function place(buffer: Stored, offset: Size, size: number, symbols: Symbols): number {
  const at = evaluate(offset, symbols);
  if (at % 4 !== 0 || size % 4 !== 0 || at + size > buffer.size) {
    const have = buffer.size;
    throw invalid(`copy of ${size} bytes at ${at} of \`${buffer.label}\`: expected whole words within its ${have} bytes`);
  }
  return at;
}

function checkBindings(gpu: Gpu, kernel: Kernel, bindings: Binding[]): void {
  if (bindings.length !== kernel.kinds.length) {
    throw invalid(`${bindings.length} buffers are bound, kernel \`${kernel.name}\` has ${kernel.kinds.length} bindings`);
  }
  bindings.forEach((binding, i) => {
    try {
      checkRange(gpu, binding, kernel.kinds[i]!);
    } catch (thrown) {
      throw failureOf(thrown).within(`binding ${i}`);
    }
    // WebGPU knows usage by buffer, not by range: what is written must not be bound a second time.
    const written = (j: number): boolean => kernel.kinds[j] === BindingKind.READ_WRITE;
    const twin = bindings.findIndex((b, j) => j < i && b.buffer === binding.buffer && (written(i) || written(j)));
    if (twin >= 0) throw invalid(`bindings ${twin} and ${i} share the buffer \`${binding.buffer.label}\`, which is written`);
  });
}

function checkRange(gpu: Gpu, binding: Binding, kind: BindingKind): void {
  const { buffer, offset } = binding;
  const { max_binding_size, max_uniform_size, min_offset_alignment } = gpu.info.limits;
  if (offset + binding.size > buffer.size) {
    throw invalid(`${binding.size} bytes at ${offset} of \`${buffer.label}\`, which has ${buffer.size} bytes`);
  }
  if (offset % min_offset_alignment !== 0) throw invalid(`offset ${offset} is no multiple of ${min_offset_alignment}`);
  const size = binding.size || buffer.size - offset;
  const uniform = kind === BindingKind.UNIFORM;
  const max = uniform ? max_uniform_size : max_binding_size;
  if (size > max) {
    const text = `${size} bytes of \`${buffer.label}\` are bound, the device allows ${max}`;
    throw beyond(text, uniform ? "max_uniform_size" : "max_binding_size", size, max);
  }
}
