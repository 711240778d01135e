// Makes the npm package of the module that sites have: `node package.mjs FOLDER` writes it there, for `npm pack` or `npm publish`.
//
// | file | holds |
// |---|---|
// | tapml.js | the module of every site, as it is in dist/ |
// | tapml.d.ts | its types, from src/site/api.ts and the class in src/site/engine.ts |
// | package.json, README.md, licences | what npm shows |

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { files, version } from "./build.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));

/** The declarations of a file of src/site. */
function declare(folder, name) {
  return fs.readFileSync(path.join(folder, "src/site", `${name}.d.ts`), "utf8");
}

/** What the module exports, as types. */
function declarations() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tapml-types-"));
  try {
    const options = ["-p", ".", "--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", folder, "--rootDir", "."];
    const run = spawnSync("npx", ["tsc", ...options], { cwd: here, encoding: "utf8" });
    if (run.status !== 0) throw new Error(`tsc fails: ${run.stdout}${run.stderr}`);
    const engine = declare(folder, "engine").replace(/^import .*\n/gm, "").replace(/^.*\n.*\bWORKER\b.*\n/m, "");
    if (/\bimport\b/.test(engine)) throw new Error("src/site/engine.ts shows types that are not in src/site/api.ts");
    return `/// <reference lib="dom" />\n${declare(folder, "api")}\n${engine}`;
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

const manifest = {
  name: "tapml",
  version: version(),
  description: "Runs a language model in the browser, from a site that `tapml compile` wrote",
  license: "Apache-2.0 OR MIT",
  type: "module",
  exports: { ".": { types: "./tapml.d.ts", default: "./tapml.js" } },
  types: "./tapml.d.ts",
  files: ["tapml.js", "tapml.d.ts", "LICENSE-APACHE", "LICENSE-MIT"],
  sideEffects: ["./tapml.js"],
};

const out = process.argv[2];
if (!out) throw new Error("usage: node package.mjs FOLDER");
fs.mkdirSync(out, { recursive: true });
fs.writeFileSync(path.join(out, "tapml.js"), (await files()).get("tapml.js"));
fs.writeFileSync(path.join(out, "tapml.d.ts"), declarations());
fs.writeFileSync(path.join(out, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
fs.copyFileSync(path.join(here, "src/site/README.md"), path.join(out, "README.md"));
for (const licence of ["LICENSE-APACHE", "LICENSE-MIT"]) fs.copyFileSync(path.join(here, "..", licence), path.join(out, licence));
