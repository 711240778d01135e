// From pixels to what a model's encoder takes, as crates/engine/src/image does it, to the last bit: resized as Pillow does, the middle cut
// out, scaled, normalised. web/test/images.json is made there.

import { unsupported } from "../core/failure";

export type ImageSize = { shortest: number } | { exact: [height: number, width: number] };
export type Filter = "lanczos" | "bilinear" | "bicubic";

/** How an image is brought to the encoder's form. */
export interface ImageProcessor {
  /** None if images are taken as they are. */
  resize: [ImageSize, Filter] | null;
  /** Height and width of the middle part that is kept. */
  crop: [height: number, width: number] | null;
  /** Factor on samples of 0 to 255. */
  rescale: number;
  /** Mean and standard deviation of each channel after that. */
  normal: [mean: number, deviation: number][];
}

/** An image of three channels of 8 bits, row by row. */
export interface Rgb {
  width: number;
  height: number;
  samples: Uint8Array;
}

/** Fractional bits of weights: sums of products with samples are whole numbers that a double holds. */
const ONE = 2 ** 22;

const SUPPORT: Record<Filter, number> = { lanczos: 3, bilinear: 1, bicubic: 2 };

/** The filter at a distance from its middle; not normalised. */
function weight(filter: Filter, distance: number): number {
  const x = Math.abs(distance);
  const sinc = (v: number): number => (v === 0 ? 1 : Math.sin(v * Math.PI) / (v * Math.PI));
  if (x >= SUPPORT[filter]) return 0;
  if (filter === "lanczos") return sinc(x) * sinc(x / 3);
  if (filter === "bilinear") return 1 - x;
  return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
}

/** Rounded to a whole number, halves away from zero. */
const round = (value: number): number => Math.sign(value) * Math.round(Math.abs(value));

/** What one sample of the result takes of the source: weights of consecutive samples. */
interface Taps {
  first: number;
  weights: number[];
}

/** The samples from `start` to `end` of a line of `from` samples resampled to `to`. */
function taps(filter: Filter, from: number, to: number, [start, end]: [number, number]): Taps[] {
  const step = from / to;
  const widened = Math.max(1, step);
  const support = SUPPORT[filter] * widened;
  return Array.from({ length: end - start }, (_, i) => {
    const center = (start + i + 0.5) * step;
    // Rounded as Pillow does, so that the same samples count.
    const first = Math.floor(Math.max(0, center - support + 0.5));
    const last = Math.min(Math.max(Math.floor(center + support + 0.5), first + 1), Math.max(from, first + 1));
    const weights = Array.from({ length: last - first }, (_, j) => weight(filter, (first + j - center + 0.5) / widened));
    const sum = weights.reduce((all, one) => all + one, 0);
    return { first, weights: weights.map((w) => round((w / sum) * ONE)) };
  });
}

/** A sum of products with weights, as a sample. */
const sampleOf = (sum: number): number => Math.min(255, Math.max(0, Math.floor((sum + ONE / 2) / ONE)));

/** The part of an image, resampled to `[height, width]`, that lies in these rows and columns. */
function resize(image: Rgb, [height, width]: number[], filter: Filter, rows: [number, number], columns: [number, number]): Rgb {
  const down = taps(filter, image.height, height!, rows);
  const across = taps(filter, image.width, width!, columns);
  // Only lines that the result needs are resampled.
  const first = down[0]!.first;
  const end = down.at(-1)!.first + down.at(-1)!.weights.length;
  const narrow = across.length * 3;
  const lines = new Uint8Array((end - first) * narrow);
  let at = 0;
  for (let line = first; line < end; line++) {
    for (const { first: left, weights } of across) {
      for (let channel = 0; channel < 3; channel++) {
        let place = (line * image.width + left) * 3 + channel;
        let sum = 0;
        for (const w of weights) {
          sum += w * image.samples[place]!;
          place += 3;
        }
        lines[at++] = sampleOf(sum);
      }
    }
  }
  const samples = new Uint8Array(down.length * narrow);
  at = 0;
  for (const { first: top, weights } of down) {
    for (let column = 0; column < narrow; column++) {
      let place = (top - first) * narrow + column;
      let sum = 0;
      for (const w of weights) {
        sum += w * lines[place]!;
        place += narrow;
      }
      samples[at++] = sampleOf(sum);
    }
  }
  return { width: across.length, height: down.length, samples };
}

/** The size, `[height, width]`, that an image is brought to. */
function sizeFor(size: ImageSize, { height, width }: Rgb): [number, number] {
  if ("exact" in size) return size.exact;
  const short = size.shortest;
  // Rounded down, as Transformers does.
  const long = Math.floor((short * Math.max(height, width)) / Math.min(height, width));
  return height <= width ? [short, long] : [long, short];
}

/** The image resized, and its middle part, of which no side is longer than `most`. */
function resample(image: Rgb, { resize: to, crop }: ImageProcessor, most: number): Rgb {
  const own: [number, number] = [image.height, image.width];
  // Without a change of size the filter does nothing.
  const [size, filter]: [[number, number], Filter] = to ? [sizeFor(to[0], image), to[1]] : [own, "bicubic"];
  const kept = crop ?? size;
  if (Math.max(...kept) > most) {
    throw unsupported(`the processor makes ${kept.join("×")} pixels of ${own.join("×")}, more than ${most} along a side`).hinted("give an image that is not as long and narrow");
  }
  if (kept[0] > size[0] || kept[1] > size[1]) {
    throw unsupported(`the processor cuts ${kept.join("×")} pixels out of ${size.join("×")}: padding is not supported`);
  }
  const part = (side: 0 | 1): [number, number] => {
    const from = Math.floor((size[side] - kept[side]) / 2);
    return [from, from + kept[side]];
  };
  return resize(image, size, filter, part(0), part(1));
}

/** What the encoder takes: channel by channel, row by row. */
export function pixelsOf(image: Rgb, processor: ImageProcessor, most: number): { height: number; width: number; values: Float32Array } {
  const { height, width, samples } = resample(image, processor, most);
  const plane = height * width;
  const values = new Float32Array(3 * plane);
  processor.normal.forEach(([mean, deviation], channel) => {
    // In f64, rounded one time at the end.
    for (let i = 0; i < plane; i++) values[channel * plane + i] = (samples[3 * i + channel]! * processor.rescale - mean) / deviation;
  });
  return { height, width, values };
}
