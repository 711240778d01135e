// The parts that need no GPU.

import { create, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import test from "node:test";
import { Failure } from "../src/core/failure";
import { parseOptions } from "../src/core/gpu";
import { Handles } from "../src/core/handles";
import { infoToWire, type Info, type Limits } from "../src/core/info";
import { Journal } from "../src/core/journal";
import { front } from "../src/core/kernels";
import { Blobs } from "../src/core/blobs";
import { dim } from "../src/core/program";
import { evaluate } from "../src/core/sizes";
import { fromText } from "../src/page/browser";
import { decodeRequest, encodeData, encodeReply } from "../src/wire/codec";
import { DataSchema, Reason, CreateKernelSchema, ToAgentSchema, ToClientSchema } from "../src/wire/gen/tapml_pb";

const fails = (body: () => unknown, pattern: RegExp): void => {
  assert.throws(body, (thrown: unknown) => thrown instanceof Failure && pattern.test(thrown.message));
};

test("data messages written by hand are those of the library", () => {
  for (const [seq, length, last] of [[1, 1, true], [300, 5, false], [2 ** 40, 70_000, true]] as const) {
    const bytes = Uint8Array.from({ length }, (_, i) => i);
    const { message, payload } = encodeData(seq, length, last);
    payload.set(bytes);
    assert.deepEqual(message, encodeReply(seq, { case: "data", value: create(DataSchema, { data: bytes, last }) }));
  }
});

test("messages that claim too much are refused before they are decoded", () => {
  const good = toBinary(ToAgentSchema, create(ToAgentSchema, { seq: 7n, request: { case: "wait", value: {} } as never }));
  assert.equal(decodeRequest(good).seq, 7n);
  fails(() => decodeRequest(new Uint8Array([0x3a, 0xff, 0xff, 0xff, 0x7f])), /claims a field of/);
  fails(() => decodeRequest(new Uint8Array(8).fill(0xff)), /ends within a number/);
  fails(() => decodeRequest(new Uint8Array(12).fill(0xff)), /more than 64 bits/);
  fails(() => decodeRequest(new Uint8Array([0x0b])), /wire type 3/);
  fails(() => decodeRequest(new Uint8Array([0x09, 1])), /ends within a field/);
  const many = new Uint8Array(2 * (1 << 17) + 2);
  for (let i = 0; i < many.length; i += 2) many[i] = 0x08;
  fails(() => decodeRequest(many), /more than 131072 fields/);
  // One byte of a binding's kind on the wire is a number of eight in memory.
  const kernel = create(CreateKernelSchema, { kernel: 1, bindings: new Array<number>(1 << 17).fill(1) });
  const kinds = toBinary(ToAgentSchema, create(ToAgentSchema, { seq: 1n, request: { case: "createKernel", value: kernel } }));
  fails(() => decodeRequest(kinds), /more than 131072 fields/);
});

test("bytes from anywhere decode or are refused", () => {
  let seed = 1;
  const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
  const good = toBinary(ToAgentSchema, create(ToAgentSchema, {
    seq: 9n,
    request: { case: "record", value: { list: 1, commands: [{ work: { case: "fill", value: { buffer: 3, word: 4 } } }] } as never },
  }));
  for (let round = 0; round < 20_000; round++) {
    const bytes = round % 2 ? good.slice() : Uint8Array.from({ length: random(40) }, () => random(256));
    if (round % 2) bytes[random(bytes.length)] = random(256);
    try {
      decodeRequest(bytes);
    } catch (thrown) {
      assert.ok(thrown instanceof Failure, String(thrown));
    }
  }
});

test("sizes are affine in symbols", () => {
  const symbols = new Map([["n", 3], ["p", 4]]);
  for (const [text, divisor, value] of [["0", 1, 0], [40, 3, 14], ["n", 1, 3], ["320*n+2*p+7", 1, 975], ["n+p+1", 4, 2]] as const) {
    assert.equal(evaluate(dim(text, divisor), symbols), value);
  }
  fails(() => evaluate(dim("q"), symbols), /`q` has no value/);
  fails(() => evaluate(dim("9007199254740991*n"), symbols), /overflows/);
  for (const bad of ["", "n+", "-1", "2*3", "toolongsymbol", "1.5", "18446744073709551616"]) fails(() => dim(bad), /./);
});

test("features go over the wire by name, and those that are not there are left out", () => {
  const told = (f16: boolean, subgroups: [number, number]) =>
    infoToWire({ name: "", driver: "", kind: 0, limits: { max_workgroup_size: [1, 1, 1], max_buffer_size: 4, max_binding_size: 4, max_uniform_size: 4 } as Limits, f16, subgroups }).features.map(({ name, value }) => [name, value]);
  assert.deepEqual(told(true, [4, 32]), [["f16", "true"], ["subgroups", "[4,32]"]]);
  assert.deepEqual(told(false, [0, 0]), []);
});

const info = (subgroups: [number, number]): Info => ({ subgroups }) as Info;

test("enables move to the front and lines keep their numbers", () => {
  const desc = { prelude: "alias T = f16;\n", text: "// a\nenable f16, subgroups;\n  enable subgroups;\nfn f() {}", needsF16: false };
  const { text, added } = front(desc, info([4, 8]));
  assert.equal(text, "enable f16; enable subgroups; alias T = f16;\n// a\n\n\nfn f() {}");
  assert.equal(added, 30);
  const other = { prelude: "", text: "enable chromium_thing;\nfn f() {}", needsF16: false };
  assert.deepEqual(front(other, info([0, 0])), { text: other.text, added: 0 });
});

test("options are known or refused", () => {
  assert.deepEqual(parseOptions(""), { mobile: false, f16: true, subgroups: true });
  assert.deepEqual(parseOptions("profile=mobile&f16=off"), { mobile: true, f16: false, subgroups: true });
  for (const bad of ["colour=red", "profile", "f16=maybe", "=", "toString=on"]) fails(() => parseOptions(bad), /unknown/);
});

test("handles of what could not be made stay known", () => {
  const handles = new Handles<string>("buffer");
  assert.equal(handles.make(1, () => "a"), "a");
  assert.throws(() => handles.make(2, () => { throw new Error("no room"); }));
  fails(() => handles.make(1, () => "b"), /the buffer 1 exists already/);
  fails(() => handles.get(2), /the buffer 2 could not be made/);
  fails(() => handles.get(3), /no buffer 3/);
  assert.equal(handles.remove(2), undefined);
  fails(() => handles.remove(2), /no buffer 2/);
});

test("blobs are found by their BLAKE3 hash, the last used stay", async () => {
  const blobs = await Blobs.open(0);
  // The hash of no bytes, from the specification's test vectors.
  const empty = Uint8Array.from(Buffer.from("af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262", "hex"));
  assert.equal(blobs.get(empty), undefined);
  fails(() => blobs.need(empty), /does not hold the blob af1349b9/);
  blobs.put(new Uint8Array(0));
  assert.equal(blobs.need(empty).length, 0);
  // The floor is 32 blobs of 4 MiB.
  for (let i = 0; i < 33; i++) blobs.put(new Uint8Array(4 << 20).fill(i));
  assert.equal(blobs.get(empty), undefined);
  fails(() => blobs.put(new Uint8Array((4 << 20) + 1)), /at most/);
  fails(() => blobs.get(new Uint8Array(31)), /a hash of 31 bytes/);
});

test("a claimed hash is believed in its own session only", async () => {
  const hash = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, "hex"));
  const empty = hash("af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  const [one, other] = [{}, {}];
  const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
  const blobs = await Blobs.open(0);
  blobs.put(bytes("lie"), empty, one);
  assert.deepEqual(blobs.need(empty, one), bytes("lie"));
  assert.equal(blobs.get(empty, other), undefined);
  assert.equal(blobs.get(empty, one), undefined, "what was found out is gone");
  // A true claim is proven by the first who needs it, and a lie does not replace it.
  blobs.put(bytes(""), empty, one);
  blobs.put(bytes("lie"), empty, other);
  assert.deepEqual(blobs.need(empty, other), bytes(""));
  // A lie does not keep the truth out.
  const blobs2 = await Blobs.open(0);
  blobs2.put(bytes("lie"), empty, one);
  blobs2.put(bytes(""), empty, other);
  assert.deepEqual(blobs2.need(empty), bytes(""));
  blobs2.put(bytes("lie"), hash("00".repeat(32)), one);
  await blobs2.settle(one);
  assert.equal(blobs2.get(hash("00".repeat(32)), one), undefined);
  fails(() => blobs2.put(bytes("x"), new Uint8Array(31), one), /a hash of 31 bytes/);
});

