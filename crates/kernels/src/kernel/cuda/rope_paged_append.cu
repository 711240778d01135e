// Rotates queries; rotates keys, and writes them, and values as they are, to the rows of pages that slots name.
//
// Constants: HEADS, KV_HEADS, D, a multiple of 16, SLOTS, the rows of the pages. A thread takes 8 elements of the first half of a head
// and those of the second half that turn with them.
#include "pipeline.cuh"
#include "rotate.cuh"

#define THREADS 128
#define PARTS (D / 16)
#define OF_ROW ((HEADS + 2 * KV_HEADS) * PARTS)

extern "C" __global__ void __launch_bounds__(THREADS) rope_paged_append(
    const u16* q, const u16* k, const u16* v, const float* angles, const u32* slots, u16* rotated, u16* keys, u16* values, const u32* symbols) {
    const u32 n = symbols[0], item = blockIdx.x * THREADS + threadIdx.x, row = item / OF_ROW;
    launch_next();
    wait_previous();
    if (row >= n) return;
    const u32 part = item % PARTS, head = item % OF_ROW / PARTS, slot = slots[row];
    const u32 kv_head = head < HEADS ? 0 : (head - HEADS) % KV_HEADS;
    const size_t of_query = ((size_t)row * HEADS + head) * D + part * 8;
    const size_t from = ((size_t)row * KV_HEADS + kv_head) * D + part * 8, to = ((size_t)slot * KV_HEADS + kv_head) * D + part * 8;
    // Rows of no page are kept nowhere.
    if (head >= HEADS && slot >= SLOTS) return;
    if (head >= HEADS + KV_HEADS) {
        copy_eight<D>(values + to, v + from);
        return;
    }
    const bool is_query = head < HEADS;
    rotate_eight<D>(is_query ? rotated + of_query : keys + to, is_query ? q + of_query : k + from, angles + (size_t)row * D + part * 8);
}
