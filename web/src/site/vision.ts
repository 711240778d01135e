// Chats with pictures: the messages that a template is given, and the tokens that stand for rows of images, as
// crates/server/src/request/messages.rs and crates/engine/src/vision.rs make them.

import { failureOf, invalid, unsupported } from "../core/failure";
import type { ContentPart, Message, Picture } from "./api";
import { pixelsOf, type ImageProcessor } from "./image";
import { decode, type PictureLimits } from "./picture";

/** `image` of the manifest. */
export interface ImageSettings {
  processor: ImageProcessor;
  /** Of the encoder's input: channels, height, width. */
  pixels: number[];
  /** The token that stands for one row of an image, and its written form. */
  token: number;
  text: string;
  /** Rows that an image becomes. */
  rows: number;
  /** Whether the template reads contents that are lists of parts. */
  parts: boolean;
  /** `kept`: most pixels along a side of what the encoder takes. */
  limits: PictureLimits & { kept: number };
  /** Names of inputs: of the encoder, then of the model's own program. */
  inputs: { pixels: string; rows: string; slots: string };
}

/** A part of a message as templates know it. */
type Part = { type: "text"; text: string } | { type: "image" };
export type PlainMessage = Omit<Message, "content"> & { content: string | Part[] };

/** An image in a prompt. */
export interface PlacedImage {
  /** The first token that stands for it, and how many do. */
  start: number;
  count: number;
  /** Of its pixels. */
  hash: string;
  /** What the encoder takes. */
  pixels: Uint8Array;
}

/** What a model is given. */
export interface Prompt {
  ids: number[];
  images: PlacedImage[];
}

/** Most images of one request. */
const MOST = 64;

/** Messages as templates take them, and their pictures in order. */
export function readMessages(messages: Message[]): { messages: PlainMessage[]; pictures: Picture[] } {
  const pictures: Picture[] = [];
  const read = messages.map((message, i): PlainMessage => {
    const { content } = message;
    if (!Array.isArray(content)) return { ...message, content };
    const before = pictures.length;
    const parts = content.map((part, at): Part => {
      const place = `messages[${i}].content[${at}]`;
      if (part?.type === "text" && typeof part.text === "string") return { type: "text", text: part.text };
      const picture = pictureOf(part, place);
      if (message.role !== "user") throw unsupported(`\`${place}\` is an image of the ${message.role}; images are taken of the user`);
      if (pictures.push(picture) > MOST) throw invalid(`\`messages\` has more than ${MOST} images, which is the most`).hinted("leave older ones out");
      return { type: "image" };
    });
    // Other templates know texts alone.
    const texts = parts.map((part) => ("text" in part ? part.text : ""));
    return { ...message, content: pictures.length > before ? parts : texts.join("\n") };
  });
  return { messages: read, pictures };
}

function pictureOf(part: ContentPart, place: string): Picture {
  if (part?.type === "image_url" && typeof part.image_url?.url === "string") return part.image_url.url;
  if (part?.type === "image" && typeof part.image === "object" && part.image !== null) return part.image;
  const forms = '{ type: "text", text }, { type: "image_url", image_url: { url } } or { type: "image", image }';
  throw unsupported(`\`${place}\` is of the type \`${String(part?.type).slice(0, 40)}\` or lacks a field, expected ${forms}`);
}

/** Messages that name their images as the template of this model expects. */
export function prepareMessages(messages: PlainMessage[], { parts, text }: ImageSettings): PlainMessage[] {
  return messages.map((message) => {
    const { content } = message;
    // A template that goes over lists would go over the characters of a text.
    if (typeof content === "string") return parts ? { ...message, content: [{ type: "text", text: content }] } : message;
    if (parts || !Array.isArray(content)) return message;
    return { ...message, content: content.map((part) => ("text" in part ? part.text : text)).join("\n") };
  });
}

/** Ids with one token for each row of the images, of which each is named by one token; gives where the images begin. */
export function placeImages(ids: number[], count: number, { token, rows, text }: ImageSettings, context: number): { ids: number[]; starts: number[] } {
  if (count === 0) return { ids, starts: [] };
  const found = ids.filter((id) => id === token).length;
  if (found !== count) {
    throw invalid(`the chat has ${count} images, and its prompt names ${found} (by \`${text}\`)`).hinted(
      `leave \`${text}\` out of the texts; a chat template that leaves images out cannot be used with them`,
    );
  }
  const length = ids.length + count * (rows - 1);
  if (length > context) {
    throw invalid(`the prompt has ${length} tokens, ${rows} of each of ${count} images, the context holds ${context}`).hinted("leave older images out");
  }
  const starts: number[] = [];
  const all: number[] = [];
  for (const id of ids) {
    if (id === token) starts.push(all.length);
    all.push(...Array<number>(id === token ? rows : 1).fill(id));
  }
  return { ids: all, starts };
}

/** The image of a picture that begins at this token. */
export async function readImage(picture: Picture, start: number, settings: ImageSettings): Promise<PlacedImage> {
  const { processor, limits, rows } = settings;
  const { height, width, values } = pixelsOf(await decode(picture, limits), processor, limits.kept);
  const [, high, wide] = settings.pixels;
  if (height !== high || width !== wide) throw invalid(`the image becomes ${height}×${width} pixels, the model takes ${high}×${wide}`);
  const pixels = new Uint8Array(values.buffer);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", pixels as Uint8Array<ArrayBuffer>));
  return { start, count: rows, hash: Array.from(hash, (b) => b.toString(16).padStart(2, "0")).join(""), pixels };
}

/** The images of pictures that begin at these tokens. */
export async function readImages(pictures: Picture[], starts: number[], settings: ImageSettings): Promise<PlacedImage[]> {
  const images: PlacedImage[] = [];
  for (const [at, start] of starts.entries()) {
    images.push(await readImage(pictures[at]!, start, settings).catch((thrown: unknown) => {
      throw failureOf(thrown).within(`image ${at + 1}`);
    }));
  }
  return images;
}

/** How many tokens two prompts have in common at their beginning; at least one of the first is not among them. */
export function commonLength(a: Prompt, b: Prompt): number {
  const imageAt = ({ images }: Prompt, at: number): string | undefined => {
    const image = images.find(({ start, count }) => start <= at && at < start + count);
    return image && `${image.start} ${image.hash}`;
  };
  let same = 0;
  const most = Math.min(a.ids.length - 1, b.ids.length);
  while (same < most && a.ids[same] === b.ids[same] && imageAt(a, same) === imageAt(b, same)) same++;
  return same;
}

/** The slot of a token that stands for itself. */
const NOWHERE = 0xffffffff;

/** What a step of tokens `start..end` is given of the images: it ends before those of a second one. */
export function stepImages(images: PlacedImage[], start: number, end: number): { end: number; slots: Uint32Array; image: PlacedImage | undefined } {
  const [image, second] = images.filter((i) => i.start < end && i.start + i.count > start);
  const until = second?.start ?? end;
  const slots = new Uint32Array(until - start).fill(NOWHERE);
  if (image) {
    for (let at = Math.max(start, image.start); at < Math.min(until, image.start + image.count); at++) slots[at - start] = at - image.start;
  }
  return { end: until, slots, image };
}
