// Bytes to messages and back. What comes from the network is looked at before it is decoded.

import { create, fromBinary, toBinary, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { invalid, type Failure } from "../core/failure";
import { MAX_MESSAGE } from "../core/limits";
import { DetailSchema, FailedSchema, ToAgentSchema, ToClientSchema, type Failed, type ToAgent, type ToClient } from "./gen/tapml_pb";
import { scan } from "./scan";

/** An answer: the `reply` of a ToClient. */
export type Reply = ToClient["reply"];

/** A request: the `request` of a ToAgent that holds one. */
export type Request = Extract<ToAgent["request"], { case: string }>;

/** Reads a message from anywhere. Fails on what is too large or no such message. */
export function decode<D extends DescMessage>(schema: D, bytes: Uint8Array): MessageShape<D> {
  if (bytes.length > MAX_MESSAGE) throw invalid(`a message of ${bytes.length} bytes, at most ${MAX_MESSAGE}`);
  scan(bytes, schema);
  try {
    return fromBinary(schema, bytes, { readUnknownFields: false });
  } catch (thrown) {
    throw invalid(`no message of TapML: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
}

/** Reads a request of a client. */
export const decodeRequest = (bytes: Uint8Array): ToAgent => decode(ToAgentSchema, bytes);

/** The bytes of a reply. */
export function encodeReply(seq: number, reply: Reply): Uint8Array {
  return toBinary(ToClientSchema, create(ToClientSchema, { seq: BigInt(seq), reply }));
}

/** A failure for the wire. */
export function encodeFailure({ kind, message, hint, details }: Failure): Failed {
  return create(FailedSchema, { kind, message, hint, details: details.map(([name, value]) => create(DetailSchema, { name, value })) });
}

/** The bytes of a Data reply whose payload is still to be filled in: no further copy of it is made. */
export function encodeData(seq: number, length: number, last: boolean): { message: Uint8Array; payload: Uint8Array } {
  const head = [...tag(1, 0), ...varint(seq)];
  const bytes = [...tag(1, 2), ...varint(length)];
  const end = last ? [...tag(2, 0), 1] : [];
  const inner = bytes.length + length + end.length;
  const start = [...head, ...tag(7, 2), ...varint(inner), ...bytes];
  const message = new Uint8Array(start.length + length + end.length);
  message.set(start);
  message.set(end, start.length + length);
  return { message, payload: message.subarray(start.length, start.length + length) };
}

const tag = (field: number, wire: number): number[] => varint(field * 8 + wire);

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 128) {
    bytes.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
  return bytes;
}
