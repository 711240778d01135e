// The connection to WebGPU: a device with all that its adapter offers, and a place where its errors gather.
//
// Calls report their errors later, through error scopes. A scope is opened around each call that can fail for reasons that
// are not checked here; nobody waits for it until a client asks for a result, so scopes cost no round trips of their own.

import { ErrorKind } from "../wire/gen/tapml_pb";
import { Failure, invalid } from "./failure";
import { describe, type Info } from "./info";

/** What a client may choose after `?`. */
export interface Options {
  /** The default limits and no features, as the weakest browser grants them. */
  mobile: boolean;
  f16: boolean;
  subgroups: boolean;
}

const KNOWN = "known options: profile=full|mobile, f16=on|off, subgroups=on|off";

/** Reads `name=value` pairs joined by `&`. */
export function parseOptions(text: string): Options {
  const options: Options = { mobile: false, f16: true, subgroups: true };
  for (const pair of text.split("&").filter((p) => p !== "")) {
    const [name, value] = pair.split("=", 2);
    if (name === "profile" && (value === "full" || value === "mobile")) options.mobile = value === "mobile";
    else if ((name === "f16" || name === "subgroups") && (value === "on" || value === "off")) options[name] = value === "on";
    else throw invalid(`the device option \`${pair.slice(0, 80)}\` is unknown`).hinted(KNOWN);
  }
  return options;
}

/** How long the browser may take to give a device, milliseconds: after a crash it starts its GPU process anew. */
const OPEN_WITHIN = 30_000;

/** A failure of an unanswered request, with the request's number. */
interface Late {
  seq: number;
  failure: Failure;
}

/** A WebGPU device of one session. */
export class Gpu {
  /** Called once when the browser takes the device away. */
  onLost: (reason: string, message: string) => void = () => {};
  /** Set when the device is gone or was given back. */
  gone = false;
  private late: Late[] = [];
  private readonly scopes = new Set<Promise<void>>();

  private constructor(readonly device: GPUDevice, readonly info: Info) {
    device.addEventListener("uncapturederror", (event) => {
      this.report(Number.MAX_SAFE_INTEGER, explain("run what was asked for", event.error));
      event.preventDefault();
    });
    void device.lost.then((lost) => {
      if (this.gone) return;
      this.gone = true;
      this.onLost(lost.reason, lost.message);
    });
  }

  /** Opens a device with all limits and features that the adapter has, as far as the options let it. */
  static async open(api: GPU, options: Options, browser: string): Promise<Gpu> {
    const started = Date.now();
    for (;;) {
      try {
        return await within(OPEN_WITHIN, Gpu.request(api, options, browser));
      } catch (thrown) {
        const text = thrown instanceof Error ? thrown.message : String(thrown);
        if (Date.now() - started > OPEN_WITHIN / 2) {
          throw new Failure(ErrorKind.UNAVAILABLE, `the browser gives no WebGPU device: ${text}`).hinted(
            "does chrome://gpu say that WebGPU is available? Another browser or a newer driver may help",
          );
        }
        await new Promise((done) => setTimeout(done, 500));
      }
    }
  }

  private static async request(api: GPU, options: Options, browser: string): Promise<Gpu> {
    const adapter = await api.requestAdapter({ powerPreference: "high-performance" });
    if (!adapter) throw new Error("there is no adapter");
    const wanted: GPUFeatureName[] = [];
    if (options.f16 && !options.mobile) wanted.push("shader-f16");
    if (options.subgroups && !options.mobile) wanted.push("subgroups" as GPUFeatureName);
    const device = await adapter.requestDevice({
      label: "tapml",
      requiredFeatures: wanted.filter((feature) => adapter.features.has(feature)),
      requiredLimits: options.mobile ? {} : allLimits(adapter.limits),
    });
    return new Gpu(device, describe(adapter, device.limits, device.features, browser));
  }

  /** Runs calls whose errors are told when `settled` is next asked. `what` completes "could not …". */
  scoped<T>(seq: number, what: () => string, calls: () => T): T {
    const made = this.scope(calls, (error) => this.report(seq, explain(what(), error)));
    this.track(made.settled);
    return made.value;
  }

