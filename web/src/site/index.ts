// The module of a site: the API for pages, and, where it is started as a worker of its own, what owns the device. On the site's own
// page it is the chat, too.

import { Engine, WORKER } from "./engine";
import { Host, type Ask } from "./host";
import { startChat } from "./chat";

export { Engine };

/** The part of a worker's own scope that is used. */
const scope = globalThis as unknown as { name?: string; postMessage(message: unknown): void; onmessage: ((event: MessageEvent<Ask>) => void) | null };

if (typeof document !== "undefined") {
  if (document.body?.dataset["tapml"] === "chat") void startChat();
} else if (scope.name === WORKER) {
  const host = new Host(navigator.gpu as GPU | undefined, (answer) => scope.postMessage(answer));
  scope.onmessage = (event) => host.take(event.data);
}
