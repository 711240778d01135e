// The page: what connects, what runs, what went wrong. The agent itself is a worker.

import type { State } from "../core/hub";
import type { Numbers } from "../core/session";
import type { Start } from "./messages";

declare const VERSION: string;

/** Kernels of a session that are shown before "more". */
const KERNELS = 40;

const STATUS: Record<State["status"], string> = {
  dialling: "connecting",
  connected: "connected",
  waiting: "disconnected, trying again",
  refused: "not connected",
  stopped: "stopped",
};

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

let worker: Worker | undefined;
let before: { at: number; calls: number; bytesIn: number; bytesOut: number } | undefined;
let lock: { release(): Promise<void> } | undefined;

/** What the page's address says after `#`: name, token, hub, deadline, memory. */
function wishes(): URLSearchParams {
  const wishes = new URLSearchParams(location.hash.slice(1));
  const token = wishes.get("token");
  if (token !== null) {
    // The token leaves the address bar, so that nobody copies it with the address.
    sessionStorage.setItem("tapml.token", token);
    wishes.delete("token");
    history.replaceState(null, "", wishes.size > 0 ? `#${wishes}` : location.pathname);
  }
  return wishes;
}

function number(text: string | null, otherwise: number): number {
  const value = Number(text);
  return text !== null && Number.isFinite(value) && value > 0 ? value : otherwise;
}

/** Bytes of buffers that a session may have, if the address does not say. */
function memoryHere(): number {
  const gib = (navigator as unknown as { deviceMemory?: number }).deviceMemory ?? 4;
  return gib * 2 ** 30;
}

