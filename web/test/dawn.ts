// A WebGPU of Node's own for tests: Dawn (the `webgpu` package that tests/tint pins) on SwiftShader, which Chromium's
// packages bring along.

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
    const entry = createRequire(path.join(ROOT, "tests/tint/check.mjs")).resolve("webgpu");
    const { create, globals } = (await import(entry)) as { create(options: string[]): GPU; globals: object };
    Object.assign(globalThis, globals);
    kept ??= create(["backend=vulkan"]);
    return (await kept.requestAdapter()) ? kept : "chromium: Dawn finds no adapter in SwiftShader";
  } catch (thrown) {
    return `tint: the npm packages of tests/tint are not installed (${String(thrown).split("\n", 1)[0]})`;
  }
}
