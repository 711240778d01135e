// Attention of many rows over the cache on a Hopper chip: see `flash_prefill_hopper.cuh`.
//
// Constants: HEADS, KV_HEADS, D (64 or 128), SCALE, WINDOW (keys that a query sees at most; 0: all before it), JOINED: the
// queries are rotated by the angles first.
#include "flash_prefill_hopper.cuh"

namespace {
struct Problem {
    static constexpr u32 heads = HEADS, kv_heads = KV_HEADS, d = D, window = WINDOW;
    static constexpr bool fused = JOINED;
    static constexpr double scale = SCALE;
};
}

extern "C" __global__ void __launch_bounds__(PrefillHopper<Problem>::threads, 1) flash_prefill_hopper(
    const __grid_constant__ Bindings<PrefillShape<Problem>::count> in) {
    flash_prefill_hopper_block<Problem>(in);
}
