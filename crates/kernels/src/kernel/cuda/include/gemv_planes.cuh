// Products of one row with f16, bf16 and FP8, in f32: see `prologue_planes.cuh`.
#include "gemv_digits.cuh"
#include "load_e4m3.cuh"
#include "prologue_planes.cuh"

// f16 and bf16.
template <class P, class S> struct GemvProduct {
    typedef GemvShape<P> H;
    typedef Planes<P> X;
    u32 g, t, x_from;
    float c[2][4];
    float top, bottom; // outputs g and g + 8

    INLINE GemvProduct(u32 x_at, u32 g, u32 t) : g(g), t(t) {
        // Column c of b holds plane c % 2, of three plane c % 4; the fourth column repeats the first.
        const u32 plane = P::planes == 1 ? 0 : P::planes == 2 ? g & 1 : (g & 3) % 3;
        x_from = x_at + t * 16 + plane * X::plane;
    }
    INLINE void begin() {
#pragma unroll
        for (int i = 0; i < 8; i++) c[i / 4][i % 4] = 0;
    }
    // Adds the stage that lies at `in`.
    INLINE void multiply(u32 in, u32 stage) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 piece = (half * 4 + t) ^ ((g & 1) << H::turn);
            const Chunk a = read16(in + g * 128 + piece * 16);
            const Chunk b = read16(in + 1024 + g * 128 + piece * 16);
            const Chunk xv = read16(x_from + stage * 128 + half * 64);
            S::mma(c[half], a.x, b.x, a.y, b.y, xv.x, xv.y);
            S::mma(c[half], a.z, b.z, a.w, b.w, xv.z, xv.w);
        }
    }
    INLINE void end() {
        if constexpr (P::planes == 2) {
            top = (c[0][0] + c[1][0]) + (c[0][1] + c[1][1]) * S::second;
            bottom = (c[0][2] + c[1][2]) + (c[0][3] + c[1][3]) * S::second;
        } else {
            top = c[0][0] + c[1][0];
            bottom = c[0][2] + c[1][2];
        }
        if constexpr (P::planes == 3) {
            // Lane t = 0 has planes 0 and 1, lane t = 1 plane 2.
            top += __shfl_down_sync(~0u, top, 1) + (c[0][1] + c[1][1]);
            bottom += __shfl_down_sync(~0u, bottom, 1) + (c[0][3] + c[1][3]);
        }
    }
};

template <class P> struct GemvProduct<P, E4M3> {
    typedef GemvShape<P> H;
    typedef Planes<P> X;
    u32 g, t, x_at, mine;
    Chunk xh[2];
    float top, bottom;

    INLINE GemvProduct(u32 xs, u32 g, u32 t) : g(g), t(t), xh{} {
        // Column 2r + p of b holds plane p of the lanes of run r: others hold zeros.
        x_at = xs + t * 32 + (g & 1) % P::planes * X::plane;
        mine = g >> 1 == t >> 1 && (g & 1) < P::planes;
    }
    INLINE void begin() { top = 0, bottom = 0; }
    // Adds the stage that lies at `in`. A lane's piece is half a run.
    INLINE void multiply(u32 in, u32 stage) {
        const u32 x_from = x_at + stage * 256;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 piece = (half * 4 + t) ^ ((g & 1) << H::turn);
            const Chunk a = read16(in + g * 128 + piece * 16), b = read16(in + 1024 + g * 128 + piece * 16);
            const u32 aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
            read_mine(xh[0], x_from + half * 128, mine);
            read_mine(xh[1], x_from + half * 128 + 16, mine);
            // Lanes 0 and 1 have the sums of runs 0 and 1 of two, by planes; the other columns are zeros.
            const u32 s_at = in + 2048 + g * 8 + (half * 2 + (t & 1)) * 2;
            const float s_top = from_half(read2(s_at)) * E4M3::scale, s_bottom = from_half(read2(s_at + 64)) * E4M3::scale;
            float d[4] = {};
#pragma unroll
            for (int word = 0; word < 4; word++) {
                const Chunk& xw = xh[word / 2];
                mma_f16(d, E4M3::pair_of(aw[word], 0x1404), E4M3::pair_of(bw[word], 0x1404), E4M3::pair_of(aw[word], 0x3424),
                    E4M3::pair_of(bw[word], 0x3424), word & 1 ? xw.z : xw.x, word & 1 ? xw.w : xw.y);
            }
            if constexpr (P::planes == 2) d[0] += d[1] * (1.0f / 2048), d[2] += d[3] * (1.0f / 2048);
            top = fmaf(d[0], s_top, top);
            bottom = fmaf(d[2], s_bottom, bottom);
        }
    }
    INLINE void end() {
        top += __shfl_xor_sync(~0u, top, 1);
        bottom += __shfl_xor_sync(~0u, bottom, 1);
        top += __shfl_xor_sync(~0u, top, 2);
        bottom += __shfl_xor_sync(~0u, bottom, 2);
    }
};
