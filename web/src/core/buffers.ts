// Buffers, and moving bytes into and out of them.

import { doing, beyond, invalid } from "./failure";
import type { Gpu } from "./gpu";
import { PIECE } from "./limits";

/** A buffer. */
export interface Stored {
  id: number;
  label: string;
  raw: GPUBuffer;
  /** Bytes in whole words. The raw buffer has at least one word. */
  size: number;
  /** Bytes asked for: a write may end here. */
  asked: number;
}

const MAP_READ = 1;
const COPY_SRC = 4;
const COPY_DST = 8;
const UNIFORM = 64;
const STORAGE = 128;

/** Pieces of a read that are on their way at once. */
const FLIGHTS = 3;

/** Smallest buffer to read through, so that small reads share one. */
const SMALL = 64 << 10;

const roundUp = (value: number): number => value + ((4 - (value % 4)) % 4);

/** A zeroed buffer. */
export function createBuffer(gpu: Gpu, seq: number, id: number, label: string, size: number): Stored {
  const max = gpu.info.limits.max_buffer_size;
  if (size > max) {
    const text = `buffer \`${label}\` needs ${size} bytes, ${gpu.info.name} allows ${max}`;
    throw beyond(text, "max_buffer_size", size, max);
  }
  const rounded = roundUp(size);
  const usage = STORAGE | UNIFORM | COPY_SRC | COPY_DST;
  const what = (): string => `create buffer \`${label}\` of ${rounded} bytes`;
  const raw = doing(what(), () => gpu.scoped(seq, what, () => gpu.device.createBuffer({ label, size: Math.max(4, rounded), usage })));
  return { id, label, raw, size: rounded, asked: size };
}

/** Fails unless a range lies within a buffer. */
function expectWithin(what: string, buffer: Stored, offset: number, length: number): void {
  if (offset + length > buffer.size) {
    throw invalid(`${what} of ${length} bytes at ${offset} of \`${buffer.label}\`, which has ${buffer.size}`);
  }
}

/** Writes bytes; a last piece shorter than a word is padded with zeros. */
export function write(gpu: Gpu, buffer: Stored, offset: number, data: Uint8Array): void {
  expectWithin("write", buffer, offset, data.length);
  const toTheEnd = offset + data.length === buffer.asked;
  if (offset % 4 !== 0 || (data.length % 4 !== 0 && !toTheEnd)) {
    throw invalid(`write of ${data.length} bytes at ${offset} of \`${buffer.label}\`: expected whole words`);
  }
  const whole = data.length - (data.length % 4);
  const bytes = data as Uint8Array<ArrayBuffer>;
  if (whole > 0) gpu.device.queue.writeBuffer(buffer.raw, offset, bytes, 0, whole);
  if (whole < data.length) {
    const word = new Uint8Array(4);
    word.set(data.subarray(whole));
    gpu.device.queue.writeBuffer(buffer.raw, offset + whole, word);
  }
}

/** A piece of a read on its way. */
interface Flight {
  staging: GPUBuffer;
  /** First byte of the piece and of the words around it, and their lengths. */
  start: number;
  length: number;
  from: number;
  mapped: Promise<void>;
}

/** Reads through a pool of mappable buffers. */
export class Reads {
  private idle: GPUBuffer[] = [];

  constructor(private readonly gpu: Gpu) {}

  /** Gives each piece of a range to `take` in order; its bytes are gone when `take` returns. */
  async read(
    buffer: Stored,
    offset: number,
    length: number,
    ready: () => Promise<void>,
    take: (piece: Uint8Array, last: boolean) => Promise<void> | void,
  ): Promise<void> {
    expectWithin("read", buffer, offset, length);
    const flights: Flight[] = [];
    const end = offset + length;
    let next = offset;
    try {
      do {
        while (next < end && flights.length < FLIGHTS) {
          const size = Math.min(PIECE, end - next);
          flights.push(this.depart(buffer.raw, next, size));
          next += size;
        }
        const flight = flights[0];
        if (!flight) {
          await ready();
          await take(new Uint8Array(0), true);
          return;
        }
        // Errors of what came before are learned while the bytes are on their way.
        await Promise.all([flight.mapped, ready()]);
        const last = flight.start + flight.length === end;
        const range = flight.staging.getMappedRange(0, roundUp(flight.start - flight.from + flight.length));
        const piece = new Uint8Array(range, flight.start - flight.from, flight.length);
        const taken = take(piece, last);
        if (taken) await taken;
        flights.shift();
        this.land(flight);
      } while (flights.length > 0 || next < end);
    } finally {
      for (const flight of flights) void flight.mapped.then(() => this.land(flight), () => flight.staging.destroy());
    }
  }

  private depart(raw: GPUBuffer, start: number, length: number): Flight {
    const from = start - (start % 4);
    const size = roundUp(start + length - from);
    const staging = this.staging(size);
    const encoder = this.gpu.device.createCommandEncoder();
    encoder.copyBufferToBuffer(raw, from, staging, 0, size);
    this.gpu.device.queue.submit([encoder.finish()]);
    return { staging, start, length, from, mapped: staging.mapAsync(MAP_READ, 0, size) };
  }

  private land(flight: Flight): void {
    flight.staging.unmap();
    this.idle.push(flight.staging);
  }

  /** An idle buffer that is large enough, or a new one. */
  private staging(size: number): GPUBuffer {
    const at = this.idle.findIndex((b) => b.size >= size);
    const found = this.idle.splice(at, at < 0 ? 0 : 1)[0];
    if (found) return found;
    // Buffers that are too small would never be used again once larger reads have begun.
    this.idle.forEach((b) => b.destroy());
    this.idle = [];
    let room = SMALL;
    while (room < size) room *= 2;
    return this.gpu.device.createBuffer({ label: "staging", size: room, usage: MAP_READ | COPY_DST });
  }
}
