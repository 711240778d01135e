// Checks the device by the recorded calls that the site brings along (crates/jobs/src/site/suite.rs): each by the steps of the program
// that the site runs, and each output by its yardstick. The report is that of `tapml check`, and says more of the browser.

import { failureOf, invalid, unsupported } from "../core/failure";
import type { CheckReport, Element, OpVerdict } from "./api";
import type { Files } from "./files";
import type { Model } from "./model";
import { bytesOf, judge, type Measure, type Verdict } from "./verdict";

/** The schemas that are read and written. */
const CALLS = 1;
const REPORT = 1;
/** Bytes that nobody wrote are NaNs in every dtype. */
const POISON = 0x7fc07fc0;
/** Failures told of each operator, and the entries of a histogram, as crates/migrate/src/report/check.rs has them. */
const MOST_FAILURES = 20;
const BUCKETS = 24;

/** A recorded call of a node. */
export interface Call {
  case: string;
  node: string;
  op: string;
  row: string;
  phase: string;
  /** Whether the steps are those of the encoder of images. */
  encoder?: boolean;
  kernel_hash: string;
  accumulate: string;
  symbols: Record<string, number>;
  steps: [number, number];
  inputs: { buffer: number; at: number; bytes: number }[];
  outputs: (Measure & { buffer: number })[];
}
interface CallList {
  schema: number;
  suite: string;
  calls: Call[];
  left_out: { row: string; phase: string; reason: string }[];
}

/** Reads the calls of a suite. */
export function parseCalls(bytes: Uint8Array): CallList {
  const found = JSON.parse(new TextDecoder().decode(bytes)) as CallList;
  if (found?.schema !== CALLS) {
    throw unsupported(`schema ${String(found?.schema)} of a site's suite is unknown, expected ${CALLS}`).hinted("compile the model again");
  }
  return found;
}

/** What came of a call. */
type Outcome = Verdict | { error: string; ratio: number; criterion: string };

/** Replays all calls; `tell` counts those that are done. */
export async function check(model: Model, files: Files, tell: (done: number, of: number) => void): Promise<CheckReport> {
  const { entry, site } = model;
  if (!entry.suite) throw invalid("the site has no recorded calls").hinted("compile the model without --no-suite");
  const began = performance.now();
  const { calls, suite, left_out } = parseCalls(await files.get(entry.suite.calls));
  const data = await files.get(entry.suite.data);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const ops = new Map<string, OpVerdict>();
  for (const [at, call] of calls.entries()) {
    const start = performance.now();
    const outcome = await run(model, call, data, view);
    add(ops, call, outcome, (performance.now() - start) / 1000);
    tell(at + 1, calls.length);
  }
  const all = [...ops.values()];
  const sum = (of: (op: OpVerdict) => number): number => all.reduce((total, op) => total + of(op), 0);
  const info = model.info;
  return {
    schema: REPORT,
    suite,
    target: { platform: "webgpu", device: info.name, driver: info.driver },
    cases: sum((op) => op.cases),
    failed: sum((op) => op.failed),
    skipped: left_out.map(({ row, phase, reason }) => ({ case: `${row} in ${phase}`, reason })),
    ops: all,
    seconds: (performance.now() - began) / 1000,
    browser: { agent: globalThis.navigator?.userAgent ?? "", tapml: site.tapml, model: site.model, program: entry.file, sha256: entry.sha256, f16: info.f16, subgroups: info.subgroups, limits: info.limits },
  };
}

async function run(model: Model, call: Call, data: Uint8Array, view: DataView): Promise<Outcome> {
  try {
    const writes = call.inputs.map(({ buffer, at, bytes }) => {
      if (!(at >= 0 && at + bytes <= data.length)) throw invalid(`the suite has no ${bytes} bytes at ${at}`);
      return { buffer, data: data.subarray(at, at + bytes) };
    });
    const outputs = call.outputs.map((output) => ({ buffer: output.buffer, bytes: bytesOf(output) }));
    const fills = [...new Set(outputs.map((o) => o.buffer))].map((buffer) => ({ buffer, word: POISON }));
    const found = await model.call({ encoder: call.encoder === true, steps: call.steps, symbols: new Map(Object.entries(call.symbols)), fills, writes, outputs });
    const verdicts = call.outputs.map((output, at) => judge(output, view, at, found[at]!));
    return verdicts.reduce((worst, verdict) => (verdict.ratio > worst.ratio ? verdict : worst));
  } catch (thrown) {
    const { message } = failureOf(thrown);
    return { error: message, ratio: Infinity, criterion: "it could not be run" };
  }
}

/** JSON has no infinity. */
const finite = (ratio: number): number => (Number.isNaN(ratio) ? Number.MAX_VALUE : Math.min(ratio, Number.MAX_VALUE));

/** Counts a call of its operator. */
function add(ops: Map<string, OpVerdict>, call: Call, outcome: Outcome, seconds: number): void {
  const { case: name, node, op, row, kernel_hash, accumulate } = call;
  const none = { case: name, node, ratio: -1 };
  const fresh = { op, kernel: "", cases: 0, failed: 0, worst: none, seconds: 0, histogram: Array<number>(BUCKETS).fill(0), kernel_hash: "", accumulate: "", failures: [], kernels: [] };
  const known: OpVerdict = ops.get(op) ?? fresh;
  ops.set(op, known);
  const join = (all: string, one: string): string => [...new Set([...all.split("+"), one])].filter((s) => s !== "").sort().join("+");
  known.kernel = join(known.kernel, row);
  known.kernel_hash = join(known.kernel_hash, kernel_hash);
  known.accumulate = join(known.accumulate, accumulate);
  const ratio = finite(outcome.ratio);
  const element = "worst" in outcome ? { element: finiteElement(outcome.worst) } : {};
  known.cases++;
  known.seconds += seconds;
  known.histogram[ratio > 0 ? Math.min(BUCKETS - 1, Math.max(0, Math.floor(Math.log2(ratio)) + 12)) : 0]!++;
  if (ratio > known.worst.ratio) known.worst = { case: name, node, ratio, ...element };
  const kernel = known.kernels.find((k) => k.kernel === row) ?? { kernel: row, cases: 0, failed: 0, worst: 0 };
  if (kernel.cases++ === 0) known.kernels.push(kernel);
  kernel.worst = Math.max(kernel.worst, ratio);
  if (ratio <= 1) return;
  known.failed++;
  kernel.failed++;
  const error = "error" in outcome ? { error: outcome.error } : {};
  if (known.failures.length < MOST_FAILURES) known.failures.push({ case: name, node, ratio, criterion: outcome.criterion, ...element, ...error });
}

/** What JSON cannot hold stands as the largest number. */
function finiteElement(element: Element): Element {
  return { ...element, exact: bounded(element.exact), observed: bounded(element.observed), allowed: bounded(element.allowed) };
}

const bounded = (value: number): number => (Number.isNaN(value) ? Number.MAX_VALUE : Math.min(Number.MAX_VALUE, Math.max(-Number.MAX_VALUE, value)));
