// Products of many rows, y^T = w x^T, on the tensor cores of a Hopper chip (sm_90a), with x and w brought by tensor maps.
#include "epilogue_gemm.cuh"
#include "gemm_products.cuh"
#include "gemm_skinny.cuh"

INLINE void cluster_meet() { asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory"); }

// A block's part of a product: tiles of many rows, or few rows, which share nothing with other blocks.
template <class P> INLINE void gemm_block(const typename GemmShape<P>::Bound& in) {
    typedef GemmShape<P> H;
    extern __shared__ __align__(1024) char memory[];
    constexpr u32 BARRIERS = P::stages > P::skinny_stages ? P::stages : P::skinny_stages;
    __shared__ __align__(8) u64 full[BARRIERS], empty[BARRIERS];
    const u32 thread = threadIdx.x & 127, lane = thread & 31, group = threadIdx.x >> 7, rank = blockIdx.x & 1;
    GemmRing<P> ring = {(address(memory) + 1023) & ~1023u, address(full), address(empty), 0, 0};
    const u32 rows = rows_of<P::rows_n, P::rows_p, P::rows_c, P::rows_s>((const u32*)in.at[H::symbols]);
    if constexpr (P::skinny > 0) {
        if (rows <= P::skinny) {
            skinny_block<P>(in, ring.ring, full, empty, rows);
            return;
        }
    }
    if (threadIdx.x == 0) {
        for (int s = 0; s < P::stages; s++) {
            mbarrier_init(ring.full + 8 * s, 1);
            mbarrier_init(ring.empty + 8 * s, 2 * 4 * P::groups);
        }
        mbarrier_init_fence();
    }
    cluster_meet();
    launch_next();
    const u32 stack = (rows + H::n - 1) / H::n, tiles = stack * H::pairs;
    if (group == P::groups) {
        if constexpr (P::groups > 1) give_registers<P::groups == 2 ? 24 : 32>();
        ring.parity = 1;
        if (thread == 0) gemm_fill<P>(in, ring, tiles, stack, rank);
    } else {
        if constexpr (P::groups > 1) take_registers<P::groups == 2 ? 240 : 160>();
        const u32 warp = thread >> 5, g = lane >> 2, t = lane & 3;
        const u32 behind = ring.ring + P::stages * H::stage, results = behind + group * H::out_bytes;
        GemmEpilogue<P> epilogue = {in, group, warp, lane, thread, rows, results, results ^ (behind + (group ^ 1) * H::out_bytes)};
        for (u32 tile = blockIdx.x >> 1; tile < tiles; tile += P::blocks / 2) {
            const auto at = H::place_of(tile / stack * 2 + rank, group);
            GemmProduct<P, P::Storage::packed> product(in, group, warp, g, t);
            float c[H::n / 2];
            product.aim(at);
            product.multiply(c, ring);
            epilogue.finish(c, at, tile % stack * H::n);
        }
    }
    // A block that has ended can be told nothing.
    cluster_meet();
}
