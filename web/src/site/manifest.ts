// What a site holds: `site.json`, which `tapml compile --out` writes (crates/jobs/src/site).

import { invalid, unsupported } from "../core/failure";
import type { Info } from "../core/info";
import type { ImageSettings } from "./vision";

/** The schema that is read. */
const SCHEMA = 1;

/** A file of the site, by its SHA-256 in hexadecimal. */
export interface SiteFile {
  file: string;
  bytes: number;
  sha256: string;
}

/** A program for devices of one sort. */
export interface ProgramFile extends SiteFile {
  f16: boolean;
  /** The smallest and the largest subgroup that it is planned for, if it needs subgroups. */
  subgroups: [least: number, most: number] | null;
  /** The program that makes rows of an image, of a model that sees. */
  encoder?: SiteFile;
  /** Bytes of device memory, of both. */
  memory: { weights: number; states: number; activations: number; constants: number };
  /** Recorded calls that check the device, if the site has them. */
  suite?: { calls: SiteFile; data: SiteFile; count: number };
}

/** Whether a device can run a program. */
export function runs(program: Pick<ProgramFile, "f16" | "subgroups">, info: Pick<Info, "f16" | "subgroups">): boolean {
  const [least, most] = info.subgroups;
  const wide = !program.subgroups || (least >= program.subgroups[0] && most <= program.subgroups[1]);
  return wide && (info.f16 || !program.f16);
}

/** See the file. */
export interface Manifest {
  schema: number;
  tapml: string;
  model: string;
  /** Most tokens of a text, and of one step. */
  context: number;
  step: number;
  /** The first one that a device can run is taken. */
  programs: ProgramFile[];
  /** Bytes `offset..offset+len` of each tensor stand `at` this byte of all shards, one behind the other. */
  weights: { bytes: number; shards: SiteFile[]; tensors: { name: string; offset: number; len: number; at: number }[] };
  tokenizer: SiteFile;
  text: TextSettings;
  /** What forces a form on answers; loaded when a request asks for one. */
  form?: { module: SiteFile; vocabulary: SiteFile };
  generation: { temperature: number | null; top_k: number | null; top_p: number | null };
  /** Of a model that sees. */
  image?: ImageSettings;
}

/** How messages become token ids. */
export interface TextSettings {
  template: string | null;
  /** Texts of the special tokens, as templates read them. */
  special: Record<string, string>;
  add_bos: number | null;
  add_eos: number | null;
  /** A text ends with any of these. */
  stop: number[];
}

/** Reads `site.json`. */
export function parseManifest(bytes: Uint8Array): Manifest {
  const found = JSON.parse(new TextDecoder().decode(bytes)) as Manifest;
  if (found?.schema !== SCHEMA) {
    throw unsupported(`schema ${String(found?.schema)} of a site is unknown, expected ${SCHEMA}`).hinted("compile the model again");
  }
  const total = found.weights.shards.reduce((sum, shard) => sum + shard.bytes, 0);
  if (total !== found.weights.bytes) throw invalid(`the shards have ${total} bytes, the site tells of ${found.weights.bytes}`);
  return found;
}
