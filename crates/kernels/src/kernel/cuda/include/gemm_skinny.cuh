// Products of few rows, by warps that each take 16 rows of weights (of gated products 8 of each weight) for all of K. The blocks
// of the grid take tiles of a few warps each, so that all of them read weights, and share nothing.
//
// The products of a warp (`mma`) add up as those of four (`wgmma`) do, bit by bit, and all other sums are made in the same order. So
// a row's result is the one that tiles of many rows give.
#include "epilogue_gate.cuh"
#include "load_e4m3.cuh"
#include "load_f16.cuh"
#include "load_int4.cuh"
#include "schedule_gemm.cuh"

// Threads that ask for stages in turns: a stage of few bits arrives as fast as it is asked for.
constexpr u32 FILLERS = 4;

template <class P> struct SkinnyShape {
    typedef GemmShape<P> H;
    typedef typename P::Storage S;
    // Steps of 64 elements along K in a stage, and stages along K. Products of f16 add up one after the other in a run: a stage has
    // steps of two runs, so that they need not wait for each other.
    static constexpr u32 span = H::steps % (S::packed ? 2 : 2 * P::run) == 0 ? 2 : 1, turns = H::steps / span;
    static INLINE u32 step_of(u32 turn, u32 s) {
        if constexpr (S::packed || span == 1) return turn * span + s;
        else return (turn / P::run * span + s) * P::run + turn % P::run;
    }
    // Bytes of a step: eight rows of x, so many times, and the weights of all warps.
    static constexpr u32 eights = P::skinny / 8, x_bytes = 8 * 128, w_bytes = P::warps * 16 * H::w_row;
    // Boxes of x are swizzled by their place among 1024 bytes.
    static constexpr u32 x_stage = span * eights * x_bytes, stage = (x_stage + span * w_bytes + 1023) / 1024 * 1024;
    static_assert(stage * P::skinny_stages <= P::stages * H::stage + P::groups * H::out_bytes, "the ring lies where that of tiles would");
    // Outputs of a warp and of a tile.
    static constexpr u32 unit = P::gated ? 8 : 16, outputs = P::warps * unit;
    static INLINE constexpr u32 tiles_of(u32 width) { return (width + outputs - 1) / outputs; }
    static constexpr u32 second = tiles_of(P::o0), third = second + tiles_of(P::o1), tiles = third + tiles_of(P::o2);

    static INLINE typename H::Place place_of(u32 tile) {
        if (P::parts > 2 && tile >= third) return {2, (tile - third) * outputs};
        if (P::parts > 1 && tile >= second) return {1, (tile - second) * outputs};
        return {0, tile * outputs};
    }
};

// The ring of stages as a thread sees it.
template <class P> struct SkinnyRing {
    u32 memory, full, empty, slot, parity;
    INLINE u32 stage() const { return memory + slot * SkinnyShape<P>::stage; }
    INLINE void advance() {
        if (++slot == P::skinny_stages) { slot = 0; parity ^= 1; }
    }
};

// What a thread does that fills the ring.
template <class P> INLINE void skinny_fill(const typename GemmShape<P>::Bound& in, SkinnyRing<P> ring, u32 rows, u32 filler) {
    typedef GemmShape<P> H;
    typedef SkinnyShape<P> Z;
    const u32 eights = (rows + 7) / 8;
    u32 asked = 0;
    bool waited = false;
    for (u32 tile = blockIdx.x; tile < Z::tiles; tile += P::blocks) {
        const auto at = Z::place_of(tile);
        const TensorMap* w = &in.maps[H::skinny_maps + 1 + at.part];
#pragma unroll 1
        for (u32 turn = 0; turn < Z::turns; turn++, ring.advance()) {
            if (asked++ % FILLERS != filler) continue;
            mbarrier_wait(ring.empty + 8 * ring.slot, ring.parity);
            const u32 barrier = ring.full + 8 * ring.slot, x = ring.stage(), to = x + Z::x_stage;
            mbarrier_expect(barrier, Z::span * (eights * Z::x_bytes + Z::w_bytes));
#pragma unroll
            for (u32 s = 0; s < Z::span; s++) {
                const u32 k = Z::step_of(turn, s) * (H::S::packed ? H::step / 32 * H::S::bits : H::step);
                tma_load(to + s * Z::w_bytes, w, k, at.first, barrier, false);
                if constexpr (P::gated) tma_load(to + s * Z::w_bytes + Z::w_bytes / 2, w + 1, k, at.first, barrier, false);
            }
            if (!waited) {
                wait_previous();
                waited = true;
            }
#pragma unroll
            for (u32 s = 0; s < Z::span; s++) {
                for (u32 j = 0; j < eights; j++) {
                    tma_load(x + (Z::eights * s + j) * Z::x_bytes, &in.maps[H::skinny_maps], Z::step_of(turn, s) * H::step, 8 * j, barrier, false);
                }
            }
        }
    }
    if (!waited) wait_previous();
}

