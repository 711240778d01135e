// What kernels of attention for many rows share: queries and their rotation, the softmax of scores as they come (Dao,
// "FlashAttention-2", 2023, algorithm 1), and its results.
#include "mma.cuh"
#include "operands.cuh"

template <class P> struct PrefillShape {
    static constexpr u32 keys = 64, pieces = P::d / 8; // keys of a stage, 16-byte chunks of a row
    static constexpr u32 caches = P::fused ? 2 : 1, count = caches + 4;
};
template <class P> struct PrefillOperands {
    typedef PrefillShape<P> H;
    const u16* q;
    const float* angles;
    const u16 *k_cache, *v_cache;
    u16* y;
    const u32* symbols;
    INLINE explicit PrefillOperands(const Bindings<H::count>& in) {
        q = (const u16*)in.at[0];
        if constexpr (P::fused) angles = (const float*)in.at[1];
        k_cache = (const u16*)in.at[H::caches], v_cache = (const u16*)in.at[H::caches + 1];
        y = (u16*)in.at[H::caches + 2], symbols = (const u32*)in.at[H::caches + 3];
    }
};

// The queries of a block, and the keys that they see.
template <class P, u32 QUERIES> struct PrefillTile {
    u32 n, p, head, kv, from, begin, end;
    INLINE explicit PrefillTile(const u32* symbols) : n(symbols[0]), p(symbols[1]), head(blockIdx.x), kv(head / (P::heads / P::kv_heads)) {
        // The longest rows first.
        from = (gridDim.y - 1 - blockIdx.y) * QUERIES;
        end = p + (from + QUERIES < n ? from + QUERIES : n);
        begin = 0;
        if constexpr (P::window > 0) {
            if (p + from >= P::window) begin = (p + from + 1 - P::window) / PrefillShape<P>::keys * PrefillShape<P>::keys;
        }
    }
    // Where the row of a key begins in a cache.
    INLINE size_t cached(u32 key) const { return ((size_t)key * P::kv_heads + kv) * P::d; }
    // Elements 16 i + 2t and 16 i + 8 + 2t of a query, and those behind them, rotated if that is the kernel's task.
    INLINE void load_query(u32 (&a)[P::d / 16][2], const PrefillOperands<P>& in, u32 row, u32 t) const {
        const u32* source = (const u32*)(in.q + ((size_t)row * P::heads + head) * P::d) + t;
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
            a[i][0] = source[i * 8];
            a[i][1] = source[i * 8 + 4];
        }
        if constexpr (P::fused) {
            const float2* turn = (const float2*)(in.angles + (size_t)row * P::d) + t;
#pragma unroll
            for (int i = 0; i < P::d / 32; i++) {
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    const float2 cosine = turn[i * 8 + s * 4], sine = turn[P::d / 4 + i * 8 + s * 4];
                    const u32 first = a[i][s], second = a[i + P::d / 32][s];
                    a[i][s] = pack(low(first) * cosine.x - low(second) * sine.x, high(first) * cosine.y - high(second) * sine.y);
                    a[i + P::d / 32][s] = pack(low(second) * cosine.x + low(first) * sine.x, high(second) * cosine.y + high(first) * sine.y);
                }
            }
        }
    }
};

// The softmax of two rows of a thread, as stages of KEYS scores come. Element 4j + 2h + e of them is row g + 8h, key 8j + 2t + e.
template <class P> struct Softmax {
    static constexpr int KEYS = PrefillShape<P>::keys;
    u32 rows[2];
    float top[2], total[2], fade[2]; // the highest scores, the totals, and how much what is there before fades

    INLINE explicit Softmax(u32 first) : top{-1e30f, -1e30f}, total{}, fade{1, 1} {
#pragma unroll
        for (int h = 0; h < 2; h++) rows[h] = first + 8 * h;
    }
    // Scores of the keys from `at` on become weights. `low` is the first row of the warp.
    template <class TILE> INLINE void weigh(float (&s)[KEYS / 2], const TILE& tile, u32 at, u32 low, u32 t) {
        const u32 low_position = tile.p + low;
        const bool masked = at + KEYS > low_position + 1 || at + KEYS > tile.end || (P::window && at + P::window <= low_position + 15);
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            s[i] *= (float)(P::scale * 1.4426950408889634);
            if (masked) {
                const u32 key = at + i / 4 * 8 + t * 2 + (i & 1), position = tile.p + rows[i >> 1 & 1];
                if (key > position || key >= tile.end || (P::window && key + P::window <= position)) s[i] = -1e30f;
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) weigh_row(s, h);
    }
    INLINE void weigh_row(float (&s)[KEYS / 2], int h) {
        float highest = top[h];
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) highest = fmaxf(highest, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
        fade[h] = exp2_(top[h] - highest);
        top[h] = highest;
        // Where no key was seen yet, all scores are the lowest. Weights are up to 2^15 in the place of 1, which cancels out in the
        // end: f16 has few digits below 2^-14, and a small weight may meet a large value.
        const float shift = highest == -1e30f ? 0 : highest - 15;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                s[4 * j + 2 * h + e] = exp2_(s[4 * j + 2 * h + e] - shift);
                sum += s[4 * j + 2 * h + e];
            }
        }
        total[h] = total[h] * fade[h] + sum;
    }
    // Weights as two planes of f16, which together are as good as f32.
    static INLINE void split(const float (&s)[KEYS / 2], u32 (&weights)[KEYS / 16][4], u32 (&rest)[KEYS / 16][4]) {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            const u32 plane = pack(s[2 * i], s[2 * i + 1]);
            weights[i / 4][i % 4] = plane;
            rest[i / 4][i % 4] = pack(s[2 * i] - low(plane), s[2 * i + 1] - high(plane));
        }
    }
    template <class TILE> INLINE void store(const float (&o)[P::d / 2], u16* y, const TILE& tile, u32 t) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            total[h] += __shfl_xor_sync(~0u, total[h], 1);
            total[h] += __shfl_xor_sync(~0u, total[h], 2);
            if (rows[h] >= tile.n) continue;
            u32* to = (u32*)(y + ((size_t)rows[h] * P::heads + tile.head) * P::d) + t;
#pragma unroll
            for (int i = 0; i < P::d / 8; i++) to[i * 4] = pack(o[4 * i + 2 * h] / total[h], o[4 * i + 2 * h + 1] / total[h]);
        }
    }
};
