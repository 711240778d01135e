// The parts of a site's runtime that need no device.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import { Files } from "../src/site/files";
import { runs } from "../src/site/manifest";
import { Sampler } from "../src/site/sampler";
import type { Store } from "../src/site/store";
import { StopTexts, Text, TextStream } from "../src/site/text";
import { World } from "../src/site/world";

const entry = (file: string, bytes: Uint8Array): { file: string; bytes: number; sha256: string } => {
  return { file, bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
};

test("a download that broke off goes on at its shard, and what is kept is looked at", async () => {
  const shards = [Uint8Array.of(1, 2, 3, 4), Uint8Array.of(5, 6, 7, 8)];
  const entries = shards.map((bytes, i) => entry(`${i}`, bytes));
  const kept = new Map<string, Uint8Array>();
  const store: Store = {
    where: "a map",
    read: async (hash) => kept.get(hash),
    has: async (hash, bytes) => kept.get(hash)?.length === bytes,
    write: async (hash, bytes) => void kept.set(hash, bytes),
    keep: async () => {},
  };
  const asked: string[] = [];
  let broken = true;
  const real = globalThis.fetch;
  globalThis.fetch = async (url) => {
    const file = String(url).at(-1)!;
    asked.push(file);
    const bytes = shards[Number(file)]!;
    return new Response(broken && file === "1" ? bytes.subarray(0, 2) : (bytes as Uint8Array<ArrayBuffer>));
  };
  try {
    const all = async (): Promise<Uint8Array[]> => {
      const files = new Files(new URL("http://here/"), store);
      return [await files.get(entries[0]!), await files.get(entries[1]!)];
    };
    await assert.rejects(all(), /could not get 1: 2 bytes came, expected 4/);
    assert.deepEqual(asked, ["0", "1", "1", "1"]);
    broken = false;
    assert.deepEqual(await all(), shards);
    assert.deepEqual(asked.slice(4), ["1"]);
    // Half a file of a tab that was closed while it wrote.
    kept.set(entries[0]!.sha256, Uint8Array.of(1, 2));
    assert.deepEqual(await all(), shards);
    assert.deepEqual(asked.slice(5), ["0"]);
  } finally {
    globalThis.fetch = real;
  }
});

test("what the browser's own cache holds is not believed when its hash differs", async () => {
  const [old, right] = [Uint8Array.of(1, 2, 3, 4), Uint8Array.of(5, 6, 7, 8)];
  const asked: (RequestCache | undefined)[] = [];
  const real = globalThis.fetch;
  globalThis.fetch = async (_, options) => {
    asked.push(options?.cache);
    return new Response(options?.cache === "reload" || options?.cache === "no-cache" ? right : old);
  };
  try {
    const files = new Files(new URL("http://here/"), undefined);
    assert.deepEqual(await files.get(entry("0", right)), right);
    assert.deepEqual(await files.text("site.json"), right);
    assert.deepEqual(asked, ["default", "reload", "no-cache"]);
    await assert.rejects(files.get(entry("0", Uint8Array.of(9, 9, 9, 9))), /its hash differs/);
  } finally {
    globalThis.fetch = real;
  }
});

test("a token that holds half a character gives no text yet", () => {
  const bytes = [...Buffer.from("né€😀!")];
  const decode = (ids: number[]): string => new TextDecoder().decode(Uint8Array.from(ids));
  const stream = new TextStream(decode);
  const pieces = bytes.map((b) => stream.push(b));
  assert.ok(!pieces.join("").includes("\ufffd"));
  assert.equal(pieces.join("") + stream.finish(), "né€😀!");
});

test("tokens without text are not decoded again and again", () => {
  let decoded = 0;
  const decode = (ids: number[]): string => {
    decoded += ids.length;
    return new TextDecoder().decode(Uint8Array.from(ids.filter((id) => id < 256)));
  };
  const stream = new TextStream(decode);
  const ids = [...Buffer.from("né"), ...Array<number>(5000).fill(1000), ...Buffer.from("é!")];
  assert.equal(ids.map((id) => stream.push(id)).join("") + stream.finish(), "néé!");
  assert.ok(decoded < 5000 * 40, `${decoded} ids were decoded`);
});

test("stop texts are found across pieces, and no more is held back than may become one", () => {
  const run = (stops: string[], pieces: string[]): [string, boolean] => {
    const texts = new StopTexts(stops);
    const text = pieces.map((p) => texts.push(p)).join("");
    return [text + texts.finish(), texts.found];
  };
  assert.deepEqual(run(["\n\n"], ["a\n", "\nb"]), ["a", true]);
  assert.deepEqual(run(["\n\n"], ["a\n", "b\n"]), ["a\nb\n", false]);
  assert.deepEqual(run(["bc", "b"], ["abcd"]), ["a", true]);
  assert.deepEqual(run(["éaé", "a"], ["éa", "é"]), ["é", true]);
  assert.deepEqual(run([], ["a", "b"]), ["ab", false]);
  const texts = new StopTexts(["END"]);
  assert.deepEqual(["the E", "N", "E"].map((t) => texts.push(t)), ["the ", "", "EN"]);
});

test("sampling keeps to its bounds, and a seed gives the same tokens", () => {
  const logits = Float32Array.from([0, 3, 1, -Infinity, 2.9]);
  const draw = (sampling: object, count = 2000): number[] => {
    const sampler = new Sampler({ temperature: 1, seed: 7, ...sampling });
    return Array.from({ length: count }, () => sampler.sample(logits));
  };
  assert.deepEqual(draw({}), draw({}));
  assert.notDeepEqual(draw({}), draw({ seed: 8 }));
  assert.deepEqual(new Set(draw({ top_k: 2 })), new Set([1, 4]));
  assert.deepEqual(new Set(draw({ top_p: 0.4 })), new Set([1]));
  const counts = [0, 0, 0, 0, 0];
  draw({}, 20_000).forEach((id) => counts[id]!++);
  const weights = [...logits].map(Math.exp);
  const sum = weights.reduce((a, b) => a + b);
  // Five standard deviations of a share of 20000 draws are below 0.018.
  weights.forEach((w, id) => assert.ok(Math.abs(w / sum - counts[id]! / 20_000) < 0.018, `${id}: ${counts}`));
  assert.throws(() => new Sampler({ temperature: -1, seed: 0 }), /temperature/);
  assert.throws(() => new Sampler({ temperature: 1, seed: 0 }).sample(Float32Array.of(0, NaN)), /logit of token 1 is NaN/);
});

test("bias and penalties change which token comes first", () => {
  const logits = Float32Array.from([0, 3, -1, -Infinity, 2.9]);
  const first = (sampling: object, history: number[] = []): number => new Sampler({ temperature: 0, seed: 0, ...sampling }).sample(logits, history);
  assert.equal(first({}), 1);
  assert.equal(first({ logit_bias: { 1: -0.2 } }), 4);
  assert.equal(first({ logit_bias: { 1: -100, 4: -100, 9: 5 } }), 0);
  assert.equal(first({ repetition_penalty: 1.1 }, [1, 1]), 4);
  assert.equal(first({ repetition_penalty: 1.1 }, [2]), 1);
  const drawn = (sampling: object): number[] => {
    const sampler = new Sampler({ temperature: 0, seed: 0, ...sampling });
    return [0, 1, 2, 3].map(() => sampler.sample(logits));
  };
  assert.deepEqual(drawn({ presence_penalty: 0.2 }), [1, 4, 1, 1]);
  assert.deepEqual(drawn({ frequency_penalty: 2 }), [1, 4, 1, 4]);
  assert.ok(new Sampler({ temperature: 0, seed: 0 }).greedy);
  assert.ok(!new Sampler({ temperature: 0, seed: 0, presence_penalty: 0 }).greedy);
  assert.throws(() => first({ logit_bias: { a: 1 } }), /token ids/);
  assert.throws(() => first({ logit_bias: { 1: 101 } }), /from -100 to 100/);
  assert.throws(() => first({ frequency_penalty: "1" }), /from -2 to 2/);
  const sampler = new Sampler({ temperature: 1, min_p: 0.5, seed: 3 });
  assert.deepEqual(new Set(Array.from({ length: 200 }, () => sampler.sample(logits))), new Set([1, 4]));
});

test("a World vocabulary takes the longest token each time", () => {
  const bytes = Array.from({ length: 256 }, (_, b): [number, string] => [b + 1, String.fromCharCode(b)]);
  const more: [number, string][] = [[300, "ab"], [301, "abcde"], [302, "\n\n"], [303, "\u00e4\u00bd\u00a0"]];
  const world = new World({ type: "World", end: 0, tokens: [...bytes, ...more], ends: ["<s>"] });
  assert.deepEqual(world.encode("abcdabcde\n\n\n你é"), [300, 100, 101, 301, 302, 11, 303, 0xc3 + 1, 0xa9 + 1]);
  assert.deepEqual(world.encode("<s>a<s<s>"), [0, 98, 61, 116, 0]);
  assert.equal(world.decode([301, 0, 9999, 303]), "abcde你");
  assert.equal(world.decode([0xe4 + 1]), "\ufffd");
});

test("a download goes on at its byte where the server gives parts", async () => {
  const whole = Uint8Array.of(1, 2, 3, 4, 5, 6);
  const asked: (string | undefined)[] = [];
  const real = globalThis.fetch;
  let part = (from: number): Response => new Response(whole.subarray(from, from + 2), { status: 206, headers: { "Content-Range": `bytes ${from}-5/6` } });
  globalThis.fetch = async (_, options) => {
    const range = (options?.headers as Record<string, string> | undefined)?.["Range"];
    asked.push(range);
    return range === undefined ? new Response(whole.subarray(0, 2)) : part(Number(/\d+/.exec(range)![0]));
  };
  try {
    const files = new Files(new URL("http://here/"), undefined);
    assert.deepEqual(await files.get(entry("0", whole)), whole);
    assert.deepEqual(asked, [undefined, "bytes=2-", "bytes=4-"]);
    assert.equal(files.downloaded, 6);
    // One that gives another part than it was asked for is not believed.
    part = () => new Response(whole.subarray(0, 4), { status: 206, headers: { "Content-Range": "bytes 0-3/6" } });
    await assert.rejects(files.get(entry("0", whole)), /another part|2 bytes came/);
  } finally {
    globalThis.fetch = real;
  }
});

interface Expected {
  name: string;
  model: string;
  parts: object;
  texts: { text: string; ids: number[]; decoded: string }[];
}

test("ids of texts are those that Hugging Face's tokenizers gives", () => {
  const read = (file: string): object => JSON.parse(fs.readFileSync(path.join(ROOT, file), "utf8")) as object;
  const settings = { template: null, special: {}, add_bos: null, add_eos: null, stop: [] };
  const { cases } = read("web/test/tokenizers.json") as { cases: Expected[] };
  assert.equal(cases.length, 5);
  for (const { name, model, parts, texts } of cases) {
    const whole = { ...read(`models/${model}/tokenizer.json`), ...parts };
    const text = new Text(new TextEncoder().encode(JSON.stringify(whole)), settings);
    for (const { text: given, ids, decoded } of texts) {
      assert.deepEqual(text.encode(given), ids, `${name}: ${JSON.stringify(given)}`);
      assert.equal(text.decode(ids), decoded, `${name}: ${JSON.stringify(given)}`);
    }
  }
});

test("a text gets the special tokens that the checkpoint puts around it, each one time", () => {
  const json = Uint8Array.from(fs.readFileSync(path.join(ROOT, "models/llama_draft/tokenizer.json")));
  const text = new Text(json, { template: null, special: {}, add_bos: 0, add_eos: 1, stop: [1] });
  const ids = text.encode("Once upon a time");
  assert.equal(ids[0], 0);
  assert.equal(ids.at(-1), 1);
  assert.equal(ids.filter((id) => id < 2).length, 2);
  assert.equal(text.decode(ids), "Once upon a time");
  assert.throws(() => text.chat([]), /no chat template/);
});

test("a device takes the first program that has what it needs and no more", () => {
  const wide: [number, number] = [32, 128];
  const programs = [
    { f16: true, subgroups: wide },
    { f16: true, subgroups: null },
    { f16: false, subgroups: wide },
    { f16: false, subgroups: null },
  ];
  const chosen = (f16: boolean, subgroups: [number, number]): number => programs.findIndex((program) => runs(program, { f16, subgroups }));
  assert.deepEqual([chosen(true, [32, 32]), chosen(true, [64, 128]), chosen(true, [8, 32]), chosen(true, [0, 0])], [0, 0, 1, 1]);
  assert.deepEqual([chosen(false, [32, 64]), chosen(false, [4, 4]), chosen(false, [16, 256])], [2, 3, 3]);
});
