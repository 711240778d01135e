// What a device tells about itself: identity, limits and features.

import { create } from "@bufbuild/protobuf";
import { AdapterKind, DeviceInfoSchema, type DeviceInfo } from "../wire/gen/tapml_pb";

/** Limits as numbers, under the names that errors use. */
export interface Limits {
  max_buffer_size: number;
  max_binding_size: number;
  max_uniform_size: number;
  max_storage_buffers: number;
  max_invocations: number;
  max_workgroup_size: [x: number, y: number, z: number];
  max_workgroup_memory: number;
  max_groups_per_dim: number;
  min_offset_alignment: number;
}

/** Identity, limits and features of a device. */
export interface Info {
  name: string;
  driver: string;
  kind: AdapterKind;
  limits: Limits;
  f16: boolean;
  /** Smallest and largest subgroup; zeros if there are none. */
  subgroups: [min: number, max: number];
}

/** The largest number that the wire carries. */
const words = (value: number): number => Math.min(value - (value % 4), Number.MAX_SAFE_INTEGER - 3);

/** What an adapter offers; with the limits and features of a device, what that offers. */
export function describe(
  adapter: GPUAdapter,
  limits: GPUSupportedLimits,
  features: GPUSupportedFeatures,
  browser: string,
): Info {
  const info = adapter.info;
  const max = words(limits.maxBufferSize);
  const subgroups = features.has("subgroups" as GPUFeatureName);
  return {
    name: nameOf(info),
    driver: browser,
    kind: isSoftware(info) ? AdapterKind.CPU : AdapterKind.OTHER,
    limits: {
      max_buffer_size: max,
      max_binding_size: Math.min(words(limits.maxStorageBufferBindingSize), max),
      max_uniform_size: Math.min(words(limits.maxUniformBufferBindingSize), max),
      max_storage_buffers: limits.maxStorageBuffersPerShaderStage,
      max_invocations: limits.maxComputeInvocationsPerWorkgroup,
      max_workgroup_size: [
        limits.maxComputeWorkgroupSizeX,
        limits.maxComputeWorkgroupSizeY,
        limits.maxComputeWorkgroupSizeZ,
      ],
      max_workgroup_memory: limits.maxComputeWorkgroupStorageSize,
      max_groups_per_dim: limits.maxComputeWorkgroupsPerDimension,
      min_offset_alignment: Math.max(limits.minStorageBufferOffsetAlignment, limits.minUniformBufferOffsetAlignment),
    },
    f16: features.has("shader-f16"),
    subgroups: subgroups ? [info.subgroupMinSize ?? 4, info.subgroupMaxSize ?? 128] : [0, 0],
  };
}

/** For the wire. */
export function infoToWire(info: Info): DeviceInfo {
  const l = info.limits;
  const [x, y, z] = l.max_workgroup_size;
  return create(DeviceInfoSchema, {
    platform: "webgpu",
    name: info.name,
    driver: info.driver,
    kind: info.kind,
    limits: {
      maxBufferSize: BigInt(l.max_buffer_size),
      maxBindingSize: BigInt(l.max_binding_size),
      maxUniformSize: BigInt(l.max_uniform_size),
      maxStorageBuffers: l.max_storage_buffers,
      maxInvocations: l.max_invocations,
      maxWorkgroupSizeX: x,
      maxWorkgroupSizeY: y,
      maxWorkgroupSizeZ: z,
      maxWorkgroupMemory: l.max_workgroup_memory,
      maxGroupsPerDim: l.max_groups_per_dim,
      minOffsetAlignment: l.min_offset_alignment,
    },
    features: [
      ...(info.f16 ? [{ name: "f16", value: "true" }] : []),
      ...(info.subgroups[1] > 0 ? [{ name: "subgroups", value: JSON.stringify(info.subgroups) }] : []),
    ],
  });
}

/** Browsers tell more or less of a GPU; all of what they tell, once. */
function nameOf(info: GPUAdapterInfo): string {
  const parts = [info.vendor, info.architecture, info.device, info.description].map((p) => p.trim());
  const distinct = parts.filter((part, i) => part !== "" && !parts.some((p, j) => j !== i && contains(p, part, i > j)));
  return distinct.join(" ") || "a WebGPU adapter";
}

const contains = (whole: string, part: string, earlier: boolean): boolean =>
  whole.toLowerCase().includes(part.toLowerCase()) && (whole.length > part.length || earlier);

const isSoftware = (info: GPUAdapterInfo): boolean =>
  info.isFallbackAdapter === true || /swiftshader|llvmpipe|lavapipe|warp|basic render/i.test(nameOf(info));
