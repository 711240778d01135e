// Products of many rows, y^T = w x^T, on the tensor cores of a Hopper chip (sm_90a), with x and w brought by tensor maps.
//
// Constants: K, a multiple of 64; GROUPS of four warps that multiply; STAGES of the ring; FORMAT of the weights (1: f16; 4
// and 8: integers of so many bits in groups of 32 with f16 scales); FLOAT: those of 8 bits are numbers of e4m3 over 256; RUN, the stages of f16 weights whose products the tensor cores add up;
// PARTS weights of O0, O1, O2 outputs, each with an output of its own;
// GATED: two weights, y = silu(x w0) * (x w1); BIAS, of B_DTYPE (0 f32, 1 f16, 2 bf16); OUT_F32: y is f32 instead of f16; BLOCKS,
// the grid, an even number; ROWS_N, ROWS_P, ROWS_C: the rows.
//
// A tile is 64 outputs for each group (of gated products, 32 of each weight) by 128 rows. Two blocks of a cluster take tiles of
// the same rows: each brings half of x to both. The blocks stay and take one tile after the other. A thread fills a ring of
// stages, 64 elements along K each. Tensor cores round toward zero whatever they add up, so that long sums drift: those of a run
// of stages are added up by ordinary additions. Of packed weights the groups make f16 integers in registers, which is where
// the tensor cores take them from; the sums of 32 products are scaled and added up in f32.
#define THREADS (128 * GROUPS + 128)
#define M (GROUPS * 64)      // weights' rows of a tile
#define N 128                // rows of x of a tile
#define STEP 64              // elements along K of a stage
#define STEPS (K / STEP)
#define X_BYTES (N * 128)
#define W_ROW (FORMAT == 1 ? 128 : FORMAT * 8)
#define W_BYTES (M * W_ROW)
#define STAGE (X_BYTES + W_BYTES)
#define HALVES (GATED && FORMAT == 1)  // the groups have a weight each and share out the rows of the results
#if GATED
#define COLUMNS ((O0 + M / 2 - 1) / (M / 2))
#else
#define UNITS(o) (((o) + 63) / 64)
#define COLUMNS ((UNITS(O0) + UNITS(O1) + UNITS(O2) + GROUPS - 1) / GROUPS)
#endif
#define PAIRS ((COLUMNS + 1) / 2)
// Results of a group: so many pieces of 8 outputs for each warp, and so many rows.
#define PIECES (GATED && !HALVES ? 1 : 2)
#define ROWS (HALVES ? N / 2 : N)
#define OUT_ROW (PIECES * 64)
#define OUT_BYTES (HALVES ? 16384 : ROWS * OUT_ROW)

typedef unsigned long long u64;
struct alignas(64) Map { u64 words[16]; };

#if OUT_F32
typedef float out_t;
#else
typedef u16 out_t;
#endif

INLINE void expect(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
INLINE void expect_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Tells a block of the cluster.
INLINE void arrive(u32 barrier, u32 block) {
    asm volatile("{.reg .b32 r;\n\tmapa.shared::cluster.u32 r, %0, %1;\n\t"
        "mbarrier.arrive.shared::cluster.b64 _, [r];}" ::"r"(barrier), "r"(block) : "memory");
}
INLINE void await(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred p;\n"
        "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@!p bra again;}"
        ::"r"(barrier), "r"(parity) : "memory");
}
INLINE void meet() {
    asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}
