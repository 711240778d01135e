// The part of the page that checks the device: a verdict per operator, and a file to send.

import type { CheckReport, OpVerdict } from "./api";
import type { Engine } from "./engine";

const by = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Serves the button. */
export function serveCheck(engine: Engine, tell: (text: string, state: string) => void, fail: (thrown: unknown) => void): void {
  by("check").hidden = false;
  by("about-check").textContent =
    `Replays ${engine.facts.calls} recorded calls of the model's operators with the kernels of this page, and compares every number with the exact one. ` +
    "Nothing is sent by itself.";
  by("run-check").onclick = async () => {
    if (document.body.dataset["state"] !== "ready") return;
    tell("checking this device", "checking");
    try {
      const report = await engine.check((done, of) => tell(`checking this device: ${done} of ${of} calls`, "checking"));
      show(report);
      tell("ready", "ready");
    } catch (thrown) {
      fail(thrown);
      document.body.dataset["state"] = "ready";
    }
  };
}

function show(report: CheckReport): void {
  const { cases, failed, skipped, target } = report;
  by("verdict").textContent = failed === 0 ? `${cases} of ${cases} calls are right on ${target.device}.` : `${failed} of ${cases} calls are WRONG on ${target.device}.`;
  by("verdict").className = failed === 0 ? "good" : "bad";
  by("ops").replaceChildren(head(), ...report.ops.map(row));
  by("skipped").textContent = skipped.map(({ case: name, reason }) => `${name} was not checked: ${reason}`).join("; ");
  const link = by<HTMLAnchorElement>("report");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([JSON.stringify(report)], { type: "application/json" }));
  link.download = `tapml-check-${report.browser.model}.json`;
  link.hidden = false;
}

function head(): HTMLElement {
  return line("th", ["operator", "kernels", "calls", "wrong", "largest error, of the allowed one"]);
}

function row({ op, kernel, cases, failed, worst, failures }: OpVerdict): HTMLElement {
  const ratio = worst.ratio < 1e6 ? worst.ratio.toFixed(2) : "not finite";
  const made = line("td", [op, kernel.split("+").join(", "), String(cases), String(failed), ratio]);
  made.className = failed === 0 ? "good" : "bad";
  made.title = failures.map(({ node, criterion, error }) => `${node}: ${error ?? criterion}`).join("\n");
  return made;
}

function line(tag: "th" | "td", texts: string[]): HTMLElement {
  const made = document.createElement("tr");
  made.append(...texts.map((text) => Object.assign(document.createElement(tag), { textContent: text })));
  return made;
}
