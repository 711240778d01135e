// y = x * transposed w for one row of x: weights stream through rings of shared memory, one for each warp, and meet the
// activations in tensor cores.
//
// Each team of a block's warps treats tiles of 16 outputs; its warps share the row length between them, 128 bytes of each
// of 16 rows at a time. Teams share x. Weights are asked for before the block waits for what the kernel before it writes.
#include "epilogue_store.cuh"
#include "gemv_planes.cuh"
#include "prologue_rms_norm.cuh"

// x on its way to shared memory: a thread has each eight elements i, i + THREADS, ...
template <class P> struct GemvInput {
    typedef GemvShape<P> H;
    typedef typename GemvProduct<P>::X X;
    static constexpr u32 EIGHTS = H::rows * (P::k / 8);
    static constexpr int EACH = (EIGHTS + H::threads - 1) / H::threads;
    static constexpr bool FULL = EIGHTS % H::threads == 0;
    NormWeights<P::norm_dtype> norm[P::norm ? EACH : 1];

    static INLINE u32 at(int i) { return i * H::threads + threadIdx.x; }
    INLINE explicit GemvInput(const GemvOperands<P>& in) {
        if constexpr (P::norm) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                if (FULL || at(i) < EIGHTS) norm[i].load(in.norm, at(i));
            }
        }
    }
    INLINE void load(float (&v)[EACH][8], const GemvOperands<P>& in) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = this->at(i);
            if constexpr (P::mixed > 0) {
                constexpr u32 OF_SLOTS = P::slots * (P::k / 8);
                if (at < EIGHTS) load_eight(v[i], at < OF_SLOTS ? in.x : in.x1, at < OF_SLOTS ? at : at - OF_SLOTS, P::act_f32);
            } else {
                if (FULL || at < EIGHTS) load_eight(v[i], in.x, at, P::act_f32);
            }
        }
    }
    // Through the norm.
    INLINE void normalize(float (&v)[EACH][8]) const {
        __shared__ float squares[(P::k + 255) / 256];
        const float factor = norm_factor<P::k, H::threads, EACH>(v, squares, P::eps);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (!FULL && at(i) >= EIGHTS) break;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[i][j] = v[i][j] * factor * (norm[i][j] + P::offset);
                if (!P::act_f32) v[i][j] = from_half(to_half(v[i][j]));
            }
        }
    }
    // To shared memory, as the weights take it; what takes sums back to the scale of x.
    INLINE float store(char* xs, const float (&v)[EACH][8]) const {
        float up = 1, back = 1;
        if constexpr (X::takes_scale) {
            const auto scale = X::scale_of(v);
            up = scale.up, back = scale.back;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = this->at(i);
            const bool in = FULL || at < EIGHTS;
            if constexpr (X::takes_scale) X::store(xs, at, in, v[i], up);
            else X::store(xs, at, in, v[i]);
        }
        if constexpr (H::tail) X::store_tail(xs);
        return back;
    }
};

template <class P> INLINE void gemv_block(const Bindings<GemvOperands<P>::COUNT>& bound) {
    typedef GemvShape<P> H;
    typedef typename GemvProduct<P>::X X;
    extern __shared__ __align__(128) char memory[];
    __shared__ float sums[2][P::teams][P::warps][P::together * 16];
    __shared__ u32 experts[P::experts ? P::slots : 1];
    __shared__ float factors[P::mixed ? P::slots + 1 : 1];
    const GemvOperands<P> in(bound);
    const u32 thread = threadIdx.x, lane = thread & 31, g = lane >> 2, t = lane & 3;
    GemvStream<P, X::held> s(in, memory);
    const int asked = s.start();
    launch_next();
    GemvInput<P> input(in);
    wait_previous();
    if constexpr (P::experts > 0) {
        if (lane < P::slots) s.own = load4(in.chosen + lane);
        if (thread < P::slots) experts[thread] = s.own;
    }
    if constexpr (P::mixed > 0) {
        typedef Number<P::out_f32> N;
        if (thread < P::slots + 1) factors[thread] = N::from(N::load(thread < P::slots ? in.factors + thread : in.share));
    }
    float v[GemvInput<P>::EACH][8] = {};
    input.load(v, in);
    if constexpr (P::experts > 0) s.resume(asked);
    if constexpr (P::norm) input.normalize(v);
    const float back = input.store(memory, v);
    __syncthreads();

    GemvProduct<P> product(address(memory), g, t);
    GemvEpilogue<P> epilogue(in, experts);
    u32 slot = 0, flip = 0, kept = 0; // tiles whose sums are not added up yet
    for (u32 i = 0; i < s.count; i++) {
        if (kept == 0) epilogue.prefetch(s, i);
        product.begin();
        const u32 row_of_x = s.row_of_x(i);
#pragma unroll 1
        for (u32 step = 0; step < s.steps; step++) {
            cp_async_wait<P::depth - 1>();
            __syncwarp();
            product.multiply(s.ring + slot * H::stage, row_of_x * H::stages + step * H::stride + s.first_stage);
            __syncwarp();
            s.ask();
            if (++slot == P::depth) slot = 0;
        }
        product.end();
        if (t == 0) {
            sums[flip][s.team][s.warp][kept * 16 + g] = product.top;
            sums[flip][s.team][s.warp][kept * 16 + g + 8] = product.bottom;
        }
        if (++kept < P::together && i + 1 < s.count) continue;
        if constexpr (P::teams == 1) __syncthreads();
        else named_barrier<H::team>(s.team + 1);
        for (u32 at = s.member; at < kept * 16; at += H::team) {
            const u32 tile = s.first_tile + (i + 1 - kept + at / 16) * s.all_teams, output = at & 15;
            float sum = 0;
            if constexpr (P::mixed > 0) {
                sum = moe_sum<P::out_f32, P::slots, P::split, P::warps, P::experts>(sums[flip][s.team], at, experts, factors, back);
            } else {
#pragma unroll
                for (u32 w = 0; w < P::warps; w++) sum += sums[flip][s.team][w][at];
                sum *= back;
            }
            if constexpr (P::gated) epilogue.store_gated(tile, output, kept * 16 - (at & ~31u), sum);
            else epilogue.store(tile, output, sum);
        }
        flip ^= 1;
        kept = 0;
    }
}
