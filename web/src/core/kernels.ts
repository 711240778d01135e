// Kernels: from a text to a pipeline, and from a compiler's messages to errors that point into the kernel's own file.

import { BindingKind, ErrorKind, Language, type CreateKernel } from "../wire/gen/tapml_pb";
import { few, name } from "../wire/check";
import { Failure, beyond, invalid, unsupported } from "./failure";
import type { Gpu } from "./gpu";
import type { Info } from "./info";
import { MAX_TEXT } from "./limits";

/** A compiled kernel. */
export interface Kernel {
  id: number;
  name: string;
  kinds: BindingKind[];
  layout: GPUBindGroupLayout;
  pipeline: GPUComputePipeline;
}

/** What is compiled: the fields of CreateKernel that a kernel needs. */
export type KernelDesc = Omit<CreateKernel, "$typeName" | "$unknown" | "kernel" | "constants"> & { constants: { name: string; value: number }[] };

/** The layouts of a device by binding kinds; most kernels share a few. */
export class Layouts {
  private readonly known = new Map<string, [GPUBindGroupLayout, GPUPipelineLayout]>();

  constructor(private readonly device: GPUDevice) {}

  get(kinds: BindingKind[]): [GPUBindGroupLayout, GPUPipelineLayout] {
    const key = kinds.join();
    const found = this.known.get(key);
    if (found) return found;
    const entries = kinds.map((kind, binding): GPUBindGroupLayoutEntry => {
      return { binding, visibility: 4 /* COMPUTE */, buffer: { type: bufferType(kind) } };
    });
    const layout = this.device.createBindGroupLayout({ entries });
    const made: [GPUBindGroupLayout, GPUPipelineLayout] = [
      layout,
      this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    ];
    this.known.set(key, made);
    return made;
  }
}

function bufferType(kind: BindingKind): GPUBufferBindingType {
  if (kind === BindingKind.UNIFORM) return "uniform";
  return kind === BindingKind.READ ? "read-only-storage" : "storage";
}

/** Compiles a kernel that fits the device's limits. */
export async function compile(gpu: Gpu, layouts: Layouts, id: number, desc: KernelDesc): Promise<Kernel> {
  check(desc, gpu.info);
  const { text, added } = front(desc, gpu.info);
  let fault: Failure | undefined;
  let info: Promise<GPUCompilationInfo> | undefined;
  let compiled: Promise<GPUComputePipeline | Failure> | undefined;
  const scope = gpu.scope(
    () => {
      const [layout, pipelineLayout] = layouts.get(desc.bindings);
      const module = gpu.device.createShaderModule({ label: desc.name, code: text });
      info = module.getCompilationInfo();
      compiled = pipeline(gpu, desc, module, pipelineLayout);
      return layout;
    },
    (error) => {
      fault = refused(desc, error.message);
    },
  );
  const [messages, made] = await Promise.all([info, compiled, scope.settled]);
  const error = messages?.messages.find((m) => m.type === "error");
  if (error) throw refused(desc, error.message, placeOf(error, added));
  if (made instanceof Failure || !made) throw fault ?? made ?? refused(desc, "no pipeline came of it");
  if (fault) throw fault;
  return { id, name: desc.name, kinds: desc.bindings, layout: scope.value, pipeline: made };
}

async function pipeline(
  gpu: Gpu,
  desc: KernelDesc,
  module: GPUShaderModule,
  layout: GPUPipelineLayout,
): Promise<GPUComputePipeline | Failure> {
  const constants = Object.fromEntries(desc.constants.map((c) => [c.name, c.value]));
  try {
    const compute = { module, entryPoint: desc.entry, constants };
    return await gpu.device.createComputePipelineAsync({ label: desc.name, layout, compute });
  } catch (thrown) {
    return refused(desc, thrown instanceof Error ? thrown.message : String(thrown));
  }
}

