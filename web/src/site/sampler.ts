// Chooses tokens from logits: logit bias, repetition, frequency and presence penalty, temperature, top-k, top-p, min-p, in the order of
// crates/engine/src/sampler.rs.

import { invalid } from "../core/failure";

/** How tokens are chosen. A temperature of 0 always takes the most likely one. */
export interface Sampling {
  temperature: number;
  top_k?: number | undefined;
  top_p?: number | undefined;
  min_p?: number | undefined;
  /** Makes tokens that are in the text already less likely if above 1. */
  repetition_penalty?: number | undefined;
  /** Taken off the logit of each token that was chosen already. */
  presence_penalty?: number | undefined;
  /** Likewise, times how often it was chosen. */
  frequency_penalty?: number | undefined;
  /** Added to the logits of these tokens. */
  logit_bias?: Record<string, number> | undefined;
  seed: number;
}

/** Bounds of the fields, and how they are told. */
const BOUNDS: [name: keyof Sampling, fits: (value: number) => boolean, range: string][] = [
  ["temperature", (v) => v >= 0 && v <= 1e4, "from 0 to 10000"],
  ["top_k", (v) => Number.isInteger(v) && v > 0, "a whole number from 1 on"],
  ["top_p", (v) => v > 0 && v <= 1, "above 0 and at most 1"],
  ["min_p", (v) => v >= 0 && v <= 1, "from 0 to 1"],
  ["repetition_penalty", (v) => v >= 0.01 && v <= 100, "from 0.01 to 100"],
  ["presence_penalty", (v) => v >= -2 && v <= 2, "from -2 to 2"],
  ["frequency_penalty", (v) => v >= -2 && v <= 2, "from -2 to 2"],
];

/** See the file. */
export class Sampler {
  private state: number;
  /** How often each token was chosen. */
  private readonly chosen = new Map<number, number>();
  private readonly bias: [id: number, bias: number][];

  constructor(private readonly sampling: Sampling) {
    for (const [name, fits, range] of BOUNDS) {
      const value = sampling[name];
      if (value !== undefined && !(typeof value === "number" && fits(value))) throw invalid(`\`${name}\` must be ${range}, found ${String(value)}`);
    }
    this.bias = Object.entries(sampling.logit_bias ?? {}).map(([id, bias]) => [Number(id), bias]);
    for (const [id, bias] of this.bias) {
      if (!Number.isInteger(id) || id < 0) throw invalid("`logit_bias` takes token ids as keys");
      if (!(bias >= -100 && bias <= 100)) throw invalid(`\`logit_bias\` must be from -100 to 100, found ${bias}`);
    }
    this.state = sampling.seed >>> 0;
  }

  /** Whether the most likely token is taken as it is, so that the device can choose it. */
  get greedy(): boolean {
    const { temperature, repetition_penalty, presence_penalty, frequency_penalty } = this.sampling;
    return temperature === 0 && this.bias.length === 0 && [repetition_penalty, presence_penalty, frequency_penalty].every((p) => p === undefined);
  }

  /** The next token after the text `history`. Fails on a logit that is NaN or +infinity; -infinity means never. */
  sample(logits: Float32Array, history: number[] = []): number {
    const id = this.choose(this.penalised(logits, history));
    this.chosen.set(id, (this.chosen.get(id) ?? 0) + 1);
    return id;
  }

  /** The logits with bias and penalties. */
  private penalised(given: Float32Array, history: number[]): Float64Array {
    given.forEach((logit, id) => {
      if (Number.isNaN(logit) || logit === Infinity) throw invalid(`the logit of token ${id} is ${logit}, expected a finite number`);
    });
    const logits = Float64Array.from(given);
    for (const [id, bias] of this.bias) if (id < logits.length) logits[id]! += bias;
    const { repetition_penalty: repetition, presence_penalty: presence, frequency_penalty: frequency } = this.sampling;
    if (repetition !== undefined) {
      for (const id of new Set(history)) {
        const logit = logits[id] ?? 0;
        if (id < logits.length) logits[id] = logit > 0 ? logit / repetition : logit * repetition;
      }
    }
    if (presence !== undefined || frequency !== undefined) {
      for (const [id, count] of this.chosen) logits[id]! -= (frequency ?? 0) * count + (presence ?? 0);
    }
    return logits;
  }

  private choose(logits: Float64Array): number {
    const { temperature, top_k = Infinity, top_p = 1, min_p = 0 } = this.sampling;
    let [best, first] = [-Infinity, -1];
    logits.forEach((logit, id) => {
      if (logit > best) [best, first] = [logit, id];
    });
    if (first < 0) throw invalid("no token has a logit above -infinity");
    if (temperature === 0) return first;
    let likely = Array.from(logits, (logit, id) => ({ id, p: Math.exp((logit - best) / temperature) })).filter(({ p }) => p > 0);
    if (top_k < likely.length || top_p < 1) {
      likely.sort((a, b) => b.p - a.p || a.id - b.id);
      likely = likely.slice(0, top_k);
      const enough = top_p * likely.reduce((sum, { p }) => sum + p, 0);
      let sum = 0;
      likely = likely.filter(({ p }) => {
        const needed = sum < enough;
        sum += p;
        return needed;
      });
    }
    // The most likely token has 1.
    likely = likely.filter(({ p }) => p >= min_p);
    let left = this.unit() * likely.reduce((sum, { p }) => sum + p, 0);
    return (likely.find(({ p }) => (left -= p) < 0) ?? likely.at(-1)!).id;
  }

  /** A number from 0 to 1, 1 excluded: two words of SplitMix32. */
  private unit(): number {
    const word = (): number => {
      this.state = (this.state + 0x9e3779b9) >>> 0;
      let z = this.state;
      z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
      return (z ^ (z >>> 15)) >>> 0;
    };
    return ((word() >>> 5) * 2 ** 26 + (word() >>> 6)) / 2 ** 53;
  }
}
