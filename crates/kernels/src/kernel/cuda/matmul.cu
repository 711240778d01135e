// Products of many rows, y = x w^T, on the tensor cores of a Hopper chip (sm_90a).
//
// Constants: K, a multiple of 64; COLS, the outputs of a tile; STAGES of the ring; FORMAT of the weights (1:
// f16; 4: integers of 4 bits in groups of 32 with f16 scales); PARTS weights of O0, O1, O2 outputs, each with an
// output of its own; GATED: two weights, y = silu(x w0) * (x w1); BIAS, of B_DTYPE (0 f32, 1 f16, 2 bf16); OUT_F32: y is f32
// instead of f16; BLOCKS, the grid; ROWS_N, ROWS_P, ROWS_C: the rows.
//
// A tile is 128 rows by COLS outputs. The blocks stay and take one tile after the other, those of the same weights at a time.
// Two groups of four warps fill a ring of stages in turn, 64 elements along K each, swizzled over 128 bytes; of packed
// weights they make f16 on the way, in two planes whose sum is exact. Two groups multiply 64 rows each with all COLS outputs.
#define THREADS 512
#define GROUP 128            // threads of a group
#define M 128                // rows of a tile
#define STEP 64              // elements along K of a stage
#define STEPS (K / STEP)
#define A_BYTES (M * 128)
#define B_BYTES (COLS * 128)
#define PLANES (FORMAT == 4 ? 2 : 1)
#define STAGE (A_BYTES + PLANES * B_BYTES)
#define A_LOADS (M / 16)     // 16 bytes that a thread asks for in a stage
#define B_LOADS (COLS / 16)
#if GATED
#define WIDTH (2 * O0)
#else
#define WIDTH (O0 + O1 + O2)
#endif
#define COLUMNS ((WIDTH + COLS - 1) / COLS)

typedef unsigned long long u64;

#if OUT_F32
typedef float out_t;
#else
typedef u16 out_t;
#endif

