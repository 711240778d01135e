// The sum of what a row's experts give, each times its weight, and of what a dense layer gives, times the sigmoid of its gate, for any
// number of rows in f16, rounded where separate kernels do. A thread has eight elements.
//
// Constants: WIDTH, a multiple of 8; SLOTS; ROWS_N, ROWS_P, ROWS_C: the rows.
#define THREADS 256
#define EIGHTS (WIDTH / 8)

INLINE float rounded(float f) { return from_half(to_half(f)); }
INLINE float number(const u16* at) {
    u16 h;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(h) : "l"(at) : "memory");
    return from_half(h);
}

extern "C" __global__ void __launch_bounds__(THREADS) mix(const u16* y, const u16* weights, const u16* dense, const u16* gate, u16* sum,
    const u32* symbols) {
    const u32 at = blockIdx.x * THREADS + threadIdx.x, row = at / EIGHTS, piece = at % EIGHTS;
    launch_next();
    wait_previous();
    if (row >= ROWS_N * symbols[0] + ROWS_P * symbols[1] + ROWS_C) return;
    float c[8] = {}, v[8];
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        load_eight(v, y, (row * SLOTS + s) * EIGHTS + piece, false);
        const float weight = number(weights + row * SLOTS + s);
#pragma unroll
        for (int j = 0; j < 8; j++) c[j] = fmaf(weight, v[j], c[j]);
    }
    load_eight(v, dense, at, false);
    const float g = number(gate + row), e = expf(-fabsf(g)), share = rounded((g < 0 ? e : 1.0f) / (1.0f + e));
#pragma unroll
    for (int j = 0; j < 8; j++) c[j] = rounded(c[j]) + rounded(v[j] * share);
    Words h;
    h.x = pack(c[0], c[1]); h.y = pack(c[2], c[3]); h.z = pack(c[4], c[5]); h.w = pack(c[6], c[7]);
    ((Words*)sum)[at] = h;
}
