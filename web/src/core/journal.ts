// What the agent remembers of a session for its post-mortem: the last requests, and the kernels, lists and buffers they name.

import { create } from "@bufbuild/protobuf";
import { type KernelRef, type PostMortem, KernelRefSchema, PostMortemSchema, type Reason } from "../wire/gen/tapml_pb";
import type { Request } from "../wire/codec";
import { MEMBERS, Names, type Note } from "./names";
import { note, remember } from "./requests";

/** Finished requests remembered. */
const RECENT = 32;

/** Requests told in a post-mortem. */
const TOLD = 48;

interface Entry extends Note {
  seq: number;
  length: number;
}

/** What is being done: a request, and the command of its list if that is known. */
export interface Doing {
  seq: number;
  command?: number | undefined;
  since: number;
}

/** See the file. */
export class Journal {
  private recent: Entry[] = [];
  /** The last request that is finished. */
  done = 0;
  /** Bytes and number of messages under way. */
  underWay = { bytes: 0, count: 0 };
  private readonly names = new Names();
  /** Replays handed to the GPU and not yet waited for. */
  private flying: number[] = [];

  /** Notes a request whose message has `length` bytes. */
  note(seq: number, length: number, request: Request): void {
    this.recent.push({ seq, length, ...note(request, this.names) });
    remember(request, this.names);
    this.underWay.bytes += length;
    this.underWay.count++;
  }

  /** Notes that everything up to a request is finished. */
  finish(seq: number): void {
    for (const entry of this.recent) {
      if (entry.seq <= this.done || entry.seq > seq) continue;
      this.underWay.bytes -= entry.length;
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

  /** Bytes of buffers. */
  get memory(): number {
    return this.names.memory;
  }

  /** The request that is being done, in words, without a list's commands. */
  brief(seq: number): string {
    return this.recent.find((n) => n.seq === seq)?.tell().split(" of ", 1)[0] ?? "";
  }

  /** The kernels of a request; of what the GPU has not finished, if the request only waits for it. */
  private kernelsOf(entry: Entry | undefined, command: number | undefined): KernelRef[] {
    const one = (id: number, label: string): KernelRef[] => {
      const kernel = this.names.kernel(id);
      if (!kernel) return [];
      const { name, file, text } = kernel;
      return [create(KernelRefSchema, { name, file, label, text })];
    };
    if (entry?.kernel !== undefined) return one(entry.kernel, "");
    const lists = entry?.list !== undefined ? [entry.list] : this.flying;
    const dispatches = lists.flatMap((list) => {
      const all = this.names.commands(list);
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

function whileDoing(running: string | undefined, kernel: KernelRef | undefined): string {
  if (running === undefined) return "";
  if (!kernel) return ` while it was to ${running}`;
  if (kernel.label === "") return ` while compiling kernel \`${kernel.name}\``;
  return ` while running \`${kernel.label}\` with kernel \`${kernel.name}\``;
}
