// One session: requests of a client are executed in order on a device of their own, and a watch is kept on them.

import { create } from "@bufbuild/protobuf";
import { type Cancel, type Hello, CreditSchema, ErrorKind, PongSchema, Reason, SessionLimitsSchema, WelcomeSchema } from "../wire/gen/tapml_pb";
import { integer, name } from "../wire/check";
import { decodeRequest, encodeFailure, encodeReply, type Reply, type Request } from "../wire/codec";
import { Account } from "./account";
import type { Blobs } from "./blobs";
import { Executor, type Listener } from "./executor";
import { Failure, failureOf, invalid, unsupported } from "./failure";
import { Gpu, parseOptions } from "./gpu";
import { infoToWire, type Info } from "./info";
import { Journal, type Doing } from "./journal";
import { CAPABILITIES, execute } from "./requests";
import { ACKNOWLEDGE, ACKNOWLEDGE_COUNT, MAX_MESSAGE, VERSION, WINDOW, WINDOW_COUNT } from "./limits";

/** A connection to a client, as far as a session needs it. */
export interface Channel {
  send(bytes: Uint8Array): void;
  /** Says goodbye after what was sent. */
  close(): void;
  /** Bytes sent that have not left yet. */
  waiting(): number;
}

/** Limits of each session. */
export interface Settings {
  /** How long a request may run, and how long a client may send nothing, milliseconds. */
  deadline: number;
  idle: number;
  /** Bytes of buffers. */
  memory: number;
}

/** What sessions share. */
export interface House {
  api: GPU;
  /** Who the agent is, and what browser or runtime it runs in. */
  agent: string;
  browser: string;
  /** The device's name among the agent's. */
  device: string;
  settings: Settings;
  blobs: Blobs;
}

/** What a session tells about itself. */
export interface Numbers {
  id: string;
  client: string;
  target: string;
  adapter: string;
  started: number;
  ended: number | undefined;
  calls: number;
  bytesIn: number;
  bytesOut: number;
  memory: number;
  /** Times each kernel was compiled. */
  kernels: Map<string, number>;
  doing: string;
  errors: { at: number; text: string }[];
}

/** How often the watch looks, milliseconds. */
const TICK = 100;

/** Bytes that may wait to leave before the next ones are made. */
const OUT = 32 << 20;

/** Errors remembered. */
const ERRORS = 20;

/** See the file. */
export class Session implements Listener {
  readonly numbers: Numbers;
  /** Called when the session is over. */
  onEnd: () => void = () => {};
  private readonly journal = new Journal();
  private readonly queue: { seq: number; request: Request; length: number }[] = [];
  private gpu: Gpu | undefined;
  private executor: Executor | undefined;
  private last = 0;
  private greeted = false;
  private running = false;
  private over = false;
  private doing: Doing | undefined;
  private heard = Date.now();
  private cancelled: { request: number; until: number } | undefined;
  private deadline: number;
  private unacknowledged = { bytes: 0, count: 0 };
  private readonly watch: ReturnType<typeof setInterval>;

  constructor(id: string, private readonly channel: Channel, private readonly house: House) {
    this.deadline = house.settings.deadline;
    this.numbers = {
      id,
      client: "",
      target: "",
      adapter: "",
      started: Date.now(),
      ended: undefined,
      calls: 0,
      bytesIn: 0,
      bytesOut: 0,
      memory: 0,
      kernels: new Map(),
      doing: "",
      errors: [],
    };
    this.watch = setInterval(() => this.look(), TICK);
  }

  /** Takes a message of the client. */
  receive(bytes: Uint8Array): void {
    if (this.over) return;
    this.heard = Date.now();
    this.numbers.bytesIn += bytes.length;
    try {
      this.enter(bytes);
    } catch (thrown) {
      const failure = failureOf(thrown);
      this.note(`a client broke the protocol: ${failure.message}`);
      this.send(0, { case: "failed", value: encodeFailure(failure) });
      this.end();
    }
  }

  /** The client is gone. */
  left(): void {
    this.end();
  }

  /** Ends the session because the agent stops. */
  stop(): void {
    this.die(Reason.SHUTDOWN, "was given back because the agent stops");
  }

