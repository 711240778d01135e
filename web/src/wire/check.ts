// Bounds that hold for the values of a decoded message.

import { invalid } from "../core/failure";
import { MAX_BINDINGS, MAX_NAME } from "../core/limits";

/** A 64-bit integer of the wire as a number. */
export function integer(what: string, value: bigint): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw invalid(`\`${what}\` is ${value}, at most ${Number.MAX_SAFE_INTEGER}`);
  return Number(value);
}

/** Refuses long names. */
export function name(what: string, value: string): string {
  if (value.length > MAX_NAME) throw invalid(`\`${what}\` has ${value.length} characters, at most ${MAX_NAME}`);
  return value;
}

/** Refuses long lists. */
export function few<T>(what: string, all: T[]): T[] {
  if (all.length > MAX_BINDINGS) throw invalid(`${all.length} ${what}, at most ${MAX_BINDINGS}`);
  return all;
}

/** Refuses what is no BLAKE3 hash. */
export function hash(value: Uint8Array): Uint8Array {
  if (value.length !== 32) throw invalid(`a hash of ${value.length} bytes, expected 32`);
  return value;
}
