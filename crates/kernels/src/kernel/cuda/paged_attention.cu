// Attention of rows of several texts whose keys and values lie in pages: see `paged_attention.cuh`.
//
// Constants: HEADS, KV_HEADS, D (64 or 128), SCALE, WINDOW (keys that a query sees at most; 0: all before it), PAGE, TEXTS and
// BLOCKS of the table of pages, DEPTH of a warp's ring, CLUSTER, blocks that can share a tile: 8, or 1 on chips without
// clusters; CLUSTER_ROWS up to which they do.
#include "paged_attention.cuh"

namespace {
struct Problem {
    static constexpr u32 heads = HEADS, kv_heads = KV_HEADS, d = D, window = WINDOW;
    static constexpr u32 page = PAGE, texts = TEXTS, blocks = BLOCKS, depth = DEPTH, cluster = CLUSTER;
    static constexpr double scale = SCALE;
};
}

extern "C" __global__ void __launch_bounds__(PagedShape<Problem>::threads) paged_attention(
    const __grid_constant__ Bindings<PagedShape<Problem>::count> in) {
    paged_attention_block<Problem>(in);
}
