// The sum of what a row's experts give, each times its weight, and of what a dense layer gives, times the sigmoid of its gate, for any
// number of rows in f16, rounded where separate kernels do. A thread has eight elements.
//
// Constants: WIDTH, a multiple of 8; SLOTS; ROWS_N, ROWS_P, ROWS_C: the rows.
#include "epilogue_gate.cuh"
#include "pipeline.cuh"

#define THREADS 256
#define EIGHTS (WIDTH / 8)

INLINE float rounded(float f) { return from_half(to_half(f)); }

extern "C" __global__ void __launch_bounds__(THREADS) moe_combine(const u16* y, const u16* weights, const u16* dense, const u16* gate, u16* sum,
    const u32* symbols) {
    const u32 at = blockIdx.x * THREADS + threadIdx.x, row = at / EIGHTS, piece = at % EIGHTS;
    launch_next();
    wait_previous();
    if (row >= rows_of<ROWS_N, ROWS_P, ROWS_C>(symbols)) return;
    float c[8] = {}, v[8];
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        load_eight(v, y, (row * SLOTS + s) * EIGHTS + piece, false);
        const float weight = from_half(Number<false>::load(weights + row * SLOTS + s));
#pragma unroll
        for (int j = 0; j < 8; j++) c[j] = fmaf(weight, v[j], c[j]);
    }
    load_eight(v, dense, at, false);
    const float g = from_half(Number<false>::load(gate + row)), share = rounded(sigmoid(g));
#pragma unroll
    for (int j = 0; j < 8; j++) c[j] = rounded(c[j]) + rounded(v[j] * share);
    ((Chunk*)sum)[at] = pack_eight(c);
}