INLINE void expect(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
INLINE void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
INLINE void await(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred p;\n"
        "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@!p bra again;}"
        ::"r"(barrier), "r"(parity) : "memory");
}
// What was written to shared memory becomes visible to the tensor cores.
INLINE void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define R8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
// c = a b^T, added to c if `more`, for 64 rows, COLS outputs and 16 elements along K at these places.
INLINE void multiply(float (&c)[COLS / 2], u64 a, u64 b, u32 more) {
#if COLS == 64
    asm volatile("{.reg .pred p; setp.ne.u32 p, %34, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;}"
        : R8(0), R8(8), R8(16), R8(24)
        : "l"(a), "l"(b), "r"(more));
#elif COLS == 128
    asm volatile("{.reg .pred p; setp.ne.u32 p, %66, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;}"
        : R8(0), R8(8), R8(16), R8(24), R8(32), R8(40), R8(48), R8(56)
        : "l"(a), "l"(b), "r"(more));
#elif COLS == 192
    asm volatile("{.reg .pred p; setp.ne.u32 p, %98, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, p, 1, 1, 0, 0;}"
        : R8(0), R8(8), R8(16), R8(24), R8(32), R8(40), R8(48), R8(56),
          R8(64), R8(72), R8(80), R8(88)
        : "l"(a), "l"(b), "r"(more));
#endif
}
// A place in shared memory as the tensor cores take it: rows of 128 bytes, swizzled, 8 of them in 1024 bytes.
INLINE u64 matrix(u32 at) { return (u64)((at & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; }

INLINE u32 rows_of(const u32* symbols) { return ROWS_N * symbols[0] + ROWS_P * symbols[1] + ROWS_C; }

// The place of an output among the weights: which one, and its row.
struct Place { u32 part, row; };
INLINE Place place_of(u32 v) {
#if PARTS > 2
    if (v >= O0 + O1) return {2, v - O0 - O1};
#endif
#if PARTS > 1
    if (v >= O0) return {1, v - O0};
#endif
    return {0, v};
}
// The place of row `r` of the weights of a tile.
INLINE Place weight_of(u32 column, u32 r) {
#if GATED
    return {r >= COLS / 2 ? 1u : 0u, column * (COLS / 2) + (r >= COLS / 2 ? r - COLS / 2 : r)};
#else
    return place_of(column * COLS + r);
#endif
}
INLINE bool beyond(Place at) { return GATED ? at.row >= O0 : at.part == PARTS - 1 && at.row >= (PARTS > 2 ? O2 : PARTS > 1 ? O1 : O0); }

#if BIAS
INLINE float bias_of(const void* b, u32 i) {
#if B_DTYPE == 0
    return ((const float*)b)[i];
#elif B_DTYPE == 1
    return from_half(((const u16*)b)[i]);
#else
    return __uint_as_float((u32)((const u16*)b)[i] << 16);
#endif
}
#endif

#if FORMAT == 4
#define UNITS (COLS * 2)                          // groups of a stage
#define UNIT_LOADS ((UNITS + GROUP - 1) / GROUP)  // of a thread
struct alignas(16) Octad { u32 w[4]; };
struct Unit { Octad words; u16 scale; };

INLINE u32 and_or(u32 a, u32 b, u32 c) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
// Differences and products of two f16 each.
INLINE u32 minus(u32 a, u32 b) {
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
INLINE u32 times(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
// 8 integers of 4 bits, less 8, as f16, by way of 1024 + q. f16 holds all of these exactly.
INLINE Octad unpacked(u32 w) {
    Octad r;
    u32 four[4]; // elements j and j + 4
#pragma unroll
    for (int j = 0; j < 4; j++) four[j] = minus(and_or(w >> (4 * j), 0x000f000f, 0x64006400), 0x64086408);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        r.w[j] = __byte_perm(four[2 * j], four[2 * j + 1], 0x5410);
        r.w[j + 2] = __byte_perm(four[2 * j], four[2 * j + 1], 0x7632);
    }
    return r;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) matmul(
    const u16* x, const char* w0,
#if FORMAT == 4
    const u16* s0,
#endif
#if PARTS > 1 || GATED
    const char* w1,
#if FORMAT == 4
    const u16* s1,
#endif
#endif
#if PARTS > 2
    const char* w2,
#if FORMAT == 4
    const u16* s2,
#endif
#endif
#if BIAS
    const void* b0,
#if PARTS > 1
    const void* b1,
#endif
#if PARTS > 2
    const void* b2,
#endif
#endif
    out_t* y0,
#if PARTS > 1
    out_t* y1,
#endif
#if PARTS > 2
    out_t* y2,
#endif
    const u32* symbols) {
    extern __shared__ __align__(1024) char memory[];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
    const u32 thread = threadIdx.x % GROUP, lane = thread & 31, group = threadIdx.x / GROUP;
    const u32 ring = (address(memory) + 1023) & ~1023u, full_at = address(full), empty_at = address(empty);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            expect(full_at + 8 * s, GROUP / 32);
            expect(empty_at + 8 * s, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    launch_next();
    const u32 rows = rows_of(symbols), stack = (rows + M - 1) / M, tiles = stack * COLUMNS;
    wait_previous();
    if (group < 2) {
        // Those who fill the ring. The groups' registers are shared out anew.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        const u32 piece = thread & 7, line = thread >> 3;
        const u32 to = ring + line * 128 + ((piece ^ (line & 7)) << 4);
        u32 slot = group, parity = 1, made = 0, before = 0;
        auto tell = [&]() {
            publish();
            __syncwarp();
            if (lane == 0) arrive(full_at + 8 * before);
        };
#if FORMAT == 4
        const u32* words[UNIT_LOADS];
        const u16* scales[UNIT_LOADS];
        u32 ask_tile = blockIdx.x, ask_step = group;
        auto aim = [&]() {
            const u32 column = ask_tile / stack;
#pragma unroll
            for (int i = 0; i < UNIT_LOADS; i++) {
                const u32 unit = thread + GROUP * i;
                Place at = weight_of(column, unit >> 1);
                if (unit >= UNITS || beyond(at)) at = {0, 0};
                const char* w = w0;
                const u16* s = s0;
#if PARTS > 1 || GATED
                if (at.part == 1) { w = w1; s = s1; }
#endif
#if PARTS > 2
                if (at.part == 2) { w = w2; s = s2; }
#endif
                words[i] = (const u32*)w + (size_t)at.row * (K / 8) + (unit & 1) * 4;
                scales[i] = s + (size_t)at.row * (K / 32) + (unit & 1);
            }
        };
        // What is needed next.
        Unit units[UNIT_LOADS];
        aim();
        auto settle = [&]() {
            if (ask_step < STEPS) return;
            do {
                ask_step -= STEPS;
                ask_tile += BLOCKS;
            } while (ask_step >= STEPS);
            aim();
        };
        auto ask = [&]() {
            if (ask_tile >= tiles) return;
#pragma unroll
            for (int i = 0; i < UNIT_LOADS; i++) {
                u32 (&w)[4] = units[i].words.w;
                asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                    : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(words[i] + (size_t)ask_step * (STEP / 8)));
                asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(units[i].scale) : "l"(scales[i] + ask_step * 2));
            }
            ask_step += 2;
            settle();
        };
        auto store = [&]() {
#pragma unroll
            for (int i = 0; i < UNIT_LOADS; i++) {
                const u32 unit = thread + GROUP * i, row = unit >> 1;
                if (unit >= UNITS) break;
                // The scale's upper 7 bits and its lower 4: with 4 bits each makes at most 11, which f16 holds.
                const u32 s = units[i].scale * 0x10001u, upper = s & 0xfff0fff0, lower = minus(s, upper);
                const u32 at = ring + slot * STAGE + A_BYTES + row * 128;
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    const Octad q = unpacked(units[i].words.w[j]);
                    const u32 to = at + ((((unit & 1) * 4 + j) ^ (row & 7)) << 4);
#pragma unroll
                    for (int plane = 0; plane < PLANES; plane++) {
                        const u32 f = plane ? lower : upper;
                        asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to + plane * B_BYTES), "r"(times(q.w[0], f)),
                            "r"(times(q.w[1], f)), "r"(times(q.w[2], f)), "r"(times(q.w[3], f)) : "memory");
                    }
                }
            }
        };
        settle();
        ask();
#endif
        u32 step = group;
        for (u32 tile = blockIdx.x; tile < tiles; tile += BLOCKS) {
            const u32 first = tile % stack * M + line;
            const u16* a = x + (size_t)first * K + piece * 8;
            u32 sizes[A_LOADS];
#pragma unroll
            for (int i = 0; i < A_LOADS; i++) sizes[i] = first + 16 * i < rows ? 16 : 0;
#if FORMAT == 1
            const u16* b[B_LOADS];
#pragma unroll
            for (int i = 0; i < B_LOADS; i++) {
                Place at = weight_of(tile / stack, line + 16 * i);
                if (beyond(at)) at = {0, 0};
                const char* w = w0;
#if PARTS > 1 || GATED
                if (at.part == 1) w = w1;
#endif
#if PARTS > 2
                if (at.part == 2) w = w2;
#endif
                b[i] = (const u16*)w + (size_t)at.row * K + piece * 8;
            }
#endif
            for (; step < STEPS; step += 2) {
                await(empty_at + 8 * slot, parity);
                const u32 stage = to + slot * STAGE;
#pragma unroll
                for (int i = 0; i < A_LOADS; i++) {
                    fetch(stage + i * 2048, (sizes[i] ? a + (size_t)i * 16 * K : x) + step * STEP, sizes[i]);
                }
#if FORMAT == 1
#pragma unroll
                for (int i = 0; i < B_LOADS; i++) fetch16(stage + A_BYTES + i * 2048, b[i] + step * STEP);
                commit();
#else
                commit();
                store();
                ask();
#endif
                // The stage before this one has arrived.
                if (made++ > 0) {
                    arrived<1>();
                    tell();
                }
                before = slot;
                slot += 2;
                if (slot >= STAGES) { slot -= STAGES; parity ^= 1; }
            }
            step -= STEPS;
        }
        arrived<0>();
        if (made > 0) tell();
    } else {
        // Those who multiply.
        asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
        const u32 warp = (thread >> 5) & 3, g = lane >> 2, t = lane & 3;
        float c[COLS / 2];
        u32 slot = 0, parity = 0;
        for (u32 tile = blockIdx.x; tile < tiles; tile += BLOCKS) {
            u32 before = 0;
#pragma unroll 1
            for (u32 step = 0; step < STEPS; step++) {
                await(full_at + 8 * slot, parity);
                const u32 stage = ring + slot * STAGE;
                const u64 a = matrix(stage + (group - 2) * 8192), b = matrix(stage + A_BYTES);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (u32 i = 0; i < PLANES * STEP / 16; i++) {
                    const u32 at = 2 * (i % (STEP / 16));
                    multiply(c, a + at, b + at + i / (STEP / 16) * (B_BYTES / 16), step + i);
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                if (step > 0) {
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (lane == 0) arrive(empty_at + 8 * before);
                }
                before = slot;
                if (++slot == STAGES) { slot = 0; parity ^= 1; }
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int i = 0; i < COLS / 2; i++) asm volatile("" : "+f"(c[i])::"memory");
            if (lane == 0) arrive(empty_at + 8 * before);
            // Register 4j + 2h + e of a thread is row g + 8h of its warp's 16, output 8j + 2t + e.
            const u32 row = tile % stack * M + (group - 2) * 64 + warp * 16 + g, column = tile / stack;
#pragma unroll
            for (int j = 0; j < (GATED ? COLS / 16 : COLS / 8); j++) {
                const Place at = GATED ? Place{0, column * (COLS / 2) + j * 8 + t * 2} : place_of(column * COLS + j * 8 + t * 2);
                if (beyond(at)) continue;
                out_t* y = y0;
                u32 width = O0;
#if PARTS > 1
                if (at.part == 1) { y = y1; width = O1; }
#endif
#if PARTS > 2
                if (at.part == 2) { y = y2; width = O2; }
#endif
#if BIAS
                const void* bias = b0;
#if PARTS > 1
                if (at.part == 1) bias = b1;
#endif
#if PARTS > 2
                if (at.part == 2) bias = b2;
#endif
                const float b[2] = {bias_of(bias, at.row), bias_of(bias, at.row + 1)};
#endif
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float v[2];
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        v[e] = c[4 * j + 2 * h + e];
#if GATED
                        v[e] = v[e] / (1.0f + __expf(-v[e])) * c[(4 * j + 2 * h + e + COLS / 4) % (COLS / 2)];
#endif
#if BIAS
                        v[e] += b[e];
#endif
                    }
                    if (row + 8 * h >= rows) continue;
                    out_t* to = y + (size_t)(row + 8 * h) * width + at.row;
#if OUT_F32
                    to[0] = v[0];
                    to[1] = v[1];
#else
                    *(u32*)to = pack(v[0], v[1]);
#endif
                }
            }
        }
    }
}