// What a warp has of a stage in registers: weights of f16, and, if they are few, EIGHTS times 8 rows of x.
template <class P, u32 EIGHTS> struct SkinnyOperands {
    typedef SkinnyShape<P> Z;
    static constexpr bool whole = EIGHTS <= 2;
    u32 w[Z::span * 4][4], x[Z::span][whole ? EIGHTS : 1][8];
    u32 stage, slot;
};

// A warp's weights in f16, as they are.
template <class P, bool PACKED> struct SkinnyWeights {
    typedef SkinnyShape<P> Z;
    const u32 lane, line;

    INLINE SkinnyWeights(const typename GemmShape<P>::Bound&, u32 warp, u32 lane) : lane(lane), line(line_of(warp, lane)) {}
    // Where the row of a lane is among the weights of a step: rows 8 to 15 are in the second quarter of lanes and in the last.
    static INLINE u32 line_of(u32 warp, u32 lane) {
        const u32 lower = lane >> 3 & 1;
        return (P::gated ? lower * P::warps + warp : warp * 2 + lower) * 1024 + (lane & 7) * 128;
    }
    INLINE void aim(typename GemmShape<P>::Place) {}
    INLINE void load(u32 (&w)[4][4], u32 from) const {
#pragma unroll
        for (u32 i = 0; i < 4; i++) ldmatrix(w[i], from + line + (((2 * i + (lane >> 4)) ^ (lane & 7)) << 4));
    }
};

// Packed weights, which become f16 in registers.
template <class P> struct SkinnyWeights<P, true> {
    typedef GemmShape<P> H;
    typedef SkinnyShape<P> Z;
    typedef typename P::Storage S;
    // Turns whose scales are on their way: they come from memory, not through the ring.
    static constexpr u32 AHEAD = 4;
    const typename H::Bound& in;
    const u32 warp, g, t, factors;
    u32 line[2];
    const u16* s[2];
    u32 scales[AHEAD][2][Z::span];

    INLINE SkinnyWeights(const typename H::Bound& in, u32 warp, u32 lane) : in(in), warp(warp), g(lane >> 2), t(lane & 3), factors(S::factors()) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 row = P::gated ? (h * P::warps + warp) * 8 + g : warp * 16 + 8 * h + g;
            // The place of its first 16 bytes, swizzled over the row.
            line[h] = row * H::w_row + (S::bits == 4 ? row >> 2 & 1 : row >> 1 & 3) * 16;
        }
    }
    INLINE void aim(typename H::Place at) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u16* from = (const u16*)(P::gated ? in.at[H::first + 1 + h * S::arrays] : H::template part_of<H::first + 1, S::arrays>(in, at.part));
            const u32 row = at.first + (P::gated ? warp * 8 : warp * 16 + 8 * h) + g;
            s[h] = from + (size_t)(row < H::width_of(at.part) ? row : 0) * (P::k / 32);
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) fetch_scales(i, i);
    }
    INLINE void fetch_scales(u32 to, u32 turn) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u16* from = s[h] + (turn < Z::turns ? turn * Z::span * 2 : 0);
            u32(&w)[Z::span] = scales[to][h];
            if constexpr (Z::span == 2) asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from));
            else asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(w[0]) : "l"(from));
        }
    }
    // The scale of a group of a step.
    INLINE float scale(u32 at, u32 h, u32 step, u32 group) const {
        const u32 w = scales[at][h][step];
        return (group ? high(w) : low(w)) * S::scale;
    }
    INLINE void load(u32 (&w)[4][4], u32 from) const {
#pragma unroll
        for (u32 q = 0; q < 2; q++) {
            u32 a[8];
            S::unpack(a, from + (line[0] ^ q * (H::w_row / 2)), from + (line[1] ^ q * (H::w_row / 2)), t, factors);
#pragma unroll
            for (u32 i = 0; i < 8; i++) w[2 * q + i / 4][i % 4] = a[i];
        }
    }
};

