// y = x * transposed w for one row of x: weights stream through rings of shared memory, one for each warp, and meet the
// activations in tensor cores with sums in f32.
//
// A block treats tiles of 16 outputs; its warps share the row length between them, 128 bytes of each of 16 rows at a
// time. Weights are asked for before the block waits for what the kernel before it writes.
//
// Constants: K; WARPS; DEPTH, the stages of a ring; FORMAT (1 f16, 2 bf16, 4 and 8 bits in groups of GROUP); ZEROS: groups
// have zero points of their own; PARTS weights of O0, O1, O2 outputs, each with an output of its own; GATED: two weights,
// y = silu(x w0) * (x w1); NORM: x is taken through rms_norm first, with EPS, OFFSET and weights of NORM_DTYPE (0 f32,
// 1 f16, 2 bf16); BIAS, of B_DTYPE; RESIDUAL: y += r, once y is rounded; ACT_F32, OUT_F32: x and y are f32 instead of f16;
// TOGETHER, the tiles whose sums are joined at once; MIN_BLOCKS.
//
// Activations meet f16 weights and integers as f16; f32 activations as two planes of f16, in columns of their own, and
// bf16 weights meet two or three planes of bf16, so that nothing of x is lost but what f32 sums lose too.
#define THREADS (WARPS * 32)

