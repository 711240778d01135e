// Whole programs: the JSON of a compiled graph (crates/kernels/src/program.rs), allocated and compiled once, run by handle.

import { BindingKind, Language } from "../wire/gen/tapml_pb";
import { createBuffer, write, type Stored } from "./buffers";
import { doing, failureOf, invalid, unsupported } from "./failure";
import type { Fill } from "./fill";
import type { Gpu } from "./gpu";
import { compile, type Kernel, type KernelDesc, type Layouts } from "./kernels";
import { List, type Command } from "./lists";
import { evaluate, symbolName, type Size, type Symbols } from "./sizes";

/** The schema that is read. */
const SCHEMA = 2;

type Dim = number | string;
interface Extent { dim: Dim; divisor: number }
interface TensorType { dtype: string; shape: Dim[] }
interface Port { name: string; ty: TensorType; buffer: number }
type Content = "symbols" | "activation" | "state" | { weight: { name: string; offset: number; len: number } } | { constant: string };
interface Slice { buffer: number; offset: number; size: number }
type Phase = "decode" | "prefill";
/** A step without a phase runs in both. */
type Step =
  | { dispatch: { node: string; row: string; kernel: number; bindings: Slice[]; groups: [Extent, Extent, Extent]; phase?: Phase } }
  | { copy: { src: number; src_offset: Extent; dst: number; dst_offset: Extent; len: Extent; phase?: Phase } }
  | { fill: { buffer: number; word: number; phase?: Phase } };
interface KernelText {
  name: string;
  source: { language: string; file: string; prelude: string; text: string };
  entry: string;
  constants: [string, number][];
  bindings: ("read" | "read_write" | "uniform")[];
  workgroup: [number, number, number];
  workgroup_memory: number;
  needs_f16: boolean;
  needs_subgroups: boolean;
}

/** A compiled graph as plain data. */
export interface Program {
  schema: number;
  name: string;
  symbols: string[];
  capacity: Record<string, number>;
  context?: number;
  /** Runs of at most so many rows take the steps of the decode phase; 1 if it is not said. */
  decode_rows?: number;
  buffers: { name: string; size: number; content: Content }[];
  kernels: KernelText[];
  steps: Step[];
  inputs: Port[];
  outputs: Port[];
  states: (Port & { grows: boolean })[];
}

/** Bytes of an element. */
const SIZES: Record<string, number> = { f64: 8, f32: 4, i32: 4, u32: 4, f16: 2, bf16: 2, u8: 1 };

/** The address of what a program's parts are looked up in. */
export interface Workshop {
  gpu: Gpu;
  layouts: Layouts;
  fill: Fill;
  /** Bytes of buffers that may still be made; fails if there is no room. */
  reserve(label: string, size: number): void;
  release(size: number): void;
}

/** Reads a program. Indices and sizes are checked where they are used; the browser checks what is done with them. */
export function parseProgram(json: Uint8Array): Program {
  let program: Program;
  try {
    program = JSON.parse(new TextDecoder().decode(json)) as Program;
  } catch (thrown) {
    throw invalid(`these ${json.length} bytes are no program: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
  if (program?.schema !== SCHEMA) {
    const text = `schema ${String(program?.schema)} of a program is unknown, expected ${SCHEMA}`;
    throw unsupported(text).hinted("compile the model again with this version");
  }
  for (const key of ["symbols", "buffers", "kernels", "steps", "inputs", "outputs", "states"] as const) {
    if (!Array.isArray(program[key])) throw invalid(`the program has no \`${key}\``);
  }
  return program;
}

/** Names of the output that is the next token, and of the state that keeps the token of each position. */
const NEXT_TOKEN = "next_token";
const GENERATED = "generated";

/** Bytes for an input. */
export interface Given {
  name: string;
  data: Uint8Array | undefined;
}

/** A step that is ready to run. */
interface Ready {
  phase: Phase | undefined;
  command: Command;
}

/** A program on the device. */
export class Instance {
  /** The steps of one row, of which the node that chooses the next token writes it over the ids. */
  private following: List | undefined;

  private constructor(
    readonly program: Program,
    private readonly workshop: Workshop,
    private readonly buffers: Stored[],
    private readonly lists: Record<Phase, List>,
    private readonly steps: Ready[],
    private readonly record: (commands: Command[]) => List,
  ) {}

