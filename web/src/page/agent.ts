// The worker that is the agent. The page starts it, and shows what it tells.

import { Blobs } from "../core/blobs";
import { messageOf } from "../core/failure";
import { Agent, type State } from "../core/hub";
import { browserName } from "./browser";
import type { Start } from "./messages";

/** How often the page is told, milliseconds. */
const TELL = 250;

/** Bytes of blobs that are kept from one session to the next. */
const BLOBS = 256 << 20;

/** The part of a worker's own scope that is used. */
const scope = self as unknown as { postMessage(message: unknown): void; onmessage: ((event: MessageEvent<Start>) => void) | null };

async function start({ hub, name, token, deadline, memory, version }: Start): Promise<void> {
  const api = navigator.gpu as GPU | undefined;
  if (!api) throw new Error("this browser has no WebGPU");
  const house = {
    api,
    agent: `tapml ${version}`,
    browser: await browserName(),
    device: "webgpu",
    settings: { deadline: deadline * 1000, idle: 3_600_000, memory },
    blobs: await Blobs.open(BLOBS),
  };
  const agent = new Agent(house, { hub, name, token });
  const tell = (): void => scope.postMessage(agent.state);
  const timer = setInterval(tell, TELL);
  scope.onmessage = () => agent.stop();
  await agent.serve();
  clearInterval(timer);
  tell();
}

scope.onmessage = (event: MessageEvent<Start>) => {
  start(event.data).catch((thrown: unknown) => {
    const failed: Pick<State, "status" | "reason"> = { status: "refused", reason: messageOf(thrown) };
    scope.postMessage(failed);
  });
};
