// Tests of check.mjs itself: `npm test`.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { front } from './check.mjs';

const SCRIPT = fileURLToPath(new URL('./check.mjs', import.meta.url));

const GOOD = `@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) at: u32) { out[at] = f32(at); }
`;

const FEATURES = `alias Half = f16; // no enable line here
@group(0) @binding(0) var<storage, read_write> out: array<Half>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) at: u32) { out[at] = Half(subgroupAdd(1.0)); }
`;

const DIVERGENT = `@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) at: u32) {
    if out[at] > 1.0 {
        workgroupBarrier();
    }
}
`;

function run(files) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tint-'));
  for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(folder, name), text);
  const { status, stdout, stderr } = spawnSync('node', [SCRIPT, folder], { encoding: 'utf8' });
  fs.rmSync(folder, { recursive: true });
  return { status, stderr, report: stdout ? JSON.parse(stdout) : null };
}

test('accepts what Chrome accepts, with the enables it wants', () => {
  const { status, report } = run({ 'good.wgsl': GOOD, 'features.wgsl': FEATURES, 'enabled.wgsl': `enable f16;\n${FEATURES}` });
  assert.equal(status, 0, JSON.stringify(report));
  assert.deepEqual([report.checked, report.failed], [3, 0]);
});

test('tells file, line, column and the line of an error', () => {
  const { status, report } = run({ 'a.wgsl': GOOD, 'b.wgsl': GOOD.replace('f32(at)', 'at'), 'c.wgsl': DIVERGENT });
  assert.equal(status, 1);
  assert.equal(report.failed, 2);
  const [, type, divergent] = report.files;
  assert.match(type.file, /b\.wgsl$/);
  assert.deepEqual([type.errors[0].line, type.errors[0].column], [3, 61]);
  assert.match(type.errors[0].message, /cannot assign/);
  assert.equal(divergent.errors[0].line, 5);
  assert.equal(divergent.errors[0].source, 'workgroupBarrier();');
});

test('columns of the first line do not count the added enables', () => {
  const { report } = run({ 'a.wgsl': 'alias T = f16; alias U = nothing;' });
  assert.deepEqual([report.files[0].errors[0].line, report.files[0].errors[0].column], [1, 26]);
});

test('says what is wrong when there is nothing to check', () => {
  const { status, stderr } = run({ 'a.txt': '' });
  assert.equal(status, 2);
  assert.match(stderr, /no \.wgsl file/);
});

test('adds enables by what the code uses, not by comments or names', () => {
  assert.equal(front('// f16 subgroupAdd\nconst my_f16_table = 1;\n/* f16 */').added, 0);
  assert.equal(front('let x = 1.0h;').text, 'enable f16; let x = 1.0h;');
  assert.equal(front('let x = vec4h();').added, 12);
  assert.equal(front('fn f(@builtin(subgroup_size) s: u32) {}').added, 'enable subgroups; '.length);
  assert.equal(front('  enable f16, subgroups;\nfn f() {}').text, 'enable f16; enable subgroups; \nfn f() {}');
});
