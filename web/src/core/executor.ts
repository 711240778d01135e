// The execution of requests on a device, one after the other.

import { create } from "@bufbuild/protobuf";
import type { Command as WireCommand, CreateBuffer, CreateKernel, Record as WireRecord, RunProgram, LoadProgram, Read, Turn } from "../wire/gen/tapml_pb";
import { DoneSchema } from "../wire/gen/tapml_pb";
import { few, integer, name } from "../wire/check";
import { encodeData, encodeFailure, type Reply } from "../wire/codec";
import type { Account } from "./account";
import type { Blobs } from "./blobs";
import { createBuffer, Reads, write, type Stored } from "./buffers";
import { doing, Failure, failureOf, invalid, unsupported } from "./failure";
import { Fill } from "./fill";
import type { Gpu } from "./gpu";
import { Handles } from "./handles";
import { compile, Layouts, type Kernel } from "./kernels";
import { COMMAND_BYTES, MAX_COMMANDS, PIECE, TEXT_BYTES } from "./limits";
import { List, type Command, type Parts } from "./lists";
import { Instance, parseProgram, type Workshop } from "./program";
import { sizeFromWire, symbolsFromWire } from "./sizes";

/** Longest JSON of a program, bytes. */
const MAX_PROGRAM = 256 << 20;

/** What an executor tells its session. */
export interface Listener {
  /** Sends a reply to the request at hand. */
  answer(reply: Reply): void;
  /** Sends bytes that are a reply already, and waits until there is room for more. */
  sendBytes(message: Uint8Array): Promise<void>;
  /** A command of a traced list is next. */
  command(at: number): void;
  /** A list was handed to the GPU, or the GPU has done all it was given. */
  submitted(list: number): void;
  settled(): void;
  /** A kernel was compiled. */
  compiled(kernel: string): void;
}

/** A range of a buffer. */
interface Range {
  buffer: Stored;
  offset: number;
  length: number;
}

/** A device with the handles of its client. */
export class Executor implements Parts {
  destroyed = 0;
  private readonly buffers = new Handles<Stored>("buffer");
  private readonly kernels = new Handles<Kernel>("kernel");
  private readonly lists = new Handles<List>("list");
  private readonly programs = new Handles<Instance>("program");
  private readonly alive = new Set<Stored | Kernel>();
  private readonly layouts: Layouts;
  private readonly fill: Fill;
  private readonly reads: Reads;
  /** Commands of a list of which more are to come. */
  private partial: { list: number; commands: WireCommand[] } | undefined;
  constructor(
    private readonly gpu: Gpu,
    private readonly blobs: Blobs,
    /** Of programs their texts; their buffers are reserved as they are made. */
    readonly account: Account<Stored | Kernel | List | Instance>,
    private readonly trace: boolean,
    private readonly listener: Listener,
  ) {
    this.layouts = new Layouts(gpu.device);
    this.fill = new Fill(gpu.device);
    this.reads = new Reads(gpu);
  }

  hasBuffer(buffer: Stored): boolean {
    return this.alive.has(buffer);
  }

  hasKernel(kernel: Kernel): boolean {
    return this.alive.has(kernel);
  }

  /** Answers the request at hand. */
  answer(reply: Reply): void {
    this.listener.answer(reply);
  }

  /** Tells a failure: at once if the request is answered, else by the answer to a later one. */
  fail(seq: number, failure: Failure, answered: boolean): void {
    if (answered) this.answer({ case: "failed", value: encodeFailure(failure) });
    else this.gpu.report(seq, failure);
  }

  done(): void {
    this.answer({ case: "done", value: create(DoneSchema) });
  }

  /** Fails with the first failure of the unanswered requests since the last one was told. */
  async expectNone(): Promise<void> {
    if (!this.gpu.uncertain) return;
    await this.gpu.settled();
    const failure = this.gpu.takeLate();
    if (failure) throw failure;
  }

  /** Waits for all that was handed to the GPU. */
  async wait(): Promise<void> {
    await Promise.all([this.gpu.device.queue.onSubmittedWorkDone(), this.gpu.settled()]);
    await this.expectNone();
    this.settle();
  }

  /** The GPU has done all it was given. */
  settle(): void {
    this.listener.settled();
  }

  hasBlobs(hashes: Uint8Array[]): boolean[] {
    return hashes.map((hash) => this.blobs.get(hash, this) !== undefined);
  }

  putBlob(data: Uint8Array, hash: Uint8Array): void {
    this.blobs.put(data, hash, this);
  }

