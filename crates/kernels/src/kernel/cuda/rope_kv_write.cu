// Rotates new keys by their angles and writes them, and the new values as they are, behind the cached rows.
//
// Constants: KV_HEADS, D. A thread takes 8 elements of the first half of a head and those of the second half that turn with
// them.
#include "pipeline.cuh"
#include "rotate.cuh"

#define THREADS 256
#define PARTS (D / 16)
#define OF_ROW (KV_HEADS * PARTS)

extern "C" __global__ void __launch_bounds__(THREADS) rope_kv_write(
    const u16* k, const u16* v, const float* angles, u16* k_cache, u16* v_cache, const u32* symbols) {
    const u32 n = symbols[0], p = symbols[1], item = blockIdx.x * THREADS + threadIdx.x, row = item / OF_ROW;
    launch_next();
    wait_previous();
    if (row >= n) return;
    const u32 part = item % PARTS, head = item % OF_ROW / PARTS;
    const size_t from = ((size_t)row * KV_HEADS + head) * D + part * 8, to = from + (size_t)p * KV_HEADS * D;
    copy_eight<D>(v_cache + to, v + from);
    rotate_eight<D>(k_cache + to, k + from, angles + (size_t)row * D + part * 8);
}