  private enter(bytes: Uint8Array): void {
    const message = decodeRequest(bytes);
    const seq = integer("seq", message.seq);
    const { request } = message;
    if (seq <= this.last) throw invalid(`request ${seq} follows request ${this.last}: numbers must rise`);
    this.last = seq;
    if (request.case === "ping") return this.send(seq, { case: "pong", value: create(PongSchema) });
    if (request.case === undefined) throw invalid("the message holds no request this agent knows");
    if ((request.case === "hello") === this.greeted) {
      throw invalid(this.greeted ? "a second hello" : "expected a hello first");
    }
    if (request.case === "cancel") return this.cancel(request.value);
    this.greeted = true;
    this.journal.note(seq, bytes.length, request);
    const { bytes: under, count } = this.journal.underWay;
    if (under > WINDOW + MAX_MESSAGE || count > WINDOW_COUNT + 1) {
      throw invalid("the client sent more than the window allows");
    }
    this.queue.push({ seq, request, length: bytes.length });
    if (!this.running) void this.run();
  }

  /** Executes what is queued, until nothing is left. */
  private async run(): Promise<void> {
    this.running = true;
    for (let next = this.queue.shift(); next && !this.over; next = this.queue.shift()) {
      const { seq, request, length } = next;
      this.doing = { seq, since: Date.now() };
      this.numbers.calls++;
      if (request.case === "hello") {
        await this.greet(seq, request.value);
      } else {
        const answered = await execute(this.executor!, seq, request);
        if (this.over) return;
        this.journal.finish(seq);
        if (answered) this.unacknowledged = { bytes: 0, count: 0 };
        else this.acknowledge(seq, length);
      }
      this.doing = undefined;
    }
    this.running = false;
  }

  private acknowledge(seq: number, length: number): void {
    const u = this.unacknowledged;
    u.bytes += length;
    u.count++;
    if (u.bytes <= ACKNOWLEDGE && u.count <= ACKNOWLEDGE_COUNT) return;
    this.unacknowledged = { bytes: 0, count: 0 };
    const credit = (): void => {
      if (!this.over) this.send(seq, { case: "credit", value: create(CreditSchema) });
    };
    // Bytes that were written are in the browser's hands until the GPU has them: the client is to wait for that.
    if (u.bytes > ACKNOWLEDGE) void this.gpu!.device.queue.onSubmittedWorkDone().then(credit, credit);
    else credit();
  }

  private async greet(seq: number, hello: Hello): Promise<void> {
    try {
      await this.open(seq, hello);
    } catch (thrown) {
      const failure = failureOf(thrown);
      this.note(failure.message);
      this.send(seq, { case: "failed", value: encodeFailure(failure) });
      this.end();
    }
  }

  private async open(seq: number, hello: Hello): Promise<void> {
    const { house } = this;
    this.numbers.client = name("client", hello.client);
    this.numbers.target = name("target", hello.target);
    if (hello.versionMin > VERSION || hello.versionMax < VERSION) {
      const text = `the client speaks versions ${hello.versionMin} to ${hello.versionMax}, the agent ${VERSION}`;
      throw unsupported(text).hinted("use the same release of TapML on both sides");
    }
    const wanted = integer("deadline_ms", hello.deadlineMs);
    if (wanted > 0) this.deadline = Math.min(wanted, this.deadline);
    const at = hello.target.indexOf("?");
    const device = at < 0 ? hello.target : hello.target.slice(0, at);
    if (device !== "" && device !== house.device) {
      throw new Failure(ErrorKind.UNAVAILABLE, `this agent offers \`${house.device}\`, not \`${device}\``);
    }
    const options = parseOptions(at < 0 ? "" : hello.target.slice(at + 1));
    const gpu = await Gpu.open(house.api, options, house.browser);
    if (this.over) return gpu.close();
    const info = infoToWire(gpu.info);
    if (device === "") gpu.close();
    else this.equip(gpu, hello.trace);
    this.send(seq, {
      case: "welcome",
      value: create(WelcomeSchema, {
        version: VERSION,
        agent: house.agent,
        ...(device === "" ? { devices: [{ name: house.device, info }] } : { device: info }),
        limits: create(SessionLimitsSchema, {
          maxMessage: BigInt(MAX_MESSAGE),
          window: BigInt(WINDOW),
          deadlineMs: BigInt(this.deadline),
          idleMs: BigInt(house.settings.idle),
          memory: BigInt(house.settings.memory),
        }),
        capabilities: CAPABILITIES,
      }),
    });
    if (device === "") this.end();
    else this.journal.finish(seq);
  }

