// The error of a request: a kind, one sentence, a hint, and details for machines.

import { ErrorKind } from "../wire/gen/tapml_pb";

/** What went wrong with a request. */
export class Failure extends Error {
  /** What can be done about it; may be empty. */
  hint = "";
  /** Such as kernel, line, log, limit, asked, offered. */
  readonly details: [name: string, value: string][] = [];

  constructor(readonly kind: ErrorKind, message: string) {
    super(message);
  }

  /** Adds a detail. */
  with(name: string, value: string | number): this {
    this.details.push([name, String(value)]);
    return this;
  }

  /** Sets the hint. */
  hinted(hint: string): this {
    this.hint = hint;
    return this;
  }

  /** Says in front of the message what was being done. */
  within(context: string): this {
    this.message = `${context}: ${this.message}`;
    return this;
  }
}

/** A wrong request. */
export const invalid = (message: string): Failure => new Failure(ErrorKind.INVALID_INPUT, message);

/** A request that is right but cannot be done here. */
export const unsupported = (message: string): Failure => new Failure(ErrorKind.UNSUPPORTED, message);

/** A request for more than a limit. */
export const beyond = (message: string, limit: string, asked: number, offered: number): Failure =>
  unsupported(message).with("limit", limit).with("asked", asked).with("offered", offered);

/** Whatever was thrown, as a failure. */
export function failureOf(thrown: unknown): Failure {
  if (thrown instanceof Failure) return thrown;
  const text = thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown);
  return new Failure(ErrorKind.BUG, `the browser agent failed: ${text}`);
}

/** Runs something, and says in front of its failure what was being done. */
export function doing<T>(context: string, body: () => T): T {
  try {
    return body();
  } catch (thrown) {
    throw failureOf(thrown).within(context);
  }
}

/** Whatever was thrown, in one sentence. */
export const messageOf = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));
