// The API of a page: shaped as OpenAI's. `const engine = await Engine.load("./"); await engine.chat.completions.create({ … })`.

import { Failure } from "../core/failure";
import { browserName } from "../page/browser";
import { ErrorKind } from "../wire/gen/tapml_pb";
import type { ChatChunk, ChatCompletion, ChatRequest, CheckReport, Completion, CompletionRequest, Creates, Envelope, Facts, LoadOptions, Usage } from "./api";
import { asksForForm, FORMS } from "./form";
import { Host, type Answer, type Ask, type Task, type Wish, type Written } from "./host";

/** The name of workers that are hosts. */
export const WORKER = "tapml engine";

const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "seed"] as const;
const FIELDS = new Set<string>([..."model stream max_tokens max_completion_tokens stop chat_template_kwargs messages prompt".split(" "), ...SAMPLING, ...FORMS]);

/** Fields of OpenAI's that some would expect here, and what there is instead. */
const ELSEWHERE: Record<string, string> = {
  tools: "a site calls no tools: `tapml serve` does",
  tool_choice: "a site calls no tools: `tapml serve` does",
  logprobs: "`tapml serve` tells probabilities",
  n: "ask several times, each with a `seed`",
};

/** A model on this device. */
export class Engine {
  /** Chats, of models with a chat template. */
  readonly chat: { completions: Creates<ChatRequest, ChatCompletion, ChatChunk> };
  /** Texts that are gone on with. */
  readonly completions: Creates<CompletionRequest, Completion, Completion>;
  /** The model, the device, and what runs there. */
  facts!: Facts;
  private readonly waiting = new Map<number, (answer: Answer) => void>();
  private next = 0;

  private constructor(private readonly send: (ask: Ask) => void, private readonly end: () => void) {
    const role = "assistant" as const;
    this.chat = {
      completions: this.creates<ChatRequest, { message: { role: "assistant"; content: string } }, { delta: object }>(
        "chat.completion",
        "chat.completion.chunk",
        (content) => ({ message: { role, content } }),
        (content, first) => ({ delta: { ...(first ? { role } : {}), ...(content === undefined ? {} : { content }) } }),
      ),
    };
    const text = (of: string | undefined): { text: string } => ({ text: of ?? "" });
    this.completions = this.creates<CompletionRequest, { text: string }, { text: string }>("text_completion", "text_completion", text, text);
  }

  /** Loads the site of a folder: this module's own, if none is given. */
  static async load(site: string | URL = "./", options: LoadOptions = {}): Promise<Engine> {
    let engine: Engine;
    const take = (answer: Answer): void => engine.waiting.get(answer.id)?.(answer);
    if (options.gpu) {
      const host = new Host(options.gpu as GPU, take);
      engine = new Engine((ask) => host.take(ask), () => host.device?.destroy());
    } else {
      const worker = options.worker ?? new Worker(import.meta.url, { type: "module", name: WORKER });
      engine = new Engine((ask) => worker.postMessage(ask), () => worker.terminate());
      worker.onmessage = (event: MessageEvent<Answer>) => take(event.data);
      worker.onerror = (event) => {
        for (const id of engine.waiting.keys()) take({ id, case: "failed", message: event.message || "the worker does not start", hint: "" });
      };
    }
    const browser = globalThis.navigator?.userAgent ? await browserName() : "Node";
    const base = new URL(site, globalThis.document?.baseURI ?? import.meta.url).href;
    try {
      await engine.open(base, browser, options);
    } catch (thrown) {
      engine.close();
      throw thrown;
    }
    return engine;
  }

  private async open(site: string, browser: string, { onPlan, onProgress }: LoadOptions): Promise<void> {
    for await (const answer of this.answers({ do: "open", site, browser })) {
      if (answer.case !== "opened" || (await onPlan?.(answer.plan)) !== false) continue;
      throw new Failure(ErrorKind.UNAVAILABLE, "the weights were not loaded: `onPlan` said no");
    }
    for await (const answer of this.answers({ do: "load" })) {
      if (answer.case === "progress") onProgress?.(answer.bytes, answer.total);
      else if (answer.case === "loaded") this.facts = answer.facts;
    }
  }