  private equip(gpu: Gpu, trace: boolean): void {
    this.gpu = gpu;
    this.numbers.adapter = adapterText(gpu.info);
    this.executor = new Executor(gpu, this.house.blobs, new Account(this.house.settings.memory), trace, this);
    gpu.onLost = (reason, message) => {
      const text = message.trim().replace(/\.$/, "");
      const why = text === "" ? "" : `: ${text}`;
      this.die(Reason.CRASHED, `was lost (${reason})${why}`);
    };
  }

  private cancel(r: Cancel): void {
    const request = integer("request", r.request);
    const at = this.queue.findIndex((q) => q.seq === request);
    if (at >= 0) {
      this.queue.splice(at, 1);
      const failure = new Failure(ErrorKind.INTERRUPTED, "the request was given up before it started");
      this.send(request, { case: "failed", value: encodeFailure(failure) });
    } else if (this.journal.done < request) {
      this.cancelled = { request, until: Date.now() + integer("grace_ms", r.graceMs) };
    }
  }

  /** Ends the session if it must not go on. */
  private look(): void {
    const now = Date.now();
    this.numbers.memory = this.journal.memory;
    this.numbers.doing = this.doing ? this.journal.brief(this.doing.seq) : "";
    if (this.cancelled && this.cancelled.request <= this.journal.done) this.cancelled = undefined;
    if (this.doing && this.greeted && this.executor && now - this.doing.since > this.deadline) {
      const seconds = ((now - this.doing.since) / 1000).toFixed(1);
      this.die(Reason.DEADLINE, `did not finish within ${seconds} s and was given back`);
    } else if (this.cancelled && now >= this.cancelled.until) {
      this.die(Reason.CANCELLED, "was given back at the client's wish");
    } else if (!this.doing && now - this.heard > this.house.settings.idle) {
      this.die(Reason.IDLE, "was given back because the client had sent nothing for long");
    }
  }

  /** Ends the session with a post-mortem. */
  private die(reason: Reason, how: string): void {
    if (this.over) return;
    const report = this.journal.postMortem(reason, how, this.doing, this.numbers.errors.map((e) => e.text).join("\n"));
    this.note(report.summary);
    this.send(this.journal.done, { case: "postMortem", value: report });
    this.end();
  }

  private end(): void {
    if (this.over) return;
    this.over = true;
    clearInterval(this.watch);
    this.numbers.ended = Date.now();
    this.numbers.doing = "";
    this.queue.length = 0;
    this.channel.close();
    this.gpu?.close();
    if (this.executor) void this.house.blobs.settle(this.executor);
    this.onEnd();
  }

  private note(text: string): void {
    this.numbers.errors.push({ at: Date.now(), text: text.slice(0, 2000) });
    if (this.numbers.errors.length > ERRORS) this.numbers.errors.shift();
  }

  private send(seq: number, reply: Reply): void {
    const bytes = encodeReply(seq, reply);
    this.numbers.bytesOut += bytes.length;
    this.channel.send(bytes);
  }

  // ---- What the executor tells.

  answer(reply: Reply): void {
    if (this.over || !this.doing) return;
    if (reply.case === "failed") this.note(reply.value.message);
    this.send(this.doing.seq, reply);
  }

  async sendBytes(message: Uint8Array): Promise<void> {
    if (this.over || !this.doing) return;
    this.numbers.bytesOut += message.length;
    this.channel.send(message);
    while (!this.over && this.channel.waiting() > OUT) {
      await new Promise((done) => setTimeout(done, 2));
      // Waiting for a slow reader is not the request's own time.
      if (this.doing) this.doing.since = Date.now();
    }
  }

  command(at: number): void {
    if (this.doing) this.doing.command = at;
  }

  submitted(list: number): void {
    this.journal.submitted(list);
    // Each turn of several has the deadline for itself.
    if (this.doing) this.doing.since = Date.now();
  }

  settled(): void {
    this.journal.settled();
  }

  compiled(kernel: string): void {
    this.numbers.kernels.set(kernel, (this.numbers.kernels.get(kernel) ?? 0) + 1);
  }
}

/** A device on one line. */
export function adapterText(info: Info): string {
  const features = [info.f16 ? "f16" : "no f16", info.subgroups[1] > 0 ? `subgroups of ${[...new Set(info.subgroups)].join(" to ")}` : "no subgroups"];
  return `${info.name} (${features.join(", ")})`;
}
