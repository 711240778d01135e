// y = x * factor * (OFFSET + w) for one row of x, or of a + b in f32, which is then written too: what `gemv.cuh` does in front of a product, to
// the bit. One block.
//
// Constants: K; WARPS; ADD: there is a b; EPS, OFFSET; NORM_DTYPE of w (0 f32, 1 f16, 2 bf16); ACT_F32: f32 instead of f16.
#include "operands.cuh"
#include "prologue_rms_norm.cuh"

#define THREADS (WARPS * 32)
#define EACH ((K / 8 + THREADS - 1) / THREADS)

INLINE void store_eight(const float (&v)[8], void* row, u32 at) {
    if constexpr (ACT_F32) {
        float4* to = (float4*)row + at * 2;
        to[0] = make_float4(v[0], v[1], v[2], v[3]);
        to[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        ((Chunk*)row)[at] = pack_eight(v);
    }
}

// The row, what is added to it, weights, the sum, the result.
extern "C" __global__ void __launch_bounds__(THREADS) rms_norm(const __grid_constant__ Bindings<4 + 2 * ADD> in) {
    const void *a = in.at[0], *b = in.at[ADD];
    const char* w = (const char*)in.at[1 + ADD];
    void *sum = (void*)in.at[1 + 2 * ADD], *y = (void*)in.at[2 + 2 * ADD];
    __shared__ float squares[(K + 255) / 256];
    launch_next();
    NormWeights<NORM_DTYPE> nw[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + threadIdx.x;
        if (at < K / 8) nw[i].load(w, at);
    }
    wait_previous();
    float v[EACH][8] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + threadIdx.x;
        if (at >= K / 8) break;
        load_eight(v[i], a, at, ACT_F32);
        if constexpr (ADD) {
            float other[8];
            load_eight(other, b, at, ACT_F32);
#pragma unroll
            for (int j = 0; j < 8; j++) v[i][j] += other[j];
            store_eight(v[i], sum, at);
        }
    }
    const float factor = norm_factor<K, THREADS, EACH>(v, squares, (float)EPS);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + threadIdx.x;
        if (at >= K / 8) break;
#pragma unroll
        for (int j = 0; j < 8; j++) v[i][j] = v[i][j] * factor * (nw[i][j] + (float)OFFSET);
        store_eight(v[i], y, at);
    }
}
