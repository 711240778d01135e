// Content-addressed bytes that the agent keeps from one session to the next: the last ones used.

import { createBLAKE3, type IHasher } from "hash-wasm";
import { ErrorKind } from "../wire/gen/tapml_pb";
import { hash as checkHash } from "../wire/check";
import { Failure, invalid } from "./failure";
import { MAX_HASHES, PIECE } from "./limits";

/** Fewest bytes held: the blobs of one question and as many that were put since. */
const LEAST = 2 * MAX_HASHES * PIECE;

const hex = (hash: Uint8Array): string => Array.from(hash, (b) => b.toString(16).padStart(2, "0")).join("");

/** See the file. */
export class Blobs {
  /** By hash, the longest unused one first. */
  private readonly held = new Map<string, Uint8Array>();
  private bytes = 0;

  private constructor(private readonly hasher: IHasher, private readonly limit: number) {}

  /** No blobs; at most so many bytes are held. */
  static async open(limit: number): Promise<Blobs> {
    return new Blobs(await createBLAKE3(), Math.max(limit, LEAST));
  }

  /** The bytes of a blob. */
  get(hash: Uint8Array): Uint8Array | undefined {
    const key = hex(checkHash(hash));
    const found = this.held.get(key);
    if (found) {
      this.held.delete(key);
      this.held.set(key, found);
    }
    return found;
  }

  /** As `get`; the failure names the hash in the detail `missing`. */
  need(hash: Uint8Array): Uint8Array {
    const found = this.get(hash);
    if (found) return found;
    const text = `the agent does not hold the blob ${hex(hash)}`;
    throw new Failure(ErrorKind.UNAVAILABLE, text).with("missing", hex(hash));
  }

  /** Keeps a blob under the hash that it has. */
  put(bytes: Uint8Array): void {
    if (bytes.length > PIECE) throw invalid(`a blob of ${bytes.length} bytes, at most ${PIECE}`);
    this.hasher.init();
    this.hasher.update(bytes);
    const key = this.hasher.digest("hex");
    if (this.held.delete(key)) this.bytes -= bytes.length;
    this.held.set(key, bytes);
    this.bytes += bytes.length;
    for (const [oldest, old] of this.held) {
      if (this.bytes <= this.limit) return;
      this.held.delete(oldest);
      this.bytes -= old.length;
    }
  }
}
