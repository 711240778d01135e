// What owns the device: loads a site and answers requests, one after the other. It runs in a worker, or in the thread of whoever
// asks (Node).

import { failureOf, invalid, unsupported } from "../core/failure";
import type { CheckReport, Facts, Message, Plan } from "./api";
import { check } from "./check";
import { Files } from "./files";
import { Forms, type Form, type FormFields } from "./form";
import { parseManifest } from "./manifest";
import { Model } from "./model";
import { Sampler, type Sampling } from "./sampler";
import { openStore } from "./store";
import { StopTexts, Text, TextStream } from "./text";
import { placeImages, prepareMessages, readImages, readMessages, type Prompt } from "./vision";

/** What is to be written. */
export interface Wish {
  /** Of a chat, or the text that is gone on with. */
  messages?: Message[];
  prompt?: string;
  max_tokens?: number | undefined;
  /** How tokens are chosen, as far as the request says. */
  sampling: { [key in keyof Sampling]?: Sampling[key] | undefined };
  stop?: string[];
  /** Further variables of the chat template. */
  template_options?: object | undefined;
  /** The form that the answer must have, as the request says. */
  form?: FormFields | undefined;
}

/** From the page. */
export type Task = { do: "open"; site: string; browser: string } | { do: "load" } | { do: "write"; wish: Wish } | { do: "check" } | { do: "stop" } | { do: "close" };
export type Ask = { id: number } & Task;

/** Why a text ended, and what it took. */
export interface Written {
  finish: "stop" | "length";
  prompt_tokens: number;
  completion_tokens: number;
  /** Tokens of the prompt that the states held already. */
  cached_tokens: number;
  /** Times that the device was lost and opened again, since the site was loaded. */
  reopened: number;
  ids: number[];
}

/** To the page. */
export type Answer = { id: number } & (
  | { case: "progress"; bytes: number; total: number }
  | { case: "opened"; plan: Plan }
  | { case: "loaded"; facts: Facts }
  | { case: "checked"; report: CheckReport }
  | { case: "piece"; text: string }
  | { case: "written"; written: Written }
  | { case: "failed"; message: string; hint: string }
);

/** A text that is being written behind a prompt, of which some tokens are fed; at most `most` more. */
interface Writing {
  model: Model;
  prompt: number[];
  cached: number;
  most: number;
  wish: Wish;
  form: Form | undefined;
}

/** See the file. */
export class Host {
  private model: Model | undefined;
  private files: Files | undefined;
  /** The request that is told of progress. */
  private teller = 0;
  private text: Text | undefined;
  private forms: Forms | undefined;
  private generation = { temperature: null, top_k: null, top_p: null } as { [key in "temperature" | "top_k" | "top_p"]: number | null };
  private stop: number[] = [];
  private context = 0;
  private readonly stopped = new Set<number>();
  /** What is under way; requests wait for those before them. */
  private last: Promise<void> = Promise.resolve();

  constructor(private readonly api: GPU | undefined, private readonly send: (answer: Answer) => void) {}

  /** Takes a request. */
  take(ask: Ask): void {
    if (ask.do === "stop") {
      this.stopped.add(ask.id);
      return;
    }
    this.last = this.last.then(() => this.answer(ask)).catch((thrown: unknown) => {
      const { message, hint } = failureOf(thrown);
      this.send({ id: ask.id, case: "failed", message, hint });
    });
  }

  /** The device, for tests that take it away. */
  get device(): GPUDevice | undefined {
    return this.model?.raw;
  }

  private async answer(ask: Ask): Promise<void> {
    const { id } = ask;
    if (ask.do === "open") await this.open(id, new URL(ask.site), ask.browser);
    else if (ask.do === "load") await this.load(id);
    else if (ask.do === "close") this.model?.close();
    else if (ask.do === "write") await this.write(id, ask.wish);
    else if (ask.do === "check") {
      const [model, files] = this.opened();
      const tell = (bytes: number, total: number): void => this.send({ id, case: "progress", bytes, total });
      this.send({ id, case: "checked", report: await check(model, files, tell) });
    }
  }

  /** Gets everything but the weights. */
  private async open(id: number, base: URL, browser: string): Promise<void> {
    if (!this.api) throw invalid("this browser has no WebGPU").hinted("take a newer one, and https:// or this very machine as the address");
    const files = (this.files = new Files(base, await openStore(base)));
    const site = parseManifest(await files.text("site.json"));
    const total = site.weights.bytes;
    const tell = (bytes: number): void => this.send({ id: this.teller, case: "progress", bytes, total });
    this.text = new Text(await files.get(site.tokenizer), site.text);
    this.model = await Model.open({ api: this.api, site, files, browser, tell });
    [this.generation, this.stop, this.context] = [site.generation, site.text.stop, site.context];
    this.send({ id, case: "opened", plan: await this.model.plan() });
  }

