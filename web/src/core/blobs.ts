// Content-addressed bytes that the agent keeps from one session to the next: the last ones used.

import { createBLAKE3, type IHasher } from "hash-wasm";
import { ErrorKind } from "../wire/gen/tapml_pb";
import { hash as checkHash } from "../wire/check";
import { Failure, invalid } from "./failure";
import { MAX_HASHES, PIECE } from "./limits";

/** Fewest bytes held: the blobs of one question and as many that were put since. */
const LEAST = 2 * MAX_HASHES * PIECE;

const hex = (hash: Uint8Array): string => Array.from(hash, (b) => b.toString(16).padStart(2, "0")).join("");

/** Bytes, and whose word it is that they have their hash; nobody's if the agent has computed it. */
interface Held {
  bytes: Uint8Array;
  claim?: object | undefined;
}

/** See the file. */
export class Blobs {
  /** By hash, the longest unused one first. */
  private readonly held = new Map<string, Held>();
  private bytes = 0;

  private constructor(private readonly hasher: IHasher, private readonly limit: number) {}

  /** No blobs; at most so many bytes are held. */
  static async open(limit: number): Promise<Blobs> {
    return new Blobs(await createBLAKE3(), Math.max(limit, LEAST));
  }

  /** The bytes of a blob. Of what others have claimed the hash is computed first. */
  get(hash: Uint8Array, session?: object): Uint8Array | undefined {
    const key = hex(checkHash(hash));
    const found = this.held.get(key);
    if (!found || (found.claim && found.claim !== session && !this.proven(key, found))) return undefined;
    this.held.delete(key);
    this.held.set(key, found);
    return found.bytes;
  }

  /** As `get`; the failure names the hash in the detail `missing`. */
  need(hash: Uint8Array, session?: object): Uint8Array {
    const found = this.get(hash, session);
    if (found) return found;
    const text = `the agent does not hold the blob ${hex(hash)}`;
    throw new Failure(ErrorKind.UNAVAILABLE, text).with("missing", hex(hash));
  }

  /** Keeps a blob under the hash that the session claims, or that it has. */
  put(bytes: Uint8Array, claimed?: Uint8Array, session?: object): void {
    if (bytes.length > PIECE) throw invalid(`a blob of ${bytes.length} bytes, at most ${PIECE}`);
    const claim = claimed && claimed.length > 0 ? session : undefined;
    const key = claim ? hex(checkHash(claimed!)) : this.hash(bytes);
    const known = this.held.get(key);
    // What somebody else has put is not replaced on a mere word.
    if (claim && known && known.claim !== session && (!known.claim || this.proven(key, known))) return;
    if (known) this.drop(key, known);
    this.held.set(key, { bytes, claim });
    this.bytes += bytes.length;
    for (const [oldest, old] of this.held) {
      if (this.bytes <= this.limit) return;
      this.drop(oldest, old);
    }
  }

  /** A session is over: computes the hashes that it has claimed, one by one. */
  async settle(session: object): Promise<void> {
    for (const [key, held] of [...this.held]) {
      if (held.claim !== session) continue;
      await new Promise((done) => setTimeout(done));
      if (this.held.get(key) === held) this.proven(key, held);
    }
  }

  private hash(bytes: Uint8Array): string {
    this.hasher.init();
    this.hasher.update(bytes);
    return this.hasher.digest("hex");
  }

  /** Whether a claim is true; if not, the blob is dropped. */
  private proven(key: string, held: Held): boolean {
    if (held.claim && this.hash(held.bytes) !== key) {
      this.drop(key, held);
      return false;
    }
    held.claim = undefined;
    return true;
  }

  private drop(key: string, held: Held): void {
    this.held.delete(key);
    this.bytes -= held.bytes.length;
  }
}
