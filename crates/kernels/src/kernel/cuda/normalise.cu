// rms_norm of f16 rows, a block each; before it, if ADD, the sum of two rows, which is written too.
//
// Constants: K, a multiple of 8; ADD; WEIGHT: there are weights, of W_DTYPE (0 f32, 1 f16, 2 bf16); EPS, OFFSET; ROWS_N,
// ROWS_P, ROWS_S, ROWS_C: the rows.
#include "operands.cuh"

#define THREADS 256
#define PER_TURN (THREADS * 8)
#define TURNS ((K + PER_TURN - 1) / PER_TURN)
#define HELD (TURNS < 2 ? TURNS : 2)

struct alignas(16) Eight { u32 w[4]; };

// The rows, what is added to them, weights, the sums, the results.
extern "C" __global__ void __launch_bounds__(THREADS) normalise(const __grid_constant__ Bindings<4 + 2 * ADD> in) {
    const u16 *a = (const u16*)in.at[0], *b = (const u16*)in.at[ADD];
    const void* weights = in.at[1 + ADD];
    u16 *sum = (u16*)in.at[1 + 2 * ADD], *y = (u16*)in.at[2 + 2 * ADD];
    const u32* symbols = (const u32*)in.at[3 + 2 * ADD];
    __shared__ float parts[THREADS / 32];
    const u32 thread = threadIdx.x;
    const size_t row = (size_t)blockIdx.x * K;
    launch_next();
    if (blockIdx.x >= rows_of<ROWS_N, ROWS_P, ROWS_C, ROWS_S>(symbols)) return;
    // Weights come from memory while the kernel in front ends. More of them would take too many registers.
    float first[HELD][8];
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const u32 at = i * PER_TURN + thread * 8;
#pragma unroll
        for (int j = 0; j < 8; j++) first[i][j] = WEIGHT && at < K ? constant_element<W_DTYPE>(weights, at + j) : 0;
    }
    wait_previous();
    // Everything is asked for before anything is written: what is written could be what is read, for all the compiler knows.
    Eight x[TURNS];
    Eight z[TURNS];
    float v[TURNS][8], squares = 0;
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        const u32 at = i * PER_TURN + thread * 8;
        if (at >= K) break;
        x[i] = *(const Eight*)(a + row + at);
        if constexpr (ADD) z[i] = *(const Eight*)(b + row + at);
    }
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        const u32 at = i * PER_TURN + thread * 8;
        if (at >= K) break;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[i][2 * j] = low(x[i].w[j]);
            v[i][2 * j + 1] = high(x[i].w[j]);
        }
        if constexpr (ADD) {
            Eight added;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[i][2 * j] += low(z[i].w[j]);
                v[i][2 * j + 1] += high(z[i].w[j]);
                added.w[j] = pack(v[i][2 * j], v[i][2 * j + 1]);
            }
            *(Eight*)(sum + row + at) = added;
        }
#pragma unroll
        for (int j = 0; j < 8; j++) squares += v[i][j] * v[i][j];
    }
#pragma unroll
    for (int far = 16; far > 0; far >>= 1) squares += __shfl_xor_sync(~0u, squares, far);
    if ((thread & 31) == 0) parts[thread >> 5] = squares;
    __syncthreads();
    squares = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) squares += parts[i];
    const float factor = 1.0f / sqrtf(squares / K + (float)EPS);
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        const u32 at = i * PER_TURN + thread * 8;
        if (at >= K) break;
        Eight scaled;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float f[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                f[e] = v[i][2 * j + e] * factor;
                if constexpr (WEIGHT) {
                    f[e] *= (float)OFFSET + (i < HELD ? first[i < HELD ? i : 0][2 * j + e] : element<W_DTYPE>(weights, at + 2 * j + e));
                }
            }
            scaled.w[j] = pack(f[0], f[1]);
        }
        *(Eight*)(y + row + at) = scaled;
    }
}