// Brings the box of a tensor at element `k` of `row`; to both blocks of the cluster if `both`.
INLINE void bring(u32 to, const Map* map, u32 k, u32 row, u32 barrier, bool both) {
    if (both) {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            " [%0], [%1, {%2, %3}], [%4], %5;"
            ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier), "h"((u16)3) : "memory");
    } else {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3}], [%4];"
            ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier) : "memory");
    }
}
// A place in shared memory as the tensor cores take it: rows of 128 bytes, swizzled, 8 of them in 1024 bytes.
INLINE u64 matrix(u32 at) { return (u64)((at & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; }

INLINE u32 rows_of(const u32* symbols) { return ROWS_N * symbols[0] + ROWS_P * symbols[1] + ROWS_C; }

// The weight that a group takes in a column of tiles, and the first of its outputs.
struct Place { u32 part, first; };
INLINE Place place_of(u32 column, u32 group) {
#if GATED
    return {HALVES ? group : 0, column * (M / 2) + (HALVES ? 0 : group * 32)};
#else
    const u32 unit = column * GROUPS + group;
#if PARTS > 2
    if (unit >= UNITS(O0) + UNITS(O1)) return {2, (unit - UNITS(O0) - UNITS(O1)) * 64};
#endif
#if PARTS > 1
    if (unit >= UNITS(O0)) return {1, (unit - UNITS(O0)) * 64};
#endif
    return {0, unit * 64};
#endif
}

INLINE float gated(float gate, float other) { return __fdividef(gate, 1.0f + __expf(-gate)) * other; }

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

#define R8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
// c = a b^T, added to c if `more`, for 64 outputs, some rows and 16 elements along K.
#if FORMAT >= 4
// Rows that are multiplied at once. Where a row is one turn, ptxas 13 takes the first sums of two such parts for one.
#define PART (GROUPS > 2 && STEPS > 2 ? 64 : 128)
#define TEMPS (GROUPS > 2 ? 1 : 2)    // sums of a group of 32 that are held at a time
#define TURNS (STEPS % 2 ? 1 : 2)     // stages of a turn
#if PART == 64
INLINE void multiply(float (&c)[32], const u32* a, u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %37, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));
}
#else
INLINE void multiply(float (&c)[64], const u32* a, u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %69, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24), R8(c, 32), R8(c, 40), R8(c, 48), R8(c, 56)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));
}
#endif
#else
INLINE void multiply(float (&c)[64], u64 a, u64 b, u32 more) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %66, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;}"
        : R8(c, 0), R8(c, 8), R8(c, 16), R8(c, 24), R8(c, 32), R8(c, 40), R8(c, 48), R8(c, 56)
        : "l"(a), "l"(b), "r"(more));
}
#endif
INLINE void before_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void after_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all but the last MORE groups of products.
template <int MORE, int LEN> INLINE void products(float (&c)[LEN]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(MORE) : "memory");
#pragma unroll
    for (int i = 0; i < LEN; i++) asm volatile("" : "+f"(c[i])::"memory");
}

#if FORMAT >= 4
// Elements 2t and 2t + 1 of 8, less the middle of their range, as f16: by way of 1024 + q and, in 4 bits, 1024 + 16 q. All of
// this is exact. Rows g and g + 8 of a group of 32, for two products of 16.
#if FORMAT == 4
INLINE u32 pair(u32 word, u32 byte_t, u32 factors) {
    const u32 both = __byte_perm(word, 0, byte_t);
    u32 r;
    asm("{.reg .b32 v;\n\tlop3.b32 v, %1, 0x00f0000f, 0x64006400, 0xea;\n\t"
        "fma.rn.f16x2 %0, v, %2, %3;}" : "=r"(r) : "r"(both), "r"(factors), "r"(0xd480e408));
    return r;
}
INLINE void words_of(u32 (&w)[4], u32 at) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
}
INLINE void unpack(u32 (&a)[8], u32 at, u32 at8, u32 t, u32 factors) {
    const u32 byte_t = 0x4040 | t << 8 | t;
    u32 w[4], v[4];
    words_of(w, at);
    words_of(v, at8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[2 * i] = pair(w[i], byte_t, factors);
        a[2 * i + 1] = pair(v[i], byte_t, factors);
    }
}
#else
INLINE u32 pair(u32 at) {
    u16 both;
    u32 r;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(both) : "r"(at) : "memory");
