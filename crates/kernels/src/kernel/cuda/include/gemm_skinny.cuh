// Products of few rows, by warps that take 16 rows of weights each (of gated products 8 of each weight), a strip. The blocks of the
// grid take tiles of a few strips each, so that all of them read weights, and share nothing. Slices of K, whose sums are added up
// last, can be shared out to several warps.
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
// Stages of the ring at most: they hold as much as memory has on its way to a multiprocessor.
constexpr u32 SKINNY_STAGES = 24;

// What follows from the constants of a problem P for EIGHTS times 8 rows.
template <class P, u32 EIGHTS> struct SkinnyShape {
    typedef GemmShape<P> H;
    typedef typename P::Storage S;
    // Steps of 64 elements along K that a warp takes to registers at a time, and those of a stage. Products of f16 add up one after
    // the other in a run: a stage has steps of two runs, so that they need not wait for each other. Of packed weights a stage has
    // steps for rows of up to 128 bytes: memory gives short ones slowly.
    static constexpr u32 span = H::steps % (S::packed ? 2 : 2 * P::run) == 0 ? 2 : 1;
    static constexpr u32 wide = S::packed ? P::wide : span, takes = wide / span;
    static_assert(H::slice % wide == 0 && wide % span == 0);
    static INLINE u32 step_of(u32 stage, u32 s) {
        if constexpr (S::packed || span == 1) return stage * wide + s;
        else return (stage / P::run * span + s) * P::run + stage % P::run;
    }
    // Stages along K, warps that share a strip, the stages of each, and what it takes of them, in all and of a slice.
    static constexpr u32 length = H::steps / wide, shares = P::shares, share = length / shares;
    static constexpr u32 turns = share * takes, slice = H::slice / span;
    static_assert(H::slices % shares == 0, "a warp takes whole slices");
    // Bytes of eight rows of x of a step, and of the weights of all strips of a step and of a stage.
    static constexpr u32 x_bytes = 8 * 128, w_bytes = P::strips * 16 * H::w_row, w_stage = wide * w_bytes;
    // Boxes of x are swizzled by their place among 1024 bytes.
    static constexpr u32 x_stage = wide * EIGHTS * x_bytes, stage = (x_stage + w_stage + 1023) / 1024 * 1024;
    // Sums of slices that warps give each other, twice: those of a tile are read while those of the next one are written.
    static constexpr u32 given = P::strips * H::slices * EIGHTS * 512, exchange = shares > 1 ? 2 * given : 0;
    static constexpr u32 room = P::stages * H::stage + P::groups * H::out_bytes - exchange, fit = room / stage;
    // Where warps share strips, a stage is always filled by one thread for one share: shares are at different places along K, and
    // nobody may take a barrier's phase for the one after the next.
    static constexpr u32 depth = fit < SKINNY_STAGES ? fit : SKINNY_STAGES, stages = shares > 1 ? depth / FILLERS * FILLERS : depth;
    static constexpr u32 sums = room / 16 * 16;
    static_assert(stages >= FILLERS && stages >= 2 * shares && FILLERS % shares == 0);
    // Outputs of a warp and of a tile.
    static constexpr u32 unit = P::gated ? 8 : 16, outputs = P::strips * unit;
    static INLINE constexpr u32 tiles_of(u32 width) { return (width + outputs - 1) / outputs; }
    static constexpr u32 second = tiles_of(P::o0), third = second + tiles_of(P::o1), tiles = third + tiles_of(P::o2);

    static INLINE typename H::Place place_of(u32 tile) {
        if (P::parts > 2 && tile >= third) return {2, (tile - third) * outputs};
        if (P::parts > 1 && tile >= second) return {1, (tile - second) * outputs};
        return {0, tile * outputs};
    }
};

// The ring of stages as a thread sees it.
template <class Z> struct SkinnyRing {
    u32 memory, full, empty, slot, parity;
    INLINE u32 stage() const { return memory + slot * Z::stage; }
    INLINE void advance(u32 by) {
        slot += by;
        if (slot >= Z::stages) { slot -= Z::stages; parity ^= 1; }
    }
};

