#!/usr/bin/env python3
"""Compares the bits of sums that a Hopper chip's tensor cores make: `mma` of one warp with `wgmma` of four.

    tensor_core_sums.py [--nvrtc LIBRARY] [--blocks 400] [--k 4096]

Kernels for few rows use the first, those for many the second, and a row's result must be the same in both. Chains of 32 and of 256
products of f16 are added up from zero and then in f32, of numbers with narrow and with wide exponents and with subnormals. It
ends with 1 if a sum differs. It needs a Hopper chip, its driver, and NVRTC."""

import argparse
import array
import ctypes
import os
import sys

TEXT = r"""
typedef unsigned int u32; typedef unsigned short u16; typedef unsigned long long u64;
#define C4(c) "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
// Rows of 128 bytes, swizzled, as wgmma takes them.
__device__ u64 matrix(u32 at) { return (u64)((at & 0x3ffff) >> 4) | (u64)1 << 16 | 64ull << 32 | 1ull << 62; }
__device__ void wgmma(float* c, const u32* a, u64 b, u32 more) {
    asm volatile("wgmma.fence.sync.aligned;\n\t{.reg .pred p; setp.ne.u32 p, %13, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;}\n\t"
        "wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;"
        : C4(c), C4((c + 4)) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more) : "memory");
}
__device__ void mma(float* c, const u32* a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : C4(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Of each block 64 rows of w and 16 of x, K long; `chain` products of 16 are added up by the tensor cores.
extern "C" __global__ void sums(const u16* w, const u16* x, float* by_four, float* by_one, int k, int chain) {
    __shared__ __align__(1024) u16 tile[16 * 64];
    const u32 thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    const u32 base = (u32)__cvta_generic_to_shared(tile);
    w += (size_t)blockIdx.x * 64 * k;
    x += (size_t)blockIdx.x * 16 * k;
    float all[2][8] = {}, part[2][8] = {};
    for (int first = 0, at = 0; first < k; first += 64) {
        __syncthreads();
        for (u32 i = thread; i < 16 * 64; i += 128) {
            const u32 row = i / 64, byte = (row * 128 + i % 64 * 2) ^ (row & 7) << 4;
            tile[byte / 2] = x[(size_t)row * k + first + i % 64];
        }
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();
        for (u32 i = 0; i < 4; i++, at++) {
            const u16 *low = w + (size_t)(warp * 16 + g) * k + first + i * 16 + 2 * t, *high = low + 8 * (size_t)k;
            const u32 a[4] = {*(const u32*)low, *(const u32*)high, *(const u32*)(low + 8), *(const u32*)(high + 8)};
            if (at % chain == 0)
                for (int j = 0; j < 8; j++) part[0][j] = part[1][j] = 0;
            wgmma(part[0], a, matrix(base) + 2 * i, at % chain);
            for (u32 j = 0; j < 2; j++) {
                const u32 row = 8 * j + g, byte = row * 128 + i * 32 + t * 4, turn = (row & 7) << 4;
                mma(part[1] + 4 * j, a, tile[(byte ^ turn) / 2] | (u32)tile[(byte ^ turn) / 2 + 1] << 16,
                    tile[((byte + 16) ^ turn) / 2] | (u32)tile[((byte + 16) ^ turn) / 2 + 1] << 16);
            }
            if ((at + 1) % chain == 0)
                for (int j = 0; j < 8; j++) all[0][j] += part[0][j], all[1][j] += part[1][j];
        }
    }
    for (int j = 0; j < 8; j++) {
        by_four[(blockIdx.x * 128 + thread) * 8 + j] = all[0][j];
        by_one[(blockIdx.x * 128 + thread) * 8 + j] = all[1][j];
    }
}
"""
# The least upper byte of a number, and how many there are: signs apart, exponents and the first two bits of the fraction.
NUMBERS = {"narrow": (0x28, 8), "wide": (0x10, 0x30), "subnormal and all others": (0x00, 0x78)}


def check(status, what):
    if status:
        sys.exit(f"{what}: status {status}")


def halves(count, least, span):
    numbers = bytearray(os.urandom(2 * count))
    upper = bytes((least + i % span) | (i & 0x80) for i in range(256))
    numbers[1::2] = numbers[1::2].translate(upper)
    return bytes(numbers)


def compile_text(nvrtc):
    program = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), TEXT.encode(), b"sums.cu", 0, None, None), "NVRTC")
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90a")
    status, size = nvrtc.nvrtcCompileProgram(program, 1, options), ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    check(status, log.value.decode())
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, image)
    return image


class Device:
    def __init__(self, image):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, self.context, module, self.kernel = ctypes.c_int(), *(ctypes.c_void_p() for _ in range(3))
        check(self.cuda.cuInit(0), "the driver")
        check(self.cuda.cuDeviceGet(ctypes.byref(device), 0), "the device")
        check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device), "the context")
        check(self.cuda.cuCtxSetCurrent(self.context), "the context")
        check(self.cuda.cuModuleLoadData(ctypes.byref(module), image), "the kernel")
        check(self.cuda.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"sums"), "the kernel")

    def buffer(self, size, content=None):
        at = ctypes.c_uint64()
        check(self.cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)), "memory")
        if content:
            check(self.cuda.cuMemcpyHtoD_v2(at, content, ctypes.c_size_t(size)), "a copy")
        return at

    def read(self, at, size):
        content = ctypes.create_string_buffer(size)
        check(self.cuda.cuMemcpyDtoH_v2(content, at, ctypes.c_size_t(size)), "a copy")
        return array.array("I", content.raw)

    def sums(self, blocks, k, w, x, chain):
        size = blocks * 128 * 8 * 4
        w, x, results = self.buffer(len(w), w), self.buffer(len(x), x), [self.buffer(size) for _ in range(2)]
        numbers = [w, x, *results, ctypes.c_int(k), ctypes.c_int(chain)]
        arguments = (ctypes.c_void_p * len(numbers))(*(ctypes.addressof(n) for n in numbers))
        check(self.cuda.cuLaunchKernel(self.kernel, blocks, 1, 1, 128, 1, 1, 0, None, arguments, None), "the launch")
        check(self.cuda.cuCtxSynchronize(), "the run")
        found = [self.read(at, size) for at in results]
        for at in (w, x, *results):
            self.cuda.cuMemFree_v2(at)
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvrtc", default="libnvrtc.so", help="NVRTC's library")
    parser.add_argument("--blocks", type=int, default=400, help="blocks of 64 by 16 sums")
    parser.add_argument("--k", type=int, default=4096, help="products of a sum, a multiple of 256")
    options = parser.parse_args()
    if options.blocks < 1 or options.k < 256 or options.k % 256:
        parser.error("--blocks must be above 0, and --k a multiple of 256")
    device, differing = Device(compile_text(ctypes.CDLL(options.nvrtc))), 0
    for name, (least, span) in NUMBERS.items():
        w, x = (halves(options.blocks * rows * options.k, least, span) for rows in (64, 16))
        for chain in (2, 16):
            by_four, by_one = device.sums(options.blocks, options.k, w, x, chain)
            count = sum(a != b for a, b in zip(by_four, by_one))
            differing += count
            print(f"{name}, chains of {16 * chain}: {count} of {len(by_four)} sums differ")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
