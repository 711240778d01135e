// A model on a device: its program, its weights, the tokens that its states hold. A device that is lost is opened again, and
// the tokens are fed again.

import { Reads, type Stored } from "../core/buffers";
import { Failure, failureOf, invalid, unsupported } from "../core/failure";
import { Fill } from "../core/fill";
import { Gpu } from "../core/gpu";
import { Layouts } from "../core/kernels";
import { Instance, parseProgram, type Given, type Program } from "../core/program";
import { AdapterKind, ErrorKind } from "../wire/gen/tapml_pb";
import type { Plan } from "./api";
import type { Files, Tell } from "./files";
import { runs, type Manifest, type ProgramFile } from "./manifest";
import type { Info } from "../core/info";
import { commonLength, stepImages, type PlacedImage, type Prompt } from "./vision";

/** Times that a device may be lost in one step before that is an error. */
const ATTEMPTS = 3;

/** A token that `argmax` gives of a row that has no greatest logit. */
const NONE = 0xffffffff;

interface Loaded {
  gpu: Gpu;
  instance: Instance;
  /** What makes rows of images, of a model that sees. */
  encoder: Instance | undefined;
  reads: Reads;
  /** Fails when the device is lost. */
  lost: Promise<never>;
}

/** Tokens that a device makes by itself, on their way. */
interface Burst {
  loaded: Loaded;
  count: number;
  tokens: Promise<number[]>;
}

/** Tokens that the device makes by itself: at first, at most, and so many that it takes about this many milliseconds. */
const AHEAD = { first: 2, most: 32, span: 100 };

/** What a model is made from. */
export interface Parts {
  api: GPU;
  site: Manifest;
  files: Files;
  browser: string;
  /** Bytes of weights that are on the device. */
  tell: Tell;
}

/** A call of a node alone. */
export interface NodeCall {
  /** Whether it is one of the encoder of images. */
  encoder: boolean;
  steps: [number, number];
  symbols: Map<string, number>;
  fills: { buffer: number; word: number }[];
  writes: { buffer: number; data: Uint8Array }[];
  outputs: { buffer: number; bytes: number }[];
}

/** Share of the machine's memory beyond which a model is warned of. */
const SHARE = 0.5;

/** See the file. */
export class Model {
  /** The tokens in the states. */
  private fed: number[] = [];
  /** Images among them and in the rest of the prompt. */
  private images: PlacedImage[] = [];
  /** What the encoder made of images, by their hashes. They outlive the device. */
  private rows = new Map<string, Uint8Array>();
  private loaded: Loaded | undefined;
  private seq = 0;
  /** How often the device was opened again. */
  reopened = 0;

  private constructor(private readonly parts: Parts, readonly programs: [Program, ...Program[]], readonly entry: ProgramFile, first: Gpu) {
    this.spare = first;
  }

  /** The model's own program; that of the encoder of images is behind it. */
  private get program(): Program {
    return this.programs[0];
  }

  /** The device that the program was chosen for, until it is loaded. */
  private spare: Gpu | undefined;

  /** Opens a device and chooses the program that it can run. What is missing is told before weights are loaded. */
  static async open(parts: Parts): Promise<Model> {
    const gpu = await openGpu(parts);
    const entry = parts.site.programs.find((program) => runs(program, gpu.info));
    if (!entry) throw unsupported(`the model needs f16, which ${gpu.info.name} does not have`).hinted("compile it for mobile-webgpu, which needs no f16");
    const programs: [Program, ...Program[]] = [parseProgram(await parts.files.get(entry))];
    if (entry.encoder) programs.push(parseProgram(await parts.files.get(entry.encoder)));
    programs.forEach((program) => expectFit(program, gpu));
    await expectRoom(parts);
    return new Model(parts, programs, entry, gpu);
  }

  /** What loading takes. */
  async plan(): Promise<Plan> {
    const { site, files } = this.parts;
    const info = this.info;
    const memory = Object.values(this.entry.memory).reduce((sum, bytes) => sum + bytes, 0);
    const gigabytes = (globalThis.navigator as { deviceMemory?: number } | undefined)?.deviceMemory;
    const warnings: string[] = [];
    // Browsers tell at most 8.
    if (gigabytes !== undefined && gigabytes < 8 && memory > SHARE * gigabytes * 2 ** 30) {
      warnings.push(`the model takes ${megabytes(memory)} of memory, this device has about ${gigabytes} GB in all`);
    }
    if (info.kind === AdapterKind.CPU) warnings.push("the browser has no GPU for the page and computes on the processor: it will be slow");
    const download = await files.missing(site.weights.shards);
    return { model: site.model, device: info.name, weights: site.weights.bytes, download, memory, notKept: files.notKept, warnings };
  }