// What a thread does that fills the ring. Stages of the warps that share strips come by turns.
template <class P, u32 EIGHTS> INLINE void skinny_fill(const typename GemmShape<P>::Bound& in, SkinnyRing<SkinnyShape<P, EIGHTS>> ring, u32 rows, u32 filler) {
    typedef GemmShape<P> H;
    typedef SkinnyShape<P, EIGHTS> Z;
    const u32 eights = (rows + 7) / 8;
    bool waited = false;
    ring.advance(filler);
    u32 asked = filler;
    for (u32 tile = blockIdx.x; tile < Z::tiles; tile += P::blocks) {
        const auto at = Z::place_of(tile);
        const TensorMap* w = &in.maps[H::skinny_maps + 1 + at.part];
#pragma unroll 1
        for (; asked < Z::length; asked += FILLERS, ring.advance(FILLERS)) {
            const u32 along = asked % Z::shares * Z::share + asked / Z::shares;
            mbarrier_wait(ring.empty + 8 * ring.slot, ring.parity);
            const u32 barrier = ring.full + 8 * ring.slot, x = ring.stage(), to = x + Z::x_stage;
            mbarrier_expect(barrier, Z::wide * eights * Z::x_bytes + Z::w_stage);
            // A box of packed weights has all steps of a stage.
            constexpr u32 BOXES = H::S::packed ? 1 : Z::wide, BOX = Z::w_stage / BOXES;
#pragma unroll
            for (u32 s = 0; s < BOXES; s++) {
                const u32 k = Z::step_of(along, s) * (H::S::packed ? H::step / 32 * H::S::bits : H::step);
                tma_load(to + s * BOX, w, k, at.first, barrier, false);
                if constexpr (P::gated) tma_load(to + s * BOX + BOX / 2, w + 1, k, at.first, barrier, false);
            }
            if (!waited) {
                wait_previous();
                waited = true;
            }
#pragma unroll
            for (u32 s = 0; s < Z::wide; s++) {
                for (u32 j = 0; j < eights; j++) {
                    tma_load(x + (EIGHTS * s + j) * Z::x_bytes, &in.maps[H::skinny_maps], Z::step_of(along, s) * H::step, 8 * j, barrier, false);
                }
            }
        }
        asked -= Z::length;
    }
    if (!waited) wait_previous();
}

// What a warp has of a stage in registers: weights as they are stored, and, if they are few, EIGHTS times 8 rows of x.
template <class P, u32 EIGHTS> struct SkinnyOperands {
    typedef SkinnyShape<P, EIGHTS> Z;
    static constexpr bool whole = EIGHTS <= 2;
    u32 w[Z::span * 2][8], x[Z::span][whole ? EIGHTS : 1][8];
    u32 stage, slot, take;
};

// A warp's weights in f16, as they are.
template <class P, class Z, bool PACKED> struct SkinnyWeights {
    const u32 lane, line;

    INLINE SkinnyWeights(const typename GemmShape<P>::Bound&, u32 strip, u32, u32 lane) : lane(lane), line(line_of(strip, lane)) {}
    // Where the row of a lane is among the weights of a step: rows 8 to 15 are in the second quarter of lanes and in the last.
    static INLINE u32 line_of(u32 strip, u32 lane) {
        const u32 lower = lane >> 3 & 1;
        return (P::gated ? lower * P::strips + strip : strip * 2 + lower) * 1024 + (lane & 7) * 128;
    }
    INLINE void aim(typename GemmShape<P>::Place) {}
    // Takes step `step` of the weights of a stage.
    INLINE void load(u32 (&w)[2][8], u32 from, u32 step) const {
        from += step * Z::w_bytes;
#pragma unroll
        for (u32 i = 0; i < 4; i++) ldmatrix(*(u32(*)[4])(w[i / 2] + i % 2 * 4), from + line + (((2 * i + (lane >> 4)) ^ (lane & 7)) << 4));
    }
};

