// Which warp of a product of one row takes what, and the ring through which its weights come.
#include "operands.cuh"

// What follows from the constants of a problem P.
template <class P> struct GemvShape {
    typedef typename P::Storage S;
    static constexpr u32 team = P::warps * 32, threads = P::teams * team;
    // Of 16 rows a stage holds 128 bytes each, and so many bytes of scales, or of zeros, each.
    static constexpr u32 step = 1024 / S::bits, few = S::packed ? step / S::group * 2 : 0;
    static constexpr u32 stage = 2048 + 16 * few * (1 + S::zeros), stages = (P::k + step - 1) / step;
    // Bytes of a row of weights, and of its scales.
    static constexpr u32 row = P::k / 8 * S::bits, scales = S::packed ? P::k / S::group * 2 : 0;
    // Whether a row ends within a stage: with its first half, in 4 bits.
    static constexpr bool tail = P::k % step != 0;
    // Rows of x, and every how many stages of a row are a warp's.
    static constexpr u32 rows = P::mixed ? P::slots + P::mixed : P::experts && !P::shared ? P::slots : 1;
    static constexpr u32 stride = P::mixed ? P::split : P::warps;
    // Outputs of a tile, and tiles of a weight, of a dense one in front of a stack, and of all.
    static constexpr u32 outputs = P::gated ? 8 : 16, tiles_each = (P::o0 + (P::gated ? 0 : P::o1 + P::o2)) / outputs;
    static constexpr u32 fixed = P::beside / 8, tiles = P::experts && !P::mixed ? fixed + P::slots * tiles_each : tiles_each;
    // Which bit of a piece's place the row's parity turns.
    static constexpr u32 turn = S::bits == 4 ? 0 : 2;
    static_assert(!S::zeros || S::group > 32, "one zero point is read for 64 elements");
};

// The operands in the order in which they are bound.
template <class P> struct GemvOperands {
    static constexpr u32 ARRAYS = P::Storage::arrays, WEIGHTS = P::gated ? 2 : P::parts, DENSE = P::beside ? 2 : P::mixed ? 1 : 0;
    static constexpr u32 X1 = 1, NORM = X1 + (P::mixed > 0), FIRST = NORM + P::norm, BESIDE = FIRST + ARRAYS * WEIGHTS;
    static constexpr u32 CHOSEN = BESIDE + ARRAYS * DENSE, FACTORS = CHOSEN + (P::experts > 0), BIAS = FACTORS + 2 * (P::mixed > 0);
    static constexpr u32 RESIDUAL = BIAS + (P::bias ? P::parts : 0), Y = RESIDUAL + P::residual;
    static constexpr u32 COUNT = Y + P::parts + (P::beside > 0) + 1;
    typedef typename Number<P::out_f32>::type out_t;

    const void *x, *x1;
    const char* norm;
    Weight weight[3], dense[2];
    const u32* chosen;
    const out_t *factors, *share, *residual;
    const void* bias[3];
    out_t* y[3];

    INLINE explicit GemvOperands(const Bindings<COUNT>& bound) {
        const void* const* at = bound.at;
        x = at[0];
        if constexpr (P::mixed > 0) x1 = at[X1];
        if constexpr (P::norm) norm = (const char*)at[NORM];
#pragma unroll
        for (u32 i = 0; i < WEIGHTS; i++) weight[i] = Weight::bound<ARRAYS>(at, FIRST + ARRAYS * i);
#pragma unroll
        for (u32 i = 0; i < DENSE; i++) dense[i] = Weight::bound<ARRAYS>(at, BESIDE + ARRAYS * i);
        if constexpr (P::experts > 0) chosen = (const u32*)at[CHOSEN];
        if constexpr (P::mixed > 0) factors = (const out_t*)at[FACTORS], share = (const out_t*)at[FACTORS + 1];
#pragma unroll
        for (u32 i = 0; i < RESIDUAL - BIAS; i++) bias[i] = at[BIAS + i];
        if constexpr (P::residual) residual = (const out_t*)at[RESIDUAL];
#pragma unroll
        for (u32 i = 0; i < COUNT - 1 - Y; i++) y[i] = (out_t*)at[Y + i];
    }
};

