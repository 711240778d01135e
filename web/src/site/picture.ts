// Pictures of a request: from a data URL, a file, or pixels, to red, green and blue.

import { invalid, messageOf, unsupported, type Failure } from "../core/failure";
import type { Picture, RawImage } from "./api";
import type { Rgb } from "./image";

/** What is refused: pixels of an image in all, and along a side. */
export interface PictureLimits {
  pixels: number;
  side: number;
}

/** The largest file that is read, in bytes. */
const MOST_BYTES = 256 * 2 ** 20;
/** Characters of a URL that an error tells. */
const TOLD = 40;

/** The file in a data URL, as crates/server/src/request/images.rs reads it. */
export function readUrl(url: string): Blob {
  const form = "expected `data:image/png;base64,` (or jpeg, webp) and the file in base64";
  const told = url.slice(0, TOLD);
  if (!/^data:/i.test(url)) throw unsupported(`the URL \`${told}\` is not fetched: ${form}, which is the image itself`);
  const comma = url.indexOf(",");
  if (comma < 0) throw invalid(`${form}, found no comma in \`${told}\``);
  const [kind = "", ...words] = url.slice(5, comma).split(";");
  if (kind !== "" && !/^image\//i.test(kind)) throw invalid(`${form}, found the type \`${kind.slice(0, TOLD)}\``);
  if (!words.some((word) => word.trim().toLowerCase() === "base64")) throw invalid(`${form}, found no word \`base64\` in \`${told}\``);
  let text: string;
  try {
    text = atob(url.slice(comma + 1));
  } catch {
    throw invalid(`${form}, found no base64`);
  }
  if (text === "") throw invalid(`${form}, found an empty file`);
  return new Blob([Uint8Array.from(text, (c) => c.charCodeAt(0))], kind === "" ? {} : { type: kind });
}

/** The pixels of a picture, upright; transparency is dropped. */
export async function decode(picture: Picture, limits: PictureLimits): Promise<Rgb> {
  if (typeof picture === "string") return decodeFile(readUrl(picture), limits);
  if (picture instanceof Blob) return decodeFile(picture, limits);
  if (typeof ImageBitmap !== "undefined" && picture instanceof ImageBitmap) return readBitmap(picture, limits);
  return readRaw(picture as RawImage, limits);
}

async function decodeFile(file: Blob, limits: PictureLimits): Promise<Rgb> {
  if (typeof createImageBitmap === "undefined") {
    throw unsupported("image files are not read here: there is no `createImageBitmap`").hinted('give pixels: { type: "image", image: { data, width, height } } with RGBA in `data`');
  }
  if (file.size > MOST_BYTES) throw tooLarge(`a file of ${file.size} bytes, at most ${MOST_BYTES} are read`, limits);
  // What is stored is what the model is given: no colours are converted.
  const options = { premultiplyAlpha: "none", colorSpaceConversion: "none", imageOrientation: "from-image" } as const;
  const bitmap = await createImageBitmap(file, options).catch((thrown: unknown) => {
    throw tooLarge(`could not read the image: ${messageOf(thrown)}`, limits);
  });
  try {
    return readBitmap(bitmap, limits);
  } finally {
    bitmap.close();
  }
}

function readBitmap(bitmap: ImageBitmap, limits: PictureLimits): Rgb {
  const { width, height } = bitmap;
  expectSize(width, height, limits);
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (!context) throw unsupported("the browser gives no canvas to read the image");
  context.drawImage(bitmap, 0, 0);
  return readRaw(context.getImageData(0, 0, width, height), limits);
}

/** Of RGBA. */
function readRaw({ data, width, height }: RawImage, limits: PictureLimits): Rgb {
  expectSize(width, height, limits);
  if (data?.length !== 4 * width * height) {
    throw invalid(`an image of ${height}×${width} pixels has ${4 * width * height} bytes of RGBA, found ${String(data?.length)}`);
  }
  const samples = new Uint8Array(3 * width * height);
  for (let i = 0, at = 0; at < samples.length; i += 4) {
    samples[at++] = data[i]!;
    samples[at++] = data[i + 1]!;
    samples[at++] = data[i + 2]!;
  }
  return { width, height, samples };
}

function expectSize(width: number, height: number, limits: PictureLimits): void {
  const side = (of: number): boolean => Number.isInteger(of) && of >= 1 && of <= limits.side;
  if (!side(width) || !side(height) || width * height > limits.pixels) throw tooLarge(`an image of ${String(height)}×${String(width)} pixels`, limits);
}

const tooLarge = (what: string, { side, pixels }: PictureLimits): Failure =>
  invalid(what).hinted(`give a PNG, JPEG or WebP file of at most ${side} pixels along a side and ${pixels} in all`);