  /** Loads the weights. */
  async load(): Promise<void> {
    await this.ready();
  }

  /** The site. */
  get site(): Manifest {
    return this.parts.site;
  }

  /** The device's identity, limits and features. */
  get info(): Info {
    return (this.loaded?.gpu ?? this.spare!).info;
  }

  /** The device's name. */
  get device(): string {
    return this.info.name;
  }

  get position(): number {
    return this.fed.length;
  }

  /** The device, for tests that take it away. */
  get raw(): GPUDevice | undefined {
    return this.loaded?.gpu.device;
  }

  /** Forgets what the next text does not begin with; gives how many of its tokens need not be fed. */
  async keep(prompt: Prompt): Promise<number> {
    const rows = new Map<string, Uint8Array>();
    for (const image of prompt.images) rows.set(image.hash, this.rows.get(image.hash) ?? (await this.encode(image)));
    // At least one token is left to feed: it gives the logits.
    let same = commonLength(prompt, { ids: this.fed, images: this.images });
    // Rows of caches behind the position are never read; a state of one size cannot go back.
    if (same < this.fed.length && this.program.states.some((s) => !s.grows)) same = 0;
    if (same === 0) (await this.ready()).instance.zeroStates();
    this.fed.length = same;
    [this.images, this.rows] = [prompt.images, rows];
    return same;
  }

  /** Feeds tokens; gives the token of the greatest logit behind them. */
  async next(ids: number[]): Promise<number> {
    return this.retried(ids.length, async (loaded) => {
      const symbols = this.feed(loaded, ids);
      const [token] = new Uint32Array(await this.read(loaded, loaded.instance.output("next_token", symbols)));
      return [finite(token), ids];
    });
  }

  /** Feeds tokens; gives the logits behind them. */
  async logits(ids: number[]): Promise<Float32Array> {
    return this.retried(ids.length, async (loaded) => {
      const symbols = this.feed(loaded, ids);
      return [new Float32Array(await this.read(loaded, loaded.instance.output("logits", symbols))), ids];
    });
  }

  /**
   * Up to `most` tokens of greatest logits behind the token `first`, in bursts that the device makes by itself. It makes the next burst while
   * one is read and shown, so that it never waits for the page. Whoever leaves the loop may feed any other text.
   */
  async *follow(first: number, most: number): AsyncGenerator<number[]> {
    const bursts: Burst[] = [];
    let [token, made, ahead, before] = [first, 0, AHEAD.first, performance.now()];
    const next = (): Promise<number[]> => this.retried(1, async (loaded) => {
      // A new device has nothing of what was under way on another.
      if (bursts[0]?.loaded !== loaded) bursts.length = 0;
      for (;;) {
        const asked = bursts.reduce((sum, burst) => sum + burst.count, 0);
        const count = Math.min(ahead, most - made - asked);
        if (bursts.length > 1 || count < 1) break;
        bursts.push(this.burst(loaded, asked, asked === 0 ? token : undefined, count));
      }
      const found = await bursts[0]!.tokens;
      bursts.shift();
      return [found, [token, ...found.slice(0, -1)]];
    });
    try {
      while (made < most) {
        const found = await next();
        const took = performance.now() - before;
        before += took;
        if (took < AHEAD.span / 2) ahead = Math.min(ahead * 2, AHEAD.most);
        else if (took > AHEAD.span * 2) ahead = Math.max(1, ahead >> 1);
        made += found.length;
        token = found.at(-1)!;
        yield found;
      }
    } finally {
      // States of one size hold what nobody asked for any longer, which then has to be known.
      const known = this.program.states.every((s) => s.grows) ? [] : await Promise.all(bursts.map((burst) => burst.tokens)).catch(() => undefined);
      if (known && known.length > 0) this.fed.push(token, ...known.flat().slice(0, -1));
      else if (!known) this.fed = [];
    }
  }

  /** A burst behind `ahead` tokens that were asked for already, or behind the token `first`. */
  private burst(loaded: Loaded, ahead: number, first: number | undefined, count: number): Burst {
    const room = this.parts.site.context - this.fed.length - ahead;
    if (count > room) throw invalid(`${count} tokens do not fit behind ${this.fed.length + ahead}, the context holds ${this.parts.site.context}`);
    const place = this.fed.length + ahead;
    const at = loaded.instance.follow(++this.seq, place, first, count, this.imageInputs(place, place + 1).inputs);
    const tokens = this.read(loaded, at).then((bytes) => [...new Uint32Array(bytes)].map(finite));
    // One that is not waited for may fail.
    tokens.catch(() => {});
    return { loaded, count, tokens };
  }

