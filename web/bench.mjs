// Measures a site under Node with Dawn: node bench.mjs SITE [--tokens N] [--runs N] [--prompt TEXT] [--dawn OPTION]...
//
// SITE is a folder that `tapml compile --target webgpu --out` wrote. TAPML_DAWN names the folder with the npm package `webgpu`. Prints JSON:
// seconds of loading, and of each run the seconds for one token behind a prompt, and tokens a second. The first run is not counted.
// `tapml bench decode MODEL --target vulkan` measures the same without a browser.

import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    tokens: { type: "string", default: "128" },
    runs: { type: "string", default: "5" },
    prompt: { type: "string", default: "Once upon a time there was an old man who lived by the sea" },
    dawn: { type: "string", multiple: true, default: ["backend=vulkan"] },
  },
});
const [site] = positionals;
if (!site || !process.env.TAPML_DAWN) throw new Error("usage: TAPML_DAWN=FOLDER node bench.mjs SITE [--tokens N] [--runs N] [--prompt TEXT] [--dawn OPTION]...");
const [tokens, runs] = [Number(values.tokens), Number(values.runs)];

const { create, globals } = await import(createRequire(path.join(path.resolve(process.env.TAPML_DAWN), "any.js")).resolve("webgpu"));
Object.assign(globalThis, globals);
const { Engine } = await import(pathToFileURL(path.join(path.resolve(site), "tapml.js")));
const server = http.createServer((request, answer) => {
  const file = path.join(site, path.normalize(new URL(request.url, "http://here").pathname));
  fs.createReadStream(file).on("error", () => answer.writeHead(404).end()).pipe(answer);
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));

const now = () => performance.now() / 1000;
const began = now();
const engine = await Engine.load(`http://127.0.0.1:${server.address().port}/`, { gpu: create(values.dawn) });
const loaded = now() - began;
const measured = [];
for (let run = 0; run <= runs; run++) measured.push(await write());
console.log(JSON.stringify({ device: engine.facts.device, model: engine.facts.model, program: engine.facts.program, loaded, ...summary(measured.slice(1)) }));
process.exit(0);

async function write() {
  // A text of its own each time: what a text begins with would not be computed again.
  const prompt = `${measured.length}. ${values.prompt}`;
  const [first] = await time(prompt, 1);
  // The prompt is known by then but for its last token.
  const [seconds, made] = await time(prompt, tokens);
  return { first, made: made.length, rate: made.length / seconds, ids: made };
}

async function time(prompt, count) {
  const start = now();
  const { tapml } = await engine.completions.create({ prompt, max_tokens: count, temperature: 0 });
  return [now() - start, tapml.ids];
}

function summary(all) {
  const sorted = (of) => all.map(of).sort((a, b) => a - b);
  const spread = (of) => ({ median: sorted(of)[all.length >> 1], least: sorted(of)[0], most: sorted(of).at(-1) });
  return { runs: all.length, tokens: all.map((run) => run.made), first_token_s: spread((run) => run.first), tokens_per_s: spread((run) => run.rate), ids: all[0].ids.slice(0, 16) };
}
