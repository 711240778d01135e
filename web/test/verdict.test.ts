// The verdict of an output by a yardstick; what makes yardsticks is tested in crates/migrate/src/verdict/yardstick.rs.

import assert from "node:assert/strict";
import test from "node:test";
import { bytesOf, judge, type Measure } from "../src/site/verdict";

const COLUMNS = 4;
const exact = Array.from({ length: 20 }, (_, i) => Math.fround(1 + i / 8));

/** The yardstick of 20 numbers: each may err by 0.01, and sums by little more. */
function yardstick(more: Partial<Measure> = {}, values = exact): [Measure, DataView] {
  const measure = { dtype: "f32", count: 20, row_len: COLUMNS, indices: false, at: 8, limits: { scale: 0.05, bias: 0.05, spread: 1e-3, columns: COLUMNS }, ...more };
  const data = new DataView(new ArrayBuffer(8 + 20 * 16 + 8 * COLUMNS));
  values.forEach((value, i) => {
    data.setFloat64(8 + 8 * i, value, true);
    data.setFloat32(168 + 4 * i, Number.isFinite(value) ? value : NaN, true);
    data.setFloat32(248 + 4 * i, 0.01, true);
  });
  for (let i = 0; i < COLUMNS; i++) data.setFloat64(328 + 8 * i, 0.02, true);
  return [measure, data];
}

const found = (change: (value: number, i: number) => number, [measure, data] = yardstick()): { ratio: number; criterion: string; index: number } => {
  const observed = Float32Array.from(exact, change);
  const { ratio, criterion, worst } = judge(measure, data, 0, observed.buffer);
  return { ratio, criterion, index: worst.index };
};

test("an output is judged by its elements and by what they have in common", () => {
  assert.deepEqual(found((v) => v), { ratio: 0, criterion: "single element", index: 0 });
  const one = found((v, i) => (i === 7 ? v + 0.03 : v));
  assert.ok(Math.abs(one.ratio - 3) < 1e-3 && one.criterion === "single element" && one.index === 7, JSON.stringify(one));
  assert.deepEqual(found((v, i) => (i === 3 ? NaN : v)), { ratio: Infinity, criterion: "NaN or infinity", index: 3 });
  assert.equal(found((v) => v + 0.006).criterion, "scale of all elements");
  const column = found((v, i) => (i % COLUMNS === 2 ? v + 0.006 * (1 - 2 * (i & 1)) : v));
  assert.ok(column.criterion === "shift of one column" && column.ratio > 1, JSON.stringify(column));
  const bias = yardstick({ limits: { scale: null, bias: 0.05, spread: null, columns: 0 } });
  assert.equal(found((v) => v - 0.006, bias).criterion, "shift of all elements");
  const alternating = found((v, i) => v + ((i >> 2) & 1 ? 0.009 : -0.009), yardstick({ limits: { scale: null, bias: null, spread: 1e-3, columns: 0 } }));
  assert.equal(alternating.criterion, "size of all residuals");
  assert.ok(Math.abs(alternating.ratio - Math.sqrt((20 * 0.009 ** 2) / 1e-3)) < 1e-3);
});

test("infinities are right where rounding gives them", () => {
  const values = exact.map((v, i) => (i === 0 ? Infinity : i === 1 ? NaN : i === 2 ? 1e39 : v));
  const with_ = (at: number, value: number): number => {
    const observed = Float32Array.from(values);
    observed[at] = value;
    const [measure, data] = yardstick({}, values);
    return judge(measure, data, 0, observed.buffer).ratio;
  };
  assert.equal(with_(0, Infinity), 0);
  assert.equal(with_(0, -Infinity), Infinity);
  assert.equal(with_(0, 3), Infinity);
  assert.equal(with_(1, 3), Infinity);
  assert.equal(with_(2, 3e38), Infinity);
});

test("indices are right or wrong, and halves are read", () => {
  const [measure, data] = yardstick({ dtype: "u32", indices: true }, exact.map((_, i) => i));
  const indices = Uint32Array.from({ length: 20 }, (_, i) => i);
  assert.equal(judge(measure, data, 0, indices.buffer).ratio, 0);
  indices[4] = 5;
  const { ratio, criterion } = judge(measure, data, 0, indices.buffer);
  assert.ok(Math.abs(ratio - 100) < 1e-3 && criterion === "another choice");
  const [half, of] = yardstick({ dtype: "f16" });
  assert.equal(bytesOf(half), 40);
  // 1 + i / 8 in binary16: the fraction has 10 bits.
  const bits = Uint16Array.from(exact, (v) => {
    const power = Math.floor(Math.log2(v));
    return ((power + 15) << 10) | ((v / 2 ** power - 1) * 1024);
  });
  assert.equal(judge(half, of, 0, bits.buffer).ratio, 0);
  bits[0] = 0x7c00;
  assert.equal(judge(half, of, 0, bits.buffer).ratio, Infinity);
  assert.throws(() => judge({ ...measure, at: 80 }, data, 0, indices.buffer), /no numbers/);
});
