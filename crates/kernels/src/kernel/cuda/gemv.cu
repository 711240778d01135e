// y = x * transposed w for one row of x: see `gemv.cuh`.
//
// Constants: K; TEAMS; WARPS, of a team; DEPTH, the stages of a ring; FORMAT (1 f16, 2 bf16, 4 and 8 bits in groups of GROUP, 9 numbers
// of e4m3 likewise); ZEROS: groups have zero points of their own; PLANES, the parts that x is taken in; PARTS weights of O0, O1, O2
// outputs, each with an output of its own; GATED: two weights, y = silu(x w0) * (x w1); NORM: x is taken through rms_norm first, with
// EPS, OFFSET and weights of NORM_DTYPE (0 f32, 1 f16, 2 bf16); BIAS, of B_DTYPE; RESIDUAL: y += r, once y is rounded; ACT_F32,
// OUT_F32: x and y are f32 instead of f16; TOGETHER, the tiles whose sums are added up at once; MIN_BLOCKS.
#include "gemv.cuh"

namespace {
struct Problem {
    typedef StorageOf<FORMAT, GROUP, ZEROS>::type Storage;
    static constexpr u32 k = K, teams = TEAMS, warps = WARPS, depth = DEPTH, together = TOGETHER, planes = PLANES;
    static constexpr u32 parts = PARTS, o0 = O0, o1 = O1, o2 = O2;
    static constexpr u32 experts = 0, slots = 0, beside = 0, mixed = 0, split = 1;
    static constexpr bool gated = GATED, norm = NORM, bias = BIAS, residual = RESIDUAL, shared = false;
    static constexpr bool act_f32 = ACT_F32, out_f32 = OUT_F32;
    static constexpr int norm_dtype = NORM_DTYPE, bias_dtype = B_DTYPE;
    static constexpr float eps = (float)EPS, offset = (float)OFFSET;
};
}

extern "C" __global__ void __launch_bounds__(TEAMS * WARPS * 32, MIN_BLOCKS) gemv(
    const __grid_constant__ Bindings<GemvOperands<Problem>::COUNT> bound) {
    gemv_block<Problem>(bound);
}
