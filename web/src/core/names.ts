// What the requests of a session have named, and requests in words by these names.

import type { Command, CreateKernel, Symbol as WireSymbol } from "../wire/gen/tapml_pb";

/** Kernels, and commands of a list, that are told. */
export const MEMBERS = 32;

/** Characters of kernels' texts, and commands, remembered. */
const TEXTS = 64 << 20;
const COMMANDS = 1 << 18;

/** A request for a journal. */
export interface Note {
  /** The request in words. */
  tell: () => string;
  /** The list that is run, or the kernel that is compiled. */
  list?: number;
  kernel?: number;
}

/** A request whose words need not wait until it is told. */
export const text = (words: string): Note => ({ tell: () => words });

/** The buffers, kernels and lists of a session. */
export class Names {
  /** Bytes of buffers. */
  memory = 0;
  private readonly buffers = new Map<number, { label: string; size: number }>();
  private readonly kernels = new Map<number, CreateKernel>();
  private readonly lists = new Map<number, Command[]>();
  private texts = 0;
  private count = 0;

  addBuffer(id: number, label: string, size: number): void {
    this.memory += size;
    this.buffers.set(id, { label, size });
  }

  removeBuffer(id: number): void {
    this.memory -= this.buffers.get(id)?.size ?? 0;
    this.buffers.delete(id);
  }

  addKernel(kernel: CreateKernel): void {
    this.texts += kernel.prelude.length + kernel.text.length;
    this.kernels.set(kernel.kernel, this.texts > TEXTS ? { ...kernel, prelude: "", text: "" } : kernel);
  }

  addCommands(list: number, commands: Command[]): void {
    this.count += commands.length;
    if (this.count <= COMMANDS) this.lists.set(list, this.commands(list).concat(commands));
  }

  removeList(id: number): void {
    this.count -= this.commands(id).length;
    this.lists.delete(id);
  }

  /** A kernel that was created, without its texts if there were too many. */
  kernel(id: number): CreateKernel | undefined {
    return this.kernels.get(id);
  }

  /** The commands of a list, as far as they are remembered. */
  commands(list: number): Command[] {
    return this.lists.get(list) ?? [];
  }

  /** A buffer in words. */
  buffer(id: number): string {
    const found = this.buffers.get(id);
    return found ? `buffer ${id} \`${found.label}\` of ${found.size} bytes` : `buffer ${id}, which does not exist`;
  }

  /** A run of a list in words. */
  replay(list: number, symbols: WireSymbol[]): string {
    const commands = this.commands(list);
    const told = commands.slice(0, MEMBERS).map((c) => this.command(c)).join(", ");
    const more = commands.length > MEMBERS ? ", …" : "";
    return `replay list ${list}${valuesOf(symbols)} of ${commands.length} commands: ${told}${more}`;
  }

  private command({ work }: Command): string {
    if (work.case === "copy") return `copy from ${this.buffer(work.value.src)} to ${this.buffer(work.value.dst)}`;
    if (work.case === "fill") return `fill ${this.buffer(work.value.buffer)}`;
    if (work.case !== "dispatch") return "nothing";
    const { label, kernel, bindings } = work.value;
    const labels = bindings.map((b) => this.buffers.get(b.buffer)?.label ?? "?").join(", ");
    return `\`${label}\` by kernel \`${this.kernel(kernel)?.name ?? "?"}\` on [${labels}]`;
  }
}

/** Values of symbols in words. */
export function valuesOf(symbols: WireSymbol[]): string {
  return symbols.length === 0 ? "" : ` with ${symbols.map((s) => `${s.name} = ${s.value}`).join(", ")}`;
}
