// What the parts of a session count for, in bytes, and what they may count for together.

import { ErrorKind } from "../wire/gen/tapml_pb";
import { Failure } from "./failure";

/** See the file. */
export class Account<Part> {
  held = 0;
  private readonly parts = new Map<Part, number>();

  constructor(readonly limit: number) {}

  /** Counts bytes. Fails if they are too many. */
  reserve(what: string, size: number): void {
    if (this.held + size > this.limit) {
      const text = `${what} of ${size} bytes: the session has ${this.held} bytes and may have ${this.limit}`;
      throw new Failure(ErrorKind.OUT_OF_MEMORY, text);
    }
    this.held += size;
  }

  release(size: number): void {
    this.held -= size;
  }

  /** What a part that is made counts for, from before it is made; nothing if that fails. */
  count<P extends Part>(what: string, size: number, make: () => P): P {
    this.reserve(what, size);
    try {
      return this.keep(make(), size);
    } catch (thrown) {
      this.release(size);
      throw thrown;
    }
  }

  /** As `count`, of a part that takes time to make. */
  async countLater<P extends Part>(what: string, size: number, make: () => Promise<P>): Promise<P> {
    this.reserve(what, size);
    try {
      return this.keep(await make(), size);
    } catch (thrown) {
      this.release(size);
      throw thrown;
    }
  }

  private keep<P extends Part>(part: P, size: number): P {
    this.parts.set(part, size);
    return part;
  }

  /** The part is gone. */
  discount<P extends Part>(part: P | undefined): P | undefined {
    if (part) {
      this.release(this.parts.get(part) ?? 0);
      this.parts.delete(part);
    }
    return part;
  }
}