// A warp's share of the tiles, and its ring, behind HELD bytes of x.
template <class P, u32 HELD> struct GemvStream {
    typedef GemvShape<P> H;
    typedef typename P::Storage S;
    const GemvOperands<P>& in;
    u32 lane, team, member, warp, ring, first_tile, all_teams, steps, count;
    // Where this lane's share of the ring begins: row `lane / 8` of every 4, piece `lane % 8` of 128 bytes.
    u32 piece, place;
    // Of a mixed product: slot, or run of the dense row.
    u32 part;
    bool dense;
    u32 first_stage, times;
    size_t line, share, scale_share; // bytes from one row of the weight to the next, and to this lane's share
    const char *from, *scale_from;
    ptrdiff other; // from the upper 8 rows of a tile to the lower ones
    u32 own;       // the expert of slot `lane`
    // The next stage to ask for: step `ask_step` of the block's tile number `ask_tile`.
    u32 ask_tile, ask_step, ask_slot;

    INLINE GemvStream(const GemvOperands<P>& in, const char* memory) : in(in), own(0), ask_tile(0), ask_step(0), ask_slot(0) {
        const u32 thread = threadIdx.x;
        lane = thread & 31, team = P::teams == 1 ? 0 : thread / H::team, member = thread - team * H::team, warp = member >> 5;
        first_tile = blockIdx.x * P::teams + team, all_teams = gridDim.x * P::teams;
        count = first_tile < H::tiles ? (H::tiles - first_tile + all_teams - 1) / all_teams : 0;
        // Stages of a tile that are this warp's: the first and every so many behind it.
        if constexpr (P::mixed > 0) {
            steps = (H::stages - warp % P::split + P::split - 1) / P::split;
            part = warp / P::split, dense = part >= P::slots;
            first_stage = warp % P::split, times = dense ? P::mixed : 1;
        } else {
            steps = H::stages % P::warps == 0 ? H::stages / P::warps : (H::stages - warp + P::warps - 1) / P::warps;
            part = 0, dense = false, first_stage = warp, times = 1;
        }
        const u32 r = lane >> 3;
        piece = lane & 7;
        line = (size_t)H::row * times;
        share = r * line + first_stage * 128 + piece * 16;
        // The lower lanes ask for scales, a row each, the upper ones for zeros, or for the second half of the row.
        scale_share = (size_t)(P::gated ? lane & 7 : lane & 15) * H::scales * times + first_stage * H::few + (H::tail ? lane / 16 * (H::few / 2) : 0);
        other = P::gated ? in.weight[P::gated].codes - in.weight[0].codes : (ptrdiff)(8 * line);
        ring = address(memory) + HELD + (thread >> 5) * (P::depth * H::stage);
        place = r * 128 + ((piece ^ ((r & 1) << H::turn)) << 4);
        // It stays in a register: the compiler cannot make it anew at every stage.
        place = __shfl_sync(~0u, place, lane);
    }
    INLINE const char* scales_of(const Weight& w) const { return S::zeros && lane >= 16 ? w.zeros : w.scales; }

    // The first row of a tile within its stack, or within all outputs.
    INLINE u32 row_of(u32 tile) const {
        if constexpr (P::mixed > 0) {
            const u32 expert = __shfl_sync(~0u, own, dense ? 0 : part);
            return dense ? tile * 16 : tile * 16 + (expert < P::experts ? expert : 0) * P::o0;
        } else if constexpr (P::experts > 0) {
            const u32 behind = tile < H::fixed ? 0 : tile < H::tiles ? tile - H::fixed : H::tiles - H::fixed - 1;
            const u32 expert = __shfl_sync(~0u, own, behind / H::tiles_each);
            return tile < H::fixed ? tile * 8 : behind % H::tiles_each * H::outputs + (expert < P::experts ? expert : 0) * P::o0;
        } else {
            return tile * H::outputs;
        }
    }
    // Takes the codes and scales of a weight, or of a gated one and that beside it.
    INLINE void take(const char*& w, const char*& s, const Weight& first, const Weight& second) const {
        w = first.codes;
        if constexpr (S::packed) {
            s = scales_of(first);
            if constexpr (P::gated) {
                if (lane & 8) s = scales_of(second);
            }
        }
    }
    // Turns to the first stage of a tile.
    INLINE void aim(u32 tile) {
        u32 row = row_of(tile);
        const char *w, *s = 0;
        take(w, s, in.weight[0], in.weight[1]);
        if constexpr (P::mixed > 0) {
            if (dense) {
                w = in.dense[0].codes + (size_t)(part - P::slots) * H::row;
                if constexpr (S::packed) s = scales_of(in.dense[0]) + (part - P::slots) * H::scales;
            }
        } else if constexpr (P::beside > 0) {
            other = tile < H::fixed ? in.dense[1].codes - in.dense[0].codes : in.weight[1].codes - in.weight[0].codes;
            if (tile < H::fixed) take(w, s, in.dense[0], in.dense[1]);
        }
        if constexpr (P::parts > 1) {
            if (row >= P::o0) {
                row -= P::o0;
                take(w, s, in.weight[1], in.weight[1]);
                if constexpr (P::parts > 2) {
                    if (row >= P::o1) {
                        row -= P::o1;
                        take(w, s, in.weight[2], in.weight[2]);
                    }
                }
            }
        }
        from = w + row * line + share;
        if constexpr (S::packed) scale_from = s + (size_t)row * H::scales * times + scale_share;
    }
    // Asks for a stage that a row may end in: nothing is read behind it, zeros instead.
    INLINE void copy_tail(u32 at, u32 few_at) const {
        const bool last = ask_step * H::stride + first_stage == H::stages - 1;
        const u32 size = last && piece >= 4 ? 0 : 16, few = last && lane >= 16 ? 0 : H::few / 2;
        const Weight& w = in.weight[0];
        cp_async_16(at, size ? from : w.codes, size);
        cp_async_16(at + 512, size ? from + 4 * line : w.codes, size);
        cp_async_16(at + 1024, size ? from + other : w.codes, size);
        cp_async_16(at + 1536, size ? from + other + 4 * line : w.codes, size);
        cp_async<H::few / 2>(few_at + (lane & 15) * H::few + lane / 16 * (H::few / 2), few ? scale_from : w.scales, few);
    }
    INLINE void copy(u32 at, u32 few_at) const {
        cp_async_16(at, from);
        cp_async_16(at + 512, from + 4 * line);
        cp_async_16(at + 1024, from + other);
        cp_async_16(at + 1536, from + other + 4 * line);
        if constexpr (S::packed) {
            if (S::zeros || lane < 16) {
                if constexpr (H::few == 16) cp_async_16(few_at + lane * H::few, scale_from);
                else cp_async<H::few>(few_at + lane * H::few, scale_from);
            }
        }
    }
    // Asks for the next stage.
    INLINE void ask() {
        if (ask_tile < count) {
            const u32 to = ring + ask_slot * H::stage, at = to + place, few_at = to + 2048;
            if constexpr (H::tail) copy_tail(at, few_at);
            else copy(at, few_at);
            from += H::stride * 128;
            if constexpr (S::packed) scale_from += H::stride * H::few;
            if (++ask_step == steps) {
                ask_step = 0;
                ask_tile++;
                aim(first_tile + ask_tile * all_teams);
            }
        }
        if (++ask_slot == P::depth) ask_slot = 0;
        cp_async_commit();
    }
    // Which experts to ask for is not known before the kernel in front has ended.
    INLINE bool known() const { return P::mixed ? warp >= P::slots * P::split : first_tile + ask_tile * all_teams < H::fixed; }
    // Fills the ring as far as is known now; how many stages were asked for.
    INLINE int start() {
        int asked = 0;
        aim(first_tile);
        if constexpr (P::experts > 0) {
            while (asked < (int)P::depth && known()) ask(), asked++;
        } else {
            for (u32 d = 0; d < P::depth; d++) ask();
        }
        return asked;
    }
    // Fills the rest, once `own` is known.
    INLINE void resume(int asked) {
        if (!known()) aim(first_tile + ask_tile * all_teams);
        while (asked < (int)P::depth) ask(), asked++;
    }
    // The row of x that the tile number `i` takes.
    INLINE u32 row_of_x(u32 i) const {
        if constexpr (P::mixed > 0) return part;
        else if constexpr (P::experts > 0 && !P::shared) return (first_tile + i * all_teams - H::fixed) / H::tiles_each;
        else return 0;
    }
};