INLINE Words read16(u32 at) {
    Words v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
INLINE float load_out(const float* from) {
    float f;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(f) : "l"(from) : "memory");
    return f;
}
INLINE float load_out(const u16* from) {
    u16 h;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(h) : "l"(from) : "memory");
    return from_half(h);
}
// Reads 16 bytes in the lanes of which `mine` is not 0; the others keep what they have. (Reading zeros there instead costs
// more: lanes that read nothing keep no bank of shared memory busy.)
INLINE void read_mine(Words& v, u32 at, u32 mine) {
    asm volatile("{.reg .pred q; setp.ne.u32 q, %5, 0; @q ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "r"(at), "r"(mine));
}
// c += a * b, 16 by 8 by 16.
INLINE void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if FORMAT == 2
#define MMA_TYPES "bf16.bf16"
#else
#define MMA_TYPES "f16.f16"
#endif
    asm("mma.sync.aligned.m16n8k16.row.col.f32." MMA_TYPES ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#if FORMAT == 4
#define ROW (K / 2)             // bytes of a row of weights
#define STEP 256                // elements of a stage's row
#define TURN 1                  // which bit of a piece's place the row's parity turns
#elif FORMAT == 8
#define ROW K
#define STEP 128
#define TURN 2
#else
#define ROW (K * 2)
#define STEP 64
#define TURN 2
#endif
#if FORMAT >= 4
#define SCALES (K / GROUP * 2)   // bytes of a row of scales, or of zeros
#define FEW (STEP / GROUP * 2)   // those of a stage's row
#else
#define FEW 0
#endif
#define STAGE (2048 + 16 * FEW * (1 + ZEROS))
#define STAGES ((K + STEP - 1) / STEP)
// Whether a row ends within a stage: with its first half, in 4 bits.
#define TAIL (K % STEP != 0)
#define PLANE (STAGES * STEP * 2) // bytes of a plane of x, zeros behind the row
#define PLANES (1 + ACT_F32 + (FORMAT == 2))
#if GATED
#define TILES (O0 / 8)
#else
#define TILES ((O0 + O1 + O2) / 16)
#endif
#if GATED
#define WEIGHTS 2
#else
#define WEIGHTS PARTS
#endif

#if OUT_F32
typedef float out_t;
INLINE out_t to_out(float f) { return f; }
INLINE float from_out(out_t f) { return f; }
#else
typedef u16 out_t;
INLINE out_t to_out(float f) { return to_half(f); }
INLINE float from_out(out_t h) { return from_half(h); }
#endif

// Integers become the numbers q - zero in f16, exactly, before they meet x: a zero point that is taken off the sums instead
// leaves what the sums have lost. (Subnormal f16 q * 2^-24, which need no conversion, lose more: tensor cores line up the
// products by the least exponent of normal numbers and drop what lies 24 bits below the highest.) The bits of 1024 + q,
// q < 1024, are 0x6400 | q.
#define MAGIC 0x64006400u
INLINE u32 less(u32 a, u32 b) { u32 r; asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
INLINE u32 sixteenth(u32 a, u32 plus) {
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(0x2c002c00u), "r"(plus));
    return r;
}
// The zero point of a group of 4 bits, twice: as it is taken off the lower halves of bytes, and added to the upper ones.
struct Zero {
    u32 lower, upper;
#if ZEROS
    INLINE explicit Zero(u32 at) {
        u16 z;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(z) : "r"(at));
        const u32 both = (u32)z << 16 | z;
        asm("add.rn.f16x2 %0, %1, %2;" : "=r"(lower) : "r"(both), "r"(MAGIC));
        upper = less(0xd400d400u, both);
    }
#else
    INLINE explicit Zero(u32) : lower(0x64086408u), upper(0xd480d480u) {}
#endif
    // Elements 0 and 4 of a word, and 1 and 5.
    INLINE u32 low_of(u32 w) const { return less((w & 0x000f000fu) | MAGIC, lower); }
    INLINE u32 high_of(u32 w) const { return sixteenth((w & 0x00f000f0u) | MAGIC, upper); }
};
// Two bytes less 128.
INLINE u32 bytes(u32 w, u32 which) { return less(__byte_perm(w, MAGIC, which), 0x64806480u); }

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) linear(
    const void* x_in,
#if NORM
    const char* __restrict__ norm_w,
#endif
    const char* __restrict__ w0,
#if FORMAT >= 4
    const char* __restrict__ s0,
#if ZEROS
    const char* __restrict__ z0,
#endif
#endif
#if WEIGHTS > 1
    const char* __restrict__ w1,
#if FORMAT >= 4
    const char* __restrict__ s1,
#if ZEROS
    const char* __restrict__ z1,
#endif
#endif
#endif
#if WEIGHTS > 2
    const char* __restrict__ w2,
#if FORMAT >= 4
    const char* __restrict__ s2,
#if ZEROS
    const char* __restrict__ z2,
#endif
#endif
#endif
#if BIAS
    const char* __restrict__ b0,
#if PARTS > 1
    const char* __restrict__ b1,
#endif
#if PARTS > 2
    const char* __restrict__ b2,
#endif
#endif
#if RESIDUAL
    const out_t* residual,
#endif
    out_t* __restrict__ y0
#if PARTS > 1
    , out_t* __restrict__ y1
#endif
#if PARTS > 2
    , out_t* __restrict__ y2
#endif
    , const u32* __restrict__ symbols) {
    extern __shared__ __align__(128) char memory[];
    __shared__ float sums[2][WARPS][TOGETHER * 16];
#if NORM
    __shared__ float squares[(K + 255) / 256];
#endif
#if ACT_F32 && FORMAT != 2
    __shared__ float peaks[WARPS];
    float back = 1;
#endif
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    char* xs = memory; // x
    const u32 ring = address(memory) + PLANE * PLANES + warp * (DEPTH * STAGE);
    // Stages of a tile that are this warp's: stage `warp` and every WARPS-th behind it.
    const u32 steps = STAGES % WARPS == 0 ? STAGES / WARPS : (STAGES - warp + WARPS - 1) / WARPS;
    const u32 count = blockIdx.x < TILES ? (TILES - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;

    // Where this lane's share of a tile begins: row `lane / 8` of every 4, piece `lane % 8` of 128 bytes.
    const u32 r = lane >> 3, piece = lane & 7;
    const u32 place = r * 128 + ((piece ^ ((r & 1) << TURN)) << 4);
    const size_t share = (size_t)r * ROW + warp * 128 + piece * 16;
#if FORMAT >= 4
    // The lower lanes ask for scales, a row each, the upper ones for zeros, or for the second half of the row.
    const size_t scale_share = (size_t)(GATED ? lane & 7 : lane & 15) * SCALES + warp * FEW + (TAIL ? lane / 16 * (FEW / 2) : 0);
#endif
    const char* from = 0;
#if FORMAT >= 4
    const char* scale_from = 0;
#endif
    auto aim = [&](u32 tile) {
        u32 row = tile * (GATED ? 8 : 16);
        const char* w = w0;
#if FORMAT >= 4
#if ZEROS
        const bool zeros = lane >= 16;
#define SCALE(i) (zeros ? z##i : s##i)
#else
#define SCALE(i) s##i
#endif
        const char* s = SCALE(0);
#if GATED
        if (lane & 8) s = SCALE(1);
#endif
#endif
#if PARTS > 1
        if (row >= O0) {
            row -= O0;
            w = w1;
#if FORMAT >= 4
            s = SCALE(1);
#endif
#if PARTS > 2
            if (row >= O1) {
                row -= O1;
                w = w2;
#if FORMAT >= 4
                s = SCALE(2);
#endif
            }
#endif
        }
#endif
        from = w + (size_t)row * ROW + share;
#if FORMAT >= 4
        scale_from = s + (size_t)row * SCALES + scale_share;
#endif
    };
#if GATED
    const ptrdiff other = w1 - w0;
#else
    constexpr ptrdiff other = 8 * ROW;
#endif
    // The next stage to ask for: step `ask_step` of the block's tile number `ask_tile`.
    u32 ask_tile = 0, ask_step = 0, ask_slot = 0;
    aim(blockIdx.x);
    auto ask = [&]() {
        if (ask_tile < count) {
            const u32 to = ring + ask_slot * STAGE;
#if TAIL
            // Nothing is read behind the row: zeros.
            const bool last = ask_step * WARPS + warp == STAGES - 1;
            const u32 size = last && piece >= 4 ? 0 : 16, few = last && lane >= 16 ? 0 : FEW / 2;
            fetch(to + place, size ? from : w0, size);
            fetch(to + place + 512, size ? from + 4 * ROW : w0, size);
            fetch(to + place + 1024, size ? from + other : w0, size);
            fetch(to + place + 1536, size ? from + other + 4 * ROW : w0, size);
            fetch_few<FEW / 2>(to + 2048 + (lane & 15) * FEW + lane / 16 * (FEW / 2), few ? scale_from : s0, few);
#else
            fetch16(to + place, from);
            fetch16(to + place + 512, from + 4 * ROW);
            fetch16(to + place + 1024, from + other);
            fetch16(to + place + 1536, from + other + 4 * ROW);
#if FORMAT == 4 && FEW == 16
            if (ZEROS || lane < 16) fetch16(to + 2048 + lane * FEW, scale_from);
#elif FORMAT >= 4
            if (ZEROS || lane < 16) fetch_few<FEW>(to + 2048 + lane * FEW, scale_from);
#endif
#endif
            from += WARPS * 128;
#if FORMAT >= 4
            scale_from += WARPS * FEW;
#endif
            if (++ask_step == steps) {
                ask_step = 0;
                ask_tile++;
                aim(blockIdx.x + ask_tile * gridDim.x);
            }
        }
        if (++ask_slot == DEPTH) ask_slot = 0;
        commit();
    };
    for (int d = 0; d < DEPTH; d++) ask();
    launch_next();

    // x to shared memory: f16, within 8 elements in the order in which the weights' words give them up.
    constexpr int EACH = (K / 8 + THREADS - 1) / THREADS;
#if NORM
    Weights<NORM_DTYPE> nw[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + thread;
        if (K / 8 % THREADS == 0 || at < K / 8) nw[i].load(norm_w, at);
    }
#endif
    wait_previous();
    {
        float v[EACH][8] = {};
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * THREADS + thread;
            if (K / 8 % THREADS == 0 || at < K / 8) load_eight(v[i], x_in, at, ACT_F32);
        }
#if NORM
        const float factor = norm_factor<K, THREADS, EACH>(v, squares, (float)EPS);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (K / 8 % THREADS != 0 && i * THREADS + thread >= K / 8) break;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[i][j] = v[i][j] * factor * (nw[i][j] + (float)OFFSET);
#if !ACT_F32
                v[i][j] = from_half(to_half(v[i][j]));
#endif
            }
        }