// A warp that multiplies EIGHTS times 8 rows.
template <class P, u32 EIGHTS> struct SkinnyWarp {
    typedef GemmShape<P> H;
    typedef SkinnyShape<P> Z;
    static constexpr bool packed = P::Storage::packed;
    // Turns of a block: those of a run of f16.
    static constexpr u32 BLOCK = 4;
    static_assert(packed || P::run == BLOCK);
    typedef SkinnyOperands<P, EIGHTS> Operands;
    const typename H::Bound& in;
    SkinnyRing<P> ring;
    const u32 rows, warp, lane;
    SkinnyWeights<P, packed> weights;
    // Sums, and those of the runs of a stage.
    float c[EIGHTS][4], parts[Z::span][EIGHTS][4];

    INLINE SkinnyWarp(const typename H::Bound& in, SkinnyRing<P> ring, u32 rows, u32 warp, u32 lane)
        : in(in), ring(ring), rows(rows), warp(warp), lane(lane), weights(in, warp, lane) {}

    // Eight rows of x of a step.
    INLINE void load_x(u32 (&x)[8], u32 stage, u32 step, u32 j) const {
        const u32 row = stage + (Z::eights * step + j) * Z::x_bytes + (lane & 7) * 128;
#pragma unroll
        for (u32 i = 0; i < 2; i++) ldmatrix(*(u32(*)[4])&x[4 * i], row + (((4 * i + (lane >> 3)) ^ (lane & 7)) << 4));
    }
    INLINE void leave(u32 slot) const {
        __syncwarp();
        if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ring.empty + 8 * slot) : "memory");
    }
    // Takes a stage to registers, and gives it back if that is all of it.
    INLINE void load(Operands& to) {
        mbarrier_wait(ring.full + 8 * ring.slot, ring.parity);
        to.stage = ring.stage();
        to.slot = ring.slot;
#pragma unroll
        for (u32 s = 0; s < Z::span; s++) {
            weights.load(*(u32(*)[4][4])&to.w[4 * s], to.stage + Z::x_stage + s * Z::w_bytes);
            if constexpr (Operands::whole) {
#pragma unroll
                for (u32 j = 0; j < EIGHTS; j++) load_x(to.x[s][j], to.stage, s, j);
            }
        }
        if constexpr (Operands::whole) leave(to.slot);
        ring.advance();
    }
    // Adds a group's sums of packed weights, of group q of step s of turn `turn` of a block.
    INLINE void add_group(const Operands& of, const u32 (&x)[8], u32 turn, u32 s, u32 q, u32 j) {
        float sums[4] = {};
#pragma unroll
        for (u32 i = 2 * q; i < 2 * q + 2; i++) mma_f16(sums, of.w[4 * s + i], x[2 * i], x[2 * i + 1]);
#pragma unroll
        for (u32 e = 0; e < 4; e++) c[j][e] = fmaf(sums[e], weights.scale(turn, e >> 1, s, q), c[j][e]);
    }
    // Adds up a stage, turn `turn` of a block.
    INLINE void add(const Operands& of, u32 turn) {
        if constexpr (!packed) {
#pragma unroll
            for (u32 i = 0; i < 4; i++)
#pragma unroll
                for (u32 s = 0; s < Z::span; s++)
#pragma unroll
                    for (u32 j = 0; j < EIGHTS; j++) mma_f16(parts[s][j], of.w[4 * s + i], of.x[s][j][2 * i], of.x[s][j][2 * i + 1]);
        } else if constexpr (Operands::whole) {
#pragma unroll
            for (u32 q = 0; q < Z::span * 2; q++)
#pragma unroll
                for (u32 j = 0; j < EIGHTS; j++) add_group(of, of.x[q / 2][j], turn, q / 2, q % 2, j);
        } else {
#pragma unroll
            for (u32 s = 0; s < Z::span; s++) {
#pragma unroll
                for (u32 j = 0; j < EIGHTS; j++) {
                    u32 x[8];
                    load_x(x, of.stage, s, j);
#pragma unroll
                    for (u32 q = 0; q < 2; q++) add_group(of, x, turn, s, q, j);
                }
            }
            leave(of.slot);
        }
    }
    // Begins new runs behind those that have ended.
    INLINE void end_runs() {
#pragma unroll
        for (u32 s = 0; s < Z::span; s++)
#pragma unroll
            for (u32 j = 0; j < EIGHTS; j++)
#pragma unroll
                for (u32 e = 0; e < 4; e++) {
                    c[j][e] += parts[s][j][e];
                    parts[s][j][e] = 0;
                }
    }
    INLINE void add_tile() {
#pragma unroll
        for (u32 j = 0; j < EIGHTS; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                c[j][e] = 0;
#pragma unroll
                for (u32 s = 0; s < Z::span; s++) parts[s][j][e] = 0;
            }
        Operands held[2];
        load(held[0]);
#pragma unroll 1
        for (u32 first = 0; first < Z::turns; first += BLOCK) {
#pragma unroll
            for (u32 i = 0; i < BLOCK; i++) {
                const u32 turn = first + i;
                if (turn >= Z::turns) continue;
                if (turn + 1 < Z::turns) load(held[(i + 1) % 2]);
                add(held[i % 2], i);
                if constexpr (packed) weights.fetch_scales(i, turn + BLOCK);
            }
            if constexpr (!packed) end_runs();
        }
    }
    INLINE void store(u32 row, u32 output, float sum, u32 part) const {
        const u32 width = H::width_of(part);
        if (row >= rows || output >= width) return;
        if constexpr (P::bias) sum += element<P::bias_dtype>(H::template part_of<H::bias, 1>(in, part), output);
        typedef Number<P::out_f32> Out;
        ((typename Out::type*)H::template part_of<H::y, 1>(in, part))[(size_t)row * width + output] = Out::to(sum);
    }
    INLINE void run() {
        for (u32 tile = blockIdx.x; tile < Z::tiles; tile += P::blocks) {
            const auto at = Z::place_of(tile);
            weights.aim(at);
            add_tile();
            const u32 output = at.first + warp * Z::unit + (lane >> 2);
#pragma unroll
            for (u32 j = 0; j < EIGHTS; j++) {
#pragma unroll
                for (u32 e = 0; e < 2; e++) {
                    const u32 row = 8 * j + (lane & 3) * 2 + e;
                    if constexpr (P::gated) {
                        store(row, output, silu_gate_fast(c[j][e], c[j][2 + e]), 0);
                    } else {
                        store(row, output, c[j][e], at.part);
                        store(row, output + 8, c[j][2 + e], at.part);
                    }
                }
            }
        }
    }
};