  /**
   * Checks the device by the recorded calls of the site, each by the kernels that the site runs. The report is that of `tapml check`;
   * `tapml device reports` reads it. The next text is begun anew.
   */
  async check(onProgress?: (done: number, of: number) => void): Promise<CheckReport> {
    for await (const answer of this.answers({ do: "check" })) {
      if (answer.case === "progress") onProgress?.(answer.bytes, answer.total);
      else if (answer.case === "checked") return answer.report;
    }
    throw new Failure(ErrorKind.BUG, "the check gave no report");
  }

  /** Gives the device back. */
  close(): void {
    this.end();
  }

  /** Answers to a request until the last one; leaving the loop stops the work. */
  private async *answers(ask: Task): AsyncGenerator<Answer> {
    const id = ++this.next;
    const inbox: Answer[] = [];
    let wake = (): void => {};
    this.waiting.set(id, (answer) => {
      inbox.push(answer);
      wake();
    });
    let over = false;
    try {
      this.send({ id, ...ask });
      while (!over) {
        const answer = inbox.shift();
        if (!answer) {
          await new Promise<void>((done) => (wake = done));
          continue;
        }
        over = answer.case !== "progress" && answer.case !== "piece";
        if (answer.case === "failed") throw new Failure(ErrorKind.UNAVAILABLE, answer.message).hinted(answer.hint);
        yield answer;
      }
    } finally {
      this.waiting.delete(id);
      if (!over) this.send({ id, do: "stop" });
    }
  }

  private creates<R extends ChatRequest | CompletionRequest, Whole, Part>(
    object: string,
    chunk: string,
    whole: (text: string) => Whole,
    part: (text: string | undefined, first: boolean) => Part,
  ): Creates<R, Envelope<Whole>, Envelope<Part>> {
    const create = async (request: R): Promise<Envelope<Whole> | AsyncIterable<Envelope<Part>>> => {
      const answers = this.answers({ do: "write", wish: wishOf(request) });
      const head = { id: crypto.randomUUID(), created: Math.floor(Date.now() / 1000), model: this.facts.model };
      const made = <C>(kind: string, choice: C, written?: Written): Envelope<C> => {
        return { ...head, object: kind, choices: [{ index: 0, ...choice, finish_reason: written?.finish ?? null }], ...tail(written) };
      };
      if (request.stream) {
        return (async function* () {
          let first = true;
          for await (const answer of answers) {
            if (answer.case === "piece") yield made(chunk, part(answer.text, first));
            else if (answer.case === "written") yield made(chunk, part(undefined, first), answer.written);
            first = false;
          }
        })();
      }
      let text = "";
      let written: Written | undefined;
      for await (const answer of answers) {
        if (answer.case === "piece") text += answer.text;
        else if (answer.case === "written") written = answer.written;
      }
      return made(object, whole(text), written);
    };
    return { create } as Creates<R, Envelope<Whole>, Envelope<Part>>;
  }
}

function tail(written: Written | undefined): { usage?: Usage; tapml?: { ids: number[]; reopened: number } } {
  if (!written) return {};
  const { prompt_tokens, completion_tokens, cached_tokens, ids, reopened } = written;
  const total_tokens = prompt_tokens + completion_tokens;
  return { usage: { prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details: { cached_tokens } }, tapml: { ids, reopened } };
}

/** The request without what only the page needs. Fields that would be passed over in silence are refused. */
function wishOf(request: ChatRequest | CompletionRequest): Wish {
  // Some clients send `null` for what is not asked for.
  const unknown = Object.entries(request).find(([key, value]) => !FIELDS.has(key) && (value ?? undefined) !== undefined)?.[0];
  if (unknown !== undefined) {
    throw new Failure(ErrorKind.UNSUPPORTED, `\`${unknown}\` is not taken here`).hinted(ELSEWHERE[unknown] ?? `fields: ${[...FIELDS].join(", ")}`);
  }
  const { max_tokens, max_completion_tokens, stop = [], chat_template_kwargs } = request;
  const text = "messages" in request ? { messages: request.messages } : { prompt: request.prompt };
  // Unset fields are sent as `null` by some clients.
  const sampling = Object.fromEntries(SAMPLING.map((key) => [key, request[key] ?? undefined]));
  const form = Object.fromEntries(FORMS.map((key) => [key, request[key]]));
  const shared = { sampling, template_options: chat_template_kwargs, form: asksForForm(form) ? form : undefined };
  return { ...text, ...shared, max_tokens: max_completion_tokens ?? max_tokens, stop: typeof stop === "string" ? [stop] : stop };
}