  /** The bytes of a blob. */
  blob(hash: Uint8Array): Uint8Array {
    return this.blobs.need(hash, this);
  }

  write(id: number, offset: bigint, data: Uint8Array): void {
    write(this.gpu, this.buffers.get(id), integer("offset", offset), data);
  }

  destroyKernel(id: number): void {
    this.forget(this.account.discount(this.kernels.remove(id)));
  }

  destroyList(id: number): void {
    this.account.discount(this.lists.remove(id));
  }

  unloadProgram(id: number): void {
    this.account.discount(this.programs.remove(id))?.unload();
  }

  createBuffer(seq: number, r: CreateBuffer): void {
    const size = integer("size", r.size);
    const made = this.buffers.make(r.buffer, () => {
      return this.account.count(`buffer \`${name("label", r.label)}\``, size, () => createBuffer(this.gpu, seq, r.buffer, r.label, size));
    });
    this.alive.add(made);
  }

  destroyBuffer(id: number): void {
    const buffer = this.account.discount(this.buffers.remove(id));
    if (!buffer) return;
    buffer.raw.destroy();
    this.forget(buffer);
  }

  private forget(part: Stored | Kernel | undefined): void {
    if (part && this.alive.delete(part)) this.destroyed++;
  }

  async createKernel(r: CreateKernel): Promise<void> {
    this.kernels.expectFree(r.kernel);
    const size = TEXT_BYTES * new TextEncoder().encode(r.prelude + r.text).length;
    const kernel = await this.account.countLater(`kernel \`${name("kernel", r.name)}\``, size, () => compile(this.gpu, this.layouts, r.kernel, r));
    this.kernels.set(r.kernel, kernel);
    this.alive.add(kernel);
    this.listener.compiled(r.name);
  }

  record(seq: number, r: WireRecord): void {
    const partial = this.partial;
    this.partial = undefined;
    if (partial && partial.list !== r.list) throw invalid(`list ${r.list} within list ${partial.list}`);
    const commands = partial ? partial.commands.concat(r.commands) : r.commands;
    if (commands.length > MAX_COMMANDS) throw unsupported(`a list of more than ${MAX_COMMANDS} commands`);
    if (r.more) {
      this.partial = { list: r.list, commands };
      return;
    }
    const size = COMMAND_BYTES * commands.length;
    this.lists.make(r.list, () => {
      return this.account.count("a list", size, () => new List(this.gpu, this, this.fill, seq, r.list, commands.map((c) => this.command(c))));
    });
  }

  private command({ work }: WireCommand): Command {
    switch (work.case) {
      case "dispatch": {
        const d = work.value;
        return doing(`dispatch \`${name("label", d.label)}\``, () => ({
          do: "dispatch",
          label: d.label,
          kernel: this.kernels.get(d.kernel),
          bindings: few("bindings", d.bindings).map((b) => {
            return { buffer: this.buffers.get(b.buffer), offset: integer("offset", b.offset), size: integer("size", b.size) };
          }),
          grid: [sizeFromWire(d.x), sizeFromWire(d.y), sizeFromWire(d.z)],
        }));
      }
      case "copy": {
        const { src, dst, srcOffset, dstOffset, size } = work.value;
        return {
          do: "copy",
          src: this.buffers.get(src),
          srcOffset: sizeFromWire(srcOffset),
          dst: this.buffers.get(dst),
          dstOffset: sizeFromWire(dstOffset),
          size: sizeFromWire(size),
        };
      }
      case "fill":
        return { do: "fill", buffer: this.buffers.get(work.value.buffer), word: work.value.word };
      default:
        throw invalid("a command holds nothing");
    }
  }

  async replay(seq: number, id: number, values: Parameters<typeof symbolsFromWire>[0]): Promise<void> {
    const list = this.lists.get(id);
    const symbols = symbolsFromWire(values);
    this.listener.submitted(id);
    if (this.trace) await list.trace(seq, symbols, (at) => this.listener.command(at));
    else list.replay(seq, symbols);
  }

  /** Answers with pieces, each sent as soon as it is here. */
  async read(seq: number, { buffer: id, offset, size }: Read): Promise<void> {
    const buffer = ((): Stored | Failure => {
      try {
        return this.buffers.get(id);
      } catch (thrown) {
        return failureOf(thrown);
      }
    })();
    if (buffer instanceof Failure) {
      // What went wrong earlier explains it.
      await this.expectNone();
      throw buffer;
    }
    await this.reads.read(buffer, integer("offset", offset), integer("size", size), () => this.expectNone(), (piece, last) => {
      const { message, payload } = encodeData(seq, piece.length, last);
      payload.set(piece);
      return this.listener.sendBytes(message);
    });
  }

