// y = x * transposed w for one row of x: weights stream through rings of shared memory, one for each warp, and meet the
// activations in tensor cores with sums in f32.
//
// Each team of a block's warps treats tiles of 16 outputs; its warps share the row length between them, 128 bytes of each
// of 16 rows at a time. Teams share x. Weights are asked for before the block waits for what the kernel before it writes.
//
// Constants: K; TEAMS; WARPS, of a team; DEPTH, the stages of a ring; FORMAT (1 f16, 2 bf16, 4 and 8 bits in groups of GROUP, 9 numbers of e4m3 likewise); ZEROS: groups
// have zero points of their own; PLANES, the parts that x is taken in; PARTS weights of O0, O1, O2 outputs, each with an output of its own; GATED: two weights,
// y = silu(x w0) * (x w1); NORM: x is taken through rms_norm first, with EPS, OFFSET and weights of NORM_DTYPE (0 f32,
// 1 f16, 2 bf16); BIAS, of B_DTYPE; RESIDUAL: y += r, once y is rounded; ACT_F32, OUT_F32: x and y are f32 instead of f16;
// TOGETHER, the tiles whose sums are joined at once; MIN_BLOCKS.
//
// EXPERTS: the weight is a stack of so many, of O0 outputs each (0: it is none), of which SLOTS are taken, as `chosen` says once the
// kernel before has ended; SHARED: all take the same x instead of a row each. BESIDE (with GATED): a dense weight of so many outputs,
// on the same x, with an output of its own; its tiles come first, so that they are asked for early. MIXED: one output, of which each
// SPLIT warps have a slot, or one of so many runs of K of a dense weight's rows and of x1: the slots' results times `weights` are added up, and
// the dense one times `share`, rounded where separate kernels do. One that is chosen and does not exist gives zeros.
//
// Weights of few bits meet whole numbers: of each 32 elements of x as many lower digits of the base 256 as PLANES says, from
// the greatest one's power of two on. Products and sums of 32 are exact, in s32. f16 weights meet activations in f16, or f32
// activations as two planes of f16, in columns of their own; bf16 weights meet two or three planes of bf16. So nothing of x is
// lost but what f32 sums lose too. Numbers of e4m3 are f16 there, and meet x as f16 weights do; the sums of 32 are scaled.
#ifndef EXPERTS
#define EXPERTS 0
#endif
#ifndef BESIDE
#define BESIDE 0
#endif
#ifndef MIXED
#define MIXED 0
#define SPLIT 1
#endif
#define WHOLE (FORMAT == 4 || FORMAT == 8)  // weights are whole numbers
#define HALVES (FORMAT == 1 || FORMAT == 9) // weights are numbers of f16
#define TEAM (WARPS * 32)
#define THREADS (TEAMS * TEAM)