// Packed weights, which become f16 in registers.
template <class P, class Z> struct SkinnyWeights<P, Z, true> {
    typedef GemmShape<P> H;
    typedef typename P::Storage S;
    static constexpr u32 ROW = Z::wide * H::w_row;
    // Turns whose scales are on their way: they come from memory, not through the ring.
    static constexpr u32 AHEAD = 4;
    const typename H::Bound& in;
    const u32 strip, first, g, t, factors;
    u32 line[2];
    const u16* s[2];
    u32 scales[AHEAD][2][Z::span];

    INLINE SkinnyWeights(const typename H::Bound& in, u32 strip, u32 share, u32 lane)
        : in(in), strip(strip), first(share * Z::turns), g(lane >> 2), t(lane & 3), factors(S::factors()) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 row = P::gated ? (h * P::strips + strip) * 8 + g : strip * 16 + 8 * h + g;
            // The place of its first 16 bytes, swizzled over the row.
            line[h] = row * ROW + (ROW == 128 ? row & 7 : ROW == 64 ? row >> 1 & 3 : row >> 2 & 1) * 16;
        }
    }
    // The scales of a lane's rows of a tile.
    INLINE const u16* scales_of(typename H::Place at, u32 h) const {
        const u16* from = (const u16*)(P::gated ? in.at[H::first + 1 + h * S::arrays] : H::template part_of<H::first + 1, S::arrays>(in, at.part));
        const u32 row = at.first + (P::gated ? strip * 8 : strip * 16 + 8 * h) + g;
        return from + (size_t)(row < H::width_of(at.part) ? row : 0) * (P::k / 32) + first * (Z::span * 2);
    }
    INLINE void aim(typename H::Place at) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) s[h] = scales_of(at, h);
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) fetch_scales(i, i);
    }
    INLINE void fetch_scales(u32 to, u32 own) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u16* from = s[h] + (own < Z::turns ? own * Z::span * 2 : 0);
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
    INLINE void load(u32 (&w)[2][8], u32 from, u32 step) const {
#pragma unroll
        for (u32 q = 0; q < 2; q++) {
            const u32 at = step * H::w_row + q * (H::w_row / 2);
            S::read(w[q], from + (line[0] ^ at), from + (line[1] ^ at), t);
        }
    }
    INLINE void unpack(u32 (&a)[8], const u32 (&w)[8]) const { S::unpack(a, w, t, factors); }
};

