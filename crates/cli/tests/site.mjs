// Runs a site under Node with Dawn: node site.mjs FOLDER URL WISHES, with the packages of the folder TAPML_DAWN. Prints what was
// written for each wish as JSON. Between two wishes the device is taken away.

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, url, wishes] = process.argv.slice(2);
const entry = createRequire(path.join(path.resolve(process.env.TAPML_DAWN), "any.js")).resolve("webgpu");
const { create, globals } = await import(entry);
Object.assign(globalThis, globals);
const gpu = create(["backend=vulkan"]);
let device;
const ask = gpu.requestAdapter.bind(gpu);
gpu.requestAdapter = async (options) => {
  const adapter = await ask(options);
  const open = adapter.requestDevice.bind(adapter);
  adapter.requestDevice = async (wanted) => (device = await open(wanted));
  return adapter;
};

const { Engine } = await import(pathToFileURL(path.join(folder, "tapml.js")));
const engine = await Engine.load(url, { gpu });
const written = [];
for (const wish of JSON.parse(wishes)) {
  if (written.length > 0) device.destroy();
  const { create } = "messages" in wish ? engine.chat.completions : engine.completions;
  let [text, last] = ["", undefined];
  for await (const chunk of await create({ ...wish, stream: true })) {
    text += chunk.choices[0].text ?? chunk.choices[0].delta.content ?? "";
    last = chunk;
  }
  written.push({ text, ids: last.tapml.ids, reopened: last.tapml.reopened, usage: last.usage, finish: last.choices[0].finish_reason });
}
console.log(JSON.stringify({ facts: engine.facts, written }));
process.exit(0);