  /**
   * Allocates, uploads weights, compiles and records. On failure everything made so far is freed. Without `weight` the
   * weights' buffers are left to `fill`.
   */
  static async load(seq: number, program: Program, workshop: Workshop, weight?: (name: string) => Uint8Array): Promise<Instance> {
    const buffers: Stored[] = [];
    try {
      for (const plan of program.buffers) buffers.push(place(seq, workshop, plan, weight, buffers.length));
      const kernels = await Promise.all(
        program.kernels.map((k, i) => compile(workshop.gpu, workshop.layouts, i, doing(`kernel ${i}`, () => kernelOf(k)))),
      );
      const parts = { destroyed: 0, hasBuffer: () => true, hasKernel: () => true };
      const steps = program.steps.map((step, i) => doing(`step ${i}`, () => ({ phase: phaseOf(step), command: commandOf(step, buffers, kernels) })));
      const record = (commands: Command[]): List => new List(workshop.gpu, parts, workshop.fill, seq, 0, commands);
      const prefill = record(commandsIn(steps, "prefill"));
      const decode = steps.some((step) => step.phase !== undefined) ? record(commandsIn(steps, "decode")) : prefill;
      return new Instance(program, workshop, buffers, { decode, prefill }, steps, record);
    } catch (thrown) {
      buffers.forEach((b) => free(workshop, b));
      throw failureOf(thrown).within(`program \`${program.name}\``);
    }
  }

  /** Writes inputs and symbols, and runs. Returns before the work is complete. An input without data keeps what it holds. */
  run(seq: number, symbols: Symbols, inputs: Given[]): void {
    const { gpu } = this.workshop;
    const program = this.program;
    for (const name of program.symbols) {
      const [value, most] = [symbols.get(name), program.capacity[name] ?? 0];
      if (value === undefined || value > most) throw invalid(`\`${name}\` is ${value}, the program was compiled for up to ${most}`);
    }
    const context = program.context;
    const sum = (symbols.get("n") ?? 0) + (symbols.get("p") ?? 0);
    if (context !== undefined && sum > context) throw invalid(`n + p is ${sum}, the program was compiled for up to ${context}`);
    for (const port of program.inputs) {
      const given = inputs.filter((i) => i.name === port.name);
      if (given.length !== 1) throw invalid(`input \`${port.name}\` is given ${given.length} times, expected once`);
    }
    for (const { name, data } of inputs) {
      const port = program.inputs.find((p) => p.name === name);
      if (!port) throw invalid(`there is no input \`${name}\``);
      if (!data) continue;
      const expected = bytesOf(port.ty, symbols);
      if (data.length !== expected) throw invalid(`input \`${name}\` takes ${expected} bytes, found ${data.length}`);
      writePadded(gpu, this.buffer(port.buffer), data);
    }
    this.setSymbols(symbols);
    // A run of one row is a step of generation.
    const rows = symbols.get("n") ?? 0;
    this.lists[rows > 0 && rows <= (program.decode_rows ?? 1) ? "decode" : "prefill"].replay(seq, symbols);
  }

  /**
   * Runs `count` steps of one row from `p` on, the first with the token `first`, or the one that the last such step chose, each other one with
   * the token that the one before it chose (crates/kernels/src/greedy.rs). Gives where the tokens that they choose are found. Inputs beside
   * the ids, if there are some, are the same in all of the steps; one without data keeps what it holds.
   */
  follow(seq: number, p: number, first: number | undefined, count: number, others: Given[] = []): { buffer: Stored; offset: number; length: number } {
    const { inputs, outputs, states } = this.program;
    const isOther = (port: Port): boolean => others.some((other) => other.name === port.name);
    const [ids, ...more] = inputs.filter((port) => !isOther(port));
    const [next, generated] = [outputs.find((o) => o.name === NEXT_TOKEN), states.find((s) => s.name === GENERATED)];
    if (!ids || !next || !generated || more.length > 0) throw unsupported("the program does not choose its next token");
    this.following ??= this.record(commandsIn(this.steps, "decode").map((command) => {
      if (command.do !== "dispatch" || command.label !== NEXT_TOKEN) return command;
      const [from, to] = [this.buffer(next.buffer), this.buffer(ids.buffer)];
      return { ...command, bindings: command.bindings.map((b) => (b.buffer === from ? { ...b, buffer: to } : b)) };
    }));
    for (const port of inputs) {
      const data = others.find((other) => other.name === port.name)?.data;
      if (data) writePadded(this.workshop.gpu, this.buffer(port.buffer), data);
    }
    if (first !== undefined) writePadded(this.workshop.gpu, this.buffer(ids.buffer), new Uint8Array(Uint32Array.of(first).buffer));
    for (let at = p; at < p + count; at++) {
      const symbols = new Map([["n", 1], ["p", at]]);
      this.setSymbols(symbols);
      this.following.replay(seq, symbols);
    }
    return { buffer: this.buffer(generated.buffer), offset: 4 * p, length: 4 * count };
  }

