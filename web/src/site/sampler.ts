// Chooses tokens from logits: temperature, top-k, top-p, in the order of crates/engine/src/sampler.rs.

import { invalid } from "../core/failure";

/** How tokens are chosen. A temperature of 0 always takes the most likely one. */
export interface Sampling {
  temperature: number;
  top_k?: number | undefined;
  top_p?: number | undefined;
  seed: number;
}

/** See the file. */
export class Sampler {
  private state: number;

  constructor(private readonly sampling: Sampling) {
    const { temperature, top_k, top_p } = sampling;
    const expect = (fits: boolean, what: string): void => {
      if (!fits) throw invalid(what);
    };
    expect(temperature >= 0 && temperature <= 1e4, `\`temperature\` must be from 0 to 10000, found ${temperature}`);
    expect(top_k === undefined || (Number.isInteger(top_k) && top_k > 0), `\`top_k\` must be a whole number from 1 on, found ${top_k}`);
    expect(top_p === undefined || (top_p > 0 && top_p <= 1), `\`top_p\` must be above 0 and at most 1, found ${top_p}`);
    this.state = sampling.seed >>> 0;
  }

  get greedy(): boolean {
    return this.sampling.temperature === 0;
  }

  /** The next token. Fails on a logit that is NaN or +infinity; -infinity means never. */
  sample(logits: Float32Array): number {
    const { temperature, top_k = Infinity, top_p = 1 } = this.sampling;
    let best = -Infinity;
    logits.forEach((logit, id) => {
      if (Number.isNaN(logit) || logit === Infinity) throw invalid(`the logit of token ${id} is ${logit}, expected a finite number`);
      best = Math.max(best, logit);
    });
    if (best === -Infinity) throw invalid("no token has a logit above -infinity");
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