// A block's part of a product of few rows. The last four warps fill the ring, the first ones multiply.
template <class P> INLINE void skinny_block(const typename GemmShape<P>::Bound& in, u32 memory, u64* full, u64* empty, u32 rows) {
    typedef SkinnyShape<P> Z;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    SkinnyRing<P> ring = {memory, address(full), address(empty), 0, 0};
    if (threadIdx.x == 0) {
        for (int s = 0; s < P::skinny_stages; s++) {
            mbarrier_init(ring.full + 8 * s, 1);
            mbarrier_init(ring.empty + 8 * s, P::warps);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    launch_next();
    if (warp >= 4 * P::groups) {
        if constexpr (P::groups > 1) give_registers<P::groups == 2 ? 40 : 56>();
        ring.parity = 1;
        if (lane == 0) skinny_fill<P>(in, ring, rows, warp - 4 * P::groups);
        return;
    }
    if constexpr (P::groups > 1) take_registers<P::groups == 2 ? 232 : 152>();
    if (warp < P::warps) {
        if (Z::eights > 2 && rows > 16) SkinnyWarp<P, Z::eights>(in, ring, rows, warp, lane).run();
        else if (rows > 8) SkinnyWarp<P, 2>(in, ring, rows, warp, lane).run();
        else SkinnyWarp<P, 1>(in, ring, rows, warp, lane).run();
    }
}
