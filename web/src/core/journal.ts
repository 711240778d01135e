// What the agent remembers of a session for its post-mortem: the last requests, and the kernels, lists and buffers they name.

import { create } from "@bufbuild/protobuf";
import {
  type Command,
  type CreateKernel,
  type KernelRef,
  type PostMortem,
  type Symbol as WireSymbol,
  KernelRefSchema,
  PostMortemSchema,
  type Reason,
} from "../wire/gen/tapml_pb";
import type { Request } from "../wire/codec";

/** Finished requests remembered. */
const RECENT = 32;

/** Requests told in a post-mortem. */
const TOLD = 48;

/** Kernels, and commands of a list, told in a post-mortem. */
const MEMBERS = 32;

/** Characters of kernels' texts, and commands, remembered. */
const TEXTS = 64 << 20;
const COMMANDS = 1 << 18;

interface Note {
  seq: number;
  length: number;
  tell: () => string;
  /** The dispatches of a replay, or the kernel that is compiled. */
  list?: number;
  kernel?: number;
}

/** What is being done: a request, and the command of its list if that is known. */
export interface Doing {
  seq: number;
  command?: number | undefined;
  since: number;
}

/** See the file. */
export class Journal {
  private recent: Note[] = [];
  /** The last request that is finished. */
  done = 0;
  /** Bytes and number of messages under way. */
  underWay = { bytes: 0, count: 0 };
  /** Bytes of buffers. */
  memory = 0;
  private readonly buffers = new Map<number, { label: string; size: number }>();
  private readonly kernels = new Map<number, CreateKernel>();
  private readonly lists = new Map<number, Command[]>();
  private texts = 0;
  private commands = 0;
  /** Replays handed to the GPU and not yet waited for. */
  private flying: number[] = [];

  /** Notes a request whose message has `length` bytes. */
  note(seq: number, length: number, request: Request): void {
    this.recent.push({ seq, length, ...this.enter(request) });
    this.underWay.bytes += length;
    this.underWay.count++;
  }

  /** Notes that everything up to a request is finished. */
  finish(seq: number): void {
    for (const note of this.recent) {
      if (note.seq <= this.done || note.seq > seq) continue;
      this.underWay.bytes -= note.length;
      this.underWay.count--;
    }
    this.done = Math.max(this.done, seq);
    const finished = this.recent.findIndex((n) => n.seq > this.done);
    const drop = (finished < 0 ? this.recent.length : finished) - RECENT;
    if (drop > 0) this.recent.splice(0, drop);
  }

  /** Notes that a list was handed to the GPU. */
  submitted(list: number): void {
    this.flying = [list, ...this.flying.filter((l) => l !== list)].slice(0, MEMBERS);
  }

  /** Notes that the GPU has done all it was given. */
  settled(): void {
    this.flying = [];
  }

  private enter(request: Request): Pick<Note, "tell" | "list" | "kernel"> {
    const text = (t: string): { tell: () => string } => ({ tell: () => t });
    switch (request.case) {
      case "createBuffer": {
        const { buffer, label, size } = request.value;
        this.memory += Number(size);
        this.buffers.set(buffer, { label, size: Number(size) });
        return text(`create buffer ${buffer} \`${label}\` of ${size} bytes`);
      }
      case "destroyBuffer": {
        const { buffer } = request.value;
        const told = `destroy ${this.buffer(buffer)}`;
        this.memory -= this.buffers.get(buffer)?.size ?? 0;
        this.buffers.delete(buffer);
        return text(told);
      }
      case "write":
        return text(`write ${request.value.data.length} bytes at ${request.value.offset} of ${this.buffer(request.value.buffer)}`);
      case "writeBlob":
        return text(`write a blob at ${request.value.offset} of ${this.buffer(request.value.buffer)}`);
      case "read":
        return text(`read ${request.value.size} bytes at ${request.value.offset} of ${this.buffer(request.value.buffer)}`);
      case "createKernel": {
        const kernel = request.value;
        this.texts += kernel.prelude.length + kernel.text.length;
        this.kernels.set(kernel.kernel, this.texts > TEXTS ? { ...kernel, prelude: "", text: "" } : kernel);
        return { ...text(`create kernel ${kernel.kernel} \`${kernel.name}\``), kernel: kernel.kernel };
      }
      case "destroyKernel":
        return text(`destroy kernel ${request.value.kernel}`);
      case "record": {
        const { list, commands } = request.value;
        this.commands += commands.length;
        if (this.commands <= COMMANDS) this.lists.set(list, (this.lists.get(list) ?? []).concat(commands));
        return text(`record list ${list}`);
      }
      case "replay": {
        const { list, symbols } = request.value;
        return { tell: () => this.tellReplay(list, symbols), list };
      }
      case "step": {
        const { list, symbols, writes, reads } = request.value;
        return { tell: () => `write ${writes.length} ranges, ${this.tellReplay(list, symbols)}, read ${reads.length} ranges`, list };
      }
      case "turns": {
        const { list, turns } = request.value;
        return { tell: () => `${turns.length} turns, the first ${this.tellReplay(list, turns[0]?.symbols ?? [])}`, list };
      }
      case "destroyList": {
        this.commands -= this.lists.get(request.value.list)?.length ?? 0;
        this.lists.delete(request.value.list);
        return text(`destroy list ${request.value.list}`);
      }
      case "putBlob":
        return text(`keep a blob of ${request.value.data.length} bytes`);
      case "loadProgram":
        return text(`load program ${request.value.program}`);
      case "runProgram":
        return text(`run program ${request.value.program}${valuesOf(request.value.symbols)}`);
      case "unloadProgram":
        return text(`unload program ${request.value.program}`);
      case "wait":
        return text("wait");
      case "takeFindings":
        return text("take findings");
      case "hasBlobs":
        return text("ask for blobs");
      case "hello":
        return text("open the device");
      default:
        return text("ping or cancel");
    }
  }

