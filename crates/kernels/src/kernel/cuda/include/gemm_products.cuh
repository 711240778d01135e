// What a group of four warps adds up for a tile, in registers. Tensor cores round toward zero whatever they add up, so that long
// sums drift: ordinary additions add up those of a few stages, or of groups of packed weights.
#include "load_e4m3.cuh"
#include "load_f16.cuh"
#include "load_int4.cuh"
#include "schedule_gemm.cuh"
#include "wgmma.cuh"

// f16 weights, from shared memory.
template <class P, bool PACKED> struct GemmProduct {
    typedef GemmShape<P> H;
    u32 group;
    float part[H::n / 2];

    INLINE GemmProduct(const typename H::Bound&, u32 group, u32, u32, u32) : group(group) {}
    INLINE void aim(typename H::Place) {}
    INLINE void multiply_stage(const GemmRing<P>& ring, bool more) {
        ring.await_full();
        const u32 stage = ring.stage();
        const u64 a = wgmma_matrix(stage + H::x_bytes + group * 8192), b = wgmma_matrix(stage);
        wgmma_fence();
#pragma unroll
        for (u32 i = 0; i < H::step / 16; i++) wgmma(part, a + 2 * i, b + 2 * i, more || i > 0);
        wgmma_commit();
    }
    INLINE void multiply(float (&c)[H::n / 2], GemmRing<P>& ring) {
        // Where they are staggered, the groups end their runs at different times, so that the tensor cores are busy meanwhile.
        u32 run = P::run - (P::stagger ? group * (P::run / P::groups) : 0);
#pragma unroll
        for (int i = 0; i < H::n / 2; i++) c[i] = 0;
#pragma unroll 1
        for (u32 step = 0; step < H::steps; run = P::run) {
            const u32 end = step + run < H::steps ? step + run : H::steps;
            multiply_stage(ring, false);
#pragma unroll 1
            while (++step < end) {
                const u32 before = ring.slot;
                ring.advance();
                multiply_stage(ring, true);
                wgmma_wait<1>();
                ring.leave(before);
            }
            wgmma_wait<0>();
            ring.leave(ring.slot);
            ring.advance();
            wgmma_wait<0>(part);
#pragma unroll
            for (int i = 0; i < H::n / 2; i++) c[i] += part[i];
        }
    }
};

struct alignas(8) Scales { u32 w[2]; };

