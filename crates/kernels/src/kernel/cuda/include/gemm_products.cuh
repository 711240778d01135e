// What a group of four warps adds up for a tile, in registers. Tensor cores round toward zero whatever they add up, so that long
// sums drift: ordinary additions add up those of a few stages, or of groups of packed weights.
#include "load_e4m3.cuh"
#include "load_f16.cuh"
#include "load_int4.cuh"
#include "schedule_gemm.cuh"
#include "wgmma.cuh"

// A thread's sums of the slices in front, in registers.
template <u32 LEN, bool IN_REGISTERS> struct SliceSums {
    float all[LEN];
    INLINE SliceSums(u32) {}
    // Puts the sums of a slice to those of the slices in front, and begins a new one; all are in `c` behind the last.
    INLINE void end_slice(float (&c)[LEN], bool first, bool last) {
#pragma unroll
        for (u32 i = 0; i < LEN; i++) {
            all[i] = first ? c[i] : all[i] + c[i];
            c[i] = last ? all[i] : 0;
        }
    }
};

// The same in shared memory, 16 bytes of each thread of a group after the other.
template <u32 LEN> struct SliceSums<LEN, false> {
    // Sums that are read before the first of them is added.
    static constexpr u32 PIECE = 32;
    u32 memory;
    INLINE SliceSums(u32 memory) : memory(memory) {}
    INLINE void end_slice(float (&c)[LEN], bool first, bool last) const {
#pragma unroll
        for (u32 from = 0; from < LEN; from += PIECE) end_slice(c + from, memory + from * (128 * 4), first, last);
    }
    static INLINE void end_slice(float* c, u32 at, bool first, bool last) {
        if (!first) {
            float v[PIECE];
#pragma unroll
            for (u32 i = 0; i < PIECE; i += 4) read_sums(v + i, at + i * (128 * 4));
#pragma unroll
            for (u32 i = 0; i < PIECE; i++) c[i] += v[i];
        }
        if (last) return;
#pragma unroll
        for (u32 i = 0; i < PIECE; i += 4) write_sums(c + i, at + i * (128 * 4));
#pragma unroll
        for (u32 i = 0; i < PIECE; i++) c[i] = 0;
    }
};