#endif
#if ACT_F32 && FORMAT != 2
        float peak = 0;
        // Two planes of f16: x scaled by a power of two so that its peak fits, and 2^11 times what that leaves.
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) peak = fmaxf(peak, fabsf(v[i][j]));
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, o));
        if (lane == 0) peaks[warp] = peak;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WARPS; i++) peak = fmaxf(peak, peaks[i]);
        const int exponent = peak > 0 ? (int)(__float_as_uint(peak) >> 23) - 127 : 0;
        const int shift = exponent < -100 ? 100 : exponent > 120 ? -120 : 10 - exponent;
        const float up = __uint_as_float((u32)(127 + shift) << 23);
        back = __uint_as_float((u32)(127 - shift) << 23);
#endif
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * THREADS + thread;
            const bool in = K / 8 % THREADS == 0 || at < K / 8;
#if FORMAT == 2
#elif FORMAT == 4
            constexpr int order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
#elif FORMAT == 8
            constexpr int order[8] = {0, 2, 1, 3, 4, 6, 5, 7};
#else
            constexpr int order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
#endif
#if FORMAT != 2
            auto store = [&](u32 plane, const float (&f)[8]) {
                Words h;
                h.x = pack(f[order[0]], f[order[1]]);
                h.y = pack(f[order[2]], f[order[3]]);
                h.z = pack(f[order[4]], f[order[5]]);
                h.w = pack(f[order[6]], f[order[7]]);
                if (in) ((Words*)(xs + plane * PLANE))[at] = h;
            };
