// Pictures: what a page makes of them is what crates/engine/src/image makes, and what is no picture is told.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import type { Message } from "../src/site/api";
import { pixelsOf, type ImageProcessor } from "../src/site/image";
import { decode, readUrl } from "../src/site/picture";
import { placeImages, prepareMessages, readMessages, commonLength, stepImages, type ImageSettings, type PlacedImage } from "../src/site/vision";

interface Vector {
  processor: ImageProcessor;
  height: number;
  width: number;
  samples: number[];
  made: [number, number];
  values: number[];
}

test("pixels are those of the engine, to the last bit", () => {
  const vectors = JSON.parse(fs.readFileSync(path.join(ROOT, "web/test/images.json"), "utf8")) as Vector[];
  assert.equal(vectors.length, 9);
  for (const { processor, height, width, samples, made, values } of vectors) {
    const found = pixelsOf({ height, width, samples: Uint8Array.from(samples) }, processor, 4096);
    assert.deepEqual([found.height, found.width], made);
    assert.deepEqual(found.values, Float32Array.from(values));
  }
  const { processor } = vectors[5]!;
  const long = { height: 1, width: 9000, samples: new Uint8Array(27000) };
  assert.equal(pixelsOf(long, processor, 64).width, 8);
  assert.throws(() => pixelsOf(long, { ...processor, crop: null }, 64), /9×81000 pixels of 1×9000, more than 64/);
  assert.throws(() => pixelsOf(long, { ...processor, crop: [10, 8] }, 64), /padding is not supported/);
});

const LIMITS = { pixels: 100, side: 20 };

test("what is no picture is told", async () => {
  assert.deepEqual(await readUrl("DATA:image/PNG;charset=x;BASE64,aGk").arrayBuffer(), Uint8Array.of(104, 105).buffer);
  for (const [url, told] of [
    ["http://127.0.0.1/a.png", /is not fetched/],
    ["", /is not fetched/],
    ["data:image/png;base64", /no comma/],
    ["data:image/png,aGk=", /no word `base64`/],
    ["data:text/html;base64,aGk=", /the type `text\/html`/],
    ["data:image/png;base64,", /an empty file/],
    ["data:image/png;base64,a\u{e9}", /no base64/],
  ] as const) {
    assert.throws(() => readUrl(url), told);
  }
  await assert.rejects(decode("data:image/png;base64,aGk=", LIMITS), /no `createImageBitmap`/);
  const raw = (width: number, height: number, bytes = 4 * width * height): Promise<unknown> => decode({ data: new Uint8Array(bytes), width, height }, LIMITS);
  for (const [width, height] of [[21, 1], [11, 10], [0, 1], [1.5, 2], [NaN, 1]] as const) await assert.rejects(raw(width, height, 4), /an image of/);
  await assert.rejects(raw(2, 2, 15), /16 bytes of RGBA, found 15/);
  const { samples } = await decode({ data: Uint8Array.of(1, 2, 3, 0, 4, 5, 6, 255), width: 2, height: 1 }, LIMITS);
  assert.deepEqual([...samples], [1, 2, 3, 4, 5, 6]);
});

const SETTINGS = { token: 9, text: "<image>", rows: 3, parts: true } as ImageSettings;
const raw = { data: new Uint8Array(4), width: 1, height: 1 };

test("messages name their pictures as templates expect", () => {
  const asked: Message[] = [
    { role: "system", content: "be brief" },
    { role: "user", content: [{ type: "text", text: "a" }, { type: "image_url", image_url: { url: "data:x" } }, { type: "image", image: raw }] },
    { role: "user", content: [{ type: "text", text: "b" }, { type: "text", text: "c" }] },
  ];
  const { messages, pictures } = readMessages(asked);
  assert.deepEqual(pictures, ["data:x", raw]);
  const [text, image] = [(text: string) => ({ type: "text", text }), { type: "image" }];
  assert.deepEqual(messages.map((m) => m.content), ["be brief", [text("a"), image, image], "b\nc"]);
  assert.deepEqual(prepareMessages(messages, SETTINGS).map((m) => m.content), [[text("be brief")], [text("a"), image, image], [text("b\nc")]]);
  assert.deepEqual(prepareMessages(messages, { ...SETTINGS, parts: false }).map((m) => m.content), ["be brief", "a\n<image>\n<image>", "b\nc"]);
  const part = (role: string, part: object): unknown => readMessages([{ role, content: [part] } as Message]);
  assert.throws(() => part("assistant", { type: "image", image: raw }), /messages\[0\]\.content\[0\]` is an image of the assistant/);
  assert.throws(() => part("user", { type: "input_audio" }), /of the type `input_audio`/);
  assert.throws(() => part("user", { type: "image_url", image_url: "data:x" }), /lacks a field/);
  assert.throws(() => readMessages([{ role: "user", content: Array(65).fill({ type: "image", image: raw }) }]), /more than 64 images/);
});

test("one token becomes one for each row, and a step has the rows of one image", () => {
  assert.deepEqual(placeImages([1, 9, 2, 9], 2, SETTINGS, 8), { ids: [1, 9, 9, 9, 2, 9, 9, 9], starts: [1, 5] });
  assert.throws(() => placeImages([1, 9, 2, 9], 2, SETTINGS, 7), /has 8 tokens, 3 of each of 2 images, the context holds 7/);
  assert.throws(() => placeImages([1, 9, 9], 1, SETTINGS, 8), /1 images, and its prompt names 2/);
  const image = (start: number, hash: string): PlacedImage => ({ start, count: 3, hash, pixels: new Uint8Array() });
  const images = [image(1, "a"), image(5, "b")];
  const none = 0xffffffff;
  const step = (start: number, end: number): unknown => {
    const { end: until, slots, image } = stepImages(images, start, end);
    return [until, [...slots], image?.hash];
  };
  assert.deepEqual(step(0, 8), [5, [none, 0, 1, 2, none], "a"]);
  assert.deepEqual(step(3, 5), [5, [2, none], "a"]);
  assert.deepEqual(step(5, 9), [9, [0, 1, 2, none], "b"]);
  assert.deepEqual(step(8, 9), [9, [none], undefined]);
  const ids = [1, 9, 9, 9, 2, 9, 9, 9];
  assert.equal(commonLength({ ids, images }, { ids, images }), 7);
  assert.equal(commonLength({ ids, images: [image(1, "a"), image(5, "c")] }, { ids, images }), 5);
  assert.equal(commonLength({ ids, images: [image(1, "b"), image(5, "b")] }, { ids, images }), 1);
  assert.equal(commonLength({ ids, images: [] }, { ids, images }), 1);
});
