// What belongs to each request, in one place: whether it is answered, its words in a journal, and how it is performed.

import { create } from "@bufbuild/protobuf";
import { FindingsSchema, HeldBlobsSchema, MemorySchema } from "../wire/gen/tapml_pb";
import type { Request } from "../wire/codec";
import type { Executor } from "./executor";
import { failureOf, invalid, unsupported } from "./failure";
import { MAX_HASHES, MAX_TURNS } from "./limits";
import { type Names, type Note, text, valuesOf } from "./names";

/** The name of a request. */
type Case = Request["case"];
/** The message of a request. */
type Value<C extends Case> = Extract<Request, { case: C }>["value"];

/** See the file. */
interface Rule<V> {
  /** Whether it is answered, so that a failure can be told at once. */
  answered: boolean;
  /** What an agent says it can do if it performs this; nothing for the commands that every device takes. */
  capability?: string;
  /** The request for a journal, told by the names of what it refers to. */
  note(value: V, names: Names): Note;
  /** Enters what it makes, and strikes what it frees. */
  remember?(value: V, names: Names): void;
  /** Performs it. What it throws is the answer, or is kept for a later one. */
  perform(value: V, executor: Executor, seq: number): Promise<void> | void;
}

/** A request that is for the session, or for devices that run operators. */
function refused<V>(answered: boolean, words: string, failure: () => Error): Rule<V> {
  const perform = (): never => {
    throw failure();
  };
  return { answered, note: () => text(words), perform };
}

const session = (): Error => invalid("a request that has no place here");
const operators = (): Error => unsupported("this device runs kernels, not operators");

