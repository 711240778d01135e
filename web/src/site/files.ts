// Files of a site: from the store of an earlier visit or from the network, and in each case with the hash that was told.

import { Failure, failureOf, messageOf } from "../core/failure";
import { ErrorKind } from "../wire/gen/tapml_pb";
import type { SiteFile } from "./manifest";
import type { Store } from "./store";

/** What is told of a download: bytes that are here, of all. */
export type Tell = (bytes: number) => void;

/** Waits before further attempts, milliseconds. */
const WAITS = [500, 2000];

/** See the file. */
export class Files {
  /** Why nothing is kept for the next visit, if so. */
  notKept = "";
  /** Bytes that came over the network. */
  downloaded = 0;

  constructor(readonly base: URL, readonly store: Store | undefined) {
    if (!store) this.notKept = "this browser keeps no files for the page";
  }

  /** A file that is not kept: the manifest. */
  async text(file: string): Promise<Uint8Array> {
    return new Uint8Array(await (await this.ask(file, { cache: "no-cache" })).arrayBuffer());
  }

  /** Bytes of these files that an earlier visit did not keep. */
  async missing(entries: SiteFile[]): Promise<number> {
    const has = (entry: SiteFile): Promise<boolean> => this.store?.has(entry.sha256, entry.bytes).catch(() => false) ?? Promise.resolve(false);
    const kept = await Promise.all(entries.map(has));
    return entries.reduce((sum, { bytes }, at) => (kept[at] ? sum : sum + bytes), 0);
  }

  /** A file with its hash compared. */
  async get(entry: SiteFile, tell: Tell = () => {}): Promise<Uint8Array> {
    const kept = await this.store?.read(entry.sha256).catch(() => undefined);
    if (kept && (await isRight(kept, entry))) {
      tell(kept.length);
      return kept;
    }
    const bytes = await this.download(entry, tell);
    if (this.notKept === "") await this.store?.write(entry.sha256, bytes).catch((thrown: unknown) => (this.notKept = messageOf(thrown)));
    return bytes;
  }

  /** What breaks off is gone on with where the server can, else begun again. */
  private async download(entry: SiteFile, tell: Tell): Promise<Uint8Array> {
    const part = { bytes: new Uint8Array(entry.bytes), at: 0 };
    for (let attempt = 0; ; attempt++) {
      try {
        // What came before may be what the browser's own cache holds: it is not asked again.
        await this.append(entry.file, attempt === 0 ? "default" : "reload", part, tell);
        if (await isRight(part.bytes, entry)) return part.bytes;
        part.at = 0;
        throw new Failure(ErrorKind.INVALID_INPUT, `${entry.file} is not what the site tells of: its hash differs`).hinted(
          "copy the whole folder to the server again",
        );
      } catch (thrown) {
        const wait = WAITS[attempt];
        if (wait === undefined) throw failureOf(thrown);
        await new Promise((done) => setTimeout(done, wait));
      }
    }
  }

  private async ask(file: string, options: RequestInit): Promise<Response> {
    const response = await fetch(new URL(file, this.base), options).catch((thrown: unknown) => {
      throw unavailable(file, messageOf(thrown));
    });
    if (!response.ok) throw unavailable(file, `status ${response.status}`);
    return response;
  }

  /** Gets what is missing of a file, or all of it if the server gives no parts. */
  private async append(file: string, cache: RequestCache, part: Part, tell: Tell): Promise<void> {
    const { bytes } = part;
    const headers: Record<string, string> = part.at > 0 ? { Range: `bytes=${part.at}-` } : {};
    const response = await this.ask(file, { cache, headers }).catch((thrown: unknown) => {
      part.at = 0;
      throw thrown;
    });
    const goesOn = response.status === 206 && response.headers.get("content-range")?.startsWith(`bytes ${part.at}-`);
    if (!goesOn) part.at = 0;
    if (response.status === 206 && !goesOn) throw unavailable(file, "another part came than was asked for");
    const reader = (response.body ?? new Blob([]).stream()).getReader();
    for (;;) {
      const { done, value } = await reader.read().catch((thrown: unknown) => {
        throw unavailable(file, messageOf(thrown));
      });
      if (done) break;
      if (part.at + value.length > bytes.length) {
        part.at = 0;
        await reader.cancel().catch(() => {});
        throw unavailable(file, `it has more than ${bytes.length} bytes`);
      }
      bytes.set(value, part.at);
      this.downloaded += value.length;
      tell((part.at += value.length));
    }
    if (part.at !== bytes.length) throw unavailable(file, `${part.at} bytes came, expected ${bytes.length}`);
  }
}

/** A file of which the first `at` bytes came. */
interface Part {
  bytes: Uint8Array;
  at: number;
}

const unavailable = (file: string, why: string): Failure => new Failure(ErrorKind.UNAVAILABLE, `could not get ${file}: ${why}`);

/** Whether bytes have the length and the hash that were told. */
async function isRight(bytes: Uint8Array, entry: SiteFile): Promise<boolean> {
  if (bytes.length !== entry.bytes) return false;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
  return Array.from(hash, (b) => b.toString(16).padStart(2, "0")).join("") === entry.sha256;
}