/** Compares a kernel with limits and features before anything is compiled. */
function check(desc: KernelDesc, info: Info): void {
  name("kernel", desc.name);
  name("file", desc.file);
  name("entry", desc.entry);
  few("bindings", desc.bindings);
  few("constants", desc.constants).forEach((c) => name("constant", c.name));
  const refuse = (failure: Failure): never => {
    throw failure.with("kernel", desc.name);
  };
  if (desc.prelude.length + desc.text.length > MAX_TEXT) refuse(invalid(`the kernel's text is longer than ${MAX_TEXT}`));
  if (desc.language !== Language.WGSL) refuse(unsupported(`kernel \`${desc.name}\`: its language is unknown here`));
  if (desc.bindings.some((kind) => BindingKind[kind] === undefined)) {
    refuse(unsupported(`kernel \`${desc.name}\`: a binding is of a kind unknown here`));
  }
  const { workgroupX: x, workgroupY: y, workgroupZ: z } = desc;
  if (x === 0 || y === 0 || z === 0) {
    refuse(invalid(`kernel \`${desc.name}\` has workgroups of ${x} × ${y} × ${z} invocations`));
  }
  const l = info.limits;
  const rows: [limit: string, asked: number, offered: number][] = [
    ["max_storage_buffers", desc.bindings.filter((kind) => kind !== BindingKind.UNIFORM).length, l.max_storage_buffers],
    ["max_invocations", x * y * z, l.max_invocations],
    ["max_workgroup_size.x", x, l.max_workgroup_size[0]],
    ["max_workgroup_size.y", y, l.max_workgroup_size[1]],
    ["max_workgroup_size.z", z, l.max_workgroup_size[2]],
    ["max_workgroup_memory", desc.workgroupMemory, l.max_workgroup_memory],
  ];
  for (const [limit, asked, offered] of rows) {
    const text = `kernel \`${desc.name}\` needs ${limit} = ${asked}, ${info.name} offers ${offered}`;
    if (asked > offered) refuse(beyond(text, limit, asked, offered));
  }
  for (const [feature, needed, there] of [
    ["f16", desc.needsF16, info.f16],
    ["subgroups", desc.needsSubgroups, info.subgroups[1] > 0],
  ] as const) {
    const text = `kernel \`${desc.name}\` needs ${feature}, which ${info.name} does not have`;
    if (needed && !there) refuse(unsupported(text).with("feature", feature));
  }
}

/** A line that is one `enable` directive and nothing else. */
const ENABLE = /^[ \t]*enable[ \t]+([\w, \t]+);[ \t]*$/gm;

/**
 * The text as browsers want it, and how many characters stand before its first line. They demand `enable f16;` and
 * `enable subgroups;` before all declarations; lines keep their numbers.
 */
export function front(desc: Pick<KernelDesc, "prelude" | "text" | "needsF16">, info: Info): { text: string; added: number } {
  let f16 = desc.needsF16;
  const text = (desc.prelude + desc.text).replace(ENABLE, (line, list: string) => {
    const names = list.split(",").map((n) => n.trim()).filter((n) => n !== "");
    if (!names.every((n) => n === "f16" || n === "subgroups")) return line;
    f16 ||= names.includes("f16");
    return "";
  });
  const enabled = [f16 ? "enable f16; " : "", info.subgroups[1] > 0 ? "enable subgroups; " : ""].join("");
  return { text: enabled + text, added: enabled.length };
}

/** Where a message points in prelude and text; `undefined` if it points nowhere. */
function placeOf(message: GPUCompilationMessage, added: number): [line: number, column: number] | undefined {
  if (message.lineNum === 0) return undefined;
  return [message.lineNum, Math.max(1, message.lineNum === 1 ? message.linePos - added : message.linePos)];
}

/** The error of a kernel that was refused. */
function refused(desc: KernelDesc, log: string, place?: [line: number, column: number]): Failure {
  const full = desc.prelude + desc.text;
  const at = place ?? bindingPlace(full, log);
  const before = desc.prelude.split("\n").length - 1;
  const source = at && full.split("\n")[at[0] - 1]?.trim();
  const line = at && at[0] - before;
  const where = at === undefined ? desc.file : line! > 0 ? `${desc.file}:${line}:${at[1]}` : `${desc.file} (prelude):${at[0]}:${at[1]}`;
  const message = `kernel \`${desc.name}\` does not compile: ${where}: ${summary(log)}`;
  const failure = new Failure(ErrorKind.COMPILE, message).with("kernel", desc.name).with("file", desc.file);
  if (at && line! > 0) failure.with("line", line!).with("column", at[1]);
  if (source) failure.with("source", source);
  return failure.with("log", log.trim());
}

/** One line of what the compiler says. */
function summary(log: string): string {
  const lines = log.split("\n").map((l) => l.trim()).filter((l) => l !== "");
  return (lines[0] ?? "no reason given").replace(/^error: /, "");
}

/** The line that declares the binding which a pipeline error names, or the first of its group. */
function bindingPlace(full: string, log: string): [line: number, column: number] | undefined {
  const found = /@binding\((\d+)\)|binding(?: index)?[ :=(]*(\d+)/i.exec(log);
  const number = found?.[1] ?? found?.[2];
  const declaration = number !== undefined ? `@binding\\(\\s*${number}\\s*\\)` : / group 0\b/.test(log) ? "@group\\(\\s*0\\s*\\)" : undefined;
  if (declaration === undefined) return undefined;
  const line = full.split("\n").findIndex((l) => new RegExp(declaration).test(l));
  return line < 0 ? undefined : [line + 1, 1];
}