INLINE Words read16(u32 at) {
    Words v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
INLINE u32 read4(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
INLINE u16 read2(u32 at) {
    u16 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at));
    return v;
}
// Reads 16 bytes in the lanes of which `mine` is not 0; the others keep what they have. (Reading zeros there instead costs
// more: lanes that read nothing keep no bank of shared memory busy.)
INLINE void read_mine(Words& v, u32 at, u32 mine) {
    asm volatile("{.reg .pred q; setp.ne.u32 q, %5, 0; @q ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "r"(at), "r"(mine));
}
// The warps of a team meet.
INLINE void meet(u32 team) {
    if (TEAMS == 1) __syncthreads();
    else asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(TEAM) : "memory");
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

// The same of signed bytes, 16 by 8 by 32.
INLINE void mma(int (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#if FORMAT == 4
#define ROW (K / 2)             // bytes of a row of weights
#define STEP 256                // elements of a stage's row
#define TURN 0                  // which bit of a piece's place the row's parity turns
#elif FORMAT >= 8
#define ROW K
#define STEP 128
#define TURN 2
#else
#define ROW (K * 2)
#define STEP 64
#define TURN 2
#endif
#if FORMAT >= 4
#if ZEROS && GROUP == 32
#error "one zero point is read for 64 elements"
#endif
#define SCALES (K / GROUP * 2)   // bytes of a row of scales, or of zeros
#define FEW (STEP / GROUP * 2)   // those of a stage's row
#else
#define FEW 0
#endif
#define STAGE (2048 + 16 * FEW * (1 + ZEROS))
#define STAGES ((K + STEP - 1) / STEP)
// Whether a row ends within a stage: with its first half, in 4 bits.
#define TAIL (K % STEP != 0)
// Rows of x.
#if MIXED
#define ROWS (SLOTS + MIXED)
#elif EXPERTS
#define ROWS (SHARED ? 1 : SLOTS)
#else
#define ROWS 1
#endif
#if WHOLE
#define GROUPS_EACH (STAGES * STEP / 32) // runs of 32 elements of a row of x, zeros behind it
#define GROUPS (ROWS * GROUPS_EACH)
#define RUN (PLANES * 32)           // bytes of one
#define HELD (GROUPS * (RUN + 4 + ZEROS * 8))
#else
#define PLANE (ROWS * STAGES * STEP * 2) // bytes of a plane of x, zeros behind the row
#define HELD (PLANE * PLANES)
#endif
// Tiles of a weight, of a dense one in front of a stack, and of all.
#if GATED
#define TILES_EACH (O0 / 8)
#define FIXED (BESIDE / 8)
#else
#define TILES_EACH ((O0 + O1 + O2) / 16)
#define FIXED 0
#endif
#if EXPERTS && !MIXED
#define TILES (FIXED + SLOTS * TILES_EACH)
#else
#define TILES TILES_EACH
#endif
// Every how many stages of a row are a warp's.
#define STRIDE (MIXED ? SPLIT : WARPS)
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
// A number that an earlier kernel wrote.
struct Loaded {
    out_t bits;
    INLINE void load(const out_t* from) {
#if OUT_F32
        asm volatile("ld.global.f32 %0, [%1];" : "=f"(bits) : "l"(from) : "memory");
#else
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(from) : "memory");
#endif
    }
    INLINE float value() const { return from_out(bits); }
};

#if WHOLE
// Whole numbers of the weights, as signed bytes: of 4 bits the lower and the upper halves of bytes, 16 (q - 8), of 8 bits q - 128.
// The mask comes in a register: the compiler would move it there before every use.
INLINE u32 lower(u32 w, u32 mask) { return ((w << 4) & mask) ^ 0x80808080u; }
INLINE u32 upper(u32 w, u32 mask) { return (w & mask) ^ 0x80808080u; }
INLINE u32 whole(u32 w) { return w ^ 0x80808080u; }
#define TIMES (FORMAT == 4 ? 4 : 0) // the power of two that they are too large by

// Bits of the numbers that x becomes, without the sign: the highest digit has room for what the lower ones carry.
#define BITS (PLANES == 4 ? 30 : 23)
// x times `up`, as balanced digits: byte i of the result is digit i, from -128 to 127, plus 128 but for the highest.
INLINE u32 digits(float x, float up) {
    if (PLANES == 4) return (u32)__float2int_rn(x * up) + 0x00808080u;
    // 2^23 plus the magnitude: its lower bits are the whole number, without the conversion's few lanes.
    const u32 magnitude = __float_as_uint(fmaf(fabsf(x), up, 8388608.0f)), sign = (u32)((int)__float_as_uint(x) >> 31);
    return ((magnitude & 0x7fffffu) ^ sign) - sign + 0x00008080u;
}
// Where the 16 bytes `piece` of a plane lie in a run: so that four runs, two planes of each, are read from all banks.
INLINE u32 spot(u32 run, u32 plane, u32 piece) {
    const u32 turn = FORMAT == 8 ? 0 : (run >> 2 & 1) | (PLANES == 4 ? (run >> 1 & 1) << 2 : 0);
    return ((plane * 2 + piece) ^ turn) << 4;
}
// The sum that the digits of two products stand for.
INLINE float sum_of(int first, int second, int third, int fourth) {
    if (PLANES == 3) return fmaf((float)(first * 256 + second), 256.0f, (float)third);
    return fmaf((float)(first * 256 + second), 65536.0f, (float)(third * 256 + fourth));
}
#endif

#if FORMAT == 9
// Two numbers of a word as f16, by the places that they go to. There they have one more bit of exponent, and come 256 times as
// large: tensor cores lose what is subnormal.
INLINE u32 numbers(u32 word, u32 places) {
    const u32 both = __byte_perm(word, 0, places);
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"((both & 0x80008000u) | (both >> 1 & 0x3f803f80u)), "r"(0x5c005c00));
    return r;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) linear(
    const void* x_in,
#if MIXED
    const void* x1_in,
#endif
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
#if BESIDE || MIXED
    const char* __restrict__ dense0,
#if FORMAT >= 4
    const char* __restrict__ dense_s0,
#if ZEROS
    const char* __restrict__ dense_z0,
#endif
#endif
#endif
#if BESIDE
    const char* __restrict__ dense1,
#if FORMAT >= 4
    const char* __restrict__ dense_s1,
#if ZEROS
    const char* __restrict__ dense_z1,
#endif
#endif
#endif
#if EXPERTS
    const u32* chosen,
#endif
#if MIXED
    const out_t* weights, const out_t* share_of_dense,
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
#if PARTS > 1 || BESIDE
    , out_t* __restrict__ y1
#endif
#if PARTS > 2
    , out_t* __restrict__ y2
#endif
    , const u32* __restrict__ symbols) {
    extern __shared__ __align__(128) char memory[];
    __shared__ float sums[2][TEAMS][WARPS][TOGETHER * 16];
#if NORM
    __shared__ float squares[(K + 255) / 256];
#endif
#if EXPERTS
    __shared__ u32 experts[SLOTS];
#endif
#if MIXED
    __shared__ float factors[SLOTS + 1];
#endif
#if ACT_F32 && HALVES
    __shared__ float peaks[TEAMS * WARPS];
    float back = 1;
#endif
    const u32 thread = threadIdx.x, lane = thread & 31, g = lane >> 2, t = lane & 3;
    const u32 team = TEAMS == 1 ? 0 : thread / TEAM, member = thread - team * TEAM, warp = member >> 5;
    char* xs = memory; // x
    const u32 ring = address(memory) + HELD + (thread >> 5) * (DEPTH * STAGE);
    const u32 first_tile = blockIdx.x * TEAMS + team, all_teams = gridDim.x * TEAMS;
    // Stages of a tile that are this warp's: stage `warp` and every WARPS-th behind it.
    const u32 steps = MIXED ? (STAGES - warp % SPLIT + SPLIT - 1) / SPLIT : STAGES % WARPS == 0 ? STAGES / WARPS : (STAGES - warp + WARPS - 1) / WARPS;
    const u32 count = first_tile < TILES ? (TILES - first_tile + all_teams - 1) / all_teams : 0;

    // Where this lane's share of a tile begins: row `lane / 8` of every 4, piece `lane % 8` of 128 bytes.
    const u32 r = lane >> 3, piece = lane & 7;
    const u32 place = r * 128 + ((piece ^ ((r & 1) << TURN)) << 4);
#if MIXED
    const u32 part = warp / SPLIT; // slot, or run of the dense row
    const bool dense = part >= SLOTS;
    const u32 first_stage = warp % SPLIT, times = dense ? MIXED : 1;
#else
    const u32 first_stage = warp;
    constexpr u32 times = 1;
#endif
    const size_t line = (size_t)ROW * times; // bytes from one row of the weight to the next
    const size_t share = r * line + first_stage * 128 + piece * 16;
#if FORMAT >= 4
    // The lower lanes ask for scales, a row each, the upper ones for zeros, or for the second half of the row.
    const size_t scale_share = (size_t)(GATED ? lane & 7 : lane & 15) * SCALES * times + first_stage * FEW + (TAIL ? lane / 16 * (FEW / 2) : 0);
#endif
    const char* from = 0;
#if FORMAT >= 4
    const char* scale_from = 0;
#endif
#if GATED
    ptrdiff other = w1 - w0;
#endif
#if EXPERTS
    u32 own = 0; // the expert of slot `lane`
#endif
    auto aim = [&](u32 tile) {
#if MIXED
        u32 row = tile * 16;
        const u32 expert = __shfl_sync(~0u, own, dense ? 0 : part);
        if (!dense) row += (expert < EXPERTS ? expert : 0) * O0;
#elif EXPERTS
        const u32 behind = tile < FIXED ? 0 : tile < TILES ? tile - FIXED : TILES - FIXED - 1;
        const u32 expert = __shfl_sync(~0u, own, behind / TILES_EACH);
        u32 row = tile < FIXED ? tile * 8 : behind % TILES_EACH * (GATED ? 8 : 16) + (expert < EXPERTS ? expert : 0) * O0;
#else
        u32 row = tile * (GATED ? 8 : 16);
#endif
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
#if BESIDE || MIXED
#if MIXED
        if (dense) {
            w = dense0 + (size_t)(part - SLOTS) * ROW;
#else
        other = tile < FIXED ? dense1 - dense0 : w1 - w0;
        if (tile < FIXED) {
            w = dense0;
#endif
#if FORMAT >= 4
#if ZEROS
#define DENSE_SCALE(i) (zeros ? dense_z##i : dense_s##i)
#else
#define DENSE_SCALE(i) dense_s##i
#endif
            s = DENSE_SCALE(0);
#if MIXED
            s += (part - SLOTS) * SCALES;
#else
            if (lane & 8) s = DENSE_SCALE(1);
#endif
#endif
        }
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
        from = w + row * line + share;
#if FORMAT >= 4
        scale_from = s + (size_t)row * SCALES * times + scale_share;
#endif
    };
#if !GATED
    const ptrdiff other = 8 * line;
#endif
    // The next stage to ask for: step `ask_step` of the block's tile number `ask_tile`.
    u32 ask_tile = 0, ask_step = 0, ask_slot = 0;
    auto ask = [&]() {
        if (ask_tile < count) {
            const u32 to = ring + ask_slot * STAGE;
#if TAIL
            // Nothing is read behind the row: zeros.
            const bool last = ask_step * STRIDE + first_stage == STAGES - 1;
            const u32 size = last && piece >= 4 ? 0 : 16, few = last && lane >= 16 ? 0 : FEW / 2;
            fetch(to + place, size ? from : w0, size);
            fetch(to + place + 512, size ? from + 4 * line : w0, size);
            fetch(to + place + 1024, size ? from + other : w0, size);
            fetch(to + place + 1536, size ? from + other + 4 * line : w0, size);
            fetch_few<FEW / 2>(to + 2048 + (lane & 15) * FEW + lane / 16 * (FEW / 2), few ? scale_from : s0, few);
#else
            fetch16(to + place, from);
            fetch16(to + place + 512, from + 4 * line);
            fetch16(to + place + 1024, from + other);
            fetch16(to + place + 1536, from + other + 4 * line);
#if FORMAT == 4 && FEW == 16
            if (ZEROS || lane < 16) fetch16(to + 2048 + lane * FEW, scale_from);
#elif FORMAT >= 4
            if (ZEROS || lane < 16) fetch_few<FEW>(to + 2048 + lane * FEW, scale_from);
#endif
#endif
            from += STRIDE * 128;
#if FORMAT >= 4
            scale_from += STRIDE * FEW;
#endif
            if (++ask_step == steps) {
                ask_step = 0;
                ask_tile++;
                aim(first_tile + ask_tile * all_teams);
            }
        }
        if (++ask_slot == DEPTH) ask_slot = 0;
        commit();
    };
#if EXPERTS
    // Which experts to ask for is not known before the kernel in front has ended.
    auto known = [&]() { return MIXED ? warp >= SLOTS * SPLIT : first_tile + ask_tile * all_teams < FIXED; };
    int asked = 0;
    aim(first_tile);
    while (asked < DEPTH && known()) ask(), asked++;
#else
    aim(first_tile);
    for (int d = 0; d < DEPTH; d++) ask();
#endif
    launch_next();

    // x to shared memory, within 8 elements in the order in which the weights' words give them up.
    constexpr u32 EIGHTS = ROWS * (K / 8);
    constexpr int EACH = (EIGHTS + THREADS - 1) / THREADS;
#if NORM
    Weights<NORM_DTYPE> nw[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + thread;
        if (EIGHTS % THREADS == 0 || at < EIGHTS) nw[i].load(norm_w, at);
    }
#endif
    wait_previous();
#if EXPERTS
    if (lane < SLOTS) asm volatile("ld.global.u32 %0, [%1];" : "=r"(own) : "l"(chosen + lane) : "memory");
    if (thread < SLOTS) experts[thread] = own;
#endif
#if MIXED
    if (thread < SLOTS + 1) {
        Loaded factor;
        factor.load(thread < SLOTS ? weights + thread : share_of_dense);
        factors[thread] = factor.value();
    }
#endif
    {
        float v[EACH][8] = {};
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * THREADS + thread;
#if MIXED
            constexpr u32 OF_SLOTS = SLOTS * (K / 8);
            if (at < EIGHTS) load_eight(v[i], at < OF_SLOTS ? x_in : x1_in, at < OF_SLOTS ? at : at - OF_SLOTS, ACT_F32);
#else
            if (EIGHTS % THREADS == 0 || at < EIGHTS) load_eight(v[i], x_in, at, ACT_F32);
#endif
        }
#if EXPERTS
        if (!known()) aim(first_tile + ask_tile * all_teams);
        while (asked < DEPTH) ask(), asked++;
#endif
#if NORM
        const float factor = norm_factor<K, THREADS, EACH>(v, squares, (float)EPS);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (EIGHTS % THREADS != 0 && i * THREADS + thread >= EIGHTS) break;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[i][j] = v[i][j] * factor * (nw[i][j] + (float)OFFSET);
#if !ACT_F32
                v[i][j] = from_half(to_half(v[i][j]));
#endif
            }
        }
#endif
#if ACT_F32 && HALVES
        float peak = 0;
        // Two planes of f16: x scaled by a power of two so that its peak fits, and 2^11 times what that leaves.
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) peak = fmaxf(peak, fabsf(v[i][j]));
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, o));
        if (lane == 0) peaks[thread >> 5] = peak;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TEAMS * WARPS; i++) peak = fmaxf(peak, peaks[i]);
        const int exponent = peak > 0 ? (int)(__float_as_uint(peak) >> 23) - 127 : 0;
        const int shift = exponent < -100 ? 100 : exponent > 120 ? -120 : 10 - exponent;
        const float up = __uint_as_float((u32)(127 + shift) << 23);
        back = __uint_as_float((u32)(127 - shift) << 23);
