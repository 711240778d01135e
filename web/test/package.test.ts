// The npm package: what is packed is typed, and small.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import { gzipSync } from "node:zlib";

/** A program of somebody else's. */
const CONSUMER = `
import { Engine, type ChatChunk, type CheckReport, type ContentPart, type Plan } from "tapml";

const engine: Engine = await Engine.load("./site/", {
  onPlan: (plan: Plan) => plan.download < 1e9,
  onProgress: (bytes: number, total: number) => console.log(bytes / total),
});
const whole = await engine.chat.completions.create({ messages: [{ role: "user", content: "Hello" }], temperature: 0.5, logit_bias: { 7: -1 } });
const text: string = whole.choices[0]!.message.content;
const chunks: AsyncIterable<ChatChunk> = await engine.chat.completions.create({ messages: [], stream: true });
for await (const chunk of chunks) console.log(chunk.choices[0]?.delta.content ?? "", chunk.usage?.total_tokens);
const { choices } = await engine.completions.create({ prompt: text, max_tokens: 8 });
console.log(choices[0]!.text, engine.facts.rows);
const report: CheckReport = await engine.check((done, of) => console.log(done, of));
console.log(report.ops.map(({ op, worst }) => [op, worst.ratio]));
const seen: ContentPart[] = [
  { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
  { type: "image", image: new Blob([]) },
  { type: "image", image: { data: new Uint8Array(4), width: 1, height: 1 } },
  { type: "text", text: "which colour is it?" },
];
if (engine.facts.sees) await engine.chat.completions.create({ messages: [{ role: "user", content: seen }] });
engine.close();
// @ts-expect-error there is no such field
await engine.chat.completions.create({ messages: [], tools: [] });
// @ts-expect-error there is no such part
await engine.chat.completions.create({ messages: [{ role: "user", content: [{ type: "input_audio" }] }] });
const schema = { type: "object" };
await engine.chat.completions.create({ messages: [], response_format: { type: "json_schema", json_schema: { name: "any", schema } } });
await engine.completions.create({ prompt: text, response_format: { type: "json_object" }, max_tokens: 99 });
await engine.completions.create({ prompt: text, guided_regex: "yes|no" });
// @ts-expect-error a schema belongs into \`json_schema\`
await engine.completions.create({ prompt: text, response_format: { type: "json_schema", schema } });
// @ts-expect-error a prompt is a text
await engine.completions.create({ prompt: 7 });
`;

const OPTIONS = { target: "es2022", module: "nodenext", moduleResolution: "nodenext", strict: true, noEmit: true, lib: ["es2022", "dom"], types: [] };

function run(command: string, args: string[], cwd: string): string {
  const done = spawnSync(command, args, { cwd, encoding: "utf8" });
  assert.equal(done.status, 0, `${command} ${args.join(" ")}: ${done.stdout}${done.stderr}`);
  return done.stdout;
}

/** Bytes behind gzip. */
const packedSize = (file: string): number => gzipSync(Uint8Array.from(fs.readFileSync(file)), { level: 9 }).length;

test("the package is typed for others, and small", () => {
  const web = path.join(ROOT, "web");
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tapml-package-"));
  try {
    run(process.execPath, ["package.mjs", path.join(folder, "made")], web);
    const [packed] = JSON.parse(run("npm", ["pack", "--json", "--pack-destination", folder, path.join(folder, "made")], folder)) as [
      { filename: string; files: { path: string }[] },
    ];
    const names = packed.files.map((file) => file.path).sort();
    assert.deepEqual(names, ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json", "tapml.d.ts", "tapml.js"]);
    const user = path.join(folder, "user");
    fs.mkdirSync(path.join(user, "node_modules"), { recursive: true });
    run("tar", ["xzf", path.join(folder, packed.filename), "-C", path.join(user, "node_modules")], folder);
    fs.renameSync(path.join(user, "node_modules/package"), path.join(user, "node_modules/tapml"));
    fs.writeFileSync(path.join(user, "package.json"), '{ "type": "module" }');
    fs.writeFileSync(path.join(user, "consumer.ts"), CONSUMER);
    fs.writeFileSync(path.join(user, "tsconfig.json"), JSON.stringify({ compilerOptions: OPTIONS, files: ["consumer.ts"] }));
    run(path.join(web, "node_modules/.bin/tsc"), ["-p", user], user);
    // With the page, a tokenizer and templates: all that a visitor loads beside program and weights.
    const module = packedSize(path.join(user, "node_modules/tapml/tapml.js"));
    const page = packedSize(path.join(web, "src/site/index.html"));
    console.log(`${module} + ${page} bytes`);
    assert.ok(module + page < 60_000, `${module} + ${page} bytes`);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});
