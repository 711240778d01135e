// The input of a product with numbers: x in f16; f32 as two planes of f16, of which the second has what the first loses; or
// as two or three planes of bf16. So nothing of x is lost but what f32 sums lose too.
#include "load_bf16.cuh"
#include "load_f16.cuh"
#include "schedule_gemv.cuh"

template <class P, class S = typename P::Storage> struct Planes {
    typedef GemvShape<P> H;
    static constexpr u32 plane = H::rows * H::stages * H::step * 2; // bytes of a plane of x
    static constexpr u32 held = plane * P::planes;
    static constexpr bool takes_scale = true;
    // x is scaled by a power of two so that its peak fits: by that, and what takes it back.
    struct Scale { float up, back; };

    template <int EACH> static INLINE Scale scale_of(const float (&v)[EACH][8]) {
        if constexpr (!P::act_f32) return {1, 1};
        else {
            __shared__ float peaks[P::teams * P::warps];
            float peak = 0;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < 8; j++) peak = fmaxf(peak, fabsf(v[i][j]));
            }
#pragma unroll
            for (int o = 16; o > 0; o >>= 1) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, o));
            if ((threadIdx.x & 31) == 0) peaks[threadIdx.x >> 5] = peak;
            __syncthreads();
#pragma unroll
            for (u32 i = 0; i < P::teams * P::warps; i++) peak = fmaxf(peak, peaks[i]);
            const int exponent = peak > 0 ? (int)(__float_as_uint(peak) >> 23) - 127 : 0;
            const int shift = exponent < -100 ? 100 : exponent > 120 ? -120 : 10 - exponent;
            return {__uint_as_float((u32)(127 + shift) << 23), __uint_as_float((u32)(127 - shift) << 23)};
        }
    }
    static INLINE void store(char* xs, u32 at, bool in, const float (&v)[8], float up) {
        auto store = [&](u32 number, const float (&f)[8]) {
            const Chunk h = pack_eight(f);
            if (in) ((Chunk*)(xs + number * plane))[at] = h;
        };
        if constexpr (P::act_f32) {
            float hi[8], lo[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float f = v[j] * up;
                hi[j] = from_half(to_half(f));
                lo[j] = (f - hi[j]) * 2048;
            }
            store(0, hi);
            store(1, lo);
        } else {
            store(0, v);
        }
    }
};

template <class P> struct Planes<P, BF16> {
    typedef GemvShape<P> H;
    static constexpr u32 plane = H::rows * H::stages * H::step * 2;
    static constexpr u32 held = plane * P::planes;
    static constexpr bool takes_scale = false;

    static INLINE void store(char* xs, u32 at, bool in, const float (&v)[8]) {
        float left[8];
#pragma unroll
        for (int j = 0; j < 8; j++) left[j] = v[j];
#pragma unroll
        for (u32 number = 0; number < P::planes; number++) {
            Chunk h;
            u32* words = (u32*)&h;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 w = words[j] = pack_b(left[2 * j], left[2 * j + 1]);
                left[2 * j] -= __uint_as_float(w << 16);
                left[2 * j + 1] -= __uint_as_float(w & 0xffff0000u);
            }
            if (in) ((Chunk*)(xs + number * plane))[at] = h;
        }
    }
};