#endif
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * THREADS + thread;
            const bool in = EIGHTS % THREADS == 0 || at < EIGHTS;
#if WHOLE
            // The greatest power of two of a run, which four neighbours hold; what is not finite makes all that it meets so.
            u32 peak = 0;
#pragma unroll
            for (int j = 0; j < 8; j++) peak = max(peak, __float_as_uint(v[i][j]) & 0x7fffffffu);
            peak = max(peak, __shfl_xor_sync(~0u, peak, 1));
            peak = max(peak, __shfl_xor_sync(~0u, peak, 2));
            // Of three digits the highest is full: 126 / 128 of the next power count as that.
            const u32 power = max((peak + (PLANES == 3 ? 0x20000u : 0)) >> 23, 40u);
            const float up = power >= 255 ? 0 : __uint_as_float((253 + BITS - power) << 23);
            const float down = power >= 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float((power + 1 - BITS - TIMES) << 23);
            u32 d[8];
#pragma unroll
            for (int j = 0; j < 8; j++) d[j] = digits(v[i][j], up);
            const u32 run = ROWS == 1 ? at >> 2 : at / (K / 8) * GROUPS_EACH + (at % (K / 8) >> 2);
            auto store = [&](u32 plane, u32 first, u32 second) {
                u32* to = (u32*)(xs + run * RUN + spot(run, plane, at >> 1 & 1) + (at & 1) * 8);
                if (in) to[0] = first, to[1] = second;
            };
            // Bytes of four numbers by their place.
            constexpr int order[8] = {0, FORMAT == 4 ? 2 : 1, FORMAT == 4 ? 4 : 2, FORMAT == 4 ? 6 : 3,
                FORMAT == 4 ? 1 : 4, FORMAT == 4 ? 3 : 5, FORMAT == 4 ? 5 : 6, 7};
            u32 ends[2][4];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const u32 a = d[order[4 * j]], b = d[order[4 * j + 1]], c = d[order[4 * j + 2]], e = d[order[4 * j + 3]];
                const u32 ab = __byte_perm(a, b, 0x5140), ce = __byte_perm(c, e, 0x5140);
                ends[j][0] = __byte_perm(ab, ce, 0x5410);
                ends[j][1] = __byte_perm(ab, ce, 0x7632);
                const u32 ab2 = __byte_perm(a, b, 0x7362), ce2 = __byte_perm(c, e, 0x7362);
                ends[j][2] = __byte_perm(ab2, ce2, 0x5410);
                ends[j][3] = __byte_perm(ab2, ce2, 0x7632);