// A warp that multiplies EIGHTS times 8 rows.
template <class P, u32 EIGHTS> struct SkinnyWarp {
    typedef GemmShape<P> H;
    typedef SkinnyShape<P, EIGHTS> Z;
    static constexpr bool packed = P::Storage::packed;
    // Turns of a block: those of a run of f16.
    static constexpr u32 BLOCK = 4;
    static_assert(packed || P::run == BLOCK);
    typedef SkinnyOperands<P, EIGHTS> Operands;
    const typename H::Bound& in;
    SkinnyRing<Z> ring;
    const u32 rows, strip, share, lane;
    u32 sums; // where warps give each other their sums
    SkinnyWeights<P, Z, packed> weights;
    // Sums of a slice, of all slices, and of the runs of a stage.
    float c[EIGHTS][4], all[EIGHTS][4], parts[Z::span][EIGHTS][4];

    INLINE SkinnyWarp(const typename H::Bound& in, SkinnyRing<Z> ring, u32 rows, u32 warp, u32 lane)
        : in(in), ring(ring), rows(rows), strip(warp % P::strips), share(warp / P::strips), lane(lane), sums(ring.memory + Z::sums),
          weights(in, warp % P::strips, warp / P::strips, lane) {}

    // Eight rows of x of a half of a step.
    INLINE void load_x(u32* x, u32 stage, u32 step, u32 half, u32 j) const {
        const u32 row = stage + (EIGHTS * step + j) * Z::x_bytes + (lane & 7) * 128;
        ldmatrix(*(u32(*)[4])x, row + (((4 * half + (lane >> 3)) ^ (lane & 7)) << 4));
    }
    INLINE void leave(u32 slot) const {
        __syncwarp();
        if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ring.empty + 8 * slot) : "memory");
    }
    // Takes a part of a stage to registers, and gives the stage back if that is all of it.
    INLINE void load(Operands& to, u32 take) {
        if (take == 0) mbarrier_wait(ring.full + 8 * ring.slot, ring.parity);
        to.stage = ring.stage();
        to.slot = ring.slot;
        to.take = take;
#pragma unroll
        for (u32 s = 0; s < Z::span; s++) {
            const u32 step = take * Z::span + s;
            weights.load(*(u32(*)[2][8])to.w[2 * s], to.stage + Z::x_stage, step);
            if constexpr (Operands::whole) {
#pragma unroll
                for (u32 i = 0; i < 2 * EIGHTS; i++) load_x(to.x[s][i / 2] + i % 2 * 4, to.stage, step, i % 2, i / 2);
            }
        }
        if (take + 1 < Z::takes) return;
        if constexpr (Operands::whole) leave(to.slot);
        ring.advance(Z::shares);
    }
    // Adds the sums of group `half` of step s of packed weights `a`, of turn `turn` of a block.
    INLINE void add_group(const u32 (&a)[8], const u32* x, u32 turn, u32 s, u32 half, u32 j) {
        float group[4] = {};
#pragma unroll
        for (u32 i = 0; i < 2; i++) mma_f16(group, *(const u32(*)[4])(a + 4 * i), x[2 * i], x[2 * i + 1]);
#pragma unroll
        for (u32 e = 0; e < 4; e++) c[j][e] = fmaf(group[e], weights.scale(turn, e >> 1, s, half), c[j][e]);
    }
    // Adds up what was taken, turn `turn` of a block.
    INLINE void add(const Operands& of, u32 turn) {
        if constexpr (!packed) {
#pragma unroll
            for (u32 i = 0; i < 4; i++)
#pragma unroll
                for (u32 s = 0; s < Z::span; s++)
#pragma unroll
                    for (u32 j = 0; j < EIGHTS; j++)
                        mma_f16(parts[s][j], *(const u32(*)[4])(of.w[2 * s + i / 2] + i % 2 * 4), of.x[s][j][2 * i], of.x[s][j][2 * i + 1]);
        } else {
#pragma unroll
            for (u32 q = 0; q < Z::span * 2; q++) {
                const u32 s = q / 2, half = q % 2;
                u32 a[8];
                weights.unpack(a, of.w[q]);
#pragma unroll
                for (u32 j = 0; j < EIGHTS; j++) {
                    if constexpr (Operands::whole) {
                        add_group(a, of.x[s][j] + half * 4, turn, s, half, j);
                    } else {
                        u32 x[4];
                        load_x(x, of.stage, of.take * Z::span + s, half, j);
                        add_group(a, x, turn, s, half, j);
                    }
                }
            }
            if (!Operands::whole && of.take + 1 == Z::takes) leave(of.slot);
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
    // Where a lane's sum of a slice is among those that warps give each other.
    INLINE u32 place_of(u32 slice, u32 j, u32 e) const { return sums + (((strip * H::slices + slice) * EIGHTS + j) * 4 + e) * 128 + lane * 4; }
    // Begins a new slice behind one that has ended, the one so many in front of which the warp had.
    INLINE void end_slice(u32 slice) {
#pragma unroll
        for (u32 j = 0; j < EIGHTS; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                if constexpr (Z::shares > 1) {
                    const u32 to = place_of(share * (H::slices / Z::shares) + slice, j, e);
                    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(c[j][e]) : "memory");
                } else {
                    all[j][e] += c[j][e];
                }
                c[j][e] = 0;
            }
    }
    INLINE void add_tile() {
#pragma unroll
        for (u32 j = 0; j < EIGHTS; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                c[j][e] = 0;
                all[j][e] = -0.0f; // which changes nothing that is added to it
#pragma unroll
                for (u32 s = 0; s < Z::span; s++) parts[s][j][e] = 0;
            }
        Operands held[2];
        load(held[0], 0);
        // Slices end with blocks, if they can: what is done between two turns keeps them from running into each other.
        constexpr bool EVEN = H::slices == 1 || Z::slice % BLOCK == 0;
        u32 slice = 0, end = Z::slice;
#pragma unroll 1
        for (u32 first = 0; first < Z::turns; first += BLOCK) {
#pragma unroll
            for (u32 i = 0; i < BLOCK; i++) {
                const u32 turn = first + i;
                if (turn >= Z::turns) continue;
                if (turn + 1 < Z::turns) load(held[(i + 1) % 2], (i + 1) % Z::takes);
                add(held[i % 2], i);
                if constexpr (packed) weights.fetch_scales(i, turn + BLOCK);
                if (!EVEN && turn + 1 == end) {
                    end_slice(slice++);
                    end += Z::slice;
                }
            }
            if constexpr (!packed) end_runs();
            if (H::slices > 1 && EVEN && first + BLOCK == end) {
                end_slice(slice++);
                end += Z::slice;
            }
        }
    }
    INLINE void store(u32 row, u32 output, float sum, u32 part) const {
        const u32 width = H::width_of(part);
        if (row >= rows || output >= width) return;
        if constexpr (P::bias) sum += element<P::bias_dtype>(H::template part_of<H::bias, 1>(in, part), output);
        typedef Number<P::out_f32> Out;
        ((typename Out::type*)H::template part_of<H::y, 1>(in, part))[(size_t)row * width + output] = Out::to(sum);
    }
    // Stores eight rows.
    INLINE void store_sums(const float (&sum)[4], u32 j, typename H::Place at) const {
        const u32 output = at.first + strip * Z::unit + (lane >> 2);
#pragma unroll
        for (u32 e = 0; e < 2; e++) {
            const u32 row = 8 * j + (lane & 3) * 2 + e;
            if constexpr (P::gated) {
                store(row, output, silu_gate_fast(sum[e], sum[2 + e]), 0);
            } else {
                store(row, output, sum[e], at.part);
                store(row, output + 8, sum[2 + e], at.part);
            }
        }
    }
    // Adds up what the warps of a strip gave each other. They take turns with eight rows.
    INLINE void share_sums(typename H::Place at) {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + strip), "n"(32 * Z::shares) : "memory");
