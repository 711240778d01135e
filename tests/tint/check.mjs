// Checks WGSL files with Dawn's Tint, the front end of Chrome, without a driver.
//
//   node check.mjs PATH...      each a .wgsl file or a folder that is searched for them
//
// Prints {"tint", "checked", "failed", "files": [{"file", "ok", "errors": [{"line", "column", "message", "source"}]}]} as
// JSON. Kernels carry no `enable` lines; the ones Chrome wants are added on the first line, so lines keep their numbers.
// Exit status: 0 all accepted, 1 some refused, 2 could not check.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const FEATURES = [
  { feature: 'shader-f16', enable: 'f16', use: /\bf16\b|\b(?:vec[234]|mat[234]x[234])h\b|\d\.?h\b/ },
  { feature: 'subgroups', enable: 'subgroups', use: /\b(?:subgroup[A-Z]\w*|quad(?:Broadcast|Swap)\w*|subgroup_(?:size|id|invocation_id))\b/ },
];

/** The source without comments, which may mention what the code does not use. */
function code(source) {
  return source.replace(/\/\/.*$/gm, '').replace(/\/\*[\s\S]*?\*\//g, (c) => c.replace(/[^\n]/g, ' '));
}

/** The source as Chrome wants it, and how many characters were put before its first line. */
export function front(source) {
  const own = /^[ \t]*enable[ \t]+[\w, \t]+;[ \t]*$/gm;
  const asked = (code(source).match(own) ?? []).join(' ');
  const used = FEATURES.filter(({ enable, use }) => use.test(code(source)) || new RegExp(`\\b${enable}\\b`).test(asked));
  const head = used.map(({ enable }) => `enable ${enable}; `).join('');
  const known = new RegExp(`^(?:${FEATURES.map((f) => f.enable).join('|')})$`);
  const text = source.replace(own, (line) => {
    const names = line.trim().replace(/^enable|;$/g, '').split(',').map((n) => n.trim());
    return names.every((n) => known.test(n)) ? '' : line;
  });
  return { text: head + text, added: head.length };
}

function find(target) {
  if (!fs.statSync(target).isDirectory()) return [target];
  const entries = fs.readdirSync(target, { recursive: true }).map((e) => path.join(target, e.toString()));
  return entries.filter((e) => e.endsWith('.wgsl')).sort();
}

// What devices come from: if it were collected while one of them lives, the process would crash.
let gpu;

/** A device of no GPU at all with every feature that Tint knows. */
export async function open() {
  const { create, globals } = await import('webgpu');
  Object.assign(globalThis, globals);
  gpu ??= create(['backend=null']);
  const adapter = await gpu.requestAdapter();
  return adapter.requestDevice({ requiredFeatures: FEATURES.map((f) => f.feature).filter((f) => adapter.features.has(f)) });
}

/** What Tint says about one text. */
export async function check(device, source) {
  const { text, added } = front(source);
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code: text });
  const refused = await device.popErrorScope();
  const { messages } = await module.getCompilationInfo();
  const lines = source.split('\n');
  const errors = messages.filter((m) => m.type === 'error').map((m) => ({
    line: m.lineNum,
    column: m.lineNum === 1 ? Math.max(1, m.linePos - added) : m.linePos,
    message: m.message,
    source: (lines[m.lineNum - 1] ?? '').trim(),
  }));
  if (refused && errors.length === 0) errors.push({ line: 0, column: 0, message: refused.message, source: '' });
  return errors;
}

async function main(targets) {
  if (targets.length === 0) throw new Error('usage: node check.mjs PATH...');
  const paths = targets.flatMap(find);
  if (paths.length === 0) throw new Error(`no .wgsl file in ${targets.join(', ')}`);
  const device = await open();
  const files = [];
  for (const file of paths) {
    const errors = await check(device, fs.readFileSync(file, 'utf8'));
    files.push({ file, ok: errors.length === 0, errors });
  }
  const failed = files.filter((f) => !f.ok).length;
  const { version } = JSON.parse(fs.readFileSync(new URL('./package.json', import.meta.resolve('webgpu')), 'utf8'));
  const report = JSON.stringify({ tint: `webgpu ${version}`, checked: files.length, failed, files }, null, 1);
  // Dawn keeps the process alive, so it is ended once the report is out.
  process.stdout.write(`${report}\n`, () => process.exit(failed === 0 ? 0 : 1));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  main(process.argv.slice(2)).catch((error) => {
    process.stderr.write(`check.mjs: ${error.message}\n`, () => process.exit(2));
  });
}