#pragma unroll
                for (int plane = 0; plane < PLANES - 1; plane++) ends[j][plane] ^= 0x80808080u;
            }
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) store(plane, ends[0][plane], ends[1][plane]);
            if (in && (at & 3) == 0) ((float*)(xs + GROUPS * RUN))[run] = down;
#if ZEROS
            // The sums of each plane.
            u32 sum_of_plane[2] = {};
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                int sum = __dp4a((int)ends[0][plane], 0x01010101, __dp4a((int)ends[1][plane], 0x01010101, 0));
                sum += __shfl_xor_sync(~0u, sum, 1);
                sum += __shfl_xor_sync(~0u, sum, 2);
                sum_of_plane[plane / 2] |= ((u32)sum & 0xffffu) << plane % 2 * 16;
            }
            if (in && (at & 3) == 0) {
                u32* to = (u32*)(xs + GROUPS * (RUN + 4)) + run * 2;
                to[0] = sum_of_plane[0], to[1] = sum_of_plane[1];
            }
#endif
#endif
#if HALVES
            auto store = [&](u32 plane, const float (&f)[8]) {
                Words h;
                h.x = pack(f[0], f[1]);
                h.y = pack(f[2], f[3]);
                h.z = pack(f[4], f[5]);
                h.w = pack(f[6], f[7]);
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
#elif HALVES && ACT_F32
            float hi[8], lo[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float f = v[i][j] * up;
                hi[j] = from_half(to_half(f));
                lo[j] = (f - hi[j]) * 2048;
            }
            store(0, hi);
            store(1, lo);
#elif HALVES
            store(0, v[i]);
#endif
        }
