// Runs a site in a page, and posts what was written for the wishes behind `#`, one after the other when the server says so.

import { Engine } from "./tapml.js";

const post = (body) => fetch("/report", { method: "POST", body: JSON.stringify(body) });
try {
  const engine = await Engine.load("./");
  await post({ facts: engine.facts });
  for (const wish of JSON.parse(decodeURIComponent(location.hash.slice(1)))) {
    await fetch("/next");
    const whole = await ("messages" in wish ? engine.chat.completions : engine.completions).create(wish);
    const { message, text, finish_reason: finish } = whole.choices[0];
    await post({ text: text ?? message.content, finish, usage: whole.usage, ...whole.tapml });
  }
} catch (thrown) {
  await post({ error: `${thrown.message} ${thrown.hint ?? ""}` });
}
