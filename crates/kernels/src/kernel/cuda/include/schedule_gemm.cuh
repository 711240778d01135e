// The tiles of a product of many rows on a Hopper chip, who takes which, and the thread that fills the ring.
//
// A tile is 64 outputs for each group of four warps (of gated products of packed weights, 32 of each weight) by TILE rows. Two
// blocks of a cluster take tiles of the same rows: each brings half of x to both. The blocks stay and take one tile after the
// other. A thread fills a ring of stages, 64 elements along K each.
#include "operands.cuh"

// What follows from the constants of a problem P.
template <class P> struct GemmShape {
    typedef typename P::Storage S;
    static constexpr u32 threads = P::threads;
    static constexpr u32 m = P::groups * 64, n = P::tile; // weights' rows of a tile, and rows of x: 64 or 128
    static constexpr u32 step = 64, steps = P::k / step; // elements along K of a stage
    static constexpr u32 x_bytes = n * 128, w_row = S::bits * 8, w_bytes = m * w_row, stage = x_bytes + w_bytes;
    // Slices along K, added up one by one and last all together, and the steps of each.
    static constexpr u32 slices = P::slices, slice = steps / slices;
    static_assert(steps % slices == 0 && !(P::gated && slices > 1));
    // Whether a thread has registers for its sums of the slices in front, beside those that it makes.
    static constexpr bool sums_fit = n <= 64 || !(S::packed || P::groups > 2);
    // The groups have a weight each and share out the rows of the results.
    static constexpr bool halves = P::gated && !S::packed;
    static INLINE constexpr u32 units(u32 outputs) { return (outputs + 63) / 64; }
    static constexpr u32 columns = P::gated ? (P::o0 + m / 2 - 1) / (m / 2)
        : (units(P::o0) + units(P::o1) + units(P::o2) + P::groups - 1) / P::groups;
    static constexpr u32 pairs = (columns + 1) / 2;
    // Whether the blocks of a cluster share a tile of few rows, a slice each: where there is a tile for each cluster at most.
    static constexpr bool split = slices == 2 && n <= 64 && columns <= P::blocks / 2;
    // Results of a group: so many pieces of 8 outputs for each warp, and so many rows.
    static constexpr u32 pieces = P::gated && !halves ? 1 : 2, rows = halves ? n / 2 : n;
    static constexpr u32 out_row = pieces * 64;
    // Bytes of a group through which results go, or sums of slices.
    static constexpr u32 out_bytes = halves ? n * 128 : slices > 1 && (n <= 64 || !sums_fit) ? n * 256 : rows * out_row;

    static constexpr u32 weights = P::gated ? 2 : P::parts;
    // Places of the operands among the bindings.
    static constexpr u32 first = 1, bias = first + weights * S::arrays, y = bias + (P::bias ? P::parts : 0);
    static constexpr u32 symbols = y + P::parts, count = symbols + 1;
    // The maps of x and of the weights, and those for few rows.
    static constexpr u32 skinny_maps = 1 + weights;
    typedef MappedBindings<count, (P::skinny > 0 ? 2 : 1) * skinny_maps> Bound;
    typedef typename Number<P::out_f32>::type out_t;

    // The weight that a group takes in a column of tiles, and the first of its outputs.
    struct Place { u32 part, first; };
    static INLINE Place place_of(u32 column, u32 group) {
        if constexpr (P::gated) {
            return {halves ? group : 0, column * (m / 2) + (halves ? 0 : group * 32)};
        } else {
            constexpr u32 SECOND = (P::o0 + 63) / 64, THIRD = SECOND + (P::o1 + 63) / 64;
            const u32 unit = column * P::groups + group;
            if (P::parts > 2 && unit >= THIRD) return {2, (unit - THIRD) * 64};
            if (P::parts > 1 && unit >= SECOND) return {1, (unit - SECOND) * 64};
            return {0, unit * 64};
        }
    }
    // The number of outputs of a weight.
    static INLINE u32 width_of(u32 part) {
        u32 width = P::o0;
        if (P::parts > 1 && part == 1) width = P::o1;
        if (P::parts > 2 && part == 2) width = P::o2;
        return width;
    }
    // Of the bindings from FIRST on, every STRIDE-th one, that of a weight.
    template <u32 FIRST, u32 STRIDE> static INLINE const void* part_of(const Bound& in, u32 part) {
        const void* at = in.at[FIRST];
        if constexpr (P::parts > 1) {
            if (part == 1) at = in.at[FIRST + STRIDE];
        }
        if constexpr (P::parts > 2) {
            if (part == 2) at = in.at[FIRST + 2 * STRIDE];
        }
        return at;
    }
};