#endif
#if FORMAT == 2
            float left[8];
#pragma unroll
            for (int j = 0; j < 8; j++) left[j] = v[i][j];
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                Words h;
                u32* words = (u32*)&h;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 w = words[j] = pack_b(left[2 * j], left[2 * j + 1]);
                    left[2 * j] -= __uint_as_float(w << 16);
                    left[2 * j + 1] -= __uint_as_float(w & 0xffff0000u);
                }
                if (in) ((Words*)(xs + plane * PLANE))[at] = h;
            }
#elif ACT_F32
            float hi[8], lo[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float f = v[i][j] * up;
                hi[j] = from_half(to_half(f));
                lo[j] = (f - hi[j]) * 2048;
            }
            store(0, hi);
            store(1, lo);
#else
            store(0, v[i]);
#endif
        }
#if TAIL
        constexpr u32 BEHIND = PLANE / 16 - K / 8;
        for (u32 i = thread; i < BEHIND * PLANES; i += THREADS) {
            ((Words*)(xs + i / BEHIND * PLANE))[K / 8 + i % BEHIND] = {};
        }
#endif
    }
    __syncthreads();

    const u32 x_at = address(xs);
#if FORMAT >= 4
    // Column c of b stands for the group, or half group, of lanes c: other lanes hold zeros. The upper columns are for the
    // second plane.
    const u32 mine = g == t || (ACT_F32 && g == t + 4);
    const u32 x_mine = x_at + (g >= 4 ? PLANE : 0);
    Words xv[4] = {};
