// The site's own page: a chat with the model, or a text that it goes on with if it has no chat template.

import { failureOf } from "../core/failure";
import type { ChatChunk, Completion, ContentPart, Message, Plan } from "./api";
import { Pictures, thumbnail } from "./chat_pictures";
import { serveCheck } from "./check_view";
import { Engine } from "./engine";
import { megabytes } from "./model";

const by = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Downloads of more bytes are begun only when someone says so. */
const ASKED = 64e6;

/** Says in the header how things stand. */
function tell(text: string, state: string): void {
  by("status").textContent = text;
  document.body.dataset["state"] = state;
}

function fail(thrown: unknown): void {
  const { message, hint } = failureOf(thrown);
  tell(hint ? `${message}. ${hint}` : message, "failed");
}

/** Shows what loading takes, and waits for a word if that is much. */
async function showPlan({ model, device, weights, download, memory, notKept, warnings }: Plan): Promise<void> {
  document.title = by("model").textContent = model;
  const kept = notKept === "" ? "kept for the next visit" : `loaded again at the next visit: ${notKept}`;
  const network = download === 0 ? `${megabytes(weights)} of weights are here already` : `${megabytes(download)} to download, ${kept}`;
  by("plan").textContent = `Runs on ${device}, and nothing that you write leaves it. ${network}. ${megabytes(memory)} of memory.`;
  by("warnings").replaceChildren(...warnings.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  // What is here already is only shown.
  if (download === 0 || (download <= ASKED && warnings.length === 0)) return;
  tell("", "asking");
  const button = by<HTMLButtonElement>("load");
  button.textContent = `Download ${megabytes(download)} and start`;
  await new Promise((done) => (button.onclick = done));
}

/** Loads the site that the page belongs to, and serves the form. */
export async function startChat(): Promise<void> {
  let engine: Engine;
  try {
    const bar = by<HTMLProgressElement>("bar");
    const onProgress = (bytes: number, total: number): void => {
      [bar.value, bar.max] = [bytes, total];
      tell(`loading the weights: ${megabytes(bytes)} of ${megabytes(total)}`, "loading");
    };
    engine = await Engine.load("./", { onPlan: showPlan, onProgress });
  } catch (thrown) {
    return fail(thrown);
  }
  const { facts } = engine;
  by("rows").replaceChildren(...facts.rows.map((row) => Object.assign(document.createElement("li"), { textContent: row })));
  by("facts").textContent = `TapML ${facts.tapml}; ${facts.device}; ${megabytes(facts.downloaded)} came over the network; weights are ${facts.kept}.`;
  by<HTMLTextAreaElement>("input").placeholder = facts.chat ? "Say something" : "Begin a text, and the model goes on";
  tell("ready", "ready");
  serveForm(engine);
  if (facts.calls > 0) serveCheck(engine, tell, fail);
}

/** A text behind its pictures. */
function contentOf(pictures: string[], text: string): Message["content"] {
  if (pictures.length === 0) return text;
  const images = pictures.map((url): ContentPart => ({ type: "image_url", image_url: { url } }));
  return [...images, { type: "text", text }];
}

/** Answers what is written. */
function serveForm(engine: Engine): void {
  const { facts } = engine;
  const [form, input, talk] = [by<HTMLFormElement>("form"), by<HTMLTextAreaElement>("input"), by("talk")];
  const messages: Message[] = [];
  const waiting = new Pictures((thrown) => {
    fail(thrown);
    document.body.dataset["state"] = "ready";
  });
  if (facts.sees) waiting.serve();
  const add = (role: string, text: string): HTMLElement => {
    const made = Object.assign(document.createElement("p"), { className: role, textContent: text });
    talk.append(made);
    return made;
  };
  let stop = false;
  by("stop").onclick = () => (stop = true);
  input.onkeydown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  };
  form.onsubmit = async (event) => {
    event.preventDefault();
    const text = input.value;
    if (text.trim() === "" || document.body.dataset["state"] !== "ready") return;
    input.value = "";
    stop = false;
    tell("writing", "writing");
    const pictures = waiting.take();
    if (facts.chat) messages.push({ role: "user", content: contentOf(pictures, text) });
    add("user", text).prepend(...pictures.map(thumbnail));
    const answer = add("assistant", "");
    const began = performance.now();
    try {
      const wish = { max_tokens: 512, stream: true as const };
      const pieces: AsyncIterable<ChatChunk | Completion> = facts.chat
        ? await engine.chat.completions.create({ ...wish, messages })
        : await engine.completions.create({ ...wish, prompt: text });
      for await (const { choices, usage } of pieces) {
        const choice = choices[0]!;
        answer.textContent += "delta" in choice ? (choice.delta.content ?? "") : choice.text;
        answer.scrollIntoView({ block: "end" });
        const seconds = (performance.now() - began) / 1000;
        if (usage) tell(`ready; ${usage.completion_tokens} tokens in ${seconds.toFixed(1)} s`, "ready");
        if (stop) break;
      }
      if (stop) tell("ready; stopped", "ready");
      messages.push({ role: "assistant", content: answer.textContent ?? "" });
    } catch (thrown) {
      messages.pop();
      fail(thrown);
      // A request that cannot be answered takes none of the next ones away.
      document.body.dataset["state"] = "ready";
    }
    input.focus();
  };
}