  /**
   * Runs some of the steps alone: first fills buffers with a word, then writes bytes to buffers, then runs the steps. States and
   * whatever else the buffers held is lost.
   */
  runSteps(seq: number, symbols: Symbols, [from, to]: [number, number], fills: { buffer: number; word: number }[], writes: { buffer: number; data: Uint8Array }[]): void {
    const steps = this.steps.slice(from, to);
    if (!(from >= 0 && from < to && steps.length === to - from)) throw invalid(`the program has no steps ${from} to ${to}`);
    this.record(fills.map(({ buffer, word }) => ({ do: "fill", buffer: this.buffer(buffer), word }))).replay(seq, symbols);
    for (const { buffer, data } of writes) writePadded(this.workshop.gpu, this.buffer(buffer), data);
    this.setSymbols(symbols);
    this.record(steps.map(({ command }) => command)).replay(seq, symbols);
  }

  /** The first bytes of a buffer. */
  range(index: number, length: number): { buffer: Stored; offset: number; length: number } {
    return { buffer: this.buffer(index), offset: 0, length };
  }

  /** Writes a part of the weight that a buffer holds. */
  fill(index: number, offset: number, bytes: Uint8Array): void {
    write(this.workshop.gpu, this.buffer(index), offset, bytes);
  }

  private setSymbols(symbols: Symbols): void {
    const { program, workshop } = this;
    const block = program.buffers.findIndex((b) => b.content === "symbols");
    if (block < 0) return;
    const values = new Uint32Array(4);
    program.symbols.forEach((name, i) => (values[i] = symbols.get(name) ?? 0));
    write(workshop.gpu, this.buffer(block), 0, new Uint8Array(values.buffer));
  }

  /** Where an output is, and how many bytes it has at these symbols. */
  output(name: string, symbols: Symbols): { buffer: Stored; offset: number; length: number } {
    const port = this.program.outputs.find((p) => p.name === name);
    if (!port) {
      const names = this.program.outputs.map((p) => p.name).join(", ");
      throw invalid(`there is no output \`${name}\``).hinted(`outputs: ${names}`);
    }
    return { buffer: this.buffer(port.buffer), offset: 0, length: bytesOf(port.ty, symbols) };
  }

  /** Fills the states of a fixed shape with zeros. */
  zeroStates(): void {
    const encoder = this.workshop.gpu.device.createCommandEncoder({ label: "zero states" });
    for (const state of this.program.states) if (!state.grows) encoder.clearBuffer(this.buffer(state.buffer).raw);
    this.workshop.gpu.device.queue.submit([encoder.finish()]);
  }

  /** Frees its buffers. */
  unload(): void {
    this.buffers.forEach((b) => free(this.workshop, b));
  }

  private buffer(index: number): Stored {
    return at("buffer", this.buffers, index);
  }
}

/** The commands of a phase. */
function commandsIn(steps: Ready[], phase: Phase): Command[] {
  return steps.filter((step) => (step.phase ?? phase) === phase).map(({ command }) => command);
}

function place(
  seq: number,
  workshop: Workshop,
  plan: Program["buffers"][number],
  weight: ((name: string) => Uint8Array) | undefined,
  id: number,
): Stored {
  const size = count(`the size of buffer ${id}`, plan.size);
  workshop.reserve(String(plan.name), size);
  const buffer = createBuffer(workshop.gpu, seq, id, String(plan.name), size);
  const content = plan.content;
  if (typeof content === "object" && "constant" in content) writePadded(workshop.gpu, buffer, fromHex(content.constant));
  else if (weight && typeof content === "object" && "weight" in content) {
    const { name, offset, len } = content.weight;
    const bytes = weight(name);
    if (count("offset", offset) + count("len", len) > bytes.length) {
      throw invalid(`weight \`${name}\`: expected ${len} bytes at ${offset}, found ${bytes.length} in all`);
    }
    writePadded(workshop.gpu, buffer, bytes.subarray(offset, offset + len));
  }
  return buffer;
}