#endif
    u32 slot = 0, flip = 0, kept = 0; // tiles whose sums are not joined yet
    for (u32 i = 0; i < count; i++) {
        float top = 0, bottom = 0; // outputs g and g + 8
#if FORMAT < 4
        float c[2][4] = {};
#endif
#pragma unroll 1
        for (u32 step = 0; step < steps; step++) {
            arrived<DEPTH - 1>();
            __syncwarp();
            const u32 in = ring + slot * STAGE;
            const u32 stage = step * WARPS + warp;
#if FORMAT == 4
            // The scales of columns 2t and 2t + 1, of either half of the stage; they are one from groups of 64 on.
            float st[2][2], sb[2][2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 group = ((t & 1) * 4 + half * 2) * 32 / GROUP, at = in + 2048 + g * FEW + group * 2;
#if GROUP == 32
                // Those of both halves lie side by side.
                if (half > 0) break;
                u32 first, second;
                asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(first), "=r"(second) : "r"(at));
                st[0][0] = low(first); st[0][1] = high(first); st[1][0] = low(second); st[1][1] = high(second);
                asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(first), "=r"(second) : "r"(at + 8 * FEW));
                sb[0][0] = low(first); sb[0][1] = high(first); sb[1][0] = low(second); sb[1][1] = high(second);
#else
                u16 one;
                asm volatile("ld.shared.u16 %0, [%1];" : "=h"(one) : "r"(at));
                st[half][0] = st[half][1] = from_half(one);
                asm volatile("ld.shared.u16 %0, [%1];" : "=h"(one) : "r"(at + 8 * FEW));
                sb[half][0] = sb[half][1] = from_half(one);
#endif
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 at = ((t >> 1) * 4 + half * 2 + (t & 1));
#pragma unroll
                for (int word = 0; word < 4; word++) read_mine(xv[word], x_mine + stage * 512 + at * 64 + word * 16, mine);
                const Words a = read16(in + g * 128 + (at ^ ((g & 1) << TURN)) * 16);
                const Words b = read16(in + 1024 + g * 128 + (at ^ ((g & 1) << TURN)) * 16);
                const u32 aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
                const u32 zero_at = in + 2048 + (16 + g) * FEW + at * 32 / GROUP * 2;
                const Zero za(zero_at), zb(zero_at + 8 * FEW);
                float c[2][4] = {};
#pragma unroll
                for (int word = 0; word < 4; word++) {
                    const u32 la = aw[word], lb = bw[word], ha = la >> 8, hb = lb >> 8;
                    mma(c[0], za.low_of(la), zb.low_of(lb), za.low_of(ha), zb.low_of(hb), xv[word].x, xv[word].y);
                    mma(c[1], za.high_of(la), zb.high_of(lb), za.high_of(ha), zb.high_of(hb), xv[word].z, xv[word].w);
                }
                top += (c[0][0] + c[1][0]) * st[half][0] + (c[0][1] + c[1][1]) * st[half][1];
                bottom += (c[0][2] + c[1][2]) * sb[half][0] + (c[0][3] + c[1][3]) * sb[half][1];
            }
#elif FORMAT == 8
            // A lane's piece is half a group, so that columns 2t and 2t + 1 are one.
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 piece = (half * 4 + t) ^ ((g & 1) << TURN);
                const Words a = read16(in + g * 128 + piece * 16);
                const Words b = read16(in + 1024 + g * 128 + piece * 16);
                read_mine(xv[0], x_mine + stage * 256 + half * 128 + t * 32, mine);
                read_mine(xv[1], x_mine + stage * 256 + half * 128 + t * 32 + 16, mine);
                u16 s_top, s_bottom;
                const u32 s_at = in + 2048 + g * 8 + (half * 2 + (t & 1)) * 2;
                asm volatile("ld.shared.u16 %0, [%1];" : "=h"(s_top) : "r"(s_at));
                asm volatile("ld.shared.u16 %0, [%1];" : "=h"(s_bottom) : "r"(s_at + 64));
                const u32 aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
                float c[2][4] = {};
#pragma unroll
                for (int pair = 0; pair < 2; pair++) {
                    const u32 a0 = aw[2 * pair], a1 = aw[2 * pair + 1], b0 = bw[2 * pair], b1 = bw[2 * pair + 1];
                    mma(c[pair], bytes(a0, 0x5250), bytes(b0, 0x5250), bytes(a0, 0x5351), bytes(b0, 0x5351), xv[pair].x, xv[pair].y);
                    mma(c[pair], bytes(a1, 0x5250), bytes(b1, 0x5250), bytes(a1, 0x5351), bytes(b1, 0x5351), xv[pair].z, xv[pair].w);
                }
                top += ((c[0][0] + c[1][0]) + (c[0][1] + c[1][1])) * from_half(s_top);
                bottom += ((c[0][2] + c[1][2]) + (c[0][3] + c[1][3])) * from_half(s_bottom);
            }