#if TAIL
        constexpr u32 EMPTY = GROUPS_EACH - K / 32, BEHIND = EMPTY * RUN / 16;
        for (u32 i = thread; i < ROWS * BEHIND; i += THREADS) {
            ((Words*)(xs + (i / BEHIND * GROUPS_EACH + K / 32) * RUN))[i % BEHIND] = {};
        }
        // Of no account, but numbers: scale and sums.
        for (u32 i = thread; i < ROWS * EMPTY; i += THREADS) {
            ((float*)(xs + GROUPS * RUN))[i / EMPTY * GROUPS_EACH + K / 32 + i % EMPTY] = 0;
        }
#endif
    }
    __syncthreads();

    const u32 x_at = address(xs);
#if WHOLE
    // Columns 2c and 2c + 1 of b stand for lanes c's share of a row, with the two upper digits, then with the lower ones: other
    // lanes hold zeros.
    const u32 odd = g & 1, mine = g >> 1 == t, mine_too = mine && (PLANES == 4 || !odd);
    const u32 share_of_x = FORMAT == 4 ? 2 * t : t >> 1, piece_of_x = FORMAT == 4 ? 0 : t & 1;
    const u32 x_upper = x_at + share_of_x * RUN + spot(share_of_x, PLANES - 1 - odd, piece_of_x);
    const u32 x_lower = x_at + share_of_x * RUN + spot(share_of_x, mine_too ? PLANES - 3 - odd : 0, piece_of_x);
    const u32 mask = 0xf0f0f0f0u + (gridDim.z - 1); // There is one.
    Words xu[2] = {}, xl[2] = {};
