// Handles that a client chose, and what they stand for. What could not be made stays known, so that destroying it is no error.

import { invalid } from "./failure";

/** What handles of one sort stand for; `undefined` for what could not be made. */
export class Handles<T> {
  private readonly map = new Map<number, T | undefined>();

  constructor(private readonly sort: string) {}

  /** Fails if the handle is taken. */
  expectFree(id: number): void {
    if (this.map.has(id)) throw invalid(`the ${this.sort} ${id} exists already`);
  }

  /** Makes something for a free handle, and remembers also that it could not be made. */
  make(id: number, body: () => T): T {
    this.expectFree(id);
    this.map.set(id, undefined);
    const made = body();
    this.map.set(id, made);
    return made;
  }

  /** What the handle stands for. */
  get(id: number): T {
    const found = this.map.get(id);
    if (found === undefined) {
      throw invalid(this.map.has(id) ? `the ${this.sort} ${id} could not be made` : `no ${this.sort} ${id}`);
    }
    return found;
  }

  /** Enters what was made. */
  set(id: number, made: T): void {
    this.map.set(id, made);
  }

  /** Forgets the handle; `undefined` for what could not be made. */
  remove(id: number): T | undefined {
    if (!this.map.has(id)) throw invalid(`no ${this.sort} ${id}`);
    const found = this.map.get(id);
    this.map.delete(id);
    return found;
  }
}
