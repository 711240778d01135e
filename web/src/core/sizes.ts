// Sizes that depend on symbols: ceil((constant + sum of factor * symbol) / divisor).

import type { Size as WireSize, Symbol as WireSymbol } from "../wire/gen/tapml_pb";
import { few, integer } from "../wire/check";
import { invalid } from "./failure";

/** The values of symbols for one run. */
export type Symbols = Map<string, number>;

/** An affine size. */
export interface Size {
  constant: number;
  terms: { symbol: string; factor: number }[];
  divisor: number;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,7}$/;

/** A symbol's name: at most eight letters, digits or underscores, no digit first. */
export function symbolName(name: string): string {
  if (!NAME.test(name)) throw invalid(`\`${name.slice(0, 40)}\` is no symbol`);
  return name;
}

/** A size from the wire. */
export function sizeFromWire(size: WireSize | undefined): Size {
  if (!size) throw invalid("a size is missing");
  const terms = few("terms", size.terms).map((t) => ({
    symbol: symbolName(t.symbol),
    factor: integer("factor", t.factor),
  }));
  return { constant: integer("constant", size.constant), terms, divisor: Math.max(1, size.divisor) };
}

/** Values of symbols from the wire. */
export function symbolsFromWire(symbols: WireSymbol[]): Symbols {
  return new Map(few("symbols", symbols).map((s) => [symbolName(s.name), integer("value", s.value)]));
}

/** The value of a size; fails on an unbound symbol and on what a number does not hold exactly. */
export function evaluate(size: Size, symbols: Symbols): number {
  let sum = size.constant;
  for (const { symbol, factor } of size.terms) {
    const value = symbols.get(symbol);
    if (value === undefined) throw invalid(`the symbol \`${symbol}\` has no value`);
    sum += factor * value;
  }
  if (!Number.isSafeInteger(sum)) throw invalid("a size overflows");
  return Math.ceil(sum / size.divisor);
}

/** A constant size. */
export const fixed = (constant: number): Size => ({ constant, terms: [], divisor: 1 });