#endif
#if FORMAT == 9
    Words xh[2] = {};
#endif
#if RESIDUAL
#define EARLY (TOGETHER * 16 <= TEAM) // each thread joins one sum at most
    Loaded early = {};
#endif
    u32 slot = 0, flip = 0, kept = 0; // tiles whose sums are not joined yet
    for (u32 i = 0; i < count; i++) {
        float top = 0, bottom = 0; // outputs g and g + 8
#if RESIDUAL
        // What is added to these tiles' sums.
        if (EARLY && kept == 0) {
            const u32 later = i + member / 16;
            if (later < count && member < TOGETHER * 16) early.load(residual + (first_tile + later * all_teams) * 16 + (member & 15));
        }
#endif
#if FORMAT < 4
        float c[2][4] = {};
#endif
        // The row of x that this tile takes.
#if MIXED
        const u32 row_of_x = part;
#elif EXPERTS && !SHARED
        const u32 row_of_x = (first_tile + i * all_teams - FIXED) / TILES_EACH;
#else
        constexpr u32 row_of_x = 0;
#endif
#pragma unroll 1
        for (u32 step = 0; step < steps; step++) {
            arrived<DEPTH - 1>();
            __syncwarp();
            const u32 in = ring + slot * STAGE;
            const u32 stage = row_of_x * STAGES + step * STRIDE + first_stage;
#if FORMAT == 4
            // A lane has runs 2t and 2t + 1 of rows g and g + 8.
            const u32 few = in + 2048 + g * FEW + 2 * t * 32 / GROUP * 2;
#if GROUP == 32
            const u32 s_top = read4(few), s_bottom = read4(few + 8 * FEW);
#else
            const u32 s_top = read2(few), s_bottom = read2(few + 8 * FEW);
#endif
#if ZEROS
            const int z_top = 128 - 16 * (int)from_half(read2(few + 16 * FEW));
            const int z_bottom = 128 - 16 * (int)from_half(read2(few + 24 * FEW));
#endif
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 x_from = (stage * 8 + half) * RUN, piece = (2 * t + half) ^ (g & 1);
                read_mine(xu[0], x_upper + x_from, mine);
                read_mine(xu[1], (x_upper ^ 16) + x_from, mine);
                read_mine(xl[0], x_lower + x_from, mine_too);
                read_mine(xl[1], (x_lower ^ 16) + x_from, mine_too);
                const Words a = read16(in + g * 128 + piece * 16), b = read16(in + 1024 + g * 128 + piece * 16);
                const u32 aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
                const u32 run = stage * 8 + 2 * t + half;
                int u[4] = {}, l[4] = {};
#if ZEROS
                const u32 lower_sums = read4(x_at + GROUPS * (RUN + 4) + run * 8), upper_sums = read4(x_at + GROUPS * (RUN + 4) + run * 8 + 4);
#define LOW(w) ((int)(short)(w))
#define HIGH(w) ((int)(w) >> 16)
#if PLANES == 3
                const int s[4] = {LOW(upper_sums), HIGH(lower_sums), LOW(lower_sums), 0};
#else
                const int s[4] = {HIGH(upper_sums), LOW(upper_sums), HIGH(lower_sums), LOW(lower_sums)};
#endif
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    (i < 2 ? u : l)[i & 1] = z_top * s[i];
                    (i < 2 ? u : l)[(i & 1) + 2] = z_bottom * s[i];
                }
#endif
#pragma unroll
                for (int word = 0; word < 4; word++) {
                    const u32 la = lower(aw[word], mask), lb = lower(bw[word], mask);
                    const u32 ua = upper(aw[word], mask), ub = upper(bw[word], mask);
                    const Words& xh = xu[word / 2];
                    const Words& xk = xl[word / 2];
                    mma(u, la, lb, ua, ub, word & 1 ? xh.z : xh.x, word & 1 ? xh.w : xh.y);
                    mma(l, la, lb, ua, ub, word & 1 ? xk.z : xk.x, word & 1 ? xk.w : xk.y);
                }
                const float scale = __uint_as_float(read4(x_at + GROUPS * RUN + run * 4));
                top += sum_of(u[0], u[1], l[0], l[1]) * (scale * (half && GROUP == 32 ? high(s_top) : low(s_top)));
                bottom += sum_of(u[2], u[3], l[2], l[3]) * (scale * (half && GROUP == 32 ? high(s_bottom) : low(s_bottom)));
            }
