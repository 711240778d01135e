// Attention of many rows over the cache, with grouped heads, by products on tensor cores (flash attention). A block of four warps
// takes 64 queries of a head; keys and values come in stages of 64 rows.
#include "softmax.cuh"

template <class P> struct PrefillStage {
    typedef PrefillShape<P> H;
    static constexpr u32 threads = 128, queries = 64;
    static constexpr u32 row = P::d * 2, half = H::keys * row, stage = 2 * half; // bytes of a stage's keys, or of its values
    static INLINE u32 place(u32 line, u32 piece) { return line * row + ((piece ^ (line & 7)) << 4); }
    // Asks for the keys from `at` on, and their values.
    template <class TILE> static INLINE void ask(const PrefillOperands<P>& in, const TILE& tile, u32 at, u32 to) {
        if (at < tile.end) {
            const u32 piece = threadIdx.x % H::pieces;
#pragma unroll
            for (u32 i = 0; i < H::keys * H::pieces / threads; i++) {
                const u32 line = threadIdx.x / H::pieces + i * (threads / H::pieces);
                const u32 size = at + line < tile.end ? 16 : 0;
                const size_t source = tile.cached(size ? at + line : at) + piece * 8;
                cp_async_16(to + place(line, piece), in.k_cache + source, size);
                cp_async_16(to + place(line, piece) + half, in.v_cache + source, size);
            }
        }
        cp_async_commit();
    }
    // The scores of a warp's 16 queries.
    static INLINE void score(float (&s)[H::keys / 2], const u32 (&a)[P::d / 16][4], u32 keys) {
        const u32 lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
#pragma unroll
            for (int j = 0; j < H::keys / 16; j++) {
                u32 b[4];
                ldmatrix(b, keys + place(j * 16 + (lane >> 4) * 8 + (lane & 7), i * 2 + ((lane >> 3) & 1)));
                mma_f16((float(&)[4])s[8 * j], a[i], b[0], b[1]);
                mma_f16((float(&)[4])s[8 * j + 4], a[i], b[2], b[3]);
            }
        }
    }
    // Adds the weighted values. Tensor cores round toward zero whatever they add up: they sum up a stage, ordinary additions the
    // stages.
    static INLINE void add(float (&o)[P::d / 2], const u32 (&weights)[H::keys / 16][4], const u32 (&rest)[H::keys / 16][4],
        const float (&fade)[2], u32 values) {
        const u32 lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
            float part[2][4] = {};
#pragma unroll
            for (int j = 0; j < H::keys / 16; j++) {
                u32 b[4];
                ldmatrix_trans(b, values + place(j * 16 + ((lane >> 3) & 1) * 8 + (lane & 7), i * 2 + (lane >> 4)));
                mma_f16(part[0], weights[j], b[0], b[1]);
                mma_f16(part[1], weights[j], b[2], b[3]);
                mma_f16(part[0], rest[j], b[0], b[1]);
                mma_f16(part[1], rest[j], b[2], b[3]);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                o[8 * i + e] = fmaf(o[8 * i + e], fade[e >> 1], part[0][e]);
                o[8 * i + 4 + e] = fmaf(o[8 * i + 4 + e], fade[e >> 1], part[1][e]);
            }
        }
    }
};

template <class P> INLINE void flash_prefill_block(const Bindings<PrefillShape<P>::count>& bound) {
    typedef PrefillStage<P> H;
    constexpr u32 KEYS = PrefillShape<P>::keys;
    extern __shared__ __align__(128) char memory[];
    const PrefillOperands<P> in(bound);
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    const PrefillTile<P, H::queries> tile(in.symbols);
    const u32 ring = address(memory);
    wait_previous();
    launch_next();
    H::ask(in, tile, tile.begin, ring);

    // Rows g and g + 8 of the warp's 16 queries; those beyond the last are that one again.
    Softmax<P> softmax(tile.from + warp * 16 + g);
    u32 a[P::d / 16][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 query[P::d / 16][2];
        tile.load_query(query, in, softmax.rows[h] < tile.n ? softmax.rows[h] : tile.n - 1, t);
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) a[i][h] = query[i][0], a[i][h + 2] = query[i][1];
    }
    float o[P::d / 2] = {};
    u32 slot = 0;
    for (u32 at = tile.begin; at < tile.end; at += KEYS) {
        H::ask(in, tile, at + KEYS, ring + (slot ^ 1) * H::stage);
        cp_async_wait<1>();
        __syncthreads();
        const u32 keys = ring + slot * H::stage;
        float s[KEYS / 2] = {};
        u32 weights[KEYS / 16][4], rest[KEYS / 16][4];
        H::score(s, a, keys);
        softmax.weigh(s, tile, at, tile.from + warp * 16, t);
        Softmax<P>::split(s, weights, rest);
        H::add(o, weights, rest, softmax.fade, keys + H::half);
        __syncthreads();
        slot ^= 1;
    }
    softmax.store(o, in.y, tile, t);
}
