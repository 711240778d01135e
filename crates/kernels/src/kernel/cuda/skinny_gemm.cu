// y = x * transposed w (+ bias) for few outputs, any number of rows: routers and gates. Each block has ROWS rows of x, in f32 in shared
// memory, and 4 outputs in each warp; lanes share the row length, eight elements at a time.
//
// Constants: K, a multiple of 8; O, the outputs; W_DTYPE (0 f32, 1 f16, 2 bf16); BIAS, of B_DTYPE; OUT_F32: y is f32 instead of f16;
// ROWS_N, ROWS_P, ROWS_S, ROWS_C: the rows.
#include "operands.cuh"
#include "prologue_rms_norm.cuh"

#define WARPS 8
#define THREADS (WARPS * 32)
#define ROWS 4
#define EACH 4                    // outputs of a warp
#define EIGHTS (K / 8)

typedef Number<OUT_F32> Out;

extern "C" __global__ void __launch_bounds__(THREADS) skinny_gemm(const __grid_constant__ Bindings<4 + BIAS> in) {
    const void *x = in.at[0], *bias = in.at[1 + BIAS];
    const char* w = (const char*)in.at[1];
    Out::type* y = (Out::type*)in.at[2 + BIAS];
    const u32* symbols = (const u32*)in.at[3 + BIAS];
    extern __shared__ __align__(16) char memory[];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    const u32 first_row = blockIdx.x * ROWS, first = (blockIdx.y * WARPS + warp) * EACH;
    const u32 rows = rows_of<ROWS_N, ROWS_P, ROWS_C, ROWS_S>(symbols);
    launch_next();
    wait_previous();
    // Rows behind the last repeat it. The halves of eight elements lie apart, so that lanes read from all banks.
    float4* held = (float4*)memory;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        const u32 row = first_row + r < rows ? first_row + r : rows - 1;
        const char* from = (const char*)x + (size_t)row * (K * 2);
        for (u32 at = thread; at < EIGHTS; at += THREADS) {
            float v[8];
            load_eight(v, from, at, false);
            held[(r * 2) * EIGHTS + at] = make_float4(v[0], v[1], v[2], v[3]);
            held[(r * 2 + 1) * EIGHTS + at] = make_float4(v[4], v[5], v[6], v[7]);
        }
    }
    __syncthreads();
    if (first >= O) return;
    float sums[EACH][ROWS] = {};
    for (u32 at = lane; at < EIGHTS; at += 32) {
        NormWeights<W_DTYPE> v[EACH];
#pragma unroll
        for (int o = 0; o < EACH; o++) {
            const u32 output = first + o < O ? first + o : O - 1;
            v[o].load(w + (size_t)output * K * (W_DTYPE ? 2 : 4), at);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float4 a = held[(r * 2) * EIGHTS + at], b = held[(r * 2 + 1) * EIGHTS + at];
#pragma unroll
            for (int o = 0; o < EACH; o++) {
                float& sum = sums[o][r];
                add_eight(sum, a, b, v[o]);
            }
        }
    }
#pragma unroll
    for (int o = 0; o < EACH; o++) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float sum = sums[o][r];
#pragma unroll
            for (int i = 16; i > 0; i >>= 1) sum += __shfl_xor_sync(~0u, sum, i);
            const u32 output = first + o, row = first_row + r;
            if (lane == o * ROWS + r && output < O && row < rows) {
                if constexpr (BIAS) sum += constant_element<B_DTYPE>(bias, output);
                y[(size_t)row * O + output] = Out::to(sum);
            }
        }
    }
}
