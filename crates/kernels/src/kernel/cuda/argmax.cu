// The index of the greatest of WIDTH numbers, the first of equal ones: a cluster of blocks, each of which takes every
// eighth run of them. It stands behind the p indices that were found before, as that of the last of n new rows; those before
// it have ~0. Where a number is NaN or +infinity, or none is above -infinity, ~0 stands there, and 0 in `next`.
#include "pipeline.cuh"

#define SPLITS 8
#define WARPS (THREADS / 32)

// Orders as the number does, then the first place; 0 stands for -infinity. The places of the highest and of 0 are ~0.
INLINE u64 key_of(float f, u32 at) {
    const u32 bits = __float_as_uint(f + 0.0f), order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    if (f == -__int_as_float(0x7f800000)) return 0;
    const bool good = f < __int_as_float(0x7f800000);
    return good ? ((u64)order << 32) | (0xffffffffu - at) : 0xffffffff00000000ull;
}
INLINE u64 higher(u64 a, u64 b) { return a > b ? a : b; }
INLINE u64 read_key(u32 block, u32 at) {
    u64 key;
    asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(key) : "r"(map_shared(at, block)) : "memory");
    return key;
}

extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(THREADS) argmax(
    const volatile float* numbers, u32* next, u32* found, const u32* symbols) {
    __shared__ u64 best_of[WARPS];
    __shared__ u64 best_here;
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    wait_previous();
    launch_next();
    u64 best = 0;
#pragma unroll 8
    for (u32 i = blockIdx.x * THREADS + thread; i < WIDTH; i += SPLITS * THREADS) {
        best = higher(best, key_of(numbers[i], i));
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) best = higher(best, __shfl_xor_sync(~0u, best, o));
    if (lane == 0) best_of[warp] = best;
    __syncthreads();
    if (thread == 0) {
        for (u32 w = 1; w < WARPS; w++) best = higher(best, best_of[w]);
        best_here = best;
    }
    cluster_sync();
    if (blockIdx.x == 0 && thread == 0) {
        const u32 at = address(&best_here);
        for (u32 s = 1; s < SPLITS; s++) best = higher(best, read_key(s, at));
        const u32 place = 0xffffffffu - (u32)best;
        *next = place == 0xffffffffu ? 0 : place;
        const u32 n = symbols[0], p = symbols[1];
        for (u32 row = 0; row + 1 < n; row++) found[p + row] = 0xffffffffu;
        found[p + n - 1] = place;
    }
    cluster_sync();
}