  private opened(): [Model, Files] {
    if (!this.model || !this.files) throw invalid("no site is loaded");
    return [this.model, this.files];
  }

  private async load(id: number): Promise<void> {
    const [model, files] = this.opened();
    this.teller = id;
    await model.load();
    const { site } = model;
    const rows = model.programs.flatMap((program) => program.steps).flatMap((step) => ("dispatch" in step ? [step.dispatch.row] : []));
    const facts = {
      model: site.model,
      tapml: site.tapml,
      device: model.device,
      program: model.entry.file,
      chat: site.text.template !== null,
      sees: site.image !== undefined && site.text.template !== null,
      context: site.context,
      rows: [...new Set(rows)].sort(),
      downloaded: files.downloaded,
      kept: files.notKept === "" ? `kept in ${files.store!.where}` : `not kept: ${files.notKept}`,
      calls: model.entry.suite?.count ?? 0,
    };
    this.send({ id, case: "loaded", facts });
  }

  /** The form of an answer, if one is wanted. */
  private async form(fields: FormFields | undefined): Promise<Form | undefined> {
    if (!fields) return undefined;
    const [model, files] = this.opened();
    if (!this.forms || this.forms.broken) this.forms = await Forms.open(model.site, files);
    return this.forms.begin(fields);
  }

  private async write(id: number, wish: Wish): Promise<void> {
    const { model, text } = this;
    if (!model || !text) throw invalid("no site is loaded");
    const asked = await this.prompt(model, text, wish);
    const prompt = asked.ids;
    if (prompt.length === 0) throw invalid("the prompt has no tokens");
    if (prompt.length > this.context) throw invalid(`the prompt has ${prompt.length} tokens, the context holds ${this.context}`).hinted("shorten it");
    const stream = new TextStream((ids) => text.decode(ids));
    const stops = new StopTexts((wish.stop ?? []).filter((s) => s !== ""));
    const piece = (more: string): void => {
      if (more !== "") this.send({ id, case: "piece", text: more });
    };
    const form = await this.form(wish.form);
    const cached = await model.keep(asked);
    const most = Math.min(wish.max_tokens ?? Infinity, this.context + 1 - prompt.length);
    const ids: number[] = [];
    let finish: Written["finish"] = "length";
    for await (const token of this.tokens({ model, prompt, cached, most, wish, form })) {
      ids.push(token);
      piece(stops.push(stream.push(token)));
      if (this.stop.includes(token) || form?.accept(token) || stops.found || this.stopped.delete(id)) {
        finish = "stop";
        break;
      }
    }
    piece(stops.push(stream.finish()) + stops.finish());
    const counts = { prompt_tokens: prompt.length, completion_tokens: ids.length, cached_tokens: cached };
    this.send({ id, case: "written", written: { finish, ...counts, reopened: model.reopened, ids } });
  }

  /** The tokens of a request, and its images. */
  private async prompt(model: Model, text: Text, wish: Wish): Promise<Prompt> {
    if (!wish.messages) return { ids: text.encode(wish.prompt ?? ""), images: [] };
    const { messages, pictures } = readMessages(wish.messages);
    const { image, context } = model.site;
    if (!image) {
      if (pictures.length > 0) throw unsupported(`the model ${model.site.model} takes no images`).hinted("send text alone, or compile a model that sees");
      return { ids: text.chat(messages, wish.template_options), images: [] };
    }
    const { ids, starts } = placeImages(text.chat(prepareMessages(messages, image), wish.template_options), pictures.length, image, context);
    return { ids, images: await readImages(pictures, starts, image) };
  }

  /** The tokens behind a prompt, of which some are fed. */
  private async *tokens({ model, prompt, cached, most, wish, form }: Writing): AsyncGenerator<number> {
    const of = this.generation;
    const seed = Math.floor(Math.random() * 2 ** 32);
    const checkpoint = { temperature: of.temperature ?? 0, top_k: of.top_k ?? undefined, top_p: of.top_p ?? undefined };
    const asked = Object.fromEntries(Object.entries(wish.sampling).filter(([, value]) => value !== undefined));
    const sampler = new Sampler({ seed, ...checkpoint, ...asked });
    if (most < 1) return;
    const history = [...prompt];
    const onDevice = sampler.greedy && !form;
    const choose = async (ids: number[]): Promise<number> => {
      if (onDevice) return model.next(ids);
      const logits = await model.logits(ids);
      form?.apply(logits);
      const token = sampler.sample(logits, history);
      history.push(token);
      return token;
    };
    let token = await choose(prompt.slice(cached));
    yield token;
    if (onDevice) {
      for await (const found of model.follow(token, most - 1)) yield* found;
      return;
    }
    for (let made = 1; made < most; made++) yield (token = await choose([token]));
  }
}
