// y = x * transposed w for one row and the matrices of its experts: see `gemv.cuh`.
//
// Constants: those of `gemv.cu`, but none of a norm. The weight is a stack of EXPERTS, of O0 outputs each, of which SLOTS are taken, as a
// kernel before has chosen; SHARED: all take the same x instead of a row each. BESIDE (with GATED): a dense weight of so many
// outputs, on the same x, with an output of its own; its tiles come first, so that they are asked for early. MIXED: one output, of
// which each SPLIT warps have a slot, or one of so many runs of K of a dense weight's rows and of x1: the slots' results times their
// weights are added up, and the dense one times its share. One that is chosen and does not exist gives zeros.
#include "gemv.cuh"

namespace {
struct Problem {
    typedef StorageOf<FORMAT, GROUP, ZEROS>::type Storage;
    static constexpr u32 k = K, teams = TEAMS, warps = WARPS, depth = DEPTH, together = TOGETHER, planes = PLANES;
    static constexpr u32 parts = PARTS, o0 = O0, o1 = O1, o2 = O2;
    static constexpr u32 experts = EXPERTS, slots = SLOTS, beside = BESIDE, mixed = MIXED, split = SPLIT;
    static constexpr bool gated = GATED, norm = NORM, bias = BIAS, residual = RESIDUAL, shared = SHARED;
    static constexpr bool act_f32 = ACT_F32, out_f32 = OUT_F32;
    static constexpr int norm_dtype = NORM_DTYPE, bias_dtype = B_DTYPE;
    static constexpr float eps = (float)EPS, offset = (float)OFFSET;
};
}

extern "C" __global__ void __launch_bounds__(TEAMS * WARPS * 32, MIN_BLOCKS) moe_gemv(
    const __grid_constant__ Bindings<GemvOperands<Problem>::COUNT> bound) {
    gemv_block<Problem>(bound);
}
