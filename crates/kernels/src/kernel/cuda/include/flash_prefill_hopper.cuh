// Attention of many rows over the cache, with grouped heads, on the tensor cores of a Hopper chip (sm_90a): `flash_prefill.cuh` with
// products of 64 rows (`wgmma`).
//
// A block of two groups of four warps takes 128 queries of a head, which it keeps in shared memory; keys and values come in stages
// of 64 rows. The scores of a stage are computed while the values of the one before are added up. Tensor cores round toward zero
// whatever they add up: they sum up a stage, ordinary additions the stages.
#include "softmax.cuh"
#include "wgmma.cuh"

template <class P> struct PrefillHopper {
    typedef PrefillShape<P> H;
    static constexpr u32 threads = 256, queries = 128, of_group = 64, keys = H::keys, stages = 4;
    static constexpr u32 side = keys * 128;     // bytes of 64 elements of a stage's keys, or of its values
    static constexpr u32 half = keys * P::d * 2, stage = 2 * half;
    static constexpr u32 asked = of_group * 128; // bytes of 64 elements of a group's queries
    const PrefillOperands<P>& in;
    const PrefillTile<P, queries>& tile;
    u32 ring, held; // the stages, and this group's queries
    float part[P::d / 2], s[keys / 2];
    u32 weights[keys / 16][4], rest[keys / 16][4];

    INLINE PrefillHopper(const PrefillOperands<P>& in, const PrefillTile<P, queries>& tile, u32 ring, u32 warp)
        : in(in), tile(tile), ring(ring), held(ring + stages * stage + warp / 4 * (P::d / 64 * asked)) {}
    // Asks for the keys from `at` on, and their values.
    INLINE void ask(u32 at, u32 slot) const {
        if (at < tile.end) {
            const u32 piece = threadIdx.x % H::pieces;
#pragma unroll
            for (u32 i = 0; i < keys * H::pieces / threads; i++) {
                const u32 row = threadIdx.x / H::pieces + i * (threads / H::pieces);
                const u32 size = at + row < tile.end ? 16 : 0;
                const size_t source = tile.cached(size ? at + row : at) + piece * 8;
                const u32 to = ring + slot * stage + piece / 8 * side + row * 128 + (((piece ^ row) & 7) << 4);
                cp_async_16(to, in.k_cache + source, size);
                cp_async_16(to + half, in.v_cache + source, size);
            }
        }
        cp_async_commit();
    }
    // Writes a query of the group to shared memory.
    INLINE void store_query(const u32 (&a)[P::d / 16][2], u32 line, u32 t) const {
#pragma unroll
        for (int i = 0; i < P::d / 8; i++) {
            const u32 to = held + i / 8 * asked + line * 128 + (((i ^ line) & 7) << 4) + t * 4;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(a[i / 2][i % 2]) : "memory");
        }
    }
    // What was written becomes visible to the tensor cores.
    static INLINE void meet() {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
    }
    INLINE void score(u32 at) {
        const u32 from = ring + at * stage;
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < P::d / 16; i++) {
            wgmma(s, wgmma_matrix(held + i / 4 * asked, side) + i % 4 * 2, wgmma_matrix(from + i / 4 * side, side) + i % 4 * 2, i);
        }
        wgmma_commit();
    }
    INLINE void add(u32 at) {
        const u64 values = wgmma_matrix(ring + at * stage + half, side);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < keys / 16; j++) {
            wgmma<1>(part, weights[j], values + j * 128, j);
            wgmma<1>(part, rest[j], values + j * 128, 1);
        }
        wgmma_commit();
    }
};

template <class P> INLINE void flash_prefill_hopper_block(const Bindings<PrefillShape<P>::count>& bound) {
    typedef PrefillHopper<P> H;
    extern __shared__ __align__(1024) char memory[];
    const PrefillOperands<P> in(bound);
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    const PrefillTile<P, H::queries> tile(in.symbols);
    const u32 own = tile.from + warp / 4 * H::of_group, low = tile.from + warp * 16;
    H block(in, tile, (address(memory) + 1023) & ~1023u, warp);
    wait_previous();
    launch_next();
    for (u32 i = 0; i < H::stages - 1; i++) block.ask(tile.begin + i * H::keys, i);

    // Rows g and g + 8 of the warp's 16 queries; those beyond the last are that one again.
    Softmax<P> softmax(low + g);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 query[P::d / 16][2];
        tile.load_query(query, in, softmax.rows[h] < tile.n ? softmax.rows[h] : tile.n - 1, t);
        block.store_query(query, warp % 4 * 16 + g + 8 * h, t);
    }
    float o[P::d / 2] = {};
    u32 slot = 0;
    // A group sees nothing of what is behind its last query, and has no queries behind the last.
    const u32 seen = own >= tile.n ? tile.begin : tile.p + own + H::of_group;
    cp_async_wait<H::stages - 2>();
    H::meet();
    if (tile.begin < seen) {
        block.score(0);
        wgmma_wait<0>(block.s);
        softmax.weigh(block.s, tile, tile.begin, low, t);
        Softmax<P>::split(block.s, block.weights, block.rest);
    }
    for (u32 at = tile.begin; at < tile.end; at += H::keys) {
        const u32 ahead = slot + 1 < H::stages ? slot + 1 : 0;
        if (at + H::keys < tile.end) {
            cp_async_wait<H::stages - 3>();
            H::meet();
        }
        block.ask(at + (H::stages - 1) * H::keys, slot > 0 ? slot - 1 : H::stages - 1);
        if (at >= seen) { slot = ahead; continue; }
        const float faded[2] = {softmax.fade[0], softmax.fade[1]};
        const bool more = at + H::keys < tile.end && at + H::keys < seen;
        if (more) {
            // Scores of the next keys, while the values of these are added up.
            block.score(ahead);
            block.add(slot);
            wgmma_wait<1>(block.s);
            softmax.weigh(block.s, tile, at + H::keys, low, t);
        } else {
            block.add(slot);
        }
        wgmma_wait<0>(block.part);
#pragma unroll
        for (int i = 0; i < P::d / 2; i++) o[i] = fmaf(o[i], faded[i >> 1 & 1], block.part[i]);
        if (more) Softmax<P>::split(block.s, block.weights, block.rest);
        slot = ahead;
    }
    softmax.store(o, in.y, tile, t);
}