  private buffer(id: number): string {
    const found = this.buffers.get(id);
    return found ? `buffer ${id} \`${found.label}\` of ${found.size} bytes` : `buffer ${id}, which does not exist`;
  }

  private tellReplay(list: number, symbols: WireSymbol[]): string {
    const commands = this.lists.get(list) ?? [];
    const told = commands.slice(0, MEMBERS).map((c) => this.tellCommand(c)).join(", ");
    const more = commands.length > MEMBERS ? ", …" : "";
    return `replay list ${list}${valuesOf(symbols)} of ${commands.length} commands: ${told}${more}`;
  }

  private tellCommand({ work }: Command): string {
    if (work.case === "copy") return `copy from ${this.buffer(work.value.src)} to ${this.buffer(work.value.dst)}`;
    if (work.case === "fill") return `fill ${this.buffer(work.value.buffer)}`;
    if (work.case !== "dispatch") return "nothing";
    const { label, kernel, bindings } = work.value;
    const labels = bindings.map((b) => this.buffers.get(b.buffer)?.label ?? "?").join(", ");
    return `\`${label}\` by kernel \`${this.kernels.get(kernel)?.name ?? "?"}\` on [${labels}]`;
  }

  /** The request that is being done, in words, without a list's commands. */
  brief(seq: number): string {
    return this.recent.find((n) => n.seq === seq)?.tell().split(" of ", 1)[0] ?? "";
  }

  /** The kernels of a request; of what the GPU has not finished, if the request only waits for it. */
  private kernelsOf(note: Note | undefined, command: number | undefined): KernelRef[] {
    const one = (id: number, label: string): KernelRef[] => {
      const kernel = this.kernels.get(id);
      if (!kernel) return [];
      const { name, file, text } = kernel;
      return [create(KernelRefSchema, { name, file, label, text })];
    };
    if (note?.kernel !== undefined) return one(note.kernel, "");
    const lists = note?.list !== undefined ? [note.list] : this.flying;
    const dispatches = lists.flatMap((list) => {
      const all = this.lists.get(list) ?? [];
      return command === undefined ? all : all.slice(command, command + 1);
    });
    const refs = dispatches.flatMap(({ work }) => (work.case === "dispatch" ? one(work.value.kernel, work.value.label) : []));
    return refs.slice(0, MEMBERS);
  }

  /** How the session ended. `how` continues "the browser's device …". */
  postMortem(reason: Reason, how: string, doing: Doing | undefined, output: string): PostMortem {
    const running = doing && this.recent.find((n) => n.seq === doing.seq);
    const kernels = running ? this.kernelsOf(running, doing.command) : [];
    const until = this.recent.filter((n) => !doing || n.seq <= doing.seq).slice(-TOLD);
    return create(PostMortemSchema, {
      reason,
      summary: `the browser's device ${how}${whileDoing(running?.tell(), kernels[0])}`,
      request: BigInt(doing?.seq ?? 0),
      running: running?.tell() ?? "",
      kernels,
      recent: until.map((n) => `${n.seq}: ${n.tell()}`),
      output,
      memory: BigInt(Math.max(0, this.memory)),
      busyMs: BigInt(doing ? Math.round(Date.now() - doing.since) : 0),
    });
  }
}

function valuesOf(symbols: WireSymbol[]): string {
  return symbols.length === 0 ? "" : ` with ${symbols.map((s) => `${s.name} = ${s.value}`).join(", ")}`;
}

function whileDoing(running: string | undefined, kernel: KernelRef | undefined): string {
  if (running === undefined) return "";
  if (!kernel) return ` while it was to ${running}`;
  if (kernel.label === "") return ` while compiling kernel \`${kernel.name}\``;
  return ` while running \`${kernel.label}\` with kernel \`${kernel.name}\``;
}