#else
            // Column c of b holds plane c % 2, of three plane c % 4; the fourth column repeats the first.
            const u32 plane = PLANES == 1 ? 0 : PLANES == 2 ? g & 1 : (g & 3) % 3;
            const u32 x_from = x_at + stage * 128 + t * 16 + plane * PLANE;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 piece = (half * 4 + t) ^ ((g & 1) << TURN);
                const Words a = read16(in + g * 128 + piece * 16);
                const Words b = read16(in + 1024 + g * 128 + piece * 16);
                const Words xv = read16(x_from + half * 64);
                mma(c[half], a.x, b.x, a.y, b.y, xv.x, xv.y);
                mma(c[half], a.z, b.z, a.w, b.w, xv.z, xv.w);
            }
#endif
            __syncwarp();
            ask();
            if (++slot == DEPTH) slot = 0;
        }
#if FORMAT >= 4
        const float part = t < 2 ? 1 : ACT_F32 ? 1.0f / 2048 : 0;
        top *= part;
        bottom *= part;
        top += __shfl_xor_sync(~0u, top, 1);
        bottom += __shfl_xor_sync(~0u, bottom, 1);
        top += __shfl_xor_sync(~0u, top, 2);
        bottom += __shfl_xor_sync(~0u, bottom, 2);
#elif PLANES == 2
        const float second = FORMAT == 2 ? 1 : 1.0f / 2048;
        top = (c[0][0] + c[1][0]) + (c[0][1] + c[1][1]) * second;
        bottom = (c[0][2] + c[1][2]) + (c[0][3] + c[1][3]) * second;
#elif PLANES == 3
        // Lane t = 0 has planes 0 and 1, lane t = 1 plane 2.
        top = c[0][0] + c[1][0];
        bottom = c[0][2] + c[1][2];
        top += __shfl_down_sync(~0u, top, 1) + (c[0][1] + c[1][1]);
        bottom += __shfl_down_sync(~0u, bottom, 1) + (c[0][3] + c[1][3]);
#else
        top = c[0][0] + c[1][0];
        bottom = c[0][2] + c[1][2];
#endif
        if (t == 0) {
            sums[flip][warp][kept * 16 + g] = top;
            sums[flip][warp][kept * 16 + g + 8] = bottom;
        }
        if (++kept < TOGETHER && i + 1 < count) continue;
        __syncthreads();
        for (u32 at = thread; at < kept * 16; at += THREADS) {
            const u32 tile = blockIdx.x + (i + 1 - kept + at / 16) * gridDim.x, lane = at & 15;
            float sum = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += sums[flip][w][at];
#if ACT_F32 && FORMAT != 2
            sum *= back;
#endif
#if GATED
            // Half a warp is here at the end.
            const u32 here = kept * 16 - (at & ~31u) >= 32 ? 0xffffffffu : 0xffffu;
            const float up = __shfl_down_sync(here, sum, 8);
            if (lane < 8) y0[tile * 8 + lane] = to_out(sum / (1.0f + __expf(-sum)) * up);
#else
            u32 row = tile * 16 + lane;
            out_t* y = y0;
#if BIAS
            const char* bias = b0;
#endif
#if PARTS > 1
            if (row >= O0) {
                row -= O0;
                y = y1;
#if BIAS
                bias = b1;
#endif
#if PARTS > 2
                if (row >= O1) {
                    row -= O1;
                    y = y2;
#if BIAS
                    bias = b2;
#endif
                }
#endif
            }
#endif
#if BIAS
#if B_DTYPE == 0
            sum += ((const float*)bias)[row];
#elif B_DTYPE == 1
            sum += from_half(((const u16*)bias)[row]);
#else
            sum += __uint_as_float((u32)((const u16*)bias)[row] << 16);
#endif
#endif
#if RESIDUAL
            // As the addition behind the product finds it.
            sum = from_out(to_out(sum)) + load_out(residual + row);
#endif
            y[row] = to_out(sum);
#endif
        }
        flip ^= 1;
        kept = 0;
    }
}
