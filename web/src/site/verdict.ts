// The verdict of an output by the yardstick that the site brings along (crates/migrate/src/verdict/yardstick.rs): nothing is
// computed here but what was observed against what is allowed.

import { invalid, unsupported } from "../core/failure";
import type { Element } from "./api";

/** How to judge an output. */
export interface Measure {
  dtype: string;
  /** Elements, and those of a row. */
  count: number;
  row_len: number;
  indices: boolean;
  /** Where its numbers begin: exact values in f64, rounded ones in f32, allowed errors in f32, limits of columns in f64. */
  at: number;
  /** Limits of sums; one that is not there or `null` is none. */
  limits?: { scale: number | null; bias: number | null; spread: number | null; columns: number };
}

/** Observed over allowed of what came closest to its limit, or exceeded it most; above 1 fails. */
export interface Verdict {
  ratio: number;
  criterion: string;
  worst: Element;
}

/** Bytes of an element of the dtypes that outputs have. */
const SIZES: Record<string, number> = { f32: 4, f16: 2, u32: 4, i32: 4 };

/** Numbers from here on are rounded to infinity. */
const BEYOND: Record<string, number> = { f16: 65520 };
const BEYOND_F32 = 2 ** 128 - 2 ** 103;

/** Bytes of an output. */
export function bytesOf({ dtype, count }: Measure): number {
  const size = SIZES[dtype];
  if (size === undefined) throw unsupported(`the dtype \`${dtype}\` of an output is unknown here`);
  return size * count;
}

/** Judges the bytes of an output by its yardstick in the data. */
export function judge(measure: Measure, data: DataView, output: number, bytes: ArrayBuffer): Verdict {
  const { count, indices, limits } = measure;
  const observed = numbers(measure.dtype, bytes);
  const aligned = (at: number): number => at + ((8 - (at % 8)) % 8);
  const rounded = measure.at + 8 * count;
  const allowed = aligned(rounded + 4 * count);
  const columns = aligned(allowed + 4 * count);
  const end = columns + 8 * (limits?.columns ?? 0);
  if (!(measure.at >= 0 && end <= data.byteLength)) throw invalid(`the suite has no numbers at ${measure.at} to ${end}`);
  const worst: Element = { output, index: 0, exact: 0, observed: 0, allowed: 0 };
  let ratio = -1;
  for (let i = 0; i < count; i++) {
    const element = { exact: data.getFloat64(measure.at + 8 * i, true), observed: observed[i]!, allowed: data.getFloat32(allowed + 4 * i, true) };
    const found = ratioOf(element, measure);
    if (found > ratio) {
      ratio = found;
      Object.assign(worst, element, { index: i });
    }
  }
  ratio = Math.max(ratio, 0);
  let criterion = indices ? "another choice" : ratio === Infinity ? "NaN or infinity" : "single element";
  if (!indices && ratio < Infinity && limits) {
    const get = (i: number): number => data.getFloat32(rounded + 4 * i, true);
    const limit = (column: number): number => data.getFloat64(columns + 8 * column, true);
    for (const [name, found] of sums(observed, get, limits, limit)) if (found > ratio) [ratio, criterion] = [found, name];
  }
  return { ratio, criterion, worst };
}

/** Observed over allowed of an element. */
function ratioOf({ exact, observed, allowed }: { exact: number; observed: number; allowed: number }, { dtype, indices }: Measure): number {
  if (observed === exact) return 0;
  if (indices) return 1 / allowed;
  const rounded = Math.abs(exact) >= (BEYOND[dtype] ?? BEYOND_F32) ? Math.sign(exact) * Infinity : exact;
  const error = Math.abs(observed - exact);
  if (!Number.isFinite(observed) || !Number.isFinite(rounded)) {
    const same = Object.is(observed, rounded);
    const edge = Number.isFinite(exact) && Number.isFinite(observed) && error <= allowed;
    const reached = Math.abs(observed) === Infinity && Number.isFinite(rounded) && Math.abs(rounded * Math.sign(observed) + allowed) === Infinity;
    return same || edge || reached ? 0 : Infinity;
  }
  // Nothing is known of what is allowed where disturbed results are not finite.
  return Number.isNaN(allowed) ? 0 : error / allowed;
}

/** Observed over allowed of the sums over all residuals. */
function sums(observed: ArrayLike<number>, rounded: (i: number) => number, limits: NonNullable<Measure["limits"]>, limit: (column: number) => number): [string, number][] {
  const columns = new Float64Array(limits.columns);
  let [scale, bias, squares] = [0, 0, 0];
  for (let i = 0; i < observed.length; i++) {
    const near = rounded(i);
    const residual = observed[i]! - near;
    if (!Number.isFinite(residual)) continue;
    scale += near * residual;
    bias += residual;
    squares += residual * residual;
    if (limits.columns > 0) columns[i % limits.columns]! += residual;
  }
  const over = (sum: number, most: number | null): number => (sum !== 0 && most !== null && Number.isFinite(most) ? Math.abs(sum) / most : 0);
  return [
    ["scale of all elements", over(scale, limits.scale)],
    ["shift of all elements", over(bias, limits.bias)],
    ["size of all residuals", Math.sqrt(over(squares, limits.spread))],
    ["shift of one column", columns.reduce((most, sum, column) => Math.max(most, over(sum, limit(column))), 0)],
  ];
}

function numbers(dtype: string, bytes: ArrayBuffer): ArrayLike<number> {
  if (dtype === "f32") return new Float32Array(bytes);
  if (dtype === "f16") return Float32Array.from(new Uint16Array(bytes), fromF16);
  return dtype === "i32" ? new Int32Array(bytes) : new Uint32Array(bytes);
}

/** The number of 16 bits (IEEE 754 binary16). */
function fromF16(bits: number): number {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24);
}