#elif FORMAT == 8
            // A lane's piece is half a run.
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 piece = (half * 4 + t) ^ ((g & 1) << TURN), run = stage * 4 + half * 2 + (t >> 1);
                const Words a = read16(in + g * 128 + piece * 16), b = read16(in + 1024 + g * 128 + piece * 16);
                read_mine(xu[0], x_upper + (stage * 4 + half * 2) * RUN, mine);
                read_mine(xl[0], x_lower + (stage * 4 + half * 2) * RUN, mine_too);
                const u32 s_at = in + 2048 + g * 8 + (half * 2 + (t >> 1)) * 2;
                const float s_top = from_half(read2(s_at)), s_bottom = from_half(read2(s_at + 64));
                int u[4] = {}, l[4] = {};
                mma(u, whole(a.x), whole(b.x), whole(a.y), whole(b.y), xu[0].x, xu[0].y);
                mma(l, whole(a.x), whole(b.x), whole(a.y), whole(b.y), xl[0].x, xl[0].y);
                mma(u, whole(a.z), whole(b.z), whole(a.w), whole(b.w), xu[0].z, xu[0].w);
                mma(l, whole(a.z), whole(b.z), whole(a.w), whole(b.w), xl[0].z, xl[0].w);
                const float scale = __uint_as_float(read4(x_at + GROUPS * RUN + run * 4));
                top += sum_of(u[0], u[1], l[0], l[1]) * (scale * s_top);
                bottom += sum_of(u[2], u[3], l[2], l[3]) * (scale * s_bottom);
            }
