// Files that are kept in the repository and made from others.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import * as limits from "../src/core/limits";
import { file_tapml } from "../src/wire/gen/tapml_pb";

test("dist/ is what the sources give", () => {
  const run = spawnSync(process.execPath, ["build.mjs", "--check"], { cwd: path.join(ROOT, "web"), encoding: "utf8" });
  assert.equal(run.status, 0, run.stderr);
});

test("dist/ stays small", () => {
  const dist = path.join(ROOT, "web/dist");
  // The module that forces forms on answers is loaded when one is asked for.
  const [forms, others] = [true, false].map((of) => fs.readdirSync(dist).filter((f) => f.startsWith("form.") === of));
  const bytes = (names: string[]): number => names.reduce((sum, f) => sum + fs.statSync(path.join(dist, f)).size, 0);
  assert.ok(bytes(others!) < 170_000, `${bytes(others!)} bytes`);
  assert.ok(bytes(forms!) < 420_000, `${bytes(forms!)} bytes`);
});

test("the generated code has every field of the schema", () => {
  const proto = fs.readFileSync(path.join(ROOT, "crates/rpc/proto/tapml.proto"), "utf8").replace(/\/\/.*$/gm, "");
  const fields: string[] = [];
  let message = "";
  for (const line of proto.split("\n")) {
    const opened = /^(?:message|enum) (\w+)/.exec(line);
    if (opened) message = opened[1]!;
    const field = /^\s+(?:repeated |optional )?[\w.]+ (\w+) = (\d+);/.exec(line);
    if (field && message) fields.push(`${message}.${field[1]} = ${field[2]}`);
    const value = /^\s+([A-Z_]+) = (\d+);/.exec(line);
    if (value && message) fields.push(`${message}.${value[1]} = ${value[2]}`);
  }
  const known = [
    ...file_tapml.messages.flatMap((m) => m.fields.map((f) => `${m.name}.${f.name} = ${f.number}`)),
    ...file_tapml.enums.flatMap((e) => e.values.map((v) => `${e.name}.${v.name} = ${v.number}`)),
  ];
  assert.ok(fields.length > 150);
  assert.deepEqual(known.sort(), fields.sort(), "run `npm run generate`");
});

test("bounds of the wire are those of the other agents", () => {
  const rust = fs.readFileSync(path.join(ROOT, "crates/rpc/src/wire/limits.rs"), "utf8");
  const value = (text: string): number => text.replace(/_/g, "").split("<<").map(Number).reduce((a, b) => a << b);
  const theirs = new Map([...rust.matchAll(/pub const (\w+): (?:usize|u32|u64) = ([\d_]+(?: << \d+)?);/g)].map((m) => [m[1], value(m[2]!)]));
  const shared = Object.entries(limits).filter(([name]) => theirs.has(name));
  assert.ok(shared.length > 10, `${shared.map(([name]) => name)}`);
  for (const [name, ours] of shared) assert.equal(ours, theirs.get(name), name);
});
