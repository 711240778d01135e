// Does the steps of site_steps.mjs under Node with Dawn, whose packages are in the folder TAPML_DAWN, or under Deno with its own WebGPU:
// site.mjs FOLDER URL STEPS. The module is that of FOLDER. Prints what was posted as JSON.

import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
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

const { Engine } = await import(pathToFileURL(path.join(folder, "tapml.js")));
const posted = [];
await runSteps(Engine, { gpu }, JSON.parse(steps), (body) => posted.push(body), { lose: () => device.destroy() });
console.log(JSON.stringify(posted));
process.exit(0);

async function loadDawn() {
  const entry = createRequire(path.join(path.resolve(process.env.TAPML_DAWN), "any.js")).resolve("webgpu");
  const { create, globals } = await import(entry);
  Object.assign(globalThis, globals);
  return create(["backend=vulkan"]);
}
