// The agent under Node: dist/agent.js as browsers run it, with Dawn (the npm package `webgpu`) in place of a browser's WebGPU
// and the few names of a worker's scope that the agent uses.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import vm from "node:vm";
import { gunzipSync } from "node:zlib";
import type { State } from "../core/hub";
import type { Start } from "../page/messages";

declare const VERSION: string;

const USAGE = `Offers this machine's GPU to a hub of TapML through Dawn, the WebGPU of Chrome.

usage: node node-agent.mjs [OPTIONS] ws://HOST:PORT | wss://HOST:PORT[?token-file=FILE]

  --name NAME         the name to be known by: hub/NAME/webgpu; the hub chooses one if there is none
  --deadline SECONDS  how long one request may run (300)
  --memory BYTES      how much a session may have in buffers, kernels and lists (1 TiB)
  --dawn OPTION       an option of Dawn, such as backend=vulkan, adapter=NAME or
                      enable-dawn-features=vulkan_enable_f16_on_nvidia; may repeat

The token is in FILE or in the variable TAPML_TOKEN. Authorities beside the well-known ones: NODE_EXTRA_CA_CERTS=FILE.
The npm packages \`webgpu\` and, for Node below 22, \`ws\` are looked for beside this file, then where it is started, then in the
folder that TAPML_DAWN names.
`;

const here = path.dirname(fileURLToPath(import.meta.url));

/** What went wrong is told without a stack. */
class Told extends Error {}

/** A package of npm, or `undefined` if it is not installed. */
async function installed<T>(name: string): Promise<{ module: T; version: string } | undefined> {
  for (const folder of [here, process.cwd(), process.env["TAPML_DAWN"]]) {
    if (folder === undefined) continue;
    const require = createRequire(path.join(path.resolve(folder), "any.js"));
    const entry = ((): string | undefined => {
      try {
        return require.resolve(name);
      } catch {
        return undefined;
      }
    })();
    if (entry === undefined) continue;
    const { version } = require(`${name}/package.json`) as { version: string };
    return { module: (await import(pathToFileURL(entry).href)) as T, version };
  }
  return undefined;
}

/** The token of a file; one of this user's own that others may read or change is refused. */
function secret(file: string): string {
  const { mode, uid } = fs.statSync(file);
  if (process.platform !== "win32" && (mode & 0o077) !== 0 && uid === process.getuid?.()) {
    throw new Told(`${file}: other users of this machine may read or change the token; \`chmod 600 ${file}\` keeps it`);
  }
  return fs.readFileSync(file, "utf8").trim();
}

/** Where the hub is, and the token for it, from `wss://HOST:PORT?token-file=FILE`. */
function address(text: string): { hub: string; token: string } {
  const url = ((): URL => {
    try {
      return new URL(text);
    } catch {
      throw new Told(`\`${text}\` is no address; expected ws://HOST:PORT or wss://HOST:PORT`);
    }
  })();
  if (!/^wss?:$/.test(url.protocol)) throw new Told(`\`${text}\` is no address of a hub; expected ws:// or wss://`);
  const file = url.searchParams.get("token-file");
  const token = file === null ? (process.env["TAPML_TOKEN"] ?? "") : secret(file);
  const near = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  if (token !== "" && url.protocol === "ws:" && !near && !url.searchParams.has("insecure")) {
    throw new Told("the token would go to another machine in plain text; use wss://, or add ?insecure");
  }
  return { hub: `${url.protocol}//${url.host}`, token };
}

function positive(name: string, text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new Told(`--${name} is \`${text}\`, expected a number above 0`);
}

/** The names that the agent finds in a worker of a browser. Returns how to speak to it. */
async function dress(dawn: string[]): Promise<(message: unknown) => void> {
  const found = await installed<{ create(options: string[]): GPU; globals: object }>("webgpu");
  if (!found) throw new Told("the npm package `webgpu` is not installed: npm install webgpu ws");
  const ws = await installed<{ default: typeof WebSocket }>("ws");
  if (!ws && !("WebSocket" in globalThis)) throw new Told("this Node has no WebSocket: npm install ws, or Node 22 or newer");
  const name = { brand: `Node ${process.versions.node} with webgpu`, version: found.version };
  const navigator = {
    // As long as it is held here it is not collected, which would crash its devices.
    gpu: found.module.create(dawn),
    userAgentData: { platform: process.platform, brands: [name], getHighEntropyValues: () => Promise.resolve({}) },
  };
  const scope = { self: globalThis, navigator, ...(ws && { WebSocket: ws.module.default }), ...found.module.globals };
  for (const [key, value] of Object.entries(scope)) {
    Object.defineProperty(globalThis, key, { value, configurable: true, writable: true });
  }
  const script = path.join(here, "agent.js");
  // A hub gives it plain; the repository keeps it packed.
  const text = fs.existsSync(script) ? fs.readFileSync(script) : gunzipSync(new Uint8Array(fs.readFileSync(`${script}.gz`)));
  vm.runInThisContext(text.toString("utf8"), { filename: script });
  const worker = globalThis as unknown as { onmessage(event: { data: unknown }): void };
  return (message) => worker.onmessage({ data: message });
}

/** Prints what is new, and ends with the agent. */
function teller(): (state: State) => void {
  const told = new Set<string>();
  const once = (key: string, text: string): void => {
    if (told.has(key)) return;
    told.add(key);
    console.log(text);
  };
  let last = "";
  return ({ status, reason, name, adapter, hub, sessions = [] }) => {
    const now = `${status} ${name} ${reason}`;
    if (now !== last) {
      if (status === "connected") console.log(`hub/${name}/webgpu at ${hub}: ${adapter}`);
      else if (reason !== "" || status === "refused") console.error(`${status}: ${reason}`);
      last = now;
    }
    for (const session of sessions) {
      once(session.id, `session ${session.id}: ${session.client || "a client"} has come`);
      for (const { at, text } of session.errors) once(`${session.id} ${at} ${text}`, `session ${session.id}: ${text}`);
      if (session.ended !== undefined) once(`${session.id} over`, `session ${session.id}: over after ${session.calls} calls`);
    }
    if (status === "refused" || status === "stopped") process.exit(status === "refused" ? 1 : 0);
  };
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      name: { type: "string" },
      deadline: { type: "string" },
      memory: { type: "string" },
      dawn: { type: "string", multiple: true },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help) return console.log(USAGE);
  const [place, ...more] = positionals;
  if (place === undefined || more.length > 0) throw new Told(`expected the address of one hub\n\n${USAGE}`);
  const message: Start = {
    ...address(place),
    name: values.name ?? "",
    deadline: positive("deadline", values.deadline ?? "300"),
    memory: positive("memory", values.memory ?? String(2 ** 40)),
    version: VERSION,
  };
  Object.defineProperty(globalThis, "postMessage", { value: teller() });
  const tell = await dress(values.dawn ?? []);
  tell(message);
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => tell("stop"));
}

main().catch((thrown: unknown) => {
  const usage = thrown instanceof Told || (thrown as { code?: string }).code?.startsWith("ERR_PARSE_ARGS") === true;
  console.error(usage ? `error: ${(thrown as Error).message}` : thrown);
  process.exit(2);
});
