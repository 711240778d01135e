// y = x * factor * (OFFSET + w) for one row of x, or of a + b in f32, which is then written too: what `linear.cu` does with NORM, to
// the bit. One block.
//
// Constants: K; WARPS; ADD: there is a b; EPS, OFFSET; NORM_DTYPE of w (0 f32, 1 f16, 2 bf16); ACT_F32: f32 instead of f16.
#define THREADS (WARPS * 32)
#define EACH ((K / 8 + THREADS - 1) / THREADS)

INLINE void store_eight(const float (&v)[8], void* row, u32 at) {
#if ACT_F32
    float4* to = (float4*)row + at * 2;
    to[0] = make_float4(v[0], v[1], v[2], v[3]);
    to[1] = make_float4(v[4], v[5], v[6], v[7]);
#else
    Words h;
    h.x = pack(v[0], v[1]); h.y = pack(v[2], v[3]); h.z = pack(v[4], v[5]); h.w = pack(v[6], v[7]);
    ((Words*)row)[at] = h;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) rms_norm(
    const void* a,
#if ADD
    const void* b,
#endif
    const char* __restrict__ w,
#if ADD
    void* sum,
#endif
    void* y, const u32* symbols) {
    __shared__ float squares[(K + 255) / 256];
    launch_next();
    Weights<NORM_DTYPE> nw[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + threadIdx.x;
        if (at < K / 8) nw[i].load(w, at);
    }
    wait_previous();
    float v[EACH][8] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + threadIdx.x;
        if (at >= K / 8) break;
        load_eight(v[i], a, at, ACT_F32);
#if ADD
        float other[8];
        load_eight(other, b, at, ACT_F32);
#pragma unroll
        for (int j = 0; j < 8; j++) v[i][j] += other[j];
        store_eight(v[i], sum, at);
#endif
    }
    const float factor = norm_factor<K, THREADS, EACH>(v, squares, (float)EPS);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + threadIdx.x;
        if (at >= K / 8) break;
#pragma unroll
        for (int j = 0; j < 8; j++) v[i][j] = v[i][j] * factor * (nw[i][j] + (float)OFFSET);
        store_eight(v[i], y, at);
    }
}