#elif FORMAT == 9
            // A lane's piece is half a run. Column 2r + p of b holds plane p of the lanes of run r: others hold zeros.
            const u32 x_from = x_at + stage * 256 + t * 32 + (g & 1) % PLANES * PLANE;
            const u32 mine = g >> 1 == t >> 1 && (g & 1) < PLANES;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 piece = (half * 4 + t) ^ ((g & 1) << TURN);
                const Words a = read16(in + g * 128 + piece * 16), b = read16(in + 1024 + g * 128 + piece * 16);
                const u32 aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
                read_mine(xh[0], x_from + half * 128, mine);
                read_mine(xh[1], x_from + half * 128 + 16, mine);
                // Lanes 0 and 1 have the sums of runs 0 and 1 of two, by planes; the other columns are zeros.
                const u32 s_at = in + 2048 + g * 8 + (half * 2 + (t & 1)) * 2;
                const float s_top = from_half(read2(s_at)) * (1.0f / 256), s_bottom = from_half(read2(s_at + 64)) * (1.0f / 256);
                float d[4] = {};
#pragma unroll
                for (int word = 0; word < 4; word++) {
                    const Words& xw = xh[word / 2];
                    mma(d, numbers(aw[word], 0x1404), numbers(bw[word], 0x1404), numbers(aw[word], 0x3424), numbers(bw[word], 0x3424),
                        word & 1 ? xw.z : xw.x, word & 1 ? xw.w : xw.y);
                }
#if PLANES == 2
                d[0] += d[1] * (1.0f / 2048), d[2] += d[3] * (1.0f / 2048);
#endif
                top = fmaf(d[0], s_top, top);
                bottom = fmaf(d[2], s_bottom, bottom);
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
            sums[flip][team][warp][kept * 16 + g] = top;
            sums[flip][team][warp][kept * 16 + g + 8] = bottom;
        }
        if (++kept < TOGETHER && i + 1 < count) continue;
        meet(team);
        for (u32 at = member; at < kept * 16; at += TEAM) {
            const u32 tile = first_tile + (i + 1 - kept + at / 16) * all_teams, lane = at & 15;
            float sum = 0;
#if ACT_F32 && HALVES
#define BACK back
#else
#define BACK 1.0f
#endif
#if MIXED
            float dense_sum = 0;
#pragma unroll
            for (int w = 0; w < SLOTS; w++) {
                float of_slot = 0;
#pragma unroll
                for (int p = 0; p < SPLIT; p++) of_slot += sums[flip][team][w * SPLIT + p][at];
                of_slot = experts[w] < EXPERTS ? from_out(to_out(of_slot * BACK)) : 0;
                sum = fmaf(factors[w], of_slot, sum);
            }
#pragma unroll
            for (int w = SLOTS * SPLIT; w < WARPS; w++) dense_sum += sums[flip][team][w][at];
            dense_sum = from_out(to_out(from_out(to_out(dense_sum * BACK)) * factors[SLOTS]));
            sum = from_out(to_out(sum)) + dense_sum;
#else
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += sums[flip][team][w][at];
            sum *= BACK;
#endif
#if EXPERTS && !MIXED
            const bool exists = tile < FIXED || experts[tile < FIXED ? 0 : (tile - FIXED) / TILES_EACH] < EXPERTS;
#endif
#if GATED
            // Half a warp is here at the end.
            const u32 here = kept * 16 - (at & ~31u) >= 32 ? 0xffffffffu : 0xffffu;
            const float up = __shfl_down_sync(here, sum, 8);
            const float gated = sum / (1.0f + __expf(-sum)) * up;
#if BESIDE
            if (lane < 8) (tile < FIXED ? y1 : y0)[(tile < FIXED ? tile : tile - FIXED) * 8 + lane] = to_out(exists ? gated : 0);
#elif EXPERTS
            if (lane < 8) y0[tile * 8 + lane] = to_out(exists ? gated : 0);
#else
            if (lane < 8) y0[tile * 8 + lane] = to_out(gated);
#endif
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
#if EXPERTS
            const u32 place_of_bias = exists ? experts[row / O0] * O0 + row % O0 : 0;
#else
            const u32 place_of_bias = row;
#endif
#if B_DTYPE == 0
            sum += ((const float*)bias)[place_of_bias];
#elif B_DTYPE == 1
            sum += from_half(((const u16*)bias)[place_of_bias]);
#else
            sum += __uint_as_float((u32)((const u16*)bias)[place_of_bias] << 16);
#endif
#endif
#if EXPERTS && !MIXED
            if (!exists) sum = 0;
#endif
#if RESIDUAL
            // As the addition behind the product finds it.
            if (!EARLY) early.load(residual + row);
            sum = from_out(to_out(sum)) + early.value();
#endif
            y[row] = to_out(sum);
#endif
        }
        flip ^= 1;
        kept = 0;
    }
}
