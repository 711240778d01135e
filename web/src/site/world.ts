// The vocabulary of RWKV's World models, as crates/engine/src/vocabulary/world.rs: of all tokens that a text begins with the longest, and so
// on behind that.

/** What stands as the model in a `tokenizer.json` of such a vocabulary. */
export interface WorldModel {
  type: "World";
  /** The id that ends a text. */
  end: number;
  /** Ids, with the bytes of the tokens as characters up to U+00FF. */
  tokens: [id: number, bytes: string][];
  /** Texts that stand for the end of a text. */
  ends: string[];
}

/** See the file. */
export class World {
  private readonly ids = new Map<string, number>();
  private readonly bytes = new Map<number, string>();
  /** Bytes of the longest token with each first byte. */
  private readonly longest = new Map<string, number>();

  constructor(private readonly model: WorldModel) {
    for (const [id, bytes] of model.tokens) {
      this.ids.set(bytes, id);
      this.bytes.set(id, bytes);
      this.longest.set(bytes[0]!, Math.max(bytes.length, this.longest.get(bytes[0]!) ?? 0));
    }
  }

  encode(text: string): number[] {
    const ids: number[] = [];
    for (let rest = text; ; ) {
      const found = this.model.ends.map((end) => [rest.indexOf(end), end.length] as const).filter(([at]) => at >= 0);
      const [at, length] = found.sort((a, b) => a[0] - b[0] || a[1] - b[1])[0] ?? [rest.length, 0];
      this.cut(rest.slice(0, at), ids);
      if (length === 0) return ids;
      ids.push(this.model.end);
      rest = rest.slice(at + length);
    }
  }

  /** Ids without a token have no text; bytes that are no UTF-8 become U+FFFD. */
  decode(ids: number[]): string {
    const bytes = ids.map((id) => this.bytes.get(id) ?? "").join("");
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes, (c) => c.charCodeAt(0)));
  }

  private cut(text: string, ids: number[]): void {
    const bytes = Array.from(new TextEncoder().encode(text), (b) => String.fromCharCode(b)).join("");
    for (let at = 0; at < bytes.length; ) {
      // Every single byte is a token.
      let length = this.longest.get(bytes[at]!) ?? 1;
      while (length > 1 && !this.ids.has(bytes.slice(at, at + length))) length--;
      ids.push(this.ids.get(bytes.slice(at, at + length))!);
      at += length;
    }
  }
}