#if FLOAT
    // As f16 they have one more bit of exponent. Tensor cores lose what is subnormal there, so that they come 256 times as large.
    const u32 upper = __byte_perm(both, 0, 0x1404);
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"((upper & 0x80008000u) | (upper >> 1 & 0x3f803f80u)), "r"(0x5c005c00));
#else
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(__byte_perm(both, 0x64646464, 0x4140)), "r"(0xe480e480));
#endif
    return r;
}
INLINE void unpack(u32 (&a)[8], u32 at, u32 at8, u32 t, u32) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        a[2 * i] = pair((at ^ (i / 2 * 16)) + i % 2 * 8 + 2 * t);
        a[2 * i + 1] = pair((at8 ^ (i / 2 * 16)) + i % 2 * 8 + 2 * t);
    }
}
#endif
struct alignas(8) Scales { u32 w[2]; };
INLINE Scales scales_at(const u16* s) {
    Scales r = {};
#if K / STEP % 2
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(r.w[0]) : "l"(s));
#else
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(r.w[0]), "=r"(r.w[1]) : "l"(s));
#endif
    return r;
}
#endif

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1) matmul(
    const u16* x, const char* w0,
#if FORMAT >= 4
    const u16* s0,
#endif
#if PARTS > 1 || GATED
    const char* w1,
#if FORMAT >= 4
    const u16* s1,
#endif
#endif
#if PARTS > 2
    const char* w2,
#if FORMAT >= 4
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
    const u32* symbols, const __grid_constant__ Map x_map, const __grid_constant__ Map w0_map
#if PARTS > 1 || GATED
    , const __grid_constant__ Map w1_map
#endif
#if PARTS > 2
    , const __grid_constant__ Map w2_map
#endif
    ) {
    extern __shared__ __align__(1024) char memory[];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
    const u32 thread = threadIdx.x & 127, lane = thread & 31, group = threadIdx.x >> 7, rank = blockIdx.x & 1;
    const u32 ring = (address(memory) + 1023) & ~1023u, full_at = address(full), empty_at = address(empty);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            expect(full_at + 8 * s, 1);
            expect(empty_at + 8 * s, 2 * 4 * GROUPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet();
    launch_next();
    const u32 rows = rows_of(symbols), stack = (rows + N - 1) / N, tiles = stack * PAIRS;
    if (group == GROUPS) {
        // The one who fills the ring. The groups' registers are shared out anew.
#if GROUPS == 2
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
#elif GROUPS == 3
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
#endif
        if (thread == 0) {
            u32 slot = 0, parity = 1;
            bool waited = false;
            for (u32 tile = blockIdx.x >> 1; tile < tiles; tile += BLOCKS / 2) {
                const u32 row = tile % stack * N + rank * (N / 2);
                const u32 column = tile / stack * 2 + rank;
#pragma unroll 1
                for (u32 step = 0; step < STEPS; step++) {
                    await(empty_at + 8 * slot, parity);
                    const u32 told = full_at + 8 * slot, stage = ring + slot * STAGE, k = step * (FORMAT >= 4 ? STEP / 32 * FORMAT : STEP);
                    expect_bytes(told, STAGE);
#if GATED && !HALVES
                    bring(stage + X_BYTES, &w0_map, k, column * (M / 2), told, false);
                    bring(stage + X_BYTES + W_BYTES / 2, &w1_map, k, column * (M / 2), told, false);
#else
#pragma unroll
                    for (u32 i = 0; i < GROUPS; i++) {
                        const Place at = place_of(column, i);
                        const Map* w = &w0_map;
#if PARTS > 1 || GATED
                        if (at.part == 1) w = &w1_map;
#endif
#if PARTS > 2
                        if (at.part == 2) w = &w2_map;
#endif
                        bring(stage + X_BYTES + i * (64 * W_ROW), w, k, at.first, told, false);
                    }
#endif
                    if (!waited) {
                        wait_previous();
                        waited = true;
                    }
                    bring(stage + rank * (X_BYTES / 2), &x_map, step * STEP, row, told, true);
                    if (++slot == STAGES) { slot = 0; parity ^= 1; }
                }
            }
            if (!waited) wait_previous();
        }
    } else {
        // Those who multiply.
#if GROUPS == 2
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
#elif GROUPS == 3
        asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
#endif
        const u32 warp = thread >> 5, g = lane >> 2, t = lane & 3;
        u32 results = ring + STAGES * STAGE + group * OUT_BYTES;
#if HALVES
        // Between a group's own part of that memory and the other's.
        const u32 there = results ^ (ring + STAGES * STAGE + (group ^ 1) * OUT_BYTES);
#endif
        u32 slot = 0, parity = 0;
        auto leave = [&](u32 at) {
            if (lane < 2) arrive(empty_at + 8 * at, lane);
        };
        for (u32 tile = blockIdx.x >> 1; tile < tiles; tile += BLOCKS / 2) {
            u32 first_row = tile % stack * N;
            const Place at = place_of(tile / stack * 2 + rank, group);
            float c[N / 2];
#if FORMAT >= 4
            // Registers 4j + 2h + e of a thread are row g + 8h of its warp's 16 weights, row 8j + 2t + e of x.
            const u16* s[2];
            u32 line[2];
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
#if GATED
                const u32 row = warp * 8 + g;
                line[h] = h * (M / 2) + group * 32 + row;
                s[h] = (h ? s1 : s0) + (size_t)(at.first + row < O0 ? at.first + row : 0) * (K / 32);
#else
                const u32 row = warp * 16 + 8 * h + g;
                line[h] = group * 64 + row;
                const u16* from = s0;
                u32 width = O0;
#if PARTS > 1
                if (at.part == 1) { from = s1; width = O1; }
#endif
#if PARTS > 2
                if (at.part == 2) { from = s2; width = O2; }
#endif
                s[h] = from + (size_t)(at.first + row < width ? at.first + row : 0) * (K / 32);
#endif
                // The place of its first 16 bytes, swizzled over the row.
                line[h] = line[h] * W_ROW + (FORMAT == 4 ? line[h] >> 2 & 1 : line[h] >> 1 & 3) * 16;
            }
            // 1 and 1/16, as something that the compiler does not know and so keeps in a register: the grid is flat.
            const u32 factors = 0x2c003c00 * gridDim.z;
            float parts[TEMPS][PART / 2];
            u32 a[2][8];
            Scales now[2][(TURNS + 1) / 2], next[2][(TURNS + 1) / 2];
            auto fetch_scales = [&](u32 step) {
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int i = 0; i < (TURNS + 1) / 2; i++) next[h][i] = scales_at(s[h] + (step < STEPS ? step * 2 : 0) + 4 * i);
            };
            fetch_scales(0);
#pragma unroll
            for (int i = 0; i < N / 2; i++) c[i] = 0;
            await(full_at + 8 * slot, parity);
            unpack(a[0], ring + slot * STAGE + X_BYTES + line[0], ring + slot * STAGE + X_BYTES + line[1], t, factors);
            u32 before = slot;
#pragma unroll 1
            for (u32 step = 0; step < STEPS; step += TURNS) {
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int i = 0; i < (TURNS + 1) / 2; i++) now[h][i] = next[h][i];
                fetch_scales(step + TURNS);
                // Scales and adds up the sums of some rows of a group of 32.
                auto add = [&](int unit) {
                    const int q = unit / (N / PART), first = unit % (N / PART) * (PART / 2);
                    float scale[2];
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const u32 w = now[h][q >> 2].w[q >> 1 & 1];
                        scale[h] = (q & 1 ? high(w) : low(w)) * (FLOAT ? 1.0f / 256 : 1);
                    }
#pragma unroll
                    for (int i = 0; i < PART / 2; i++) {
                        c[first + i] = fmaf(parts[unit % TEMPS][i], scale[(i >> 1) & 1], c[first + i]);
                    }
                };
                // The weights of the group behind q; beyond a stage, when it is full.
                auto prepare = [&](int q) {
                    u32 ahead = ring + slot * STAGE + X_BYTES;
                    before = slot;
                    const bool more = step + TURNS < STEPS || q < TURNS * 2 - 1;
                    if (q & 1) {
                        if (++slot == STAGES) { slot = 0; parity ^= 1; }
                        ahead = ring + slot * STAGE + X_BYTES;
                        if (more) await(full_at + 8 * slot, parity);
                    }
                    if (more) {
                        const u32 turn = q & 1 ? 0 : W_ROW / 2;
                        unpack(a[(q & 1) ^ 1], ahead + (line[0] ^ turn), ahead + (line[1] ^ turn), t, factors);
                    }
                };
                constexpr int OF_GROUP = N / PART, OF_STAGE = 2 * OF_GROUP, ALL = TURNS * OF_STAGE;
#pragma unroll
                for (int unit = 0; unit < ALL; unit++) {
                    const int q = unit / OF_GROUP, part = unit % OF_GROUP;
                    // What was multiplied before has ended with the stage before.
                    const u64 b = matrix(ring + slot * STAGE) + (q & 1) * 4 + part * (PART * 8);
                    before_products();
                    multiply(parts[unit % TEMPS], a[q & 1], b, 0);
                    multiply(parts[unit % TEMPS], a[q & 1] + 4, b + 2, 1);
                    after_products();
#if TEMPS == 1
                    if (part == OF_GROUP - 1) prepare(q);
                    products<0>(parts[0]);
                    if (unit % OF_STAGE == OF_STAGE - 1) leave(before);
                    add(unit);
#else
                    if (unit > 0) {
                        products<1>(parts[(unit - 1) % TEMPS]);
                        if (unit % OF_STAGE == 0) leave(before);
                        add(unit - 1);
                    }
                    if (part == OF_GROUP - 1) prepare(q);
#endif
                }
#if TEMPS == 2
                products<0>(parts[(ALL - 1) % TEMPS]);
                leave(before);
                add(ALL - 1);
#endif
            }
