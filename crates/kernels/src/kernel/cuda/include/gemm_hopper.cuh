// Products of many rows, y^T = w x^T, on the tensor cores of a Hopper chip (sm_90a), with x and w brought by tensor maps.
#include "epilogue_gemm.cuh"
#include "gemm_products.cuh"
#include "gemm_skinny.cuh"

INLINE void cluster_meet() { asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory"); }

// Puts a thread's sums of the second slice, which the other block of the cluster makes, to those of the first.
template <u32 LEN> INLINE void meet_sums(float (&c)[LEN], u32 at, u32 given, u32 rank) {
    if (rank) {
#pragma unroll
        for (u32 i = 0; i < LEN; i += 4) write_sums(c + i, map_shared(at, 0) + i * (128 * 4));
        mbarrier_arrive_release(given, 0);
        return;
    }
    mbarrier_wait_acquire(given, 0);
#pragma unroll
    for (u32 i = 0; i < LEN; i += 4) {
        float v[4];
        read_sums(v, at + i * (128 * 4));
#pragma unroll
        for (u32 e = 0; e < 4; e++) c[i + e] += v[e];
    }
}

// A block's part of a product: tiles of many rows, or few rows, which share nothing with other blocks.
template <class P> INLINE void gemm_block(const typename GemmShape<P>::Bound& in) {
    typedef GemmShape<P> H;
    extern __shared__ __align__(1024) char memory[];
    constexpr u32 BARRIERS = P::skinny > 0 && P::stages < SKINNY_STAGES ? SKINNY_STAGES : P::stages;
    __shared__ __align__(8) u64 full[BARRIERS], empty[BARRIERS], given;
    const u32 thread = threadIdx.x & 127, lane = thread & 31, group = threadIdx.x >> 7, rank = blockIdx.x & 1;
    const u32 rows = rows_of<P::rows_n, P::rows_p, P::rows_c, P::rows_s>((const u32*)in.at[H::symbols]);
    const bool split = H::split && rows <= H::n;
    GemmRing<P> ring = {(address(memory) + 1023) & ~1023u, address(full), address(empty), 0, 0, split ? rank : 0, split ? 1u : 2u};
    if constexpr (P::skinny > 0) {
        if (rows <= P::skinny) {
            skinny_block<P>(in, ring.ring, full, empty, rows);
            return;
        }
    }
    if (threadIdx.x == 0) {
        for (int s = 0; s < P::stages; s++) {
            mbarrier_init(ring.full + 8 * s, 1);
            mbarrier_init(ring.empty + 8 * s, ring.count * 4 * P::groups);
        }
        mbarrier_init(address(&given), 128 * P::groups);
        mbarrier_init_fence();
    }
    cluster_meet();
    launch_next();
    const u32 stack = (rows + H::n - 1) / H::n, tiles = split ? H::columns : stack * H::pairs;
    if (group == P::groups) {
        if constexpr (P::threads > 256) give_registers<P::threads == 384 ? 24 : 32>();
        ring.parity = 1;
        if (thread == 0) {
            if (split) gemm_fill_slice<P>(in, ring, blockIdx.x >> 1, rank);
            else gemm_fill<P>(in, ring, tiles, stack, rank);
        }
    } else if (group < P::groups) {
        if constexpr (P::threads > 256) take_registers<P::threads == 384 ? 240 : 160>();
        const u32 warp = thread >> 5, g = lane >> 2, t = lane & 3;
        const u32 behind = ring.ring + P::stages * H::stage, results = behind + group * H::out_bytes, sums = results + thread * 16;
        GemmEpilogue<P> epilogue = {in, group, warp, lane, thread, rows, results, results ^ (behind + (group ^ 1) * H::out_bytes)};
        for (u32 tile = blockIdx.x >> 1; tile < tiles; tile += P::blocks / 2) {
            const auto at = H::place_of(split ? tile : tile / stack * 2 + rank, group);
            GemmProduct<P, P::Storage::packed> product(in, group, warp, g, t, sums);
            float c[H::n / 2];
            product.aim(at);
            if (split) {
                product.template multiply<1>(c, ring, rank);
                meet_sums(c, sums, address(&given), rank);
                if (rank) break;
            } else {
                product.template multiply<H::slices>(c, ring, 0);
            }
            epilogue.finish(c, at, tile % stack * H::n);
        }
    }
    // A block that has ended can be told nothing.
    cluster_meet();
}
