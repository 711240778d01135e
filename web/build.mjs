// Builds dist/, which is kept in the repository: users of the Rust binary need no Node.
//
//   node build.mjs           writes dist/
//   node build.mjs --check   fails if dist/ is not what would be written

import { build } from "esbuild";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";

const here = path.dirname(fileURLToPath(import.meta.url));
const dist = path.join(here, "dist");

/** The release of TapML, from the workspace's manifest. */
export function version() {
  const manifest = fs.readFileSync(path.join(here, "..", "Cargo.toml"), "utf8");
  return /^version = "([^"]+)"/m.exec(manifest)[1];
}

/** Stands at the head of the module of a site, which others publish. */
const NOTICE = "/* TapML, with @huggingface/tokenizers and @huggingface/jinja: Apache-2.0 */";

/** What is bundled for browsers, and what starts the same agent under Node. */
const BUNDLES = [
  { entryPoints: { page: "src/page/page.ts", agent: "src/page/agent.ts" }, format: "iife", target: "es2022" },
  { entryPoints: { tapml: "src/site/index.ts" }, format: "esm", target: "es2022", banner: { js: NOTICE } },
  { entryPoints: { "node-agent": "src/node/agent.ts" }, format: "esm", platform: "node", target: "node20", outExtension: { ".js": ".mjs" } },
];

/** Kept packed: the largest of the files. Packers differ between releases of Node, so what is in them is compared. */
const PACKED = ["agent.js", "tapml.js"];

/** The bytes of a file of dist/, or undefined. */
function kept(name) {
  const file = path.join(dist, PACKED.includes(name) ? `${name}.gz` : name);
  if (!fs.existsSync(file)) return undefined;
  const bytes = fs.readFileSync(file);
  return PACKED.includes(name) ? gunzipSync(bytes) : bytes;
}

/** The files of dist/ by name. */
export async function files() {
  const common = { absWorkingDir: here, outdir: "dist", bundle: true, write: false, minify: true, legalComments: "none" };
  const define = { VERSION: JSON.stringify(version()) };
  const results = await Promise.all(BUNDLES.map((bundle) => build({ ...common, define, ...bundle })));
  const made = results.flatMap((result) => result.outputFiles);
  const all = new Map(made.map((f) => [path.basename(f.path), Buffer.from(f.contents)]));
  for (const name of ["index.html", "style.css"]) all.set(name, fs.readFileSync(path.join(here, "src/page", name)));
  all.set("site.html", fs.readFileSync(path.join(here, "src/site/index.html")));
  return all;
}

async function main() {
  const made = await files();
  if (process.argv[2] === "--check") {
    const stale = [...made].filter(([name, bytes]) => !kept(name)?.equals(bytes));
    if (stale.length > 0) throw new Error(`dist/ is stale: ${stale.map(([name]) => name).join(", ")}; run \`npm run build\``);
    return;
  }
  fs.mkdirSync(dist, { recursive: true });
  for (const [name, bytes] of made) {
    if (PACKED.includes(name)) fs.writeFileSync(path.join(dist, `${name}.gz`), gzipSync(bytes, { level: 9 }));
    else fs.writeFileSync(path.join(dist, name), bytes);
    console.log(`${name} ${bytes.length}`);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
