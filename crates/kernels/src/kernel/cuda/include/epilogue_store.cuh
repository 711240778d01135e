// Where the results of a product of one row with several weights go, after their biases.
#include "epilogue_gate.cuh"
#include "epilogue_moe_sum.cuh"
#include "epilogue_residual.cuh"
#include "schedule_gemv.cuh"

template <class P> struct GemvEpilogue {
    typedef GemvShape<P> H;
    typedef Number<P::out_f32> N;
    // Sums of so many tiles are added up at once; whether each thread adds one of them at most.
    static constexpr bool early = P::together * 16 <= H::team;
    const GemvOperands<P>& in;
    const u32 (&experts)[P::experts ? P::slots : 1];
    Residual<P::out_f32, early> residual;

    INLINE GemvEpilogue(const GemvOperands<P>& in, const u32 (&experts)[P::experts ? P::slots : 1]) : in(in), experts(experts) {}
    // Asks for what is added to the sums of the tiles from number i on.
    template <class STREAM> INLINE void prefetch(const STREAM& s, u32 i) {
        if constexpr (P::residual && early) {
            const u32 later = i + s.member / 16;
            if (later < s.count && s.member < P::together * 16) {
                residual.prefetch(in.residual + (s.first_tile + later * s.all_teams) * 16 + (s.member & 15));
            }
        }
    }
    // Whether what a tile belongs to exists.
    INLINE bool exists(u32 tile) const {
        if constexpr (P::experts > 0 && !P::mixed) {
            return tile < H::fixed || experts[tile < H::fixed ? 0 : (tile - H::fixed) / H::tiles_each] < P::experts;
        } else {
            return true;
        }
    }
    // Stores the product of the gates in lanes 0 to 7 of 16 with the others; `left` sums are stored from here on.
    INLINE void store_gated(u32 tile, u32 lane, u32 left, float sum) const {
        const bool real = exists(tile);
        // Half a warp is here at the end.
        const u32 here = left >= 32 ? 0xffffffffu : 0xffffu;
        const float up = __shfl_down_sync(here, sum, 8);
        const float gated = silu_gate(sum, up);
        if constexpr (P::beside > 0) {
            if (lane < 8) (tile < H::fixed ? in.y[1] : in.y[0])[(tile < H::fixed ? tile : tile - H::fixed) * 8 + lane] = N::to(real ? gated : 0);
        } else {
            if (lane < 8) in.y[0][tile * 8 + lane] = N::to(real ? gated : 0);
        }
    }
    // Stores one output.
    INLINE void store(u32 tile, u32 lane, float sum) {
        u32 row = tile * 16 + lane;
        auto y = in.y[0];
        const void* bias = in.bias[0];
        if constexpr (P::parts > 1) {
            if (row >= P::o0) {
                row -= P::o0;
                y = in.y[1], bias = in.bias[1];
                if constexpr (P::parts > 2) {
                    if (row >= P::o1) {
                        row -= P::o1;
                        y = in.y[2], bias = in.bias[2];
                    }
                }
            }
        }
        const bool real = exists(tile);
        if constexpr (P::bias) {
            const u32 place = P::experts == 0 ? row : real ? experts[row / P::o0] * P::o0 + row % P::o0 : 0;
            sum += constant_element<P::bias_dtype>(bias, place);
        }
        if (!real) sum = 0;
        if constexpr (P::residual) sum = residual.added(sum, in.residual + row);
        y[row] = N::to(sum);
    }
};
