// Attention of many rows over the cache: see `flash_prefill.cuh`.
//
// Constants: HEADS, KV_HEADS, D (64 or 128), SCALE, WINDOW (keys that a query sees at most; 0: all before it), JOINED: the
// queries are rotated by the angles first.
#include "flash_prefill.cuh"

namespace {
struct Problem {
    static constexpr u32 heads = HEADS, kv_heads = KV_HEADS, d = D, window = WINDOW;
    static constexpr bool fused = JOINED;
    static constexpr double scale = SCALE;
};
}

extern "C" __global__ void __launch_bounds__(PrefillStage<Problem>::threads) flash_prefill(
    const __grid_constant__ Bindings<PrefillShape<Problem>::count> in) {
    flash_prefill_block<Problem>(in);
}
