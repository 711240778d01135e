// A WebGPU of Node's own for tests: Dawn (the `webgpu` package in the folder that TAPML_DAWN names, else in tests/tint) on
// SwiftShader, which Chromium's packages bring along.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const DRIVERS = ["/usr/lib/chromium/vk_swiftshader_icd.json", "/usr/lib/chromium-browser/vk_swiftshader_icd.json"];

// If it were collected while a device lives, the process would crash.
let kept: GPU | undefined;

/** The API, or why there is none. */
export async function dawn(): Promise<GPU | string> {
  const driver = DRIVERS.find((d) => fs.existsSync(d));
  if (!driver) return "chromium: its SwiftShader driver is not installed";
  process.env["VK_ICD_FILENAMES"] = driver;
  try {
    const folder = process.env["TAPML_DAWN"] ?? path.join(ROOT, "tests/tint");
    const entry = createRequire(path.join(path.resolve(folder), "any.js")).resolve("webgpu");
    const { create, globals } = (await import(entry)) as { create(options: string[]): GPU; globals: object };
    Object.assign(globalThis, globals);
    kept ??= create(["backend=vulkan"]);
    return (await kept.requestAdapter()) ? kept : "chromium: Dawn finds no adapter in SwiftShader";
  } catch (thrown) {
    return `dawn: the npm package webgpu is installed neither in TAPML_DAWN nor in tests/tint (${String(thrown).split("\n", 1)[0]})`;
  }
}