const RULES: { readonly [C in Case]: Rule<Value<C>> } = {
  hello: refused(true, "open the device", session),
  ping: refused(true, "ping", session),
  cancel: refused(false, "give up a request", session),
  createBuffer: {
    answered: false,
    note: (r) => text(`create buffer ${r.buffer} \`${r.label}\` of ${r.size} bytes`),
    remember: (r, names) => names.addBuffer(r.buffer, r.label, Number(r.size)),
    perform: (r, executor, seq) => executor.createBuffer(seq, r),
  },
  destroyBuffer: {
    answered: false,
    note: (r, names) => text(`destroy ${names.buffer(r.buffer)}`),
    remember: (r, names) => names.removeBuffer(r.buffer),
    perform: (r, executor) => executor.destroyBuffer(r.buffer),
  },
  write: {
    answered: false,
    note: (r, names) => text(`write ${r.data.length} bytes at ${r.offset} of ${names.buffer(r.buffer)}`),
    perform: (r, executor) => executor.write(r.buffer, r.offset, r.data),
  },
  read: {
    answered: true,
    note: (r, names) => text(`read ${r.size} bytes at ${r.offset} of ${names.buffer(r.buffer)}`),
    async perform(r, executor, seq) {
      await executor.read(seq, r);
      executor.settle();
    },
  },
  createKernel: {
    answered: true,
    note: (r) => ({ ...text(`create kernel ${r.kernel} \`${r.name}\``), kernel: r.kernel }),
    remember: (r, names) => names.addKernel(r),
    async perform(r, executor) {
      await executor.createKernel(r);
      executor.done();
    },
  },
  destroyKernel: {
    answered: false,
    note: (r) => text(`destroy kernel ${r.kernel}`),
    perform: (r, executor) => executor.destroyKernel(r.kernel),
  },
  record: {
    answered: false,
    note: (r) => text(`record list ${r.list}`),
    remember: (r, names) => names.addCommands(r.list, r.commands),
    perform: (r, executor, seq) => executor.record(seq, r),
  },
  replay: {
    answered: false,
    note: (r, names) => ({ tell: () => names.replay(r.list, r.symbols), list: r.list }),
    perform: (r, executor, seq) => executor.replay(seq, r.list, r.symbols),
  },
  destroyList: {
    answered: false,
    note: (r) => text(`destroy list ${r.list}`),
    remember: (r, names) => names.removeList(r.list),
    perform: (r, executor) => executor.destroyList(r.list),
  },
  step: {
    answered: true,
    capability: "steps",
    note({ list, symbols, writes, reads }, names) {
      const tell = (): string => `write ${writes.length} ranges, ${names.replay(list, symbols)}, read ${reads.length} ranges`;
      return { tell, list };
    },
    async perform(r, executor, seq) {
      await executor.expectNone();
      await executor.turns(seq, r.list, [r], r.reads);
      executor.settle();
    },
  },
  turns: {
    answered: true,
    capability: "turns",
    note({ list, turns }, names) {
      return { tell: () => `${turns.length} turns, the first ${names.replay(list, turns[0]?.symbols ?? [])}`, list };
    },
    async perform({ list, turns, reads }, executor, seq) {
      await executor.expectNone();
      if (turns.length > MAX_TURNS) throw invalid(`${turns.length} turns, at most ${MAX_TURNS}`);
      await executor.turns(seq, list, turns, reads);
      executor.settle();
    },
  },
  wait: {
    answered: true,
    note: () => text("wait"),
    async perform(_, executor) {
      await executor.wait();
      executor.done();
    },
  },
  takeFindings: {
    answered: true,
    note: () => text("take findings"),
    perform: (_, executor) => executor.answer({ case: "findings", value: create(FindingsSchema) }),
  },
  getMemory: {
    answered: true,
    capability: "memory",
    note: () => text("ask what the session holds"),
    perform(_, executor) {
      const { held, limit } = executor.account;
      executor.answer({ case: "memory", value: create(MemorySchema, { held: BigInt(held), limit: BigInt(limit) }) });
    },
  },
  hasBlobs: {
    answered: true,
    capability: "blobs",
    note: (r) => text(`ask for ${r.hashes.length} blobs`),
    perform({ hashes }, executor) {
      if (hashes.length > MAX_HASHES) throw invalid(`${hashes.length} hashes, at most ${MAX_HASHES}`);
      executor.answer({ case: "heldBlobs", value: create(HeldBlobsSchema, { held: executor.hasBlobs(hashes) }) });
    },
  },
  putBlob: {
    answered: false,
    capability: "blobs",
    note: (r) => text(`keep a blob of ${r.data.length} bytes`),
    perform: (r, executor) => executor.putBlob(r.data, r.hash),
  },
  writeBlob: {
    answered: false,
    capability: "blobs",
    note: (r, names) => text(`write a blob at ${r.offset} of ${names.buffer(r.buffer)}`),
    perform: (r, executor) => executor.write(r.buffer, r.offset, executor.blob(r.hash)),
  },
  loadProgram: {
    answered: true,
    capability: "programs",
    note: (r) => text(`load program ${r.program}`),
    async perform(r, executor, seq) {
      await executor.expectNone();
      await executor.loadProgram(seq, r);
      await executor.expectNone();
      executor.done();
    },
  },
  runProgram: {
    answered: true,
    capability: "programs",
    note: (r) => text(`run program ${r.program}${valuesOf(r.symbols)}`),
    async perform(r, executor, seq) {
      await executor.expectNone();
      await executor.runProgram(seq, r);
      executor.settle();
    },
  },
  unloadProgram: {
    answered: false,
    capability: "programs",
    note: (r) => text(`unload program ${r.program}`),
    perform: (r, executor) => executor.unloadProgram(r.program),
  },
  putTensor: refused(true, "hold a tensor", operators),
  dropTensor: refused(false, "free a tensor", operators),
  callNode: refused(true, "run a node", operators),
  callGraph: refused(true, "run a graph", operators),
};

/** What a session can do beside the commands of a device: what its requests name, and tracing, which a hello asks for. */
export const CAPABILITIES = [...new Set(Object.values(RULES).flatMap((rule) => rule.capability ?? [])), "trace"];

/** The rule of a request's own message, which the table has under the same name. */
const ruleOf = (request: Request): Rule<Request["value"]> => RULES[request.case] as Rule<Request["value"]>;

/** A request for a journal. */
export const note = (request: Request, names: Names): Note => ruleOf(request).note(request.value, names);

/** Enters what a request makes, and strikes what it frees. */
export const remember = (request: Request, names: Names): void => ruleOf(request).remember?.(request.value, names);

/** Executes one request. Whatever fails is an answer, or is kept for the next one. True if it was answered. */
export async function execute(executor: Executor, seq: number, request: Request): Promise<boolean> {
  const { answered, perform } = ruleOf(request);
  try {
    await perform(request.value, executor, seq);
  } catch (thrown) {
    executor.fail(seq, failureOf(thrown), answered);
  }
  return answered;
}