function free(workshop: Workshop, buffer: Stored): void {
  buffer.raw.destroy();
  workshop.release(buffer.asked);
}

/** Writes bytes of any length into a buffer that is at least as long, rounded up to whole words. */
function writePadded(gpu: Gpu, buffer: Stored, bytes: Uint8Array): void {
  const whole = bytes.length - (bytes.length % 4);
  write(gpu, buffer, 0, bytes.subarray(0, whole));
  if (whole === bytes.length) return;
  const last = new Uint8Array(4);
  last.set(bytes.subarray(whole));
  write(gpu, buffer, whole, last);
}

const KINDS = { read: BindingKind.READ, read_write: BindingKind.READ_WRITE, uniform: BindingKind.UNIFORM };

function kernelOf(k: KernelText): KernelDesc {
  if (k.source.language !== "wgsl") throw unsupported(`kernel \`${k.name}\`: its language is unknown here`);
  return {
    name: k.name,
    language: Language.WGSL,
    file: k.source.file,
    prelude: k.source.prelude,
    text: k.source.text,
    entry: k.entry,
    constants: k.constants.map(([name, value]) => ({ name, value })),
    bindings: k.bindings.map((b) => KINDS[b]),
    workgroupX: k.workgroup[0],
    workgroupY: k.workgroup[1],
    workgroupZ: k.workgroup[2],
    workgroupMemory: k.workgroup_memory,
    needsF16: k.needs_f16,
    needsSubgroups: k.needs_subgroups,
    // Of CUDA alone.
    overlaps: false,
  };
}

function phaseOf(step: Step): Phase | undefined {
  const { phase } = "dispatch" in step ? step.dispatch : "copy" in step ? step.copy : step.fill;
  if (phase === undefined || phase === "decode" || phase === "prefill") return phase;
  throw unsupported(`the phase \`${String(phase).slice(0, 40)}\` is unknown here`);
}

function commandOf(step: Step, buffers: Stored[], kernels: Kernel[]): Command {
  const buffer = (index: number): Stored => at("buffer", buffers, index);
  if ("dispatch" in step) {
    const { node, kernel, bindings, groups } = step.dispatch;
    const bound = bindings.map((b) => ({ buffer: buffer(b.buffer), offset: count("offset", b.offset), size: count("size", b.size) }));
    const grid = groups.map(extent) as [Size, Size, Size];
    return { do: "dispatch", label: node, kernel: at("kernel", kernels, kernel), bindings: bound, grid };
  }
  if ("copy" in step) {
    const { src, src_offset, dst, dst_offset, len } = step.copy;
    return { do: "copy", src: buffer(src), srcOffset: extent(src_offset), dst: buffer(dst), dstOffset: extent(dst_offset), size: extent(len) };
  }
  return { do: "fill", buffer: buffer(step.fill.buffer), word: step.fill.word };
}

function at<T>(what: string, all: T[], index: number): T {
  const found = all[index];
  if (found === undefined) throw invalid(`no ${what} ${index}`);
  return found;
}

function count(what: string, value: unknown): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
  throw invalid(`${what} is ${String(value).slice(0, 40)}, expected a whole number`);
}

/** An affine size such as `320*n+2*p+7`, or a number. */
export function dim(text: Dim, divisor = 1): Size {
  const size: Size = { constant: 0, terms: [], divisor: Math.max(1, divisor) };
  for (const term of String(text).split("+")) {
    const [first = "", second] = term.split("*");
    if (second !== undefined) size.terms.push({ factor: count("a factor", Number(first)), symbol: symbolName(second) });
    else if (/^\d+$/.test(first)) size.constant += count("a size", Number(first));
    else size.terms.push({ factor: 1, symbol: symbolName(first) });
  }
  return size;
}

const extent = (e: Extent): Size => dim(e.dim, count("a divisor", e.divisor));

function bytesOf(ty: TensorType, symbols: Symbols): number {
  const size = SIZES[ty.dtype];
  if (size === undefined) throw unsupported(`the dtype \`${ty.dtype}\` is unknown here`);
  const bytes = ty.shape.reduce<number>((all, d) => all * evaluate(dim(d), symbols), size);
  return count("a tensor's length", bytes);
}

function fromHex(text: string): Uint8Array {
  if (text.length % 2 !== 0 || !/^[0-9a-f]*$/.test(text)) throw invalid("a constant is no hexadecimal text");
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}
