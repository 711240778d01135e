// Where shards are kept from one visit to the next: files of the origin (OPFS), else the Cache API, else nowhere.

/** Bytes by the SHA-256 of their content. Whoever reads compares the hash, so that half a file does no harm. */
export interface Store {
  readonly where: string;
  read(hash: string): Promise<Uint8Array | undefined>;
  /** Whether it has bytes under this hash, so many of them as far as that is quickly known. */
  has(hash: string, bytes: number): Promise<boolean>;
  write(hash: string, bytes: Uint8Array): Promise<void>;
  /** Removes all that is not listed. */
  keep(hashes: Set<string>): Promise<void>;
}

interface SyncHandle {
  write(bytes: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

type FileHandle = FileSystemFileHandle & { createSyncAccessHandle?: () => Promise<SyncHandle> };
type Folder = FileSystemDirectoryHandle & { keys(): AsyncIterable<string> };

/** The store of a site, or none. */
export async function openStore(site: URL): Promise<Store | undefined> {
  const name = `tapml ${encodeURIComponent(site.pathname)}`;
  const asked = async (open: () => Promise<Store | undefined>): Promise<Store | undefined> => open().catch(() => undefined);
  return (await asked(() => openFiles(name))) ?? asked(() => openCache(name, site));
}

async function openFiles(name: string): Promise<Store | undefined> {
  const root = await globalThis.navigator?.storage?.getDirectory?.();
  if (!root) return undefined;
  const folder = (await root.getDirectoryHandle(name, { create: true })) as Folder;
  return {
    where: "files of this origin",
    async read(hash) {
      const handle = await folder.getFileHandle(hash).catch(() => undefined);
      return handle && new Uint8Array(await (await handle.getFile()).arrayBuffer());
    },
    async has(hash, bytes) {
      const handle = await folder.getFileHandle(hash).catch(() => undefined);
      return handle !== undefined && (await handle.getFile()).size === bytes;
    },
    async write(hash, bytes) {
      const handle = (await folder.getFileHandle(hash, { create: true })) as FileHandle;
      // Only workers have it; Safari has had nothing else for long.
      if (handle.createSyncAccessHandle) {
        const file = await handle.createSyncAccessHandle().catch((thrown: unknown) => {
          // Another tab writes the same bytes.
          if (thrown instanceof DOMException && thrown.name === "NoModificationAllowedError") return undefined;
          throw thrown;
        });
        if (!file) return;
        try {
          file.truncate(0);
          const written = file.write(bytes, { at: 0 });
          if (written !== bytes.length) throw new Error(`${written} of ${bytes.length} bytes were kept`);
          file.flush();
        } finally {
          file.close();
        }
      } else {
        const file = await handle.createWritable();
        await file.write(bytes as Uint8Array<ArrayBuffer>);
        await file.close();
      }
    },
    async keep(hashes) {
      // One that another tab has open stays.
      for await (const old of folder.keys()) if (!hashes.has(old)) await folder.removeEntry(old).catch(() => {});
    },
  };
}

async function openCache(name: string, site: URL): Promise<Store | undefined> {
  const cache = await globalThis.caches?.open(name);
  if (!cache) return undefined;
  const key = (hash: string): string => new URL(hash, site).href;
  return {
    where: "the browser's cache",
    async read(hash) {
      const found = await cache.match(key(hash));
      return found && new Uint8Array(await found.arrayBuffer());
    },
    has: async (hash) => (await cache.match(key(hash))) !== undefined,
    write: (hash, bytes) => cache.put(key(hash), new Response(bytes as Uint8Array<ArrayBuffer>)),
    async keep(hashes) {
      for (const request of await cache.keys()) {
        if (!hashes.has(request.url.split("/").at(-1)!)) await cache.delete(request);
      }
    },
  };
}
