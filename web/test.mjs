// Runs the tests: bundles test/*.test.ts, checks that dist/ is what the sources give, and starts Node's own test runner.

import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.join(here, "node_modules", ".cache", "tests");
const tests = fs.readdirSync(path.join(here, "test")).filter((f) => f.endsWith(".test.ts"));

fs.rmSync(out, { recursive: true, force: true });
await build({
  absWorkingDir: here,
  entryPoints: tests.map((f) => path.join("test", f)),
  outdir: out,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20",
  sourcemap: "inline",
  external: ["esbuild", "webgpu"],
  define: { ROOT: JSON.stringify(path.join(here, "..")) },
});
const files = tests.map((f) => path.join(out, f.replace(/\.ts$/, ".mjs")));
const run = spawnSync(process.execPath, ["--enable-source-maps", "--test-reporter=tap", "--test", ...files], { stdio: "inherit", cwd: here });
process.exit(run.status ?? 1);
