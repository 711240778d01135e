// Messages to token ids, and ids back to text while they come (as crates/engine/src/stream.rs and stop.rs).

import { Template } from "@huggingface/jinja";
import { Tokenizer } from "@huggingface/tokenizers";
import { failureOf, invalid } from "../core/failure";
import type { TextSettings } from "./manifest";
import type { PlainMessage } from "./vision";
import { World, type WorldModel } from "./world";

/** What cuts texts. */
interface Tokens {
  /** `special` puts the tokenizer's own tokens around the text. */
  encode(text: string, special: boolean): number[];
  decode(ids: number[]): string;
}

/** The tokenizer of a `tokenizer.json`. */
function tokensOf(json: { model?: { type?: string } }): Tokens {
  if (json.model?.type === "World") return new World(json.model as WorldModel);
  const tokenizer = new Tokenizer(json, {});
  keepMarks(tokenizer.decoder as ByteDecoder | null);
  return {
    encode: (text, special) => [...tokenizer.encode(text, { add_special_tokens: special }).ids],
    decode: (ids) => tokenizer.decode(ids, { skip_special_tokens: true, clean_up_tokenization_spaces: false }),
  };
}

/** See the file. */
export class Text {
  private readonly tokenizer: Tokens;
  private readonly template: Template | undefined;

  constructor(json: Uint8Array, private readonly settings: TextSettings) {
    this.tokenizer = tokensOf(JSON.parse(new TextDecoder().decode(json)) as { model?: { type?: string } });
    this.template = settings.template === null ? undefined : new Template(settings.template);
  }

  /** The ids of a text, with the special tokens that the checkpoint puts around it. */
  encode(text: string): number[] {
    const ids = this.tokenizer.encode(text, true);
    const { add_bos, add_eos } = this.settings;
    if (add_bos !== null && ids[0] !== add_bos) ids.unshift(add_bos);
    if (add_eos !== null && ids.at(-1) !== add_eos) ids.push(add_eos);
    return ids;
  }

  /** The ids of a chat that the assistant is to answer. */
  chat(messages: PlainMessage[], options: object = {}): number[] {
    if (!this.template) {
      throw invalid("the model has no chat template").hinted("it goes on with a text: use `completions.create({ prompt })`");
    }
    try {
      const prompt = this.template.render({ ...options, ...this.settings.special, messages, tools: null, documents: null, add_generation_prompt: true });
      return this.tokenizer.encode(prompt, false);
    } catch (thrown) {
      throw failureOf(thrown).within("the chat template");
    }
  }

  /** The text of ids without special tokens; bytes that are no UTF-8 become U+FFFD. */
  decode(ids: number[]): string {
    return ids.length === 0 ? "" : this.tokenizer.decode(ids);
  }
}

/** A decoder of the library, as far as it is looked into. */
interface ByteDecoder {
  text_decoder?: TextDecoder;
  decoders?: ByteDecoder[];
}

/** Lets decoders of bytes keep U+FEFF at the beginning of what they decode: a text has it only if the model wrote it. */
function keepMarks(decoder: ByteDecoder | null): void {
  if (decoder?.text_decoder) decoder.text_decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  decoder?.decoders?.forEach(keepMarks);
}

/** Marks at the end of a text that are held back, because more tokens may turn them into characters. */
const MOST_OPEN = 64;

/** Tokens without text that are kept. All of a longer run, such as of special tokens, would be decoded again with every token. */
const MOST_SILENT = 16;

/** Decodes tokens as they come, giving out only whole characters. */
export class TextStream {
  /** The ids of the piece before, then those that are not given out yet. */
  private ids: number[] = [];
  private before = 0;
  private given = 0;

  constructor(private readonly decode: (ids: number[]) => string) {}

  /** Adds a token; gives the text that is complete now. */
  push(id: number): string {
    this.ids.push(id);
    const text = this.pending();
    const marks = /\ufffd*$/.exec(text)![0].length;
    const settled = text.length - Math.min(marks, MOST_OPEN);
    const piece = text.slice(this.given, settled);
    this.given = Math.max(this.given, settled);
    if (settled === text.length && text !== "") {
      this.ids.splice(0, this.before);
      this.before = this.ids.length;
      this.given = 0;
    } else if (text === "" && this.ids.length - this.before > MOST_SILENT) this.ids.splice(this.before, 1);
    return piece;
  }

  /** What is left. */
  finish(): string {
    return this.pending().slice(this.given);
  }

  /** The text of the pending ids behind the piece before them. */
  private pending(): string {
    const known = this.decode(this.ids.slice(0, this.before));
    const all = this.decode(this.ids);
    let same = 0;
    while (same < known.length && known[same] === all[same]) same++;
    return all.slice(same);
  }
}

/** Lets text through until a stop text appears, and holds back what may become one. */
export class StopTexts {
  found = false;
  private held = "";

  constructor(private readonly stops: string[]) {}

  push(text: string): string {
    if (this.found) return "";
    this.held += text;
    const ends = this.stops.map((s) => [this.held.indexOf(s), s.length] as const).filter(([at]) => at >= 0);
    const first = ends.sort((a, b) => a[0] + a[1] - b[0] - b[1] || a[0] - b[0])[0];
    if (first) {
      this.found = true;
      return this.take(first[0]);
    }
    const overlap = (stop: string): number => {
      let n = Math.min(stop.length, this.held.length);
      while (!this.held.endsWith(stop.slice(0, n))) n--;
      return n;
    };
    return this.take(this.held.length - Math.max(0, ...this.stops.map(overlap)));
  }

  /** What is held back when the text ends without a stop. */
  finish(): string {
    return this.found ? "" : this.held;
  }

  private take(count: number): string {
    const taken = this.held.slice(0, count);
    this.held = this.held.slice(count);
    return taken;
  }
}