  private gather(what: string, pieces: Uint8Array[], limit: number): Uint8Array {
    const found = pieces.map((hash) => this.blobs.need(hash, this));
    const length = found.reduce((sum, piece) => sum + piece.length, 0);
    if (length > limit) throw unsupported(`${what} of more than ${limit} bytes`);
    if (found.length === 1) return found[0]!;
    const all = new Uint8Array(length);
    let at = 0;
    for (const piece of found) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }

  async loadProgram(seq: number, r: LoadProgram): Promise<void> {
    this.programs.expectFree(r.program);
    const text = this.gather("a program", r.pieces, MAX_PROGRAM);
    const program = parseProgram(text);
    // All weights are looked for before any is loaded, so that a client learns early what is missing.
    const weights = new Map(r.weights.map((w) => [name("weight", w.name), w]));
    weights.forEach((w) => doing(w.name, () => w.pieces.forEach((hash) => this.blobs.need(hash, this))));
    const weight = (of: string): Uint8Array => {
      return doing(`weight \`${of}\``, () => {
        const found = weights.get(of);
        if (!found) throw invalid("the client sent none of this name");
        const bytes = this.gather("a weight", found.pieces, Number.MAX_SAFE_INTEGER);
        if (bytes.length !== Number(found.size)) throw invalid(`expected ${found.size} bytes, found ${bytes.length}`);
        return bytes;
      });
    };
    const workshop: Workshop = {
      gpu: this.gpu,
      layouts: this.layouts,
      fill: this.fill,
      reserve: (label, size) => this.account.reserve(`buffer \`${label}\``, size),
      release: (size) => this.account.release(size),
    };
    const load = () => Instance.load(seq, program, workshop, weight);
    this.programs.set(r.program, await this.account.countLater(`program \`${String(program.name)}\``, TEXT_BYTES * text.length, load));
    program.kernels.forEach((k) => this.listener.compiled(k.name));
  }

  async runProgram(seq: number, r: RunProgram): Promise<void> {
    const instance = this.programs.get(r.program);
    const symbols = symbolsFromWire(r.symbols);
    const outputs = r.outputs.map((output) => instance.output(output, symbols));
    if (r.reset) instance.zeroStates();
    instance.run(seq, symbols, r.inputs);
    await this.answerAll(seq, outputs);
  }

  async turns(seq: number, list: number, turns: Pick<Turn, "writes" | "symbols">[], reads: Read[]): Promise<void> {
    const outputs = few("reads", reads).map((read): Range => {
      return { buffer: this.buffers.get(read.buffer), offset: integer("offset", read.offset), length: integer("size", read.size) };
    });
    for (const { writes, symbols } of turns) {
      few("writes", writes).forEach((w) => this.write(w.buffer, w.offset, w.data));
      await this.replay(seq, list, symbols);
    }
    await this.answerAll(seq, outputs);
  }

  /** Answers with ranges, one after the other. */
  private async answerAll(seq: number, outputs: Range[]): Promise<void> {
    const length = outputs.reduce((sum, o) => sum + o.length, 0);
    if (length <= PIECE) return this.answerTogether(seq, outputs, length);
    let left = length;
    for (const { buffer, offset, length: part } of outputs.filter((o) => o.length > 0)) {
      await this.reads.read(buffer, offset, part, () => this.expectNone(), (piece) => {
        left -= piece.length;
        const { message, payload } = encodeData(seq, piece.length, left === 0);
        payload.set(piece);
        return this.listener.sendBytes(message);
      });
    }
  }

  /** Short ranges in one message. */
  private async answerTogether(seq: number, outputs: Range[], length: number): Promise<void> {
    const { message, payload } = encodeData(seq, length, true);
    let at = 0;
    const places = outputs.map((o) => (at += o.length) - o.length);
    if (outputs.length === 0) await Promise.all([this.gpu.device.queue.onSubmittedWorkDone(), this.expectNone()]);
    await Promise.all(
      outputs.map(({ buffer, offset, length: part }, i) => {
        let to = places[i]!;
        return this.reads.read(buffer, offset, part, () => this.expectNone(), (piece) => {
          payload.set(piece, to);
          to += piece.length;
        });
      }),
    );
    await this.listener.sendBytes(message);
  }
}
