// Products of many rows with the matrices of chosen experts: see `grouped_gemm.cuh`.
//
// Constants: K; O, outputs of an expert; EXPERTS; SLOTS; SHARED: the slots of a row take the same x instead of a row each; FORMAT (1 f16,
// 4: integers of 4 bits in groups of 32 with f16 scales); GATED: two weights, y = silu(x w0) * (x w1); DEPTH, the stages of the ring.
#include "grouped_gemm.cuh"

namespace {
struct Problem {
    typedef StorageOf<FORMAT, 32, false>::type Storage;
    static constexpr u32 k = K, o = O, experts = EXPERTS, slots = SLOTS, depth = DEPTH;
    static constexpr bool shared = SHARED, gated = GATED;
};
}

extern "C" __global__ void __launch_bounds__(GroupedShape<Problem>::threads, 2) grouped_gemm(
    const __grid_constant__ Bindings<GroupedShape<Problem>::count> in) {
    grouped_gemm_block<Problem>(in);
}