// Packed weights, which become f16 in registers. Registers 4j + 2h + e of a thread are row g + 8h of its warp's 16 weights, row
// 8j + 2t + e of x.
template <class P> struct GemmProduct<P, true> {
    typedef GemmShape<P> H;
    typedef typename P::Storage S;
    // Rows that are multiplied at once. Where a row is one turn, ptxas 13 takes the first sums of two such parts for one.
    static constexpr int PART = P::groups > 2 && H::steps > 2 ? 64 : H::n;
    static constexpr int TEMPS = P::groups > 2 ? 1 : 2;    // sums of a group of 32 that are held at a time
    static constexpr int TURNS = H::steps % 2 ? 1 : 2;     // stages of a turn
    static constexpr int LOADS = (TURNS + 1) / 2;
    static constexpr int OF_GROUP = H::n / PART, OF_STAGE = 2 * OF_GROUP, ALL = TURNS * OF_STAGE;
    const typename H::Bound& in;
    u32 group, warp, g, t;
    const u16* s[2];
    u32 line[2];
    u32 factors;
    float parts[TEMPS][PART / 2];
    u32 a[2][8];
    Scales now[2][LOADS], next[2][LOADS];
    u32 before; // the stage that was multiplied last

    INLINE GemmProduct(const typename H::Bound& in, u32 group, u32 warp, u32 g, u32 t) : in(in), group(group), warp(warp), g(g), t(t) {}
    // Where a tile's scales are, and its codes within a stage.
    INLINE void aim(typename H::Place at) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            if constexpr (P::gated) {
                const u32 row = warp * 8 + g;
                line[h] = h * (H::m / 2) + group * 32 + row;
                s[h] = (const u16*)in.at[H::first + 1 + h * S::arrays] + (size_t)(at.first + row < P::o0 ? at.first + row : 0) * (P::k / 32);
            } else {
                const u32 row = warp * 16 + 8 * h + g;
                line[h] = group * 64 + row;
                const u16* from = (const u16*)H::template part_of<H::first + 1, S::arrays>(in, at.part);
                s[h] = from + (size_t)(at.first + row < H::width_of(at.part) ? at.first + row : 0) * (P::k / 32);
            }
            // The place of its first 16 bytes, swizzled over the row.
            line[h] = line[h] * H::w_row + (S::bits == 4 ? line[h] >> 2 & 1 : line[h] >> 1 & 3) * 16;
        }
        factors = S::factors();
    }
    static INLINE Scales scales_at(const u16* s) {
        Scales r = {};
        if constexpr (H::steps % 2) asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(r.w[0]) : "l"(s));
        else asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(r.w[0]), "=r"(r.w[1]) : "l"(s));
        return r;
    }
    INLINE void fetch_scales(u32 step) {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < LOADS; i++) next[h][i] = scales_at(s[h] + (step < H::steps ? step * 2 : 0) + 4 * i);
    }
    // Scales and adds up the sums of some rows of a group of 32.
    INLINE void add(float (&c)[H::n / 2], int unit) {
        const int q = unit / OF_GROUP, first = unit % OF_GROUP * (PART / 2);
        float scale[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const u32 w = now[h][q >> 2].w[q >> 1 & 1];
            scale[h] = (q & 1 ? high(w) : low(w)) * S::scale;
        }
#pragma unroll
        for (int i = 0; i < PART / 2; i++) c[first + i] = fmaf(parts[unit % TEMPS][i], scale[(i >> 1) & 1], c[first + i]);
    }
    // The weights of the group behind q; beyond a stage, when it is full.
    INLINE void prepare(GemmRing<P>& ring, u32 step, int q) {
        u32 ahead = ring.stage() + H::x_bytes;
        before = ring.slot;
        const bool more = step + TURNS < H::steps || q < TURNS * 2 - 1;
        if (q & 1) {
            ring.advance();
            ahead = ring.stage() + H::x_bytes;
            if (more) ring.await_full();
        }
        if (more) {
            const u32 turn = q & 1 ? 0 : H::w_row / 2;
            S::unpack(a[(q & 1) ^ 1], ahead + (line[0] ^ turn), ahead + (line[1] ^ turn), t, factors);
        }
    }
    // What was multiplied before has ended with the stage before.
    INLINE void multiply_unit(float (&c)[H::n / 2], GemmRing<P>& ring, u32 step, int unit) {
        const int q = unit / OF_GROUP, part = unit % OF_GROUP;
        const u64 b = wgmma_matrix(ring.stage()) + (q & 1) * 4 + part * (PART * 8);
        wgmma_fence();
        wgmma<0>(parts[unit % TEMPS], a[q & 1], b, 0);
        wgmma<0>(parts[unit % TEMPS], a[q & 1] + 4, b + 2, 1);
        wgmma_commit();
        if constexpr (TEMPS == 1) {
            if (part == OF_GROUP - 1) prepare(ring, step, q);
            wgmma_wait<0>(parts[0]);
            if (unit % OF_STAGE == OF_STAGE - 1) ring.leave(before);
            add(c, unit);
        } else {
            if (unit > 0) {
                wgmma_wait<1>(parts[(unit - 1) % TEMPS]);
                if (unit % OF_STAGE == 0) ring.leave(before);
                add(c, unit - 1);
            }
            if (part == OF_GROUP - 1) prepare(ring, step, q);
        }
    }
    INLINE void multiply(float (&c)[H::n / 2], GemmRing<P>& ring) {
        fetch_scales(0);
#pragma unroll
        for (int i = 0; i < H::n / 2; i++) c[i] = 0;
        ring.await_full();
        S::unpack(a[0], ring.stage() + H::x_bytes + line[0], ring.stage() + H::x_bytes + line[1], t, factors);
        before = ring.slot;
#pragma unroll 1
        for (u32 step = 0; step < H::steps; step += TURNS) {
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int i = 0; i < LOADS; i++) now[h][i] = next[h][i];
            fetch_scales(step + TURNS);
#pragma unroll
            for (int unit = 0; unit < ALL; unit++) multiply_unit(c, ring, step, unit);
            if constexpr (TEMPS == 2) {
                wgmma_wait<0>(parts[(ALL - 1) % TEMPS]);
                ring.leave(before);
                add(c, ALL - 1);
            }
        }
    }
};
