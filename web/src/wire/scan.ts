// A look at a message before it is decoded: what claims too much is refused before anything is allocated for it.

import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { MAX_FIELDS } from "../core/limits";
import { invalid } from "../core/failure";

/** What a field that is prefixed by its length holds: a message, or numbers one after the other, each of which counts. */
type Shape = DescMessage | "numbers";

const nested = new WeakMap<DescMessage, Map<number, Shape>>();

function shapeOf(field: DescField): Shape | undefined {
  if (field.message) return field.message;
  const texts: (ScalarType | undefined)[] = [ScalarType.STRING, ScalarType.BYTES];
  return field.fieldKind === "list" && !texts.includes(field.scalar) ? "numbers" : undefined;
}

/** The fields of a message that hold messages or several numbers, by number. */
function fieldsOf(message: DescMessage): Map<number, Shape> {
  let fields = nested.get(message);
  if (!fields) {
    fields = new Map();
    for (const field of message.fields) {
      const shape = shapeOf(field);
      if (shape) fields.set(field.number, shape);
    }
    nested.set(message, fields);
  }
  return fields;
}

/** Fails unless these bytes are well-formed, no deeper than the schema, and hold at most MAX_FIELDS fields. */
export function scan(bytes: Uint8Array, message: DescMessage): void {
  let left = MAX_FIELDS;
  let at = 0;

  function varint(end: number): number {
    let value = 0;
    let scale = 1;
    for (let i = 0; i < 10; i++) {
      if (at >= end) throw invalid("the message ends within a number");
      const byte = bytes[at++] as number;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
    throw invalid("the message holds a number of more than 64 bits");
  }

  function count(): void {
    if (left-- === 0) throw invalid(`the message has more than ${MAX_FIELDS} fields`);
  }

  function look(end: number, shape: Shape): void {
    if (shape !== "numbers") return walk(end, shape);
    while (at < end) {
      count();
      varint(end);
    }
  }

  function walk(end: number, of: DescMessage): void {
    const fields = fieldsOf(of);
    while (at < end) {
      count();
      const key = varint(end);
      const wire = key % 8;
      if (wire === 0) varint(end);
      else if (wire === 1) at += 8;
      else if (wire === 5) at += 4;
      else if (wire === 2) {
        const length = varint(end);
        if (length > end - at) throw invalid(`the message claims a field of ${length} bytes where ${end - at} are left`);
        const inner = fields.get(Math.floor(key / 8));
        if (inner) look(at + length, inner);
        else at += length;
      } else throw invalid(`the message has a field of wire type ${wire}`);
      if (at > end) throw invalid("the message ends within a field");
    }
  }

  walk(bytes.length, message);
}