// The ring of stages as a thread sees it. A stage that is `full` can be multiplied, an `empty` one filled.
template <class P> struct GemmRing {
    typedef GemmShape<P> H;
    u32 ring, full, empty, slot, parity;
    u32 first, count; // the blocks that are told when a stage is done with
    INLINE u32 stage() const { return ring + slot * H::stage; }
    INLINE void await_full() const { mbarrier_wait(full + 8 * slot, parity); }
    INLINE void await_empty() const { mbarrier_wait(empty + 8 * slot, parity); }
    INLINE void advance() {
        if (++slot == P::stages) { slot = 0; parity ^= 1; }
    }
    // Tells the blocks of the cluster that a warp is done with a stage.
    INLINE void leave(u32 at) const {
        const u32 lane = threadIdx.x & 31;
        if (lane < count) mbarrier_arrive(empty + 8 * at, first + lane);
    }
};

// Asks for the weights of a stage.
template <class P> INLINE void gemm_ask(const typename GemmShape<P>::Bound& in, u32 stage, u32 barrier, u32 column, u32 step) {
    typedef GemmShape<P> H;
    const u32 k = step * (H::S::packed ? H::step / 32 * H::S::bits : H::step);
    if constexpr (P::gated && !H::halves) {
        tma_load(stage + H::x_bytes, &in.maps[1], k, column * (H::m / 2), barrier, false);
        tma_load(stage + H::x_bytes + H::w_bytes / 2, &in.maps[2], k, column * (H::m / 2), barrier, false);
    } else {
#pragma unroll
        for (u32 i = 0; i < P::groups; i++) {
            const auto at = H::place_of(column, i);
            const TensorMap* w = &in.maps[1];
            if constexpr (H::weights > 1) {
                if (at.part == 1) w = &in.maps[2];
            }
            if constexpr (H::weights > 2) {
                if (at.part == 2) w = &in.maps[3];
            }
            tma_load(stage + H::x_bytes + i * (64 * H::w_row), w, k, at.first, barrier, false);
        }
    }
}

// Asks for the weights of a stage as soon as it is empty, and waits for the kernel before this one, which makes x, the first time.
template <class P> INLINE void gemm_fill_weights(const typename GemmShape<P>::Bound& in, const GemmRing<P>& ring, u32 column, u32 step, bool& waited) {
    ring.await_empty();
    const u32 barrier = ring.full + 8 * ring.slot;
    mbarrier_expect(barrier, GemmShape<P>::stage);
    gemm_ask<P>(in, ring.stage(), barrier, column, step);
    if (!waited) {
        wait_previous();
        waited = true;
    }
}

// What the thread does that fills the ring with the only tile of a cluster whose blocks take a slice each.
template <class P> INLINE void gemm_fill_slice(const typename GemmShape<P>::Bound& in, GemmRing<P> ring, u32 column, u32 rank) {
    typedef GemmShape<P> H;
    bool waited = false;
    if (column < H::columns) {
#pragma unroll 1
        for (u32 step = rank * H::slice; step < (rank + 1) * H::slice; step++) {
            gemm_fill_weights<P>(in, ring, column, step, waited);
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                const u32 to = ring.stage() + half * (H::x_bytes / 2);
                tma_load(to, &in.maps[0], step * H::step, half * (H::n / 2), ring.full + 8 * ring.slot, false);
            }
            ring.advance();
        }
    }
    if (!waited) wait_previous();
}

// What the thread does that fills the ring, for `tiles` tiles in columns of `stack`.
template <class P> INLINE void gemm_fill(const typename GemmShape<P>::Bound& in, GemmRing<P> ring, u32 tiles, u32 stack, u32 rank) {
    typedef GemmShape<P> H;
    bool waited = false;
    for (u32 tile = blockIdx.x >> 1; tile < tiles; tile += P::blocks / 2) {
        const u32 row = tile % stack * H::n + rank * (H::n / 2);
        const u32 column = tile / stack * 2 + rank;
#pragma unroll 1
        for (u32 step = 0; step < H::steps; step++) {
            gemm_fill_weights<P>(in, ring, column, step, waited);
            const u32 to = ring.stage() + rank * (H::x_bytes / 2);
            tma_load(to, &in.maps[0], step * H::step, row, ring.full + 8 * ring.slot, true);
            ring.advance();
        }
    }
    if (!waited) wait_previous();
}

// Shares out the registers anew between the threads that fill the ring and those that multiply.
template <u32 LEFT> INLINE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LEFT)); }
template <u32 HELD> INLINE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(HELD)); }
