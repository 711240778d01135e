// The site's own page: a chat with the model, or a text that it goes on with if it has no chat template.

import { failureOf } from "../core/failure";
import { Engine, type ChatChunk, type Completion } from "./engine";
import type { Message } from "./text";

const by = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;

/** Loads the site that the page belongs to, and serves the form. */
export async function startChat(): Promise<void> {
  const [status, bar, form, input, talk] = [by("status"), by<HTMLProgressElement>("bar"), by<HTMLFormElement>("form"), by<HTMLTextAreaElement>("input"), by("talk")];
  const tell = (text: string, state: string): void => {
    status.textContent = text;
    document.body.dataset["state"] = state;
  };
  const failed = (thrown: unknown): void => {
    const { message, hint } = failureOf(thrown);
    tell(hint ? `${message}. ${hint}` : message, "failed");
  };
  let engine: Engine;
  try {
    const onProgress = (bytes: number, total: number): void => {
      [bar.value, bar.max] = [bytes, total];
      tell(`loading the weights: ${megabytes(bytes)} of ${megabytes(total)}`, "loading");
    };
    engine = await Engine.load("./", { onProgress });
  } catch (thrown) {
    return failed(thrown);
  }
  const { facts } = engine;
  document.title = by("model").textContent = facts.model;
  by("rows").replaceChildren(...facts.rows.map((row) => Object.assign(document.createElement("li"), { textContent: row })));
  by("facts").textContent = `TapML ${facts.tapml}; ${facts.device}; ${megabytes(facts.downloaded)} came over the network; weights are ${facts.kept}.`;
  bar.hidden = true;
  form.hidden = false;
  input.placeholder = facts.chat ? "Say something" : "Begin a text, and the model goes on";
  tell("ready", "ready");

  const messages: Message[] = [];
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
    if (text.trim() === "" || document.body.dataset["state"] === "writing") return;
    input.value = "";
    stop = false;
    tell("writing", "writing");
    if (facts.chat) messages.push({ role: "user", content: text });
    add("user", text);
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
      failed(thrown);
    }
    input.focus();
  };
}
