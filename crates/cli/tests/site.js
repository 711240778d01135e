// Does the steps behind `#` in a page; see site_steps.mjs.

import { Engine } from "./tapml.js";
import { runSteps } from "./site_steps.mjs";

const post = (body) => fetch("/report", { method: "POST", body: JSON.stringify(body) });
const steps = JSON.parse(decodeURIComponent(location.hash.slice(1)));
// A step that reloads the page is behind it when the page is there again.
const done = Number(sessionStorage.getItem(location.hash) ?? 0);
const page = {
  reload(at) {
    sessionStorage.setItem(location.hash, String(at));
    location.reload();
    return new Promise(() => {});
  },
  frames: (all) => all.map((own) => document.body.append(Object.assign(document.createElement("iframe"), { src: `test.html#${encodeURIComponent(JSON.stringify(own))}` }))),
  next: () => fetch("/next"),
};
await runSteps(Engine, {}, steps, post, page, done);
