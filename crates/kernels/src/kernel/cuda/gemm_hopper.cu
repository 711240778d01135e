// Products of many rows on the tensor cores of a Hopper chip: see `gemm_hopper.cuh`.
//
// Constants: K, a multiple of 64; TILE, the rows of a tile, 64 or 128; SLICES of K that are added up last, 1 or 2; SKINNY, rows up
// to which warps multiply alone: 16, 32, or 0 for none; STRIPS of weights of a tile of theirs; SHARES, warps that share one; WIDE, the
// stages that they take at once of packed weights; GROUPS of four warps that multiply tiles; THREADS of a block; STAGES of the ring;
// FORMAT of the weights (1: f16; 4 and 8: integers of so many bits in groups of 32 with f16 scales); FLOAT: those of 8 bits are
// numbers of e4m3; RUN, the stages of f16 weights whose products the tensor cores add up; STAGGER: groups end the first run one
// after the other; PARTS weights of O0, O1, O2 outputs, each with an output of its own; GATED: two weights, y = silu(x w0) * (x w1);
// BIAS, of B_DTYPE (0 f32, 1 f16, 2 bf16); OUT_F32: y is f32 instead of f16; BLOCKS, the grid, an even number; ROWS_N, ROWS_P,
// ROWS_S, ROWS_C: the rows.
#include "gemm_hopper.cuh"

namespace {
struct Problem {
    typedef StorageOf<FLOAT ? 9 : FORMAT, 32, false>::type Storage;
    static constexpr u32 k = K, tile = TILE, groups = GROUPS, threads = THREADS, stages = STAGES, run = RUN, parts = PARTS, o0 = O0, o1 = O1, o2 = O2;
    static constexpr u32 slices = SLICES, skinny = SKINNY, strips = STRIPS, shares = SHARES, wide = WIDE;
    static constexpr u32 blocks = BLOCKS, rows_n = ROWS_N, rows_p = ROWS_P, rows_s = ROWS_S, rows_c = ROWS_C;
    static constexpr bool stagger = STAGGER, gated = GATED, bias = BIAS, out_f32 = OUT_F32;
    static constexpr int bias_dtype = B_DTYPE;
};
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(GemmShape<Problem>::threads, 1) gemm_hopper(
    const __grid_constant__ GemmShape<Problem>::Bound in) {
    gemm_block<Problem>(in);
}
