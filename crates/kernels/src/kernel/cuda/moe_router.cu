// For one row: y = rms_norm(x), the router's logits, the experts that they choose with their weights, and the share of a dense layer
// beside them, sigmoid(y * gate). One cluster of blocks; a warp has an output of the router, or the gate. What separate kernels
// round is rounded here.
//
// Constants: K, a multiple of 256; EXPERTS; SLOTS; WARPS of a block; SCORES (0 softmax, 1 sigmoid, 2 softmax of the chosen ones), by which
// NORMALIZE and SCALE weigh (see `route`); W_DTYPE of router and gate (0 f32, 1 f16, 2 bf16); NORM_DTYPE, EPS, OFFSET of the norm; ACT_F32:
// f32 instead of f16.
#include "epilogue_gate.cuh"
#include "pipeline.cuh"
#include "prologue_rms_norm.cuh"

#define THREADS (WARPS * 32)
#define EACH ((K / 8 + THREADS - 1) / THREADS)
#define BLOCKS 8
#define LOADS (K / 256)          // eights of a lane
#define MINE ((EXPERTS + 31) / 32) // logits of a lane
#define LOWEST (-3.4028234663852886e38f)

typedef Number<ACT_F32> Act;
typedef Act::type act_t;
INLINE act_t to_act(float f) { return Act::to(f); }
INLINE float rounded(float f) { return Act::from(Act::to(f)); }

// Writes to the first block's memory.
INLINE void tell(u32 at, float f) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(map_shared(at, 0)), "f"(f) : "memory");
}
INLINE float sum_of(float f) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) f += __shfl_xor_sync(~0u, f, o);
    return f;
}
INLINE float largest_of(float f) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) f = fmaxf(f, __shfl_xor_sync(~0u, f, o));
    return f;
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1) moe_router(
    const void* x, const char* __restrict__ norm_w, const char* __restrict__ router, const char* __restrict__ gate,
    act_t* y, u32* experts, act_t* weights, act_t* share, const u32* symbols) {
    __shared__ __align__(16) float row[K];
    __shared__ float logits[EXPERTS + 1];
    __shared__ float squares[(K + 255) / 256];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, block = blockIdx.x;
    launch_next();
    const u32 output = block * WARPS + warp;
    NormWeights<W_DTYPE> w[LOADS];
    if (output <= EXPERTS) {
        const char* from = output < EXPERTS ? router + (size_t)output * K * (W_DTYPE ? 2 : 4) : gate;
#pragma unroll
        for (int i = 0; i < LOADS; i++) w[i].load(from, i * 32 + lane);
    }
    NormWeights<NORM_DTYPE> nw[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + thread;
        if (at < K / 8) nw[i].load(norm_w, at);
    }
    // The first block is there to be written to.
    cluster_sync();
    wait_previous();
    float v[EACH][8] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + thread;
        if (at < K / 8) load_eight(v[i], x, at, ACT_F32);
    }
    const float factor = norm_factor<K, THREADS, EACH>(v, squares, (float)EPS);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + thread;
        if (at >= K / 8) break;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float f = v[i][j] * factor * (nw[i][j] + (float)OFFSET);
            row[at * 8 + j] = rounded(f);
            if (block == BLOCKS - 1) y[at * 8 + j] = to_act(f);
        }
    }
    __syncthreads();
    if (output <= EXPERTS) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const float4* from = (const float4*)(row + (i * 32 + lane) * 8);
            const float4 a = from[0], b = from[1];
            add_eight(sum, a, b, w[i]);
        }
        sum = sum_of(sum);
        if (lane == 0) tell(address(&logits[output]), rounded(sum));
    }
    cluster_sync();
    if (block > 0 || warp > 0) return;

    if (lane == 31) share[0] = to_act(sigmoid(logits[EXPERTS]));
    float key[MINE], top = LOWEST;
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        const u32 e = i * 32 + lane;
        const float l = e < EXPERTS ? logits[e] : LOWEST;
        top = fmaxf(top, l);
        key[i] = l != l ? LOWEST : fmaxf(l, LOWEST);
    }
    float total = 1;
    if (SCORES == 0) {
        top = largest_of(top);
        float own = 0;
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            const u32 e = i * 32 + lane;
            if (e < EXPERTS) own += expf(logits[e] - top);
        }
        total = sum_of(own);
    }
    // Of equal ones the first is the best.
    u32 taken = 0, chosen = 0;
    for (u32 slot = 0; slot < SLOTS; slot++) {
        float best = LOWEST;
        u32 at = ~0u;
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            const u32 e = i * 32 + lane;
            const bool open = e < EXPERTS && !(taken >> i & 1);
            if (open && (key[i] > best || (key[i] == best && e < at))) best = key[i], at = e;
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) {
            const float other = __shfl_xor_sync(~0u, best, o);
            const u32 place = __shfl_xor_sync(~0u, at, o);
            if (other > best || (other == best && place < at)) best = other, at = place;
        }
        if ((at & 31) == lane) taken |= 1u << (at >> 5);
        if (lane == slot) chosen = at;
    }
    const bool has = lane < SLOTS;
    float weight = logits[has ? chosen : 0];
    if (SCORES == 0) weight = expf(weight - top) / total;
    if (SCORES == 1) weight = sigmoid(weight);
    if (SCORES == 2) {
        const float best = largest_of(has ? weight : LOWEST);
        weight = has ? expf(weight - best) : 0;
        weight /= sum_of(weight);
    }
    if (NORMALIZE) weight /= sum_of(has ? weight : 0) + 1e-20f;
    if (has) {
        experts[lane] = chosen;
        weights[lane] = to_act(weight * (float)SCALE);
    }
}
