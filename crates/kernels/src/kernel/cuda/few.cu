// y = x * transposed w (+ bias) for few outputs, any number of rows: routers and gates. Each block has ROWS rows of x, in f32 in shared
// memory, and 4 outputs in each warp; lanes share the row length, eight elements at a time.
//
// Constants: K, a multiple of 8; O, the outputs; W_DTYPE (0 f32, 1 f16, 2 bf16); BIAS, of B_DTYPE; OUT_F32: y is f32 instead of f16;
// ROWS_N, ROWS_P, ROWS_C: the rows.
#define WARPS 8
#define THREADS (WARPS * 32)
#define ROWS 4
#define EACH 4                    // outputs of a warp
#define EIGHTS (K / 8)

#if OUT_F32
typedef float out_t;
INLINE out_t to_out(float f) { return f; }
#else
typedef u16 out_t;
INLINE out_t to_out(float f) { return to_half(f); }
#endif

extern "C" __global__ void __launch_bounds__(THREADS) few(const void* x, const char* __restrict__ w,
#if BIAS
    const void* __restrict__ bias,
#endif
    out_t* y, const u32* symbols) {
    extern __shared__ __align__(16) char memory[];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    const u32 first_row = blockIdx.x * ROWS, first = (blockIdx.y * WARPS + warp) * EACH;
    const u32 rows = ROWS_N * symbols[0] + ROWS_P * symbols[1] + ROWS_C;
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
        Weights<W_DTYPE> v[EACH];
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
                sum = fmaf(a.x, v[o][0], sum); sum = fmaf(a.y, v[o][1], sum); sum = fmaf(a.z, v[o][2], sum); sum = fmaf(a.w, v[o][3], sum);
                sum = fmaf(b.x, v[o][4], sum); sum = fmaf(b.y, v[o][5], sum); sum = fmaf(b.z, v[o][6], sum); sum = fmaf(b.w, v[o][7], sum);
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
#if BIAS
#if B_DTYPE == 0
                sum += ((const float*)bias)[output];
#elif B_DTYPE == 1
                sum += from_half(((const u16*)bias)[output]);
#else
                sum += __uint_as_float((u32)((const u16*)bias)[output] << 16);
#endif
#endif
                y[(size_t)row * O + output] = to_out(sum);
            }
        }
    }
}
