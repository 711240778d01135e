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
    return this.download(file, "no-cache", undefined, () => {});
  }

  /** A file with its hash compared. */
  async get(entry: SiteFile, tell: Tell = () => {}): Promise<Uint8Array> {
    const kept = await this.store?.read(entry.sha256).catch(() => undefined);
    if (kept && (await isRight(kept, entry))) {
      tell(kept.length);
      return kept;
    }
    const bytes = await this.downloadRight(entry, tell);
    await this.store?.write(entry.sha256, bytes).catch((thrown: unknown) => (this.notKept = messageOf(thrown)));
    return bytes;
  }

  private async downloadRight(entry: SiteFile, tell: Tell): Promise<Uint8Array> {
    for (let attempt = 0; ; attempt++) {
      try {
        // What came before may be what the browser's own cache holds: it is not asked again.
        const bytes = await this.download(entry.file, attempt === 0 ? "default" : "reload", entry.bytes, tell);
        if (await isRight(bytes, entry)) return bytes;
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

  private async download(file: string, cache: RequestCache, bytes: number | undefined, tell: Tell): Promise<Uint8Array> {
    const unavailable = (why: string): Failure => new Failure(ErrorKind.UNAVAILABLE, `could not get ${file}: ${why}`);
    const response = await fetch(new URL(file, this.base), { cache }).catch((thrown: unknown) => {
      throw unavailable(messageOf(thrown));
    });
    if (!response.ok) throw unavailable(`status ${response.status}`);
    if (bytes === undefined || !response.body) return new Uint8Array(await response.arrayBuffer());
    const all = new Uint8Array(bytes);
    const reader = response.body.getReader();
    let at = 0;
    for (;;) {
      const { done, value } = await reader.read().catch((thrown: unknown) => {
        throw unavailable(messageOf(thrown));
      });
      if (done) break;
      if (at + value.length > bytes) throw unavailable(`it has more than ${bytes} bytes`);
      all.set(value, at);
      this.downloaded += value.length;
      tell((at += value.length));
    }
    if (at !== bytes) throw unavailable(`${at} bytes came, expected ${bytes}`);
    return all;
  }
}

/** Whether bytes have the length and the hash that were told. */
async function isRight(bytes: Uint8Array, entry: SiteFile): Promise<boolean> {
  if (bytes.length !== entry.bytes) return false;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
  return Array.from(hash, (b) => b.toString(16).padStart(2, "0")).join("") === entry.sha256;
}
