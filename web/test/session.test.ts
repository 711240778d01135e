// Sessions on a real WebGPU: Dawn under Node, with no browser around it.

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { createBLAKE3 } from "hash-wasm";
import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { Blobs } from "../src/core/blobs";
import { Session, type House } from "../src/core/session";
import type { Reply, Request } from "../src/wire/codec";
import { BindingKind, CreateKernelSchema, ErrorKind, Reason, ToAgentSchema, ToClientSchema, type Failed, type PostMortem } from "../src/wire/gen/tapml_pb";
import { dawn } from "./dawn";

let house: House | undefined;
let missing = "";

before(async () => {
  const api = await dawn();
  if (typeof api === "string") {
    missing = api;
    return;
  }
  const settings = { deadline: 20_000, idle: 60_000, memory: 1 << 30 };
  house = { api, agent: "test", browser: "Node", device: "webgpu", settings, blobs: await Blobs.open(0) };
});

// Dawn keeps the process alive.
after(() => setTimeout(() => process.exit(), 100).unref());

/** The client's side of a session. */
class Client {
  readonly session: Session;
  closed = false;
  private seq = 0;
  private readonly inbox: { seq: number; reply: Reply }[] = [];
  private wake: () => void = () => {};

  constructor(settings: Partial<House["settings"]> = {}) {
    const channel = {
      send: (bytes: Uint8Array) => {
        const { seq, reply } = fromBinary(ToClientSchema, bytes.slice());
        this.inbox.push({ seq: Number(seq), reply });
        this.wake();
      },
      close: () => {
        this.closed = true;
        this.wake();
      },
      waiting: () => 0,
    };
    this.session = new Session("s", channel, { ...house!, settings: { ...house!.settings, ...settings } });
  }

  send(name: Request["case"], value: object = {}): number {
    const message = create(ToAgentSchema, { seq: BigInt(++this.seq), request: { case: name, value } as never });
    this.session.receive(toBinary(ToAgentSchema, message));
    return this.seq;
  }

  /** The next message that is no credit. */
  async next(): Promise<{ seq: number; reply: Reply }> {
    for (;;) {
      const at = this.inbox.findIndex((m) => m.reply.case !== "credit");
      if (at >= 0) return this.inbox.splice(0, at + 1).at(-1)!;
      assert.ok(!this.closed, "the session is closed");
      await new Promise<void>((done) => (this.wake = done));
    }
  }

  async ask(name: Request["case"], value: object = {}): Promise<Reply> {
    const seq = this.send(name, value);
    const { seq: of, reply } = await this.next();
    assert.equal(of, seq);
    return reply;
  }

  async open(target = "webgpu", more: object = {}): Promise<Reply> {
    return this.ask("hello", { versionMin: 1, versionMax: 1, client: "test", target, ...more });
  }

  /** A kernel with one writable binding; its reply. */
  kernel(id: number, text: string, more: object = {}): Promise<Reply> {
    return this.ask("createKernel", {
      ...create(CreateKernelSchema, { kernel: id, name: "mine/kernel", file: "mine.wgsl", entry: "main", text }),
      bindings: [BindingKind.READ_WRITE],
      workgroupX: 1,
      workgroupY: 1,
      workgroupZ: 1,
      ...more,
    });
  }

  /** A list of one dispatch on one workgroup. */
  record(list: number, kernel: number, buffer: number): void {
    const one = { constant: 1n };
    const dispatch = { label: "layer 1", kernel, bindings: [{ buffer }], x: one, y: one, z: one };
    this.send("record", { list, commands: [{ work: { case: "dispatch", value: dispatch } }] });
  }

  leave(): void {
    this.session.left();
  }
}

const ADD = `
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn main() { out[0] += 1u; }
`;

/** A test that needs a device. */
function device(name: string, body: () => Promise<void>): void {
  test(name, async (t) => {
    if (!house) return t.skip(missing);
    await body();
  });
}

const failure = (reply: Reply): Failed => {
  assert.equal(reply.case, "failed");
  return reply.value as Failed;
};
const detail = (f: Failed, of: string): string | undefined => f.details.find((d) => d.name === of)?.value;

