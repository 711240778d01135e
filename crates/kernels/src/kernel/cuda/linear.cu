// y = x * transposed w for one row of x: weights stream through rings of shared memory, one for each warp, and meet the
// activations in tensor cores with sums in f32.
//
// A block treats tiles of 16 outputs; its warps share the row length between them, 128 bytes of each of 16 rows at a
// time. Weights are asked for before the block waits for what the kernel before it writes.
//
// Constants: K; WARPS; DEPTH, the stages of a ring; FORMAT (1 f16, 2 bf16, 4 and 8 bits in groups of 32); PARTS weights of
// O0, O1, O2 outputs, each with an output of its own; GATED: two weights, y = silu(x w0) * (x w1); NORM: x is taken through
// rms_norm first, with EPS, OFFSET and weights of NORM_DTYPE (0 f32, 1 f16, 2 bf16); BIAS, of B_DTYPE; RESIDUAL: y += r;
// ACT_F32, OUT_F32: x and y are f32 instead of f16; TOGETHER, the tiles whose sums are joined at once; MIN_BLOCKS.
//
// Activations meet f16 weights and integers as f16; f32 activations as two planes of f16, in columns of their own, and
// bf16 weights meet two or three planes of bf16, so that nothing of x is lost but what f32 sums lose too.
#define THREADS (WARPS * 32)

struct alignas(16) Words { u32 x, y, z, w; };