  /** Runs some steps of the program alone; gives the bytes that they leave. The states are lost. */
  async call({ encoder, steps, symbols, fills, writes, outputs }: NodeCall): Promise<ArrayBuffer[]> {
    this.fed = [];
    return this.retried(0, async (loaded) => {
      const instance = encoder ? loaded.encoder : loaded.instance;
      if (!instance) throw invalid("the site has no encoder of images");
      instance.runSteps(++this.seq, symbols, steps, fills, writes);
      const found: ArrayBuffer[] = [];
      for (const { buffer, bytes } of outputs) found.push(await this.read(loaded, instance.range(buffer, bytes)));
      return [found, []];
    });
  }

  close(): void {
    this.loaded?.gpu.close();
    this.spare?.close();
  }

  /** Runs what is left of a text in steps; gives the symbols of the last. */
  private feed({ instance }: Loaded, ids: number[], from = this.fed.length): Map<string, number> {
    let symbols = new Map<string, number>();
    for (let at = 0; at < ids.length; ) {
      const { end, inputs } = this.imageInputs(from + at, from + Math.min(ids.length, at + this.parts.site.step));
      const part = ids.slice(at, end - from);
      symbols = new Map([["n", part.length], ["p", from + at]]);
      instance.run(++this.seq, symbols, [{ name: this.ids, data: new Uint8Array(Uint32Array.from(part).buffer) }, ...inputs]);
      at = end - from;
    }
    return symbols;
  }

  /** Name of the input for token ids. */
  private get ids(): string {
    const { rows, slots } = this.parts.site.image?.inputs ?? {};
    const port = this.program.inputs.find(({ name }) => name !== rows && name !== slots);
    if (!port) throw invalid("the program takes no token ids");
    return port.name;
  }

  /** What a step of these tokens takes of images, and where it ends: it has the rows of one. */
  private imageInputs(start: number, end: number): { end: number; inputs: Given[] } {
    const names = this.parts.site.image?.inputs;
    if (!names) return { end, inputs: [] };
    const step = stepImages(this.images, start, end);
    // Rows that no slot names are not looked at: those of the step before may stay.
    const rows = step.image && this.rows.get(step.image.hash);
    return { end: step.end, inputs: [{ name: names.rows, data: rows }, { name: names.slots, data: new Uint8Array(step.slots.buffer) }] };
  }

  /** What the encoder makes of an image. */
  private encode({ pixels }: PlacedImage): Promise<Uint8Array> {
    return this.retried(0, async (loaded) => {
      const { encoder } = loaded;
      const names = this.parts.site.image?.inputs;
      if (!encoder || !names) throw invalid("the site has no encoder of images");
      const symbols = new Map([["n", 1], ["p", 0]]);
      encoder.run(++this.seq, symbols, [{ name: names.pixels, data: pixels }]);
      return [new Uint8Array(await this.read(loaded, encoder.output(names.rows, symbols))), []];
    });
  }

  private async read({ gpu, reads }: Loaded, from: { buffer: Stored; offset: number; length: number }): Promise<ArrayBuffer> {
    const all = new Uint8Array(from.length);
    let at = 0;
    await reads.read(from.buffer, from.offset, from.length, () => settled(gpu), (piece) => {
      all.set(piece, at);
      at += piece.length;
    });
    return all.buffer;
  }

  /** Work that feeds so many tokens and tells which; done again on a new device if this one is lost meanwhile. */
  private async retried<T>(count: number, work: (loaded: Loaded) => Promise<[T, number[]]>): Promise<T> {
    const room = this.parts.site.context - this.fed.length;
    if (count > room) throw invalid(`${count} tokens do not fit behind ${this.fed.length}, the context holds ${this.parts.site.context}`);
    for (let attempt = 1; ; attempt++) {
      const loaded = await this.ready();
      try {
        const [result, fed] = await Promise.race([work(loaded), loaded.lost]);
        this.fed.push(...fed);
        return result;
      } catch (thrown) {
        // What fails first is often a read; that the device is gone is told a moment later.
        await Promise.race([loaded.lost.catch(() => {}), new Promise((done) => setTimeout(done, 200))]);
        if (!loaded.gpu.gone || attempt === ATTEMPTS) throw thrown;
      }
    }
  }