device("a kernel runs on a buffer that starts zeroed", async () => {
  const client = new Client();
  const welcome = await client.open();
  assert.ok(welcome.case === "welcome");
  assert.equal(welcome.value.device?.platform, "webgpu");
  assert.ok((welcome.value.device?.limits?.maxStorageBuffers ?? 0) >= 8);
  client.send("createBuffer", { buffer: 1, label: "out", size: 10n });
  assert.equal((await client.kernel(1, ADD)).case, "done");
  client.record(1, 1, 1);
  client.send("replay", { list: 1 });
  client.send("replay", { list: 1 });
  client.send("write", { buffer: 1, offset: 8n, data: new Uint8Array([7, 9]) });
  const data = await client.ask("read", { buffer: 1, offset: 0n, size: 10n });
  assert.ok(data.case === "data" && data.value.last);
  assert.deepEqual([...data.value.data], [2, 0, 0, 0, 0, 0, 0, 0, 7, 9]);
  client.leave();
  assert.ok(client.closed);
});

device("compile errors name kernel, file and line within the text", async () => {
  const client = new Client();
  await client.open();
  const bad = failure(await client.kernel(1, "\n\nfn main() { let x: f32 = 1u; }\n", { prelude: "alias A = u32;\nalias B = u32;\n" }));
  assert.equal(bad.kind, ErrorKind.COMPILE);
  assert.deepEqual([detail(bad, "kernel"), detail(bad, "file"), detail(bad, "line")], ["mine/kernel", "mine.wgsl", "3"]);
  assert.match(bad.message, /^kernel `mine\/kernel` does not compile: mine\.wgsl:3:\d+: /);
  assert.equal(detail(bad, "source"), "fn main() { let x: f32 = 1u; }");
  const binding = failure(await client.kernel(1, ADD, { bindings: [] }));
  assert.deepEqual([detail(binding, "kernel"), detail(binding, "line")], ["mine/kernel", "2"], detail(binding, "log"));
  const entry = failure(await client.kernel(1, ADD, { entry: "absent" }));
  assert.equal(detail(entry, "kernel"), "mine/kernel");
  assert.equal((await client.kernel(1, ADD)).case, "done");
  client.leave();
});

device("an error of an unanswered request is the answer to the next read, once", async () => {
  const client = new Client();
  await client.open();
  client.send("createBuffer", { buffer: 1, label: "out", size: 4n });
  client.send("write", { buffer: 1, offset: 0n, data: new Uint8Array(8) });
  client.send("write", { buffer: 2, offset: 0n, data: new Uint8Array(8) });
  const first = failure(await client.ask("read", { buffer: 1, offset: 0n, size: 4n }));
  assert.match(first.message, /write of 8 bytes at 0 of `out`, which has 4/);
  assert.equal((await client.ask("read", { buffer: 1, offset: 0n, size: 4n })).case, "data");
  client.send("createBuffer", { buffer: 3, label: "huge", size: 2n ** 50n });
  const huge = failure(await client.ask("wait"));
  assert.match(huge.message, /buffer `huge`/);
  client.send("destroyBuffer", { buffer: 3 });
  assert.equal((await client.ask("wait")).case, "done");
  client.leave();
});

device("what WebGPU finds when it encodes names kernel and dispatch", async () => {
  const client = new Client();
  await client.open();
  const text = ADD.replace("array<u32>", "array<u32, 64>");
  assert.equal((await client.kernel(1, text)).case, "done");
  client.send("createBuffer", { buffer: 1, label: "small", size: 16n });
  client.record(1, 1, 1);
  const small = failure(await client.ask("wait"));
  assert.equal(small.kind, ErrorKind.INVALID_INPUT);
  assert.equal(detail(small, "kernel"), "mine/kernel");
  assert.match(small.message, /dispatch `layer 1`/);
  client.leave();
});

device("a request beyond its deadline ends the session with a post-mortem", async () => {
  const client = new Client();
  await client.open("webgpu", { deadlineMs: 300n });
  client.send("createBuffer", { buffer: 1, label: "out", size: 4n });
  const slow = ADD.replace("{ out", "{ for (var i = 0u; i < 40000000u; i++) { out[0] ^= i; } out");
  assert.equal((await client.kernel(1, slow)).case, "done");
  client.record(1, 1, 1);
  client.send("replay", { list: 1 });
  client.send("wait");
  const { reply } = await client.next();
  assert.ok(reply.case === "postMortem", String(reply.case));
  const report = reply.value as PostMortem;
  assert.equal(report.reason, Reason.DEADLINE);
  assert.match(report.summary, /did not finish within .* while running `layer 1` with kernel `mine\/kernel`/);
  assert.deepEqual([report.kernels[0]?.name, report.kernels[0]?.file], ["mine/kernel", "mine.wgsl"]);
  assert.ok(client.closed);
});