  /** `settled` waits for this scope too. */
  track(settled: Promise<void>): void {
    this.scopes.add(settled);
    void settled.then(() => this.scopes.delete(settled));
  }

  /** Runs calls, and gives the first error that they caused to `refused`. */
  scope<T>(calls: () => T, refused: (error: GPUError) => void | Promise<void>): { value: T; settled: Promise<void> } {
    const filters: GPUErrorFilter[] = ["internal", "out-of-memory", "validation"];
    filters.forEach((filter) => this.device.pushErrorScope(filter));
    let pops: Promise<GPUError | null>[] = [];
    let value: T;
    try {
      value = calls();
    } finally {
      // A lost device may refuse to pop; its loss is told by other means.
      pops = filters.map(() => this.device.popErrorScope().catch(() => null));
    }
    const settled = Promise.all(pops).then(async (errors) => {
      const error = errors.find((e) => e !== null);
      if (error) await refused(error);
    });
    return { value, settled };
  }

  /** Tells a failure of an unanswered request. */
  report(seq: number, failure: Failure): void {
    this.late.push({ seq, failure });
  }

  /** Waits until all errors of what was called so far are known. */
  async settled(): Promise<void> {
    while (this.scopes.size > 0) await Promise.all(this.scopes);
  }

  /** The failure of the earliest unanswered request since this was last asked, after `settled`. */
  takeLate(): Failure | undefined {
    const first = this.late.reduce<Late | undefined>((a, b) => (a && a.seq <= b.seq ? a : b), undefined);
    this.late = [];
    return first?.failure;
  }

  /** Whether there may be a failure to take. */
  get uncertain(): boolean {
    return this.scopes.size > 0 || this.late.length > 0;
  }

  /**
   * Gives the device back, with all that is on it, as soon as the GPU has done what it was given. To destroy a device
   * under a kernel that never ends would block the browser's GPU process, and every later device with it.
   */
  close(): void {
    this.gone = true;
    leaving.add(this);
    const destroy = (): void => {
      this.device.destroy();
      leaving.delete(this);
    };
    void this.device.queue.onSubmittedWorkDone().then(destroy, destroy);
  }

  /** How many devices were given back and are still busy. */
  static get busy(): number {
    return leaving.size;
  }
}

/** Devices that were given back and are still busy: were they collected, that would destroy them. */
const leaving = new Set<Gpu>();

/** The adapter's own limits, by name. */
function allLimits(limits: GPUSupportedLimits): Record<string, number> {
  const all: Record<string, number> = {};
  // Limits are accessors of the prototype, so that no list of them has to be kept here.
  for (const name in limits) {
    const value = (limits as unknown as Record<string, unknown>)[name];
    if (typeof value === "number" && !/SubgroupSize$/.test(name)) all[name] = value;
  }
  return all;
}

/** An error of WebGPU as a failure: its first line as the message, all of it as the detail `log`. */
export function explain(what: string, error: GPUError): Failure {
  const log = error.message.trim();
  const kernel = /\[(?:ComputePipeline|ShaderModule)[^"\]]*"([^"]+)"/.exec(log)?.[1];
  const failure = ((): Failure => {
    if (is(error, "GPUOutOfMemoryError")) {
      return new Failure(ErrorKind.OUT_OF_MEMORY, `could not ${what}: out of device memory`);
    }
    const kind = is(error, "GPUInternalError") ? ErrorKind.UNSUPPORTED : ErrorKind.INVALID_INPUT;
    return new Failure(kind, `could not ${what}: ${log.split("\n", 1)[0]}`);
  })();
  if (kernel) failure.with("kernel", kernel);
  return failure.with("log", log);
}

const is = (error: GPUError, name: string): boolean => error.constructor.name === name;

function within<T>(milliseconds: number, promise: Promise<T>): Promise<T> {
  return new Promise((done, fail) => {
    const timer = setTimeout(() => fail(new Error(`no answer within ${milliseconds / 1000} s`)), milliseconds);
    promise.then(done, fail).finally(() => clearTimeout(timer));
  });
}
