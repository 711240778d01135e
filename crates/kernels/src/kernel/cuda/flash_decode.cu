// Attention of one query row over a cache: see `flash_decode.cuh`.
//
// Constants: HEADS, KV_HEADS, D, WARPS, DEPTH, the stages of a warp's ring, SCALE, JOINED: the kernel rotates queries and keys itself,
// and writes the new cache row.
#include "flash_decode.cuh"

namespace {
struct Problem {
    static constexpr u32 heads = HEADS, kv_heads = KV_HEADS, d = D, warps = WARPS, depth = DEPTH;
    static constexpr bool fused = JOINED;
    static constexpr double scale = SCALE;
};
}

extern "C" __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(WARPS * 32) flash_decode(
    const __grid_constant__ Bindings<DecodeShape<Problem>::count> in) {
    flash_decode_block<Problem>(in);
}