  /** The program on a device that is there. */
  private async ready(): Promise<Loaded> {
    if (this.loaded && !this.loaded.gpu.gone) return this.loaded;
    if (this.loaded) this.reopened++;
    const gpu = this.spare?.gone === false ? this.spare : await openGpu(this.parts);
    this.spare = undefined;
    const lost = new Promise<never>((_, fail) => {
      gpu.onLost = (reason, message) => fail(new Failure(ErrorKind.UNAVAILABLE, `the browser took the device away (${reason}): ${message}`));
    });
    // Nobody may be waiting when it happens.
    lost.catch(() => {});
    const workshop = { gpu, layouts: new Layouts(gpu.device), fill: new Fill(gpu.device), reserve: () => {}, release: () => {} };
    const instances: Instance[] = [];
    for (const program of this.programs) instances.push(await Instance.load(++this.seq, program, workshop));
    await upload(instances, this.parts);
    await settled(gpu);
    const [instance, encoder] = instances as [Instance, Instance?];
    this.loaded = { gpu, instance, encoder, reads: new Reads(gpu), lost };
    this.feed(this.loaded, this.fed, 0);
    return this.loaded;
  }
}

const openGpu = ({ api, browser }: Parts): Promise<Gpu> => Gpu.open(api, { mobile: false, f16: true, subgroups: true }, browser);

/** A number of bytes as people read it. */
export const megabytes = (bytes: number): string => (bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`);

function finite(token: number | undefined): number {
  if (token === undefined || token === NONE) throw invalid("some logits are not finite").hinted("`tapml diagnose` finds the operator");
  return token;
}

/** Fails with what went wrong on the device since this was last asked. */
async function settled(gpu: Gpu): Promise<void> {
  await gpu.settled();
  const failure = gpu.takeLate();
  if (failure) throw failure;
}

/** Fails if a buffer is larger than the device allows; kernels are compared with its limits when they are compiled. */
function expectFit(program: Program, gpu: Gpu): void {
  const most = Math.min(gpu.info.limits.max_buffer_size, gpu.info.limits.max_binding_size);
  const large = program.buffers.find((b) => b.size > most);
  if (!large) return;
  const text = `\`${large.name}\` takes ${large.size} bytes, ${gpu.info.name} binds at most ${most}`;
  throw unsupported(text).hinted("compile the model for fewer tokens (--positions, --step-tokens) or with --quantize q4");
}

/** Asks the browser to keep what is stored, and whether there is room for the weights; if not, they are not kept. */
async function expectRoom({ site, files }: Parts): Promise<void> {
  const storage = globalThis.navigator?.storage as StorageManager | undefined;
  await storage?.persist?.().catch(() => false);
  const { quota, usage = 0 } = (await storage?.estimate?.().catch(() => undefined)) ?? {};
  const suites = site.programs.flatMap(({ suite }) => (suite ? [suite.calls, suite.data] : []));
  const encoders = site.programs.flatMap(({ encoder }) => encoder ?? []);
  const forms = site.form ? Object.values(site.form) : [];
  const listed = new Set([...site.programs, ...encoders, ...suites, ...forms, site.tokenizer, ...site.weights.shards].map((f) => f.sha256));
  await files.store?.keep(listed).catch(() => {});
  const missing = await files.missing(site.weights.shards);
  if (quota !== undefined && quota - usage < missing) {
    files.notKept = `the browser grants ${megabytes(Math.max(0, quota - usage))}, the weights take ${megabytes(missing)}`;
  }
}

/** Writes the weights, shard by shard, to where the programs want them. */
async function upload(instances: Instance[], { site, files, tell }: Parts): Promise<void> {
  const at = new Map(site.weights.tensors.map((t) => [`${t.offset} ${t.len} ${t.name}`, t.at]));
  const wanted = instances.flatMap((instance) => instance.program.buffers.flatMap(({ content }, index) => {
    if (typeof content !== "object" || !("weight" in content)) return [];
    const { name, offset, len } = content.weight;
    const start = at.get(`${offset} ${len} ${name}`);
    if (start === undefined) throw invalid(`the site has no weight \`${name}\` of ${len} bytes at ${offset}`);
    // The site pads each to whole words.
    return [{ instance, index, start, end: start + len + ((4 - (len % 4)) % 4) }];
  }));
  let first = 0;
  for (const shard of site.weights.shards) {
    const last = first + shard.bytes;
    const bytes = await files.get(shard, (here) => tell(first + here)).catch((thrown: unknown) => {
      throw failureOf(thrown).within("the weights");
    });
    for (const { instance, index, start, end } of wanted.filter((w) => w.start < last && w.end > first)) {
      const [from, to] = [Math.max(start, first), Math.min(end, last)];
      instance.fill(index, from - start, bytes.subarray(from - first, to - first));
    }
    first = last;
  }
}
