// Answers of a form that is enforced: the module that crates/constraint is built to, and the bytes of the model's tokens. Both are loaded
// when a request asks for a form.

import { invalid, messageOf, unsupported } from "../core/failure";
import type { Files } from "./files";
import type { Manifest } from "./manifest";

/** Fields that ask for a form, as `FORM_FIELDS` of crates/constraint lists them. */
export const FORMS = [
  "response_format",
  "structured_outputs",
  "guided_json",
  "guided_regex",
  "guided_choice",
  "guided_grammar",
  "json_schema",
  "grammar",
  "regex",
  "ebnf",
] as const;

/** Values of these fields. */
export type FormFields = { [key in (typeof FORMS)[number]]?: unknown };

/** Whether a request asks for a form, as far as that is seen without the module. */
export function asksForForm(fields: FormFields): boolean {
  return Object.entries(fields).some(([name, value]) => {
    const free = name === "response_format" && (value as { type?: unknown } | null)?.type === "text";
    return value !== null && value !== undefined && !free;
  });
}

/** What the module exports: crates/constraint/src/exports.rs. */
interface Exports {
  memory: WebAssembly.Memory;
  input(bytes: number): number;
  open(): number;
  begin(): number;
  fill(): number;
  accept(id: number): number;
  failure(): number;
  failure_bytes(): number;
}

/** The module with the vocabulary of a site. */
export class Forms {
  private constructor(private readonly exports: Exports) {}

  /** Loads both files, which are compared with their hashes as all others. */
  static async open(site: Manifest, files: Files): Promise<Forms> {
    if (!site.form) throw unsupported("the site has nothing to force a form on answers with").hinted("compile the model again");
    const module = await WebAssembly.compile((await files.get(site.form.module)) as Uint8Array<ArrayBuffer>).catch((thrown: unknown) => {
      throw unsupported(`this browser does not take the module that forces forms on answers: ${messageOf(thrown)}`).hinted(
        "let the page's Content-Security-Policy have `wasm-unsafe-eval`",
      );
    });
    const { exports } = await WebAssembly.instantiate(module, { env: { now: () => performance.now() } });
    const forms = new Forms(exports as unknown as Exports);
    forms.give(await files.get(site.form.vocabulary));
    forms.call(() => forms.exports.open());
    return forms;
  }

  /** The form that the fields of a request ask for; the text before it is done with. */
  begin(fields: FormFields): Form | undefined {
    this.give(new TextEncoder().encode(JSON.stringify(fields)));
    return this.call(() => this.exports.begin()) === 1 ? new Form(this, this.exports) : undefined;
  }

  /** Whether the module broke, and is to be loaded again. */
  broken = false;

  /** What a function gives, unless it failed. */
  call(run: () => number): number {
    let found: number;
    try {
      found = run();
    } catch (thrown) {
      // Whatever it was about to do is half done.
      this.broken = true;
      throw invalid(`the form of the answer cannot be enforced: ${messageOf(thrown)}`).hinted("mend or simplify the schema or grammar");
    }
    if (found >= 0) return found;
    const { memory, failure, failure_bytes } = this.exports;
    const bytes = new Uint8Array(memory.buffer, failure(), failure_bytes());
    const { message, hint } = JSON.parse(new TextDecoder().decode(bytes)) as { message: string; hint: string };
    throw invalid(message).hinted(hint);
  }

  private give(bytes: Uint8Array): void {
    const at = this.call(() => this.exports.input(bytes.length));
    if (at === 0) throw invalid(`${bytes.length} bytes are too many for the form of an answer`);
    new Uint8Array(this.exports.memory.buffer, at, bytes.length).set(bytes);
  }
}

/** Says of one text which tokens may follow. */
export class Form {
  constructor(private readonly forms: Forms, private readonly exports: Exports) {}

  /** Takes the tokens that the form does not allow next out of the choice. */
  apply(logits: Float32Array): void {
    const at = this.forms.call(() => this.exports.fill());
    const words = new Uint32Array(this.exports.memory.buffer, at, Math.ceil(logits.length / 32));
    for (let id = 0; id < logits.length; id++) {
      if (((words[id >>> 5]! >>> (id & 31)) & 1) === 0) logits[id] = -Infinity;
    }
  }

  /** Takes the token that was chosen. Whether the text is complete and ends with it. */
  accept(id: number): boolean {
    return this.forms.call(() => this.exports.accept(id)) === 1;
  }
}