#else
            // The groups end their runs at different times, so that the tensor cores are busy meanwhile.
            float part[N / 2];
            u32 run = RUN - group * (RUN / GROUPS);
            auto multiply_stage = [&](bool more) {
                await(full_at + 8 * slot, parity);
                const u32 stage = ring + slot * STAGE;
                const u64 a = matrix(stage + X_BYTES + group * 8192), b = matrix(stage);
                before_products();
#pragma unroll
                for (u32 i = 0; i < STEP / 16; i++) multiply(part, a + 2 * i, b + 2 * i, more || i > 0);
                after_products();
            };
#pragma unroll
            for (int i = 0; i < N / 2; i++) c[i] = 0;
#pragma unroll 1
            for (u32 step = 0; step < STEPS; run = RUN) {
                const u32 end = step + run < STEPS ? step + run : STEPS;
                multiply_stage(false);
#pragma unroll 1
                while (++step < end) {
                    const u32 before = slot;
                    if (++slot == STAGES) { slot = 0; parity ^= 1; }
                    multiply_stage(true);
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    leave(before);
                }
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                leave(slot);
                if (++slot == STAGES) { slot = 0; parity ^= 1; }
                products<0>(part);
#pragma unroll
                for (int i = 0; i < N / 2; i++) c[i] += part[i];
            }
