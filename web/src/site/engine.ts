// The API of a page: shaped as OpenAI's. `const engine = await Engine.load("./"); await engine.chat.completions.create({ … })`.

import { Failure } from "../core/failure";
import { browserName } from "../page/browser";
import { ErrorKind } from "../wire/gen/tapml_pb";
import { Host, type Answer, type Ask, type Facts, type Wish, type Written } from "./host";
import type { Message } from "./text";

/** The name of workers that are hosts. */
export const WORKER = "tapml engine";

/** How a site is loaded. */
export interface LoadOptions {
  /** Bytes of the weights that are on the device, of all. */
  onProgress?: (bytes: number, total: number) => void;
  /** A WebGPU to use in this thread, with no worker: Node's Dawn. */
  gpu?: GPU;
}

/** Fields of OpenAI's requests that are taken; others are refused. */
interface Request {
  model?: string;
  stream?: boolean;
  max_tokens?: number;
  max_completion_tokens?: number;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  seed?: number;
  stop?: string | string[];
  chat_template_kwargs?: object;
}
export type ChatRequest = Request & { messages: Message[] };
export type CompletionRequest = Request & { prompt: string };

const FIELDS = new Set("model stream max_tokens max_completion_tokens temperature top_p top_k seed stop chat_template_kwargs messages prompt".split(" "));

interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

/** An answer, or a piece of one; `tapml` tells more of the whole. */
interface Envelope<Choice> {
  id: string;
  object: string;
  created: number;
  model: string;
  choices: (Choice & { index: number; finish_reason: string | null })[];
  usage?: Usage;
  tapml?: { ids: number[]; reopened: number };
}
export type ChatCompletion = Envelope<{ message: { role: "assistant"; content: string } }>;
export type ChatChunk = Envelope<{ delta: { role?: "assistant"; content?: string } }>;
export type Completion = Envelope<{ text: string }>;

interface Creates<R, Whole, Chunk> {
  create(request: R & { stream: true }): Promise<AsyncIterable<Chunk>>;
  create(request: R & { stream?: false }): Promise<Whole>;
}

/** See the file. */
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
      const host = new Host(options.gpu, take);
      engine = new Engine((ask) => host.take(ask), () => host.device?.destroy());
    } else {
      const worker = new Worker(import.meta.url, { type: "module", name: WORKER });
      engine = new Engine((ask) => worker.postMessage(ask), () => worker.terminate());
      worker.onmessage = (event: MessageEvent<Answer>) => take(event.data);
      worker.onerror = (event) => {
        for (const id of engine.waiting.keys()) take({ id, case: "failed", message: event.message || "the worker does not start", hint: "" });
      };
    }
    const browser = globalThis.navigator?.userAgent ? await browserName() : "Node";
    const base = new URL(site, globalThis.document?.baseURI ?? import.meta.url).href;
    for await (const answer of engine.answers({ do: "load", site: base, browser })) {
      if (answer.case === "progress") options.onProgress?.(answer.bytes, answer.total);
      else if (answer.case === "loaded") engine.facts = answer.facts;
    }
    return engine;
  }

  /** Gives the device back. */
  close(): void {
    this.end();
  }

  /** Answers to a request until the last one; leaving the loop stops the work. */
  private async *answers(ask: { do: "load"; site: string; browser: string } | { do: "write"; wish: Wish }): AsyncGenerator<Answer> {
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
        over = answer.case === "failed" || answer.case === "loaded" || answer.case === "written";
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
  const unknown = Object.keys(request).find((key) => !FIELDS.has(key));
  if (unknown !== undefined) {
    throw new Failure(ErrorKind.UNSUPPORTED, `\`${unknown}\` is not taken here`).hinted(`fields: ${[...FIELDS].join(", ")}`);
  }
  const { max_tokens, max_completion_tokens, temperature, top_p, top_k, seed, stop = [], chat_template_kwargs } = request;
  const text = "messages" in request ? { messages: request.messages } : { prompt: request.prompt };
  const shared = { temperature, top_p, top_k, seed, template_options: chat_template_kwargs };
  return { ...text, ...shared, max_tokens: max_completion_tokens ?? max_tokens, stop: typeof stop === "string" ? [stop] : stop };
}