INLINE Words read16(u32 at) {
    Words v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
// Plain loads would be moved before the wait: what they read is written by the kernel before this one.
INLINE Words load16(const void* from) {
    Words v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
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
// Reads 16 bytes in the lanes of which `mine` is not 0; the others keep what they have.
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
#define SCALES (K / 32 * 2)     // bytes of a row of scales
#define STEP 256                // elements of a stage's row
#define STAGE (2048 + 256)
#define TURN 1                  // which bit of a piece's place the row's parity turns
#elif FORMAT == 8
#define ROW K
#define SCALES (K / 32 * 2)
#define STEP 128
#define STAGE (2048 + 128)
#define TURN 2
#else
#define ROW (K * 2)
#define SCALES 0
#define STEP 64
#define STAGE 2048
#define TURN 2
#endif
#define STEPS (K / STEP / WARPS) // stages of a tile in each warp
#define PLANE (K * 2)            // bytes of a plane of x
#define PLANES (1 + ACT_F32 + (FORMAT == 2))
#define SUMS (FORMAT >= 4 ? K / 32 * 4 * PLANES : 0) // bytes of the sums of x by group
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
#else
typedef u16 out_t;
INLINE out_t to_out(float f) { return to_half(f); }
#endif

// Weights of 4 and 8 bits enter the products as subnormal f16, that is q * 2^-24 (or q * 2^-20 for the upper half of a
// byte), which tensor cores take as they are; the zero of 8 or 128 is taken off the sums: zero * sum of the group's x.
#define TINY 5.9604644775390625e-08f // 2^-24
INLINE u32 bytes(u32 w, u32 which) { return __byte_perm(w, 0, which); }

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) linear(
    const void* x_in,
#if NORM
    const char* __restrict__ norm_w,
#endif
    const char* __restrict__ w0,
#if FORMAT >= 4
    const char* __restrict__ s0,
#endif
#if WEIGHTS > 1
    const char* __restrict__ w1,
#if FORMAT >= 4
    const char* __restrict__ s1,
#endif
#endif
#if WEIGHTS > 2
    const char* __restrict__ w2,
#if FORMAT >= 4
    const char* __restrict__ s2,
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
    __shared__ float squares[WARPS];
#endif
#if ACT_F32 && FORMAT != 2
    __shared__ float peaks[WARPS];
    float back = 1;
#endif
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, t = lane & 3;
    char* xs = memory; // x, then the sums of its groups
#if FORMAT >= 4
    float* group_sums = (float*)(memory + PLANE * PLANES);
#endif
    const u32 ring = address(memory) + PLANE * PLANES + SUMS + warp * (DEPTH * STAGE);
    const u32 count = blockIdx.x < TILES ? (TILES - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;

    // Where this lane's share of a tile begins: row `lane / 8` of every 4, piece `lane % 8` of 128 bytes.
    const u32 r = lane >> 3, piece = lane & 7;
    const u32 place = r * 128 + ((piece ^ ((r & 1) << TURN)) << 4);
    const size_t share = (size_t)r * ROW + warp * 128 + piece * 16;
#if FORMAT >= 4
    const u32 scale_bytes = FORMAT == 4 ? 16 : 8;
    const size_t scale_share = (size_t)(GATED ? lane & 7 : lane & 15) * SCALES + warp * scale_bytes;
#endif
    const char* from = 0;
#if FORMAT >= 4
    const char* scale_from = 0;
#endif
    auto aim = [&](u32 tile) {
        u32 row = tile * (GATED ? 8 : 16);
        const char* w = w0;
#if FORMAT >= 4
        const char* s = s0;
#if GATED
        if (lane & 8) s = s1;
#endif
#endif
#if PARTS > 1
        if (row >= O0) {
            row -= O0;
            w = w1;
#if FORMAT >= 4
            s = s1;
#endif
#if PARTS > 2
            if (row >= O1) {
                row -= O1;
                w = w2;
#if FORMAT >= 4
                s = s2;
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
            fetch16(to + place, from);
            fetch16(to + place + 512, from + 4 * ROW);
            fetch16(to + place + 1024, from + other);
            fetch16(to + place + 1536, from + other + 4 * ROW);
            from += WARPS * 128;
#if FORMAT == 4
            if (lane < 16) fetch16(to + 2048 + lane * 16, scale_from);
            scale_from += WARPS * 16;
#elif FORMAT == 8
            if (lane < 16) fetch8(to + 2048 + lane * 8, scale_from);
            scale_from += WARPS * 8;
#endif
            if (++ask_step == STEPS) {
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
    Words nw[EACH][NORM_DTYPE ? 1 : 2];
    for (int i = 0; i < EACH; i++) {
        const u32 at = i * THREADS + thread;
        if (at < K / 8) {
#if NORM_DTYPE
            nw[i][0] = load16(norm_w + at * 16);
#else
            nw[i][0] = load16(norm_w + at * 32);
            nw[i][1] = load16(norm_w + at * 32 + 16);
#endif
        }
    }
#endif
    wait_previous();
    {
        float v[EACH][8];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * THREADS + thread;
            if (K / 8 % THREADS != 0 && at >= K / 8) break;
#if ACT_F32
            const Words a = load16((const char*)x_in + at * 32), b = load16((const char*)x_in + at * 32 + 16);
            v[i][0] = __uint_as_float(a.x); v[i][1] = __uint_as_float(a.y);
            v[i][2] = __uint_as_float(a.z); v[i][3] = __uint_as_float(a.w);
            v[i][4] = __uint_as_float(b.x); v[i][5] = __uint_as_float(b.y);
            v[i][6] = __uint_as_float(b.z); v[i][7] = __uint_as_float(b.w);
#else
            const Words a = load16((const char*)x_in + at * 16);
            v[i][0] = low(a.x); v[i][1] = high(a.x); v[i][2] = low(a.y); v[i][3] = high(a.y);
            v[i][4] = low(a.z); v[i][5] = high(a.z); v[i][6] = low(a.w); v[i][7] = high(a.w);
#endif
        }
#if NORM
        float square = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * THREADS + thread;
            if (K / 8 % THREADS != 0 && at >= K / 8) break;
#pragma unroll
            for (int j = 0; j < 8; j++) square += v[i][j] * v[i][j];
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) square += __shfl_xor_sync(~0u, square, o);
        if (lane == 0) squares[warp] = square;
        __syncthreads();
        square = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++) square += squares[i];
        const float factor = rsqrtf(square / K + (float)EPS);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const u32 at = i * THREADS + thread;
            if (K / 8 % THREADS != 0 && at >= K / 8) break;
            const u32* words = (const u32*)nw[i];
#pragma unroll
            for (int j = 0; j < 8; j++) {
#if NORM_DTYPE == 0
                const float w = __uint_as_float(words[j]);
#elif NORM_DTYPE == 1
                const float w = j % 2 ? high(words[j / 2]) : low(words[j / 2]);
#else
                const float w = __uint_as_float(j % 2 ? words[j / 2] & 0xffff0000u : words[j / 2] << 16);
#endif
                v[i][j] = v[i][j] * factor * (w + (float)OFFSET);
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
            if (K / 8 % THREADS != 0 && i * THREADS + thread >= K / 8) break;
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
#if FORMAT >= 4
                float sum = ((low(h.x) + high(h.x)) + (low(h.y) + high(h.y))) + ((low(h.z) + high(h.z)) + (low(h.w) + high(h.w)));
                sum += __shfl_xor_sync(~0u, sum, 1);
                sum += __shfl_xor_sync(~0u, sum, 2);
                const float zero = FORMAT == 4 ? -8 * TINY : -128 * TINY;
                if (in && (thread & 3) == 0) group_sums[plane * (K / 32) + at / 4] = zero * sum;
#endif
            };
#endif
#if FORMAT == 2
            float left[8];
#pragma unroll
            for (int j = 0; j < 8; j++) left[j] = in ? v[i][j] : 0;
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
                const float f = in ? v[i][j] * up : 0;
                hi[j] = from_half(to_half(f));
                lo[j] = (f - hi[j]) * 2048;
            }
            store(0, hi);
            store(1, lo);
#else
            if (!in) for (int j = 0; j < 8; j++) v[i][j] = 0;
            store(0, v[i]);
#endif
        }
    }
    __syncthreads();

    const u32 x_at = address(xs);
#if FORMAT >= 4
    // Column c of b stands for the group, or half group, of lanes c: other lanes hold zeros. The upper columns are for the
    // second plane.
    const u32 mine = g == t || (ACT_F32 && g == t + 4);
    const u32 x_mine = x_at + (g >= 4 ? PLANE : 0);
    const u32 sums_at = x_at + PLANE * PLANES + (ACT_F32 && t >= 2 ? K / 32 * 4 : 0);
    Words xv[4] = {};
#endif
    u32 slot = 0, flip = 0, kept = 0; // tiles whose sums are not joined yet
    for (u32 i = 0; i < count; i++) {
        float top = 0, bottom = 0; // outputs g and g + 8
#if FORMAT < 4
        float c[2][4] = {};
#endif
#pragma unroll 1
        for (u32 step = 0; step < STEPS; step++) {
            arrived<DEPTH - 1>();
            __syncwarp();
            const u32 in = ring + slot * STAGE;
            const u32 stage = step * WARPS + warp;
#if FORMAT == 4
            u32 st[2], sb[2];
            asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(st[0]), "=r"(st[1]) : "r"(in + 2048 + g * 16 + (t & 1) * 8));
            asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(sb[0]), "=r"(sb[1]) : "r"(in + 2048 + 128 + g * 16 + (t & 1) * 8));
            const Words zero = read16(sums_at + stage * 32 + (t & 1) * 16);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 at = ((t >> 1) * 4 + half * 2 + (t & 1));
#pragma unroll
                for (int word = 0; word < 4; word++) read_mine(xv[word], x_mine + stage * 512 + at * 64 + word * 16, mine);
                const Words a = read16(in + g * 128 + (at ^ ((g & 1) << TURN)) * 16);
                const Words b = read16(in + 1024 + g * 128 + (at ^ ((g & 1) << TURN)) * 16);
                const u32 aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
                const float z0 = __uint_as_float(half ? zero.z : zero.x), z1 = __uint_as_float(half ? zero.w : zero.y);
                float c[2][4] = {{z0, z1, z0, z1}, {}};
#pragma unroll
                for (int word = 0; word < 4; word++) {
                    const u32 la = aw[word], lb = bw[word], ha = la >> 8, hb = lb >> 8;
                    mma(c[0], la & 0x000f000f, lb & 0x000f000f, ha & 0x000f000f, hb & 0x000f000f, xv[word].x, xv[word].y);
                    mma(c[1], la & 0x00f000f0, lb & 0x00f000f0, ha & 0x00f000f0, hb & 0x00f000f0, xv[word].z, xv[word].w);
                }
                top += (c[0][0] + c[1][0] * 0.0625f) * low(st[half]) + (c[0][1] + c[1][1] * 0.0625f) * high(st[half]);
                bottom += (c[0][2] + c[1][2] * 0.0625f) * low(sb[half]) + (c[0][3] + c[1][3] * 0.0625f) * high(sb[half]);
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
                float zero;
                asm volatile("ld.shared.f32 %0, [%1];" : "=f"(zero) : "r"(sums_at + stage * 16 + (half * 2 + (t & 1)) * 4));
                const u32 aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
                float c[2][4] = {{zero, 0, zero, 0}, {}};
#pragma unroll
                for (int pair = 0; pair < 2; pair++) {
                    const u32 a0 = aw[2 * pair], a1 = aw[2 * pair + 1], b0 = bw[2 * pair], b1 = bw[2 * pair + 1];
                    mma(c[pair], bytes(a0, 0x4240), bytes(b0, 0x4240), bytes(a0, 0x4341), bytes(b0, 0x4341), xv[pair].x, xv[pair].y);
                    mma(c[pair], bytes(a1, 0x4240), bytes(b1, 0x4240), bytes(a1, 0x4341), bytes(b1, 0x4341), xv[pair].z, xv[pair].w);
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
        const float part = t < 2 ? 1 / TINY : ACT_F32 ? 1 / (2048 * TINY) : 0;
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
#if RESIDUAL
            sum += load_out(residual + row);
#endif
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
            y[row] = to_out(sum);
#endif
        }
        flip ^= 1;
        kept = 0;
    }
}
