// Products of many rows, y^T = w x^T, on the tensor cores of a Hopper chip (sm_90a), with x and w brought by tensor maps.
#include "epilogue_gemm.cuh"
#include "gemm_products.cuh"

// Shares out the registers anew between the thread that fills the ring and those that multiply.
template <u32 GROUPS> INLINE void give_registers() {
    if constexpr (GROUPS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if constexpr (GROUPS == 3) asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
}
template <u32 GROUPS> INLINE void take_registers() {
    if constexpr (GROUPS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    if constexpr (GROUPS == 3) asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
}
INLINE void cluster_meet() { asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory"); }


// What the threads do that multiply, with COLS rows of x.
template <class P, u32 COLS>
INLINE void gemm_multiply(const typename GemmShape<P>::Bound& in, GemmRing<P> ring, u32 rows, u32 tiles, u32 stack, u32 rank, u32 group) {
    typedef GemmShape<P> H;
    const u32 thread = threadIdx.x & 127, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    const u32 behind = ring.ring + P::stages * H::stage, results = behind + group * H::out_bytes;
    GemmEpilogue<P> epilogue = {in, group, warp, lane, thread, rows, results, results ^ (behind + (group ^ 1) * H::out_bytes)};
    for (u32 tile = blockIdx.x >> 1; tile < tiles; tile += P::blocks / 2) {
        const auto at = H::place_of(tile / stack * 2 + rank, group);
        GemmProduct<P, P::Storage::packed, COLS> product(in, group, warp, g, t);
        float c[H::n / 2];
        product.aim(at);
        product.multiply(c, ring);
        epilogue.finish(c, at, tile % stack * H::n);
    }
}

template <class P> INLINE void gemm_block(const typename GemmShape<P>::Bound& in) {
    typedef GemmShape<P> H;
    extern __shared__ __align__(1024) char memory[];
    __shared__ __align__(8) u64 full[P::stages], empty[P::stages];
    const u32 thread = threadIdx.x & 127, group = threadIdx.x >> 7, rank = blockIdx.x & 1;
    GemmRing<P> ring = {(address(memory) + 1023) & ~1023u, address(full), address(empty), 0, 0};
    if (threadIdx.x == 0) {
        for (int s = 0; s < P::stages; s++) {
            mbarrier_init(ring.full + 8 * s, 1);
            mbarrier_init(ring.empty + 8 * s, 2 * 4 * P::groups);
        }
        mbarrier_init_fence();
    }
    cluster_meet();
    launch_next();
    const u32 rows = rows_of<P::rows_n, P::rows_p, P::rows_c, P::rows_s>((const u32*)in.at[H::symbols]);
    const u32 stack = (rows + H::n - 1) / H::n, tiles = stack * H::pairs;
    // Few rows are brought and multiplied alone: sums of a row are the same.
    constexpr u32 LEAST = P::skinny > 0 ? P::skinny : H::n;
    if (group == P::groups) {
        give_registers<P::groups>();
        ring.parity = 1;
        if (thread == 0) {
            if (LEAST < H::n && rows <= LEAST) gemm_fill<P, LEAST>(in, ring, tiles, stack, rank);
            else gemm_fill<P, H::n>(in, ring, tiles, stack, rank);
        }
    } else {
        take_registers<P::groups>();
        if (LEAST < H::n && rows <= LEAST) gemm_multiply<P, LEAST>(in, ring, rows, tiles, stack, rank, group);
        else gemm_multiply<P, H::n>(in, ring, rows, tiles, stack, rank, group);
    }
    // A block that has ended can be told nothing.
    cluster_meet();
}