#pragma unroll
        for (u32 j = 0; j < EIGHTS; j++) {
            if (j % Z::shares != share) continue;
            float sum[4];
#pragma unroll
            for (u32 slice = 0; slice < H::slices; slice++)
#pragma unroll
                for (u32 e = 0; e < 4; e++) {
                    float one;
                    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(one) : "r"(place_of(slice, j, e)) : "memory");
                    sum[e] = slice ? sum[e] + one : one;
                }
            store_sums(sum, j, at);
        }
        const u32 from = ring.memory + Z::sums;
        sums = sums == from ? from + Z::given : from;
    }
    INLINE void run() {
        for (u32 tile = blockIdx.x; tile < Z::tiles; tile += P::blocks) {
            const auto at = Z::place_of(tile);
            weights.aim(at);
            add_tile();
            if constexpr (Z::shares > 1) {
                share_sums(at);
            } else {
#pragma unroll
                for (u32 j = 0; j < EIGHTS; j++) store_sums(H::slices > 1 ? all[j] : c[j], j, at);
            }
        }
    }
};

// What the warps of a block share: the ring, its barriers, and how many rows there are.
struct SkinnyBlock { u32 memory, full, empty, rows; };

template <class P, u32 EIGHTS> INLINE void skinny_fill(const typename GemmShape<P>::Bound& in, SkinnyBlock block, u32 filler) {
    if (threadIdx.x & 31) return;
    skinny_fill<P, EIGHTS>(in, {block.memory, block.full, block.empty, 0, 1}, block.rows, filler);
}
template <class P, u32 EIGHTS> INLINE void skinny_multiply(const typename GemmShape<P>::Bound& in, SkinnyBlock block, u32 warp) {
    SkinnyRing<SkinnyShape<P, EIGHTS>> ring = {block.memory, block.full, block.empty, 0, 0};
    ring.advance(warp / P::strips);
    SkinnyWarp<P, EIGHTS>(in, ring, block.rows, warp, threadIdx.x & 31).run();
}

// A block's part of a product of few rows. The last warps fill the ring, the first ones multiply.
template <class P> INLINE void skinny_block(const typename GemmShape<P>::Bound& in, u32 memory, u64* full, u64* empty, u32 rows) {
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < SKINNY_STAGES; s++) {
            mbarrier_init(address(full + s), 1);
            mbarrier_init(address(empty + s), P::strips);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    launch_next();
    constexpr u32 FILLING = P::threads / 32 - FILLERS, MOST = P::skinny / 8;
    const SkinnyBlock block = {memory, address(full), address(empty), rows};
    const u32 warp = threadIdx.x >> 5;
    if (warp >= FILLING) {
        if constexpr (P::threads > 256) give_registers<56>();
        if (MOST > 2 && rows > 16) skinny_fill<P, MOST>(in, block, warp - FILLING);
        else if (rows > 8) skinny_fill<P, 2>(in, block, warp - FILLING);
        else skinny_fill<P, 1>(in, block, warp - FILLING);
        return;
    }
    if constexpr (P::threads > 256) take_registers<P::threads == 384 ? 224 : 152>();
    if (warp >= P::strips * P::shares) return;
    if (MOST > 2 && rows > 16) skinny_multiply<P, MOST>(in, block, warp);
    else if (rows > 8) skinny_multiply<P, 2>(in, block, warp);
    else skinny_multiply<P, 1>(in, block, warp);
}