#endif
            // What is ready, to its place.
            out_t* y = y0;
            u32 width = O0;
#if PARTS > 1
            if (at.part == 1) { y = y1; width = O1; }
#endif
#if PARTS > 2
            if (at.part == 2) { y = y2; width = O2; }
#endif
#if HALVES
            // The first group takes the upper rows, and gives the second the gates of the lower ones for the others of its own.
            first_row += group * ROWS;
            asm volatile("bar.sync 3, 256;" ::: "memory");
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(results + (i * 128 + thread) * 4), "f"(group ? c[i] : c[N / 4 + i]) : "memory");
            }
            asm volatile("bar.sync 3, 256;" ::: "memory");
            results ^= there;
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                float given;
                asm volatile("ld.shared.f32 %0, [%1];" : "=f"(given) : "r"(results + (i * 128 + thread) * 4) : "memory");
                c[i] = group ? gated(given, c[N / 4 + i]) : gated(c[i], given);
            }
#elif GATED
#pragma unroll
            for (int i = 0; i < N / 2; i += 4) {
                c[i] = gated(c[i], c[i + 2]);
                c[i + 1] = gated(c[i + 1], c[i + 3]);
            }
#endif
#if BIAS
            const void* bias = b0;
#if PARTS > 1
            if (at.part == 1) bias = b1;
#endif
#if PARTS > 2
            if (at.part == 2) bias = b2;
#endif
#pragma unroll
            for (int h = 0; h < PIECES; h++) {
                const u32 output = at.first + warp * (8 * PIECES) + 8 * h + g;
                const float b = output < width ? bias_of(bias, output) : 0;
#pragma unroll
                for (int i = 0; i < ROWS / 2; i += 4) {
                    c[i + 2 * h] += b;
                    c[i + 2 * h + 1] += b;
                }
            }
#endif
#if OUT_F32
#pragma unroll
            for (int i = 0; i < ROWS / 2; i++) {
                const u32 row = first_row + i / 4 * 8 + t * 2 + (i & 1), output = at.first + warp * (8 * PIECES) + (i >> 1 & 1) * 8 + g;
                if (row < rows && output < width && (i >> 1 & 1) < PIECES) y[(size_t)row * width + output] = c[i];
            }
#else
            asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
            auto place = [&](u32 row, u32 piece) {
                return results + row * OUT_ROW + ((piece ^ (PIECES == 2 ? row & 7 : row >> 1 & 3)) << 4);
            };
            // Four matrices of 8 outputs by 8 rows at a time, turned.
#pragma unroll
            for (int j = 0; j < ROWS / 8; j += 4 / PIECES) {
                u32 v[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int from = 4 * (j + i / PIECES) + i % PIECES * 2;
                    v[i] = pack(c[from], c[from + 1]);
                }
                const u32 quarter = lane >> 3;
                asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                    ::"r"(place((j + quarter / PIECES) * 8 + (lane & 7), warp * PIECES + quarter % PIECES)),
                      "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
            }
            asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
            const u32 piece = thread % (4 * PIECES), output = at.first + piece * 8;
#pragma unroll
            for (u32 i = 0; i < ROWS; i += 32 / PIECES) {
                const u32 row = i + thread / (4 * PIECES);
                Words v;
                asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                    : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(place(row, piece)) : "memory");
                if (first_row + row < rows && output < width) *(Words*)(y + (size_t)(first_row + row) * width + output) = v;
            }
#if HALVES
            results ^= there;
#endif
#endif
        }
    }
    // A block that has ended can be told nothing.
    meet();
}