device("a ping is answered while something runs, a cancelled request is given up", async () => {
  const client = new Client();
  client.send("hello", { versionMin: 1, versionMax: 1, target: "webgpu" });
  const ping = client.send("ping");
  const pong = await client.next();
  assert.deepEqual([pong.seq, pong.reply.case], [ping, "pong"]);
  const wait = client.send("wait");
  client.send("cancel", { request: BigInt(wait), graceMs: 0n });
  const given = await client.next();
  assert.deepEqual([given.seq, failure(given.reply).kind], [wait, ErrorKind.INTERRUPTED]);
  assert.equal((await client.next()).reply.case, "welcome");
  client.leave();
});

device("who breaks the protocol is told and closed out", async () => {
  for (const [first, pattern] of [["wait", /expected a hello first/], ["hello", /this agent offers `webgpu`/]] as const) {
    const client = new Client();
    const reply = await client.ask(first, { versionMin: 1, versionMax: 1, target: "cuda" }).catch(() => undefined);
    const said = reply ?? (await client.next().catch(() => undefined))?.reply;
    if (said) assert.match(failure(said).message, pattern);
    assert.ok(client.closed);
  }
  const options = new Client();
  assert.match(failure(await options.open("webgpu?colour=red")).message, /`colour=red` is unknown/);
  const twice = new Client();
  await twice.open();
  twice.send("hello", {});
  assert.match(failure((await twice.next()).reply).message, /a second hello/);
  assert.ok(twice.closed);
});

device("more than the session's memory is refused", async () => {
  const client = new Client({ memory: 1000 });
  await client.open();
  client.send("createBuffer", { buffer: 1, label: "a", size: 800n });
  client.send("createBuffer", { buffer: 2, label: "b", size: 800n });
  assert.match(failure(await client.ask("wait")).message, /has 800 bytes and may have 1000/);
  client.send("destroyBuffer", { buffer: 1 });
  client.send("createBuffer", { buffer: 3, label: "c", size: 1000n });
  assert.equal((await client.ask("wait")).case, "done");
  client.leave();
});

device("kernels, lists and programs count towards the session's memory, until they are destroyed", async () => {
  const text = `${ADD}${"// a comment\n".repeat(20)}`;
  const kernel = 4 * text.length;
  const client = new Client({ memory: 4 + 2 * kernel + 256 });
  await client.open();
  client.send("createBuffer", { buffer: 1, label: "out", size: 4n });
  assert.equal((await client.kernel(1, text)).case, "done");
  assert.equal(failure(await client.kernel(2, text.replace("1u", "1.5"))).kind, ErrorKind.COMPILE);
  assert.equal((await client.kernel(3, text)).case, "done");
  const most = new RegExp(`kernel \`mine/kernel\` of ${kernel} bytes: the session has ${4 + 2 * kernel} bytes and may have`);
  const refused = failure(await client.kernel(4, text));
  assert.equal(refused.kind, ErrorKind.OUT_OF_MEMORY);
  assert.match(refused.message, most);
  client.record(1, 1, 1);
  client.record(2, 1, 1);
  assert.match(failure(await client.ask("wait")).message, /a list of 256 bytes: the session has/);
  client.send("destroyList", { list: 1 });
  client.send("destroyKernel", { kernel: 3 });
  client.send("destroyList", { list: 2 });
  client.record(3, 1, 1);
  assert.equal((await client.kernel(5, text)).case, "done");
  client.send("replay", { list: 3 });
  assert.equal((await client.ask("wait")).case, "done");
  client.leave();
  const json = new TextEncoder().encode(JSON.stringify(program()));
  const small = new Client({ memory: 4 * json.length });
  await small.open();
  small.send("putBlob", { data: json });
  const hash = Uint8Array.from((await createBLAKE3()).init().update(json).digest("binary"));
  const load = { program: 1, pieces: [hash], weights: [] };
  assert.equal(failure(await small.ask("loadProgram", load)).kind, ErrorKind.OUT_OF_MEMORY);
  small.send("createBuffer", { buffer: 1, label: "all", size: BigInt(4 * json.length) });
  assert.equal((await small.ask("wait")).case, "done", "what could not be loaded counts for nothing");
  small.leave();
});