// f16 weights, from shared memory.
template <class P, bool PACKED> struct GemmProduct {
    typedef GemmShape<P> H;
    u32 group;
    float part[H::n / 2];
    SliceSums<H::n / 2, H::sums_fit> sums;

    INLINE GemmProduct(const typename H::Bound&, u32 group, u32, u32, u32, u32 sums) : group(group), sums(sums) {}
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
    // Multiplies so many slices.
    template <u32 COUNT> INLINE void multiply(float (&c)[H::n / 2], GemmRing<P>& ring, u32) {
        // Where they are staggered, the groups end their runs at different times, so that the tensor cores are busy meanwhile.
        u32 run = P::run - (P::stagger ? group * (P::run / P::groups) : 0);
#pragma unroll
        for (int i = 0; i < H::n / 2; i++) c[i] = 0;
#pragma unroll 1
        for (u32 slice = 0; slice < COUNT; slice++) {
#pragma unroll 1
            for (u32 step = 0; step < H::slice; run = P::run) {
                const u32 end = step + run < H::slice ? step + run : H::slice;
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
            if constexpr (COUNT > 1) sums.end_slice(c, slice == 0, slice + 1 == COUNT);
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
    SliceSums<H::n / 2, H::sums_fit> sums;
    // Whether weights are read a group before they are unpacked: where registers are left for it.
    static constexpr bool AHEAD = H::n <= 64;
    const u16* s[2];
    u32 line[2];
    u32 factors;
    float parts[TEMPS][PART / 2];
    u32 a[2][8], raw[8];
    GemmRing<P> ahead; // the stage that is read
    Scales now[2][LOADS], next[2][LOADS];
    u32 before; // the stage that was multiplied last

    INLINE GemmProduct(const typename H::Bound& in, u32 group, u32 warp, u32 g, u32 t, u32 sums)
        : in(in), group(group), warp(warp), g(g), t(t), sums(sums) {}
    // The scales of a thread's rows of a tile.
    INLINE const u16* scales_of(typename H::Place at, u32 h) const {
        const u32 row = at.first + (P::gated ? warp * 8 : warp * 16 + 8 * h) + g;
        const void* from = P::gated ? in.at[H::first + 1 + h * S::arrays] : H::template part_of<H::first + 1, S::arrays>(in, at.part);
        return (const u16*)from + (size_t)(row < H::width_of(at.part) ? row : 0) * (P::k / 32);
    }
    // Where a tile's scales are, and its codes within a stage.
    INLINE void aim(typename H::Place at) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            s[h] = scales_of(at, h);
            line[h] = P::gated ? h * (H::m / 2) + group * 32 + warp * 8 + g : group * 64 + warp * 16 + 8 * h + g;
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
    template <u32 STEPS> INLINE void fetch_scales(u32 step) {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < LOADS; i++) next[h][i] = scales_at(s[h] + (step < STEPS ? step * 2 : 0) + 4 * i);
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
    // Reads a group of weights of a stage.
    INLINE void read(const GemmRing<P>& from, u32 half) {
        const u32 at = from.stage() + H::x_bytes, turn = half * (H::w_row / 2);
        S::read(raw, at + (line[0] ^ turn), at + (line[1] ^ turn), t);
    }
    // The same of the group behind the one that is unpacked next.
    INLINE void read_ahead(u32 half) {
        if (half == 0) {
            ahead.advance();
            ahead.await_full();
        }
        read(ahead, half);
    }
    // The weights of the group behind q, if there are so many to come. What was multiplied before has ended with the stage before.
    INLINE void prepare(GemmRing<P>& ring, u32 left, int q) {
        before = ring.slot;
        if (q & 1) ring.advance();
        if (!AHEAD && left > 1) {
            if (q & 1) ring.await_full();
            read(ring, (q & 1) ^ 1);
        }
        if (left > 1) S::unpack(a[(q & 1) ^ 1], raw, t, factors);
        if (AHEAD && left > 2) read_ahead(q & 1);
    }
    // Multiplies some rows of a group, when so many groups are left.
    INLINE void multiply_unit(float (&c)[H::n / 2], GemmRing<P>& ring, u32 left, int unit) {
        const int q = unit / OF_GROUP, part = unit % OF_GROUP;
        const u64 b = wgmma_matrix(ring.stage()) + (q & 1) * 4 + part * (PART * 8);
        wgmma_fence();
        wgmma<0>(parts[unit % TEMPS], a[q & 1], b, 0);
        wgmma<0>(parts[unit % TEMPS], a[q & 1] + 4, b + 2, 1);
        wgmma_commit();
        if constexpr (TEMPS == 1) {
            if (part == OF_GROUP - 1) prepare(ring, left, q);
            wgmma_wait<0>(parts[0]);
            if (unit % OF_STAGE == OF_STAGE - 1) ring.leave(before);
            add(c, unit);
        } else {
            if (unit > 0) {
                wgmma_wait<1>(parts[(unit - 1) % TEMPS]);
                if (unit % OF_STAGE == 0) ring.leave(before);
                add(c, unit - 1);
            }
            if (part == OF_GROUP - 1) prepare(ring, left, q);
        }
    }
    // Multiplies so many slices, beginning with `first`.
    template <u32 COUNT> INLINE void multiply(float (&c)[H::n / 2], GemmRing<P>& ring, u32 first) {
        constexpr u32 STEPS = COUNT * H::slice;
#pragma unroll
        for (u32 h = 0; h < 2; h++) s[h] += first * (H::slice * 2);
        fetch_scales<STEPS>(0);
#pragma unroll
        for (int i = 0; i < H::n / 2; i++) c[i] = 0;
        ring.await_full();
        read(ring, 0);
        S::unpack(a[0], raw, t, factors);
        if constexpr (AHEAD) {
            read(ring, 1);
            ahead = ring;
        }
        before = ring.slot;
#pragma unroll 1
        for (u32 slice = 0; slice < COUNT; slice++) {
#pragma unroll 1
            for (u32 step = slice * H::slice; step < (slice + 1) * H::slice; step += TURNS) {
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int i = 0; i < LOADS; i++) now[h][i] = next[h][i];
                fetch_scales<STEPS>(step + TURNS);
#pragma unroll
                for (int unit = 0; unit < ALL; unit++) multiply_unit(c, ring, (STEPS - step) * 2 - unit / OF_GROUP, unit);
                if constexpr (TEMPS == 2) {
                    wgmma_wait<0>(parts[(ALL - 1) % TEMPS]);
                    ring.leave(before);
                    add(c, ALL - 1);
                }
            }
            if constexpr (COUNT > 1) sums.end_slice(c, slice == 0, slice + 1 == COUNT);
        }
    }
};
