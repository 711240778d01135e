// Rotates new keys by their angles and writes them, and the new values as they are, behind the cached rows.
//
// Constants: KV_HEADS, D. A thread takes 8 elements of the first half of a head and those of the second half that turn with
// them.
#include "pipeline.cuh"

#define THREADS 256
#define PARTS (D / 16)
#define OF_ROW (KV_HEADS * PARTS)

struct alignas(16) Eight { u32 w[4]; };

extern "C" __global__ void __launch_bounds__(THREADS) rope_kv_write(
    const u16* k, const u16* v, const float* angles, u16* k_cache, u16* v_cache, const u32* symbols) {
    const u32 n = symbols[0], p = symbols[1], item = blockIdx.x * THREADS + threadIdx.x, row = item / OF_ROW;
    launch_next();
    wait_previous();
    if (row >= n) return;
    const u32 part = item % PARTS, head = item % OF_ROW / PARTS;
    const size_t from = ((size_t)row * KV_HEADS + head) * D + part * 8, to = from + (size_t)p * KV_HEADS * D;
    *(Eight*)(v_cache + to) = *(const Eight*)(v + from);
    *(Eight*)(v_cache + to + D / 2) = *(const Eight*)(v + from + D / 2);
    const Eight first = *(const Eight*)(k + from), second = *(const Eight*)(k + from + D / 2);
    const float2* turn = (const float2*)(angles + (size_t)row * D + part * 8);
    Eight low_half, high_half;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 cosine = turn[j], sine = turn[D / 4 + j];
        const u32 a = first.w[j], b = second.w[j];
        low_half.w[j] = pack(low(a) * cosine.x - low(b) * sine.x, high(a) * cosine.y - high(b) * sine.y);
        high_half.w[j] = pack(low(b) * cosine.x + low(a) * sine.x, high(b) * cosine.y + high(a) * sine.y);
    }
    *(Eight*)(k_cache + to) = low_half;
    *(Eight*)(k_cache + to + D / 2) = high_half;
}