function start(): void {
  const asked = wishes();
  const own = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}`;
  const message: Start = {
    hub: asked.get("hub") ?? own,
    name: element<HTMLInputElement>("name").value.trim(),
    token: element<HTMLInputElement>("token").value.trim(),
    deadline: number(asked.get("deadline"), 300),
    memory: number(asked.get("memory"), memoryHere()),
    version: VERSION,
  };
  localStorage.setItem("tapml.name", message.name);
  sessionStorage.setItem("tapml.token", message.token);
  stop();
  before = undefined;
  worker = new Worker("agent.js");
  worker.onmessage = (event: MessageEvent<State>) => show(event.data);
  worker.onerror = (event) => show({ status: "refused", reason: event.message || "the agent did not start" });
  worker.postMessage(message);
}

function stop(): void {
  // Sessions end with a post-mortem; then the worker is not needed any more.
  const ending = worker;
  worker = undefined;
  ending?.postMessage("stop");
  if (ending) setTimeout(() => ending.terminate(), 500);
}

/** Shows what the worker tells. */
function show(state: Partial<State> & Pick<State, "status" | "reason">): void {
  document.body.dataset["status"] = state.status;
  text("status", STATUS[state.status]);
  text("reason", state.reason);
  element("reason").hidden = state.reason === "";
  element<HTMLButtonElement>("stop").hidden = !["dialling", "connected", "waiting"].includes(state.status);
  element("form").hidden = !["refused", "stopped"].includes(state.status);
  document.title = `${state.name || "TapML"}: ${STATUS[state.status]}`;
  text("known", state.name ? `hub/${state.name}/webgpu` : "–");
  text("hub", state.hub ?? "–");
  text("browser", state.browser ?? "–");
  text("adapter", state.adapter || "–");
  element("limits").replaceChildren(...(state.limits ?? []).map(([name, value]) => row(name, value.toLocaleString("en"))));
  const sessions = state.sessions ?? [];
  speeds(sessions);
  const open = sessions.filter((s) => s.ended === undefined);
  void stayAwake(open.length > 0);
  text("none", sessions.length === 0 ? "no session yet" : "");
  const cards = new Map([...element("sessions").children].map((c) => [(c as HTMLElement).dataset["id"], c as HTMLElement]));
  element("sessions").replaceChildren(...[...sessions].reverse().map((s) => card(s, cards.get(s.id))));
}

function speeds(sessions: Numbers[]): void {
  const sum = (of: (s: Numbers) => number): number => sessions.reduce((all, s) => all + of(s), 0);
  const now = { at: performance.now(), calls: sum((s) => s.calls), bytesIn: sum((s) => s.bytesIn), bytesOut: sum((s) => s.bytesOut) };
  const seconds = before ? (now.at - before.at) / 1000 : 0;
  const rate = (of: "calls" | "bytesIn" | "bytesOut"): number => (before && seconds > 0 ? Math.max(0, now[of] - before[of]) / seconds : 0);
  text("calls", Math.round(rate("calls")).toLocaleString("en"));
  text("in", `${(rate("bytesIn") / 1e6).toFixed(1)} MB/s`);
  text("out", `${(rate("bytesOut") / 1e6).toFixed(1)} MB/s`);
  text("memory", bytes(sum((s) => (s.ended === undefined ? s.memory : 0))));
  before = now;
}

/** A session; its open parts stay open when it is shown anew. */
function card(s: Numbers, old: HTMLElement | undefined): HTMLElement {
  const seconds = ((s.ended ?? Date.now()) - s.started) / 1000;
  const made = node("article", {});
  made.dataset["id"] = s.id;
  made.dataset["open"] = String(s.ended === undefined);
  const state = s.ended === undefined ? s.doing || "waiting for the client" : "over";
  made.append(
    node("header", {}, node("strong", {}, s.client || "a client"), node("span", { class: "state" }, state)),
    node("p", {}, `${duration(seconds)}, ${s.calls.toLocaleString("en")} calls, ${bytes(s.bytesIn)} in, ${bytes(s.bytesOut)} out`),
  );
  if (s.kernels.size > 0) {
    const names = [...s.kernels];
    const shown = names.slice(0, KERNELS).map(([name, count]) => node("li", {}, count > 1 ? `${name} × ${count}` : name));
    const more = names.length > KERNELS ? [node("li", {}, `and ${names.length - KERNELS} more`)] : [];
    const details = node("details", {}, node("summary", {}, `${names.length} kernels`), node("ul", { class: "kernels" }, ...shown, ...more));
    (details as HTMLDetailsElement).open = old?.querySelector("details")?.open ?? false;
    made.append(details);
  }
  if (s.errors.length > 0) {
    made.append(node("ul", { class: "errors" }, ...s.errors.slice(-5).map((e) => node("li", {}, e.text))));
  }
  return made;
}

function node(tag: string, attributes: Record<string, string>, ...children: (Node | string)[]): HTMLElement {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const row = (name: string, value: string): HTMLElement => node("tr", {}, node("th", {}, name.replaceAll("_", " ")), node("td", {}, value));

function text(id: string, value: string): void {
  const at = element(id);
  if (at.textContent !== value) at.textContent = value;
}

function bytes(count: number): string {
  const units = ["bytes", "kB", "MB", "GB"];
  let [value, unit] = [count, 0];
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

const duration = (seconds: number): string => (seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`);

/** A phone whose screen sleeps stops the page: while a session is open, the screen stays on. */
async function stayAwake(wanted: boolean): Promise<void> {
  const api = (navigator as unknown as { wakeLock?: { request(kind: "screen"): Promise<{ release(): Promise<void> }> } }).wakeLock;
  if (!api || document.visibilityState !== "visible" || wanted === (lock !== undefined)) return;
  const held = lock;
  lock = undefined;
  if (held) await held.release().catch(() => {});
  if (wanted) lock = await api.request("screen").catch(() => undefined);
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") lock = undefined;
});

function main(): void {
  const asked = wishes();
  element<HTMLInputElement>("name").value = asked.get("name") ?? localStorage.getItem("tapml.name") ?? "";
  element<HTMLInputElement>("token").value = sessionStorage.getItem("tapml.token") ?? "";
  element("form").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  element("stop").addEventListener("click", () => {
    stop();
    show({ status: "stopped", reason: "" });
  });
  if (!isSecureContext) {
    const reason = "Browsers give WebGPU to pages from https:// or from this very machine only: start the hub with a certificate (--tls-cert, --tls-key) and open its https:// address.";
    return show({ status: "refused", reason });
  }
  if (!("gpu" in navigator)) return show({ status: "refused", reason: "This browser has no WebGPU, or it is switched off." });
  start();
}

main();