test("a post-mortem names the kernel of what was running", () => {
  const journal = new Journal();
  let seq = 0;
  const note = (request: unknown): number => {
    journal.note(++seq, 10, request as never);
    return seq;
  };
  note({ case: "createBuffer", value: { buffer: 1, label: "x", size: 64n } });
  note({ case: "createKernel", value: { kernel: 2, name: "spin", file: "spin.wgsl", text: "loop {}", prelude: "" } });
  const dispatch = { work: { case: "dispatch", value: { label: "layer 3", kernel: 2, bindings: [{ buffer: 1 }] } } };
  note({ case: "record", value: { list: 3, commands: [dispatch] } });
  const replay = note({ case: "replay", value: { list: 3, symbols: [{ name: "n", value: 5n }] } });
  journal.finish(replay);
  journal.submitted(3);
  const wait = note({ case: "wait", value: {} });
  assert.deepEqual(journal.underWay, { bytes: 10, count: 1 });
  const report = journal.postMortem(Reason.DEADLINE, "did not finish", { seq: wait, since: Date.now() }, "");
  assert.equal(report.summary, "the browser's device did not finish while running `layer 3` with kernel `spin`");
  assert.deepEqual(report.kernels.map((k) => [k.name, k.file, k.label, k.text]), [["spin", "spin.wgsl", "layer 3", "loop {}"]]);
  assert.equal(report.recent.at(-2), "4: replay list 3 with n = 5 of 1 commands: `layer 3` by kernel `spin` on [x]");
  assert.equal(report.memory, 64n);
  for (let i = 0; i < 100; i++) journal.finish(note({ case: "wait", value: {} }));
  assert.deepEqual(journal.underWay, { bytes: 0, count: 0 });
  toBinary(ToClientSchema, create(ToClientSchema, { seq: 1n, reply: { case: "postMortem", value: report } }));
});

test("browsers are named", () => {
  const names: [string, string][] = [
    ["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/156.0.0.0 Safari/537.36", "Chrome 156.0.0.0 on Linux"],
    ["Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0", "Firefox 141.0 on Linux"],
    ["Mozilla/5.0 (iPhone; CPU iPhone OS 26_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1", "Safari 26.0 on iOS"],
    ["Mozilla/5.0 (Linux; Android 16; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36", "Chrome 142.0.0.0 on Android 16"],
    ["something", "a browser"],
  ];
  for (const [text, name] of names) assert.equal(fromText(text), name);
});