device("large reads come in pieces, in order", async () => {
  const client = new Client();
  await client.open();
  const size = (9 << 20) + 5;
  const words = Uint8Array.from({ length: size + 3 }, (_, i) => (i * 7 + (i >> 12)) & 255);
  client.send("createBuffer", { buffer: 1, label: "large", size: BigInt(size + 3) });
  for (let at = 0; at < words.length; at += 4 << 20) {
    client.send("write", { buffer: 1, offset: BigInt(at), data: words.subarray(at, at + (4 << 20)) });
  }
  client.send("read", { buffer: 1, offset: 3n, size: BigInt(size) });
  const parts: Uint8Array[] = [];
  for (let last = false; !last; ) {
    const { reply } = await client.next();
    assert.ok(reply.case === "data");
    parts.push(reply.value.data);
    last = reply.value.last;
  }
  assert.equal(parts.length, 3);
  assert.ok(Buffer.concat(parts).equals(words.subarray(3)));
  client.leave();
});

device("a step writes, runs and reads in one round trip", async () => {
  const client = new Client();
  await client.open();
  client.send("createBuffer", { buffer: 1, label: "out", size: 8n });
  await client.kernel(1, ADD);
  client.record(1, 1, 1);
  const step = { writes: [{ buffer: 1, offset: 0n, data: new Uint8Array([9, 0, 0, 0]) }], list: 1, symbols: [] };
  const two = await client.ask("step", { ...step, reads: [{ buffer: 1, offset: 4n, size: 4n }, { buffer: 1, offset: 0n, size: 2n }] });
  assert.ok(two.case === "data" && two.value.last);
  assert.deepEqual([...two.value.data], [0, 0, 0, 0, 10, 0]);
  const none = await client.ask("step", { ...step, reads: [] });
  assert.ok(none.case === "data" && none.value.last && none.value.data.length === 0);
  const beyond = failure(await client.ask("step", { ...step, reads: [{ buffer: 1, offset: 8n, size: 4n }] }));
  assert.match(beyond.message, /read of 4 bytes at 8 of `out`/);
  assert.match(failure(await client.ask("step", { ...step, list: 7, reads: [] })).message, /no list 7/);
  assert.equal((await client.ask("wait")).case, "done");
  assert.match(failure(await client.ask("callNode", {})).message, /kernels, not operators/);
  client.leave();
});

device("turns of one message run one after the other", async () => {
  const client = new Client();
  await client.open();
  client.send("createBuffer", { buffer: 1, label: "out", size: 8n });
  await client.kernel(1, ADD);
  client.record(1, 1, 1);
  const word = (offset: bigint, value: number) => ({ buffer: 1, offset, data: new Uint8Array([value, 0, 0, 0]) });
  const turn = (...writes: ReturnType<typeof word>[]) => ({ writes, symbols: [] });
  const reads = [{ buffer: 1, offset: 0n, size: 8n }];
  const three = await client.ask("turns", { list: 1, turns: [turn(word(0n, 9)), turn(word(4n, 5)), turn()], reads });
  assert.ok(three.case === "data" && three.value.last);
  assert.deepEqual([...three.value.data], [12, 0, 0, 0, 5, 0, 0, 0]);
  assert.match(failure(await client.ask("turns", { list: 7, turns: [turn()], reads })).message, /no list 7/);
  const many = await client.ask("turns", { list: 1, turns: Array.from({ length: 257 }, () => turn()), reads });
  assert.match(failure(many).message, /257 turns, at most 256/);
  client.leave();
});

const SCALE = `
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> symbols: vec4<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) at: vec3<u32>) { if at.x < symbols.x { y[at.x] = FACTOR * x[at.x] * w[0]; } }
override FACTOR: f32;
`;

