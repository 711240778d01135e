// Products of few rows with f16 weights, whose tiles are too few for the chip: the blocks of a cluster share out the runs of a tile.
// Block r takes runs r, r + 2 and so on. Behind each round of runs the blocks give each other what they added up, and each
// adds up its share of the tile's sums, in the order of the runs: those are the sums of a block that takes all of them.
#include "epilogue_gate.cuh"
#include "gemm_products.cuh"

// Stores to, and waits for, shared memory of blocks of the cluster.
INLINE void store_remote(u32 at, const float* v) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
INLINE void mbarrier_release(u32 barrier, u32 block) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(map_shared(barrier, block)) : "memory");
}
INLINE void mbarrier_acquire(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred p;\n"
        "again:\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n\t@!p bra again;}"
        ::"r"(barrier), "r"(parity) : "memory");
}

template <class P> struct GemmRuns {
    typedef GemmShape<P> H;
    typedef typename H::out_t out_t;
    static constexpr u32 ROUND = P::run * CLUSTER;                // steps of a round
    static constexpr u32 ROUNDS = (H::steps + ROUND - 1) / ROUND;
    static constexpr u32 WEIGHTS = H::halves ? 2 : 1;             // whose sums an output needs: those of one group, or of both
    // Bytes of what a block gives another in a round: four sums of each thread of a group. Two rounds are held.
    static constexpr u32 gift = 128 * 16, round_bytes = CLUSTER * P::groups * gift, bytes = 2 * round_bytes;
    static constexpr u32 barriers = 2 * P::groups * 4;
    const typename H::Bound& in;
    u32 rank, group, warp, lane, rows;
    u32 memory, met; // of rounds, and the barriers behind which they are there

    static INLINE void init(u32 met) {
        for (u32 i = 0; i < barriers; i++) mbarrier_init(met + 8 * i, CLUSTER * WEIGHTS);
    }
    // Both groups of a gated product meet at the barriers of the first.
    INLINE u32 barrier(u32 round) const { return met + 8 * ((round & 1) * P::groups * 4 + (H::halves ? 0 : group * 4) + warp); }
    INLINE u32 place(u32 round, u32 block, u32 of) const {
        return memory + (round & 1) * round_bytes + (block * P::groups + of) * gift + (warp * 32 + lane) * 16;
    }
    // Block b has the sums of rows 8b to 8b + 7.
    INLINE void give(const float (&part)[8], u32 round) const {
#pragma unroll
        for (u32 b = 0; b < CLUSTER; b++) store_remote(map_shared(place(round, rank, group), b), part + 4 * b);
        __syncwarp();
        if (lane < CLUSTER) mbarrier_release(barrier(round), lane);
    }
    // Adds what the blocks gave in a round, in their order.
    INLINE void take(float (&sums)[WEIGHTS][4], u32 round) const {
        mbarrier_acquire(barrier(round), round >> 1 & 1);
#pragma unroll
        for (u32 b = 0; b < CLUSTER; b++) {
#pragma unroll
            for (u32 i = 0; i < WEIGHTS; i++) {
                const Chunk v = read16(place(round, b, H::halves ? i : group));
                sums[i][0] += __uint_as_float(v.x);
                sums[i][1] += __uint_as_float(v.y);
                sums[i][2] += __uint_as_float(v.z);
                sums[i][3] += __uint_as_float(v.w);
            }
        }
    }
    INLINE void store(u32 row, u32 output, float sum, typename H::Place at) const {
        const u32 part = H::halves ? 0 : at.part, width = H::width_of(part);
        if (row >= rows || output >= width) return;
        if constexpr (P::bias) sum += element<P::bias_dtype>(H::template part_of<H::bias, 1>(in, part), output);
        out_t* y = (out_t*)H::template part_of<H::y, 1>(in, part);
        y[(size_t)row * width + output] = Number<P::out_f32>::to(sum);
    }
    // Sums 2h + e of a thread are row 2t + e of the block's 8, output g + 8h of the warp's 16. Of gated products each group ends a half
    // of the outputs.
    INLINE void finish(const float (&sums)[WEIGHTS][4], typename H::Place at) const {
        const u32 row = rank * 8 + (lane & 3) * 2, output = at.first + warp * 16 + (lane >> 2);
        if constexpr (H::halves) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                if (i / 2 == group) store(row + i % 2, output + i / 2 * 8, silu_gate_fast(sums[0][i], sums[1][i]), at);
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < 4; i++) store(row + i % 2, output + i / 2 * 8, sums[0][i], at);
        }
    }
    // What the threads do that multiply. Sums of a round are taken when the next one was multiplied: they are there by then.
    INLINE void multiply(GemmRing<P> ring) const {
        GemmProduct<P, false, 16> product(group);
        u32 round = 0;
        for (u32 tile = blockIdx.x / CLUSTER; tile < H::columns; tile += H::clusters) {
            const auto at = H::place_of(tile, group);
            float sums[WEIGHTS][4] = {};
#pragma unroll 1
            for (u32 i = 0; i < ROUNDS; i++, round++) {
                // Behind the last run there is nothing to add.
                const u32 first = i * ROUND + rank * P::run;
                float part[8] = {};
                if (first < H::steps) {
                    product.multiply_run(ring, first + P::run < H::steps ? P::run : H::steps - first);
#pragma unroll
                    for (int j = 0; j < 8; j++) part[j] = product.part[j];
                }
                if (i > 0) take(sums, round - 1);
                give(part, round);
            }
            take(sums, round - 1);
            finish(sums, at);
        }
    }
    // What a thread does that fills the ring.
    static INLINE void fill(const typename H::Bound& in, GemmRing<P> ring, u32 rank, u32 filler) {
        u32 turn = 0;
        bool waited = false;
        for (u32 tile = blockIdx.x / CLUSTER; tile < H::columns; tile += H::clusters) {
#pragma unroll 1
            for (u32 i = 0; i < ROUNDS * P::run; i++) {
                const u32 step = i / P::run * ROUND + rank * P::run + i % P::run;
                if (step >= H::steps) break;
                if (turn++ % FILLERS == filler) {
                    ring.await_empty();
                    const u32 barrier = ring.full + 8 * ring.slot, stage = ring.stage();
                    mbarrier_expect(barrier, P::skinny * 128 + H::w_bytes);
                    gemm_ask<P>(in, stage, barrier, tile, step);
                    if (!waited) {
                        wait_previous();
                        waited = true;
                    }
                    tma_load(stage, &in.maps[1 + H::weights], step * H::step, 0, barrier);
                }
                ring.advance();
            }
        }
        if (!waited) wait_previous();
    }
};
