// Does the steps of site_steps.mjs under Node with Dawn, whose packages are in the folder TAPML_DAWN, or under Deno with its own WebGPU:
// site.mjs FOLDER URL STEPS. The module is that of FOLDER. Pictures are given as pixels, since there is no browser that decodes them.
// Prints what was posted as JSON.

import { Buffer } from "node:buffer";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { inflateSync } from "node:zlib";
import { runSteps } from "./site_steps.mjs";

const [folder, , steps] = process.argv.slice(2);
const gpu = globalThis.Deno ? navigator.gpu : await loadDawn();
let device;
const ask = gpu.requestAdapter.bind(gpu);
gpu.requestAdapter = async (options) => {
  const adapter = await ask(options);
  const open = adapter.requestDevice.bind(adapter);
  adapter.requestDevice = async (wanted) => (device = await open(wanted));
  return adapter;
};

/** The pixels of a PNG of 8-bit red, green and blue, lines from the top. */
function decodePng(file) {
  const [width, height] = [file.readUInt32BE(16), file.readUInt32BE(20)];
  const parts = [];
  for (let at = 8; at < file.length; at += file.readUInt32BE(at) + 12) {
    if (file.toString("latin1", at + 4, at + 8) === "IDAT") parts.push(file.subarray(at + 8, at + 8 + file.readUInt32BE(at)));
  }
  const [lines, length] = [inflateSync(Buffer.concat(parts)), 3 * width];
  const [bytes, data] = [new Uint8Array(length * height), new Uint8Array(4 * width * height).fill(255)];
  for (let i = 0; i < bytes.length; i++) {
    const [y, x] = [Math.floor(i / length), i % length];
    const [left, up] = [x < 3 ? 0 : bytes[i - 3], y < 1 ? 0 : bytes[i - length]];
    const corner = x < 3 || y < 1 ? 0 : bytes[i - length - 3];
    const near = [left, up, corner].sort((a, b) => Math.abs(left + up - corner - a) - Math.abs(left + up - corner - b))[0];
    bytes[i] = lines[y * (length + 1) + 1 + x] + [0, left, up, (left + up) >> 1, near][lines[y * (length + 1)]];
    data[4 * Math.floor(i / 3) + (i % 3)] = bytes[i];
  }
  return { data, width, height };
}

const readPart = (key, part) => {
  const [, png] = /^data:image\/png;base64,(iVBOR.*)$/.exec(part?.image_url?.url) ?? [];
  return png === undefined ? part : { type: "image", image: decodePng(Buffer.from(png, "base64")) };
};

const { Engine } = await import(pathToFileURL(path.join(folder, "tapml.js")));
const posted = [];
await runSteps(Engine, { gpu }, JSON.parse(steps, readPart), (body) => posted.push(body), { lose: () => device.destroy() });
console.log(JSON.stringify(posted));
process.exit(0);

async function loadDawn() {
  const entry = createRequire(path.join(path.resolve(process.env.TAPML_DAWN), "any.js")).resolve("webgpu");
  const { create, globals } = await import(entry);
  Object.assign(globalThis, globals);
  return create(["backend=vulkan"]);
}