/** y = 3 * x * w for n values, 5 * x * w for one value, in the form that TapML's compiler writes. */
const program = (): object => {
  const ty = { dtype: "f32", shape: ["n"] };
  const one = { dim: 1, divisor: 1 };
  const all = (buffer: number): object => ({ buffer, offset: 0, size: 0 });
  const bindings = [all(1), all(2), all(3), all(0)];
  const scale = (factor: number): object => ({
    name: "scale/portable",
    source: { language: "wgsl", file: "scale.wgsl", prelude: "", text: SCALE },
    entry: "main",
    constants: [["FACTOR", factor]],
    bindings: ["read", "read", "read_write", "uniform"],
    workgroup: [1, 1, 1],
    workgroup_memory: 0,
    needs_f16: false,
    needs_subgroups: false,
  });
  return {
    schema: 2,
    name: "scale",
    symbols: ["n", "p"],
    capacity: { n: 4, p: 0 },
    buffers: [
      { name: "symbols", size: 16, content: "symbols" },
      { name: "x", size: 16, content: "activation" },
      { name: "w", size: 4, content: { weight: { name: "w", offset: 4, len: 4 } } },
      { name: "y", size: 16, content: "activation" },
      { name: "unused", size: 8, content: { constant: "0102030405" } },
    ],
    kernels: [scale(3), scale(5)],
    steps: [
      { dispatch: { node: "y", kernel: 0, bindings, groups: [{ dim: "n", divisor: 1 }, one, one], phase: "prefill" } },
      { dispatch: { node: "y", kernel: 1, bindings, groups: [one, one, one], phase: "decode" } },
    ],
    inputs: [{ name: "x", ty, buffer: 1 }],
    outputs: [{ name: "y", ty, buffer: 3 }],
    states: [],
  };
};

const bytesOf = (values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);

device("a whole program is loaded once and run by handle", async () => {
  const client = new Client();
  await client.open();
  const hasher = await createBLAKE3();
  const put = (bytes: Uint8Array): Uint8Array => {
    client.send("putBlob", { data: bytes });
    return Uint8Array.from(hasher.init().update(bytes).digest("binary"));
  };
  const hash = put(new TextEncoder().encode(JSON.stringify(program())));
  const unknown = new Uint8Array(32);
  const held = await client.ask("hasBlobs", { hashes: [hash, unknown] });
  assert.ok(held.case === "heldBlobs");
  assert.deepEqual(held.value.held, [true, false]);
  const load = (pieces: Uint8Array[], size: bigint, id = 1): Promise<Reply> => {
    return client.ask("loadProgram", { program: id, pieces: [hash], weights: [{ name: "w", size, pieces }] });
  };
  assert.equal(detail(failure(await load([unknown], 8n)), "missing"), "00".repeat(32));
  const w = put(bytesOf([5, 2]));
  assert.match(failure(await load([w], 9n)).message, /weight `w`: expected 9 bytes, found 8/);
  assert.equal((await load([w], 8n)).case, "done");
  const run = (n: number, x: number[], more: object = {}): Promise<Reply> => {
    const symbols = [{ name: "n", value: BigInt(n) }, { name: "p", value: 0n }];
    return client.ask("runProgram", { program: 1, symbols, inputs: [{ name: "x", data: bytesOf(x) }], outputs: ["y"], ...more });
  };
  for (const [x, factor] of [[[1, 2, 3], 6], [[4], 10]] as const) {
    const reply = await run(x.length, [...x]);
    assert.ok(reply.case === "data" && reply.value.last);
    assert.deepEqual([...new Float32Array(reply.value.data.slice().buffer)], x.map((v) => factor * v));
  }
  assert.match(failure(await run(5, [1, 2, 3, 4, 5])).message, /`n` is 5, the program was compiled for up to 4/);
  assert.match(failure(await run(2, [1])).message, /input `x` takes 8 bytes, found 4/);
  assert.match(failure(await run(1, [1], { outputs: ["z"] })).message, /no output `z`/);
  client.send("unloadProgram", { program: 1 });
  assert.match(failure(await run(1, [1])).message, /no program 1/);
  for (const [change, pattern] of [
    [{ schema: 1 }, /schema 1 of a program is unknown/],
    [{ steps: [{ fill: { buffer: 9, word: 1 } }] }, /no buffer 9/],
    [{ steps: [{ fill: { buffer: 1, word: 1, phase: "train" } }] }, /the phase `train` is unknown/],
    [{ buffers: [{ name: "b", size: -4, content: "state" }] }, /expected a whole number/],
    [{ kernels: undefined }, /has no `kernels`/],
  ] as const) {
    const bad = put(new TextEncoder().encode(JSON.stringify({ ...program(), ...change })));
    const reply = await client.ask("loadProgram", { program: 2, pieces: [bad], weights: [{ name: "w", size: 8n, pieces: [w] }] });
    assert.match(failure(reply).message, pattern);
  }
  client.leave();
});
